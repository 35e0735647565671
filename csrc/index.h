/* Key -> slot, exact: the whole key is stored and compared. Of keys that no slot holds it finds the
 * ghosts: those whose hashes an eviction policy had it keep.
 *
 * A hash table (groups.h) of numbers: those of slots, and from slot_count on those of ghosts, which
 * the policy chooses. Its groups are little more than half full when every slot holds a key and
 * every number that ghosts may have is a ghost's. Of two keys with the same 64-bit hash one is
 * taken for the other's ghost, which nobody can bring about who does not know the seed: see hash.h.
 *
 * The index guards nothing: its owner's lock does. It lives in memory that others map at other
 * addresses, and holds no pointers there; this struct is one process's view of it. */
#ifndef KVREG_INDEX_H
#define KVREG_INDEX_H

#include <stdbool.h>
#include <stddef.h>

#include "groups.h"
#include "hash.h"
#include "slot.h"

/* A key that a caller holds. */
typedef struct kvreg_key {
    const uint8_t *data;
    uint64_t hash;  /* set by kvreg_index_hash; never 0 */
    uint32_t slot;  /* for the user of the index to note what it found */
    uint32_t ghost; /* set by kvreg_index_find: the ghost, where there is no slot, or KVREG_NO_SLOT.
                     * May be another key's once ghosts were made or removed */
    uint16_t bytes; /* 1 to KVREG_KEY_MAX */
    bool used;      /* this and the next for the user's eviction policy, see policy.h */
    int8_t rank;
} kvreg_key;

typedef struct kvreg_index {
    kvreg_hash_seed seed; /* random: what a key collides with cannot be foreseen */
    kvreg_groups table;
    kvreg_slot *slots;
    kvreg_slot_rest *rests;
    uint64_t *ghosts; /* hashes, of ghost slot_count first; 0: there is no ghost of this number */
    uint32_t slot_count;
    uint32_t ghost_count; /* numbers that ghosts may have */
} kvreg_index;

/* Groups that a table for so many slots and ghosts, at least 1 of them, has. */
uint32_t kvreg_index_group_count(uint32_t slots, uint32_t ghosts);

/* Computes key->hash. */
void kvreg_index_hash(const kvreg_index *index, kvreg_key *key);

/* The slot that holds the key, or KVREG_NO_SLOT. Sets key->ghost, which means nothing where there is
 * a slot. */
uint32_t kvreg_index_find(const kvreg_index *index, kvreg_key *key);

/* Makes `slot`, which holds no key, hold the key, which is in no slot. A ghost of the key stays. */
void kvreg_index_insert(kvreg_index *index, const kvreg_key *key, uint32_t slot);

/* Forgets the key that `slot` holds. */
void kvreg_index_remove(kvreg_index *index, uint32_t slot);

/* The same, and makes it a ghost, of a number that none has. */
void kvreg_index_make_ghost(kvreg_index *index, uint32_t slot, uint32_t ghost);

/* Makes a key a ghost, of a number that none has. */
void kvreg_index_add_ghost(kvreg_index *index, const kvreg_key *key, uint32_t ghost);

/* Forgets a ghost; nothing happens when there is none of this number. */
void kvreg_index_remove_ghost(kvreg_index *index, uint32_t ghost);

/* Whether there is a ghost of this number, or KVREG_NO_SLOT, and it is the key's. */
bool kvreg_index_is_ghost_of(const kvreg_index *index, const kvreg_key *key, uint32_t ghost);

/* Bring near what kvreg_index_find will read for a key with this hash: first its group, then, some
 * time later, the slot or ghost. Of a batch of keys the misses then overlap. */
void kvreg_index_prefetch_group(const kvreg_index *index, uint64_t hash);
void kvreg_index_prefetch_entry(const kvreg_index *index, uint64_t hash);

/* Brings near the group of the key that `slot` holds, whose first line is near. */
void kvreg_index_prefetch_group_of(const kvreg_index *index, uint32_t slot);

/* Brings near what removing the ghosts of the numbers behind this one will touch, when they are
 * removed one by one in that order. */
void kvreg_index_prefetch_ghosts_behind(const kvreg_index *index, uint32_t ghost);

#endif
