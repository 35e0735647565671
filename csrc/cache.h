/* Which block is in which slot, and what may be done with it: index, eviction policy and the state
 * of every slot. The cache knows no bytes; its owner copies them between the calls that begin and
 * end a store or a load.
 *
 * A slot goes free -> writing -> ready -> free. While it is being written, or read by a load, or
 * promised by a lookup in the running step, it is not evicted.
 *
 * One lock, the cache lock, guards all of it; every function takes it, for the time of a few keys
 * or of one call's keys, and never during a copy. Any thread may call.
 *
 * The keys that a function takes are the caller's; it sets their `hash` and `slot`. */
#ifndef KVREG_CACHE_H
#define KVREG_CACHE_H

#include "index.h"
#include "os.h"
#include "policy.h"

enum { KVREG_SLOTS_MAX = 0x7fffffff };

typedef enum kvreg_found { KVREG_MISS, KVREG_HIT, KVREG_RETRY } kvreg_found;

typedef struct kvreg_cache_stats {
    uint64_t hits, misses, retries; /* lookups by result */
    uint64_t evictions;             /* blocks given up for others */
    uint64_t dropped;               /* blocks of stores for which there was no slot */
    uint64_t absent;                /* blocks of loads that were not ready */
    uint32_t used;                  /* slots that hold a block, or are getting one */
    uint32_t pinned;                /* slots that a load is reading */
} kvreg_cache_stats;

/* One process's view of a cache: pointers into its region, which holds none itself. */
typedef struct kvreg_cache {
    struct kvreg_region *region;
    const kvreg_policy *policy;
    void *policy_state;
    kvreg_index index;
    kvreg_slot *slots;
    kvreg_slot_rest *rests;
} kvreg_cache;

/* A block that a store or load is to copy. */
typedef struct kvreg_cache_block {
    uint32_t slot;
    uint32_t key; /* its position in the call's keys */
} kvreg_cache_block;

/* Bytes of the region of a cache. */
size_t kvreg_cache_region_bytes(uint32_t slots, const kvreg_policy *policy);

/* Makes an empty cache of 1 to KVREG_SLOTS_MAX slots in zeroed, page-aligned memory of
 * kvreg_cache_region_bytes. */
void kvreg_cache_init(kvreg_cache *cache, void *region, uint32_t slots,
                      const kvreg_policy *policy);
void kvreg_cache_destroy(kvreg_cache *cache);

/* Says whether a block can be loaded, and promises a hit until the step ends. */
kvreg_found kvreg_cache_lookup(kvreg_cache *cache, kvreg_key *key);

/* Notes a use of the keys' blocks, tail first. */
void kvreg_cache_touch(kvreg_cache *cache, kvreg_key *keys, size_t n);

/* Finds slots for a request's blocks, in prefix order. Keys that are present or being written, and
 * duplicates, need none. Evicts where it must; what finds no slot is dropped, from the tail, and
 * never a block of the same call for another. All that stay count as used, tail first. Fills
 * blocks[] (room for n) with those to write, in order, whose slots are then being written. Returns
 * their number; *dropped is how many keys found no slot. */
size_t kvreg_cache_begin_store(kvreg_cache *cache, kvreg_key *keys, size_t n,
                               kvreg_cache_block *blocks, size_t *dropped);

/* The bytes of these slots are complete. */
void kvreg_cache_end_store(kvreg_cache *cache, const uint32_t *slots, size_t n);

/* Pins the slots of a request's blocks that are ready, and counts them as used, tail first. Fills
 * blocks[] (room for n) with them, in order, and returns their number. */
size_t kvreg_cache_begin_load(kvreg_cache *cache, kvreg_key *keys, size_t n,
                              kvreg_cache_block *blocks);

/* These slots have been read. */
void kvreg_cache_end_load(kvreg_cache *cache, const uint32_t *slots, size_t n);

/* Ends the step: its promises are void. */
void kvreg_cache_end_step(kvreg_cache *cache);

void kvreg_cache_read_stats(kvreg_cache *cache, kvreg_cache_stats *stats);

#endif
