/* Key -> slot, exact: the whole key is stored and compared.
 *
 * A hash table (groups.h) of the slots' numbers. Its groups are half full when every slot holds a
 * key.
 *
 * The index guards nothing: its owner's lock does. It lives in memory that others map at other
 * addresses, and holds no pointers there; this struct is one process's view of it. */
#ifndef KVREG_INDEX_H
#define KVREG_INDEX_H

#include <stdbool.h>
#include <stddef.h>

#include "groups.h"
#include "slot.h"

/* A key that a caller holds. */
typedef struct kvreg_key {
    const uint8_t *data;
    uint64_t hash;  /* set by kvreg_index_hash */
    uint32_t slot;  /* for the user of the index to note what it found */
    uint16_t bytes; /* 1 to KVREG_KEY_MAX */
    bool used;      /* this and the next two for the user's eviction policy, see policy.h */
    int8_t rank;
    uint32_t note;
} kvreg_key;

typedef struct kvreg_index {
    uint64_t seed; /* of the hash: what a key collides with cannot be foreseen */
    kvreg_groups table;
    kvreg_slot *slots;
    kvreg_slot_rest *rests;
} kvreg_index;

/* Groups that a table for `slots` slots, at least 1, has. */
uint32_t kvreg_index_group_count(uint32_t slots);

/* Computes key->hash. */
void kvreg_index_hash(const kvreg_index *index, kvreg_key *key);

/* The hash of the key that `slot` holds. */
uint64_t kvreg_index_hash_of(const kvreg_index *index, uint32_t slot);

/* The slot that holds the key, or KVREG_NO_SLOT. */
uint32_t kvreg_index_find(const kvreg_index *index, const kvreg_key *key);

/* Makes `slot`, which holds no key, hold the key, which is in no slot. */
void kvreg_index_insert(kvreg_index *index, const kvreg_key *key, uint32_t slot);

/* Forgets the key that `slot` holds. */
void kvreg_index_remove(kvreg_index *index, uint32_t slot);

/* Bring near what kvreg_index_find will read for a key with this hash: first its group, then, some
 * time later, the slot. Of a batch of keys the misses then overlap. */
void kvreg_index_prefetch_group(const kvreg_index *index, uint64_t hash);
void kvreg_index_prefetch_slot(const kvreg_index *index, uint64_t hash);

/* Brings near the group of the key that `slot` holds, whose first line is near. */
void kvreg_index_prefetch_group_of(const kvreg_index *index, uint32_t slot);

#endif
