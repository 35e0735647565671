/* Key -> slot, exact: the whole key is stored and compared.
 *
 * An open-addressed table at most half full, probed linearly. An entry holds a slot's number and
 * 32 bits of the key's hash, so that a probe leaves the table only for a key that is most likely
 * the right one. Removal closes the gap it makes; there are no tombstones, and the time of a
 * lookup does not depend on what came and went before.
 *
 * The index guards nothing: its owner's lock does. It lives in memory that others map at other
 * addresses, and holds no pointers there; this struct is one process's view of it. */
#ifndef KVREG_INDEX_H
#define KVREG_INDEX_H

#include <stdbool.h>
#include <stddef.h>

#include "slot.h"

/* A key that a caller holds. */
typedef struct kvreg_key {
    const uint8_t *data;
    uint64_t hash;  /* set by kvreg_index_hash */
    uint32_t slot;  /* for the user of the index to note what it found */
    uint16_t bytes; /* 1 to KVREG_KEY_MAX */
    bool used;      /* this and the next for the user's eviction policy, see policy.h */
    uint32_t note;
} kvreg_key;

typedef struct kvreg_index_entry {
    uint32_t hash;
    uint32_t slot_after; /* 1 + the slot's number; 0: the entry is empty */
} kvreg_index_entry;

typedef struct kvreg_index {
    uint64_t seed; /* of the hash: what a key collides with cannot be foreseen */
    uint32_t size; /* entries in the table */
    kvreg_index_entry *entries;
    kvreg_slot *slots;
    kvreg_slot_rest *rests;
} kvreg_index;

/* Entries that a table for `slots` slots has. */
uint32_t kvreg_index_size(uint32_t slots);

/* Computes key->hash. */
void kvreg_index_hash(const kvreg_index *index, kvreg_key *key);

/* The hash of the key that `slot` holds. */
uint64_t kvreg_index_hash_of(const kvreg_index *index, uint32_t slot);

/* The slot that holds the key, or KVREG_NO_SLOT. */
uint32_t kvreg_index_find(const kvreg_index *index, const kvreg_key *key);

/* Makes `slot`, which is in no entry, hold the key, which is in no slot. */
void kvreg_index_insert(kvreg_index *index, const kvreg_key *key, uint32_t slot);

/* Forgets the key that `slot` holds. */
void kvreg_index_remove(kvreg_index *index, uint32_t slot);

/* Bring near what kvreg_index_find will read for a key with this hash: first the entry, then, some
 * time later, the slot. Of a batch of keys the misses then overlap. */
void kvreg_index_prefetch_entry(const kvreg_index *index, uint64_t hash);
void kvreg_index_prefetch_slot(const kvreg_index *index, uint64_t hash);

#endif
