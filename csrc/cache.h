/* Which block is in which slot, and what may be done with it: index, eviction policy and the state
 * of every slot. The cache knows no bytes; its owner copies them between the calls that begin and
 * end a store or a load.
 *
 * A slot goes free -> writing -> ready -> free. While it is being written, or read by a load, or
 * promised by a lookup in the running step, it is not evicted. A block that is forgotten while a
 * load reads it is in no lookup any more; its slot is free when the last such load ends.
 *
 * One lock, the cache lock, guards all of it. Every function takes it, never during a copy: for the
 * time of a few keys or of one call's keys, kvreg_cache_clear again and again for that of some slots,
 * and kvreg_cache_end_step for that of the slots that searches of the step passed over. Any thread
 * may call.
 *
 * The keys that a function takes are the caller's, who sets their `data` and `bytes`; the rest is
 * for the function to use. */
#ifndef KVREG_CACHE_H
#define KVREG_CACHE_H

#include "events.h"
#include "index.h"
#include "os.h"
#include "policy.h"

typedef enum kvreg_found { KVREG_MISS, KVREG_HIT, KVREG_RETRY } kvreg_found;

typedef struct kvreg_cache_stats {
    uint64_t hits, misses, retries; /* lookups by result */
    uint64_t evictions;             /* blocks given up for others */
    /* Keys of stores for which there was no slot, by what held the slots: */
    uint64_t dropped_oversized; /* blocks of the same job */
    uint64_t dropped_promised;  /* promises of the running step, at least some */
    uint64_t dropped_busy;      /* copies in flight */
    uint64_t declined;              /* keys of stores whose block the policy did not admit */
    uint64_t absent;            /* keys of loads whose block was not ready */
    uint64_t rejected;          /* blocks of loads whose bytes were found to be wrong */
    uint64_t groups;            /* bit g: a block of KV-cache group g, below 64, was stored */
    uint32_t used;              /* slots that are not free */
    uint32_t pinned;            /* slots that a load is reading */
    uint32_t promised;          /* slots that hold a promise of the running step */
} kvreg_cache_stats;

/* One process's view of a cache: pointers into its region, which holds none itself. */
typedef struct kvreg_cache {
    struct kvreg_region *region;
    const kvreg_policy *policy;
    void *policy_state;
    kvreg_index index;
    kvreg_slot *slots;
    kvreg_slot_rest *rests;
    bool watched;        /* whether events are kept; constant */
    kvreg_events events; /* under the cache lock */
} kvreg_cache;

/* A block that a store or load is to copy. */
typedef struct kvreg_cache_block {
    uint32_t slot;
    uint32_t key; /* its position in the call's keys */
} kvreg_cache_block;

/* Bytes of the region of a cache. */
size_t kvreg_cache_region_bytes(uint32_t slots, const kvreg_policy *policy);

/* Makes an empty cache of 1 to KVREG_SLOTS_MAX slots in zeroed, page-aligned memory of
 * kvreg_cache_region_bytes. `watched`: keep events until they are taken. */
void kvreg_cache_init(kvreg_cache *cache, void *region, uint32_t slots,
                      const kvreg_policy *policy, bool watched);

/* Ends the use of the region. Events that were not taken stay, for the caller to free. */
void kvreg_cache_destroy(kvreg_cache *cache);

/* Says whether a block can be loaded, and promises a hit until the step ends. */
kvreg_found kvreg_cache_lookup(kvreg_cache *cache, kvreg_key *key);

/* Notes a use of a request's keys, in prefix order; tail first, and whether they have blocks or not,
 * as far as the policy minds. */
void kvreg_cache_touch(kvreg_cache *cache, kvreg_key *keys, size_t n, const kvreg_use *by);

/* What became of a store's keys. Those in none of the counts were here before, or came twice. */
typedef struct kvreg_cache_placed {
    size_t blocks;   /* to write */
    size_t dropped;  /* keys that found no slot */
    size_t declined; /* keys that the policy did not admit */
} kvreg_cache_placed;

/* Finds slots for a request's blocks, in prefix order, which count as used, tail first. Keys that
 * are present or being written, and duplicates, need none; those that the policy does not admit get
 * none. Evicts where it must; what finds no slot is dropped, from the tail, and never a block of the
 * same call for another. Fills blocks[] (room for n) with those to write, in order, whose slots are
 * then being written. False, and nothing changed, when there is no memory for the events. */
bool kvreg_cache_begin_store(kvreg_cache *cache, kvreg_key *keys, size_t n, const kvreg_use *by,
                             kvreg_cache_block *blocks, kvreg_cache_placed *placed);

/* The bytes of these slots are complete. */
void kvreg_cache_end_store(kvreg_cache *cache, const uint32_t *slots, size_t n);

/* Pins the slots of a request's blocks that are ready, and counts the keys as used, tail first. Fills
 * blocks[] (room for n) with them, in order; *found is their number. False, and nothing changed,
 * when there is no memory for the events. */
bool kvreg_cache_begin_load(kvreg_cache *cache, kvreg_key *keys, size_t n, const kvreg_use *by,
                            kvreg_cache_block *blocks, size_t *found);

/* These slots have been read. */
void kvreg_cache_end_load(kvreg_cache *cache, const uint32_t *slots, size_t n);

/* These slots have been read, and their bytes are wrong: forgets their blocks. */
void kvreg_cache_reject_load(kvreg_cache *cache, const uint32_t *slots, size_t n);

/* Forgets every block that is ready when this is called, promised ones too, one after the other:
 * other threads' calls come in between, and find those whose turn is still to come. A block that
 * they store in the meantime may be forgotten or not. False, and nothing changed, when there is no
 * memory for the events. */
bool kvreg_cache_clear(kvreg_cache *cache);

/* Ends the step: its promises are void. */
void kvreg_cache_end_step(kvreg_cache *cache);

/* Where the checksum of a slot's bytes is kept; see slot.h for who may touch it. */
uint32_t *kvreg_cache_checksum(kvreg_cache *cache, uint32_t slot);

/* As kvreg_events_take. */
bool kvreg_cache_take_events(kvreg_cache *cache, kvreg_event **list, size_t *count);

void kvreg_cache_read_stats(kvreg_cache *cache, kvreg_cache_stats *stats);

#endif
