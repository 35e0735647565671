#include "index.h"

#include <string.h>

/* -- Hash ---------------------------------------------------------------------------------- */

void kvreg_index_hash(const kvreg_index *index, kvreg_key *key)
{
    key->hash = kvreg_hash(&index->seed, key->data, key->bytes);
}

/* The hash of the key that a slot holds. */
static uint64_t hash_of(const kvreg_index *index, uint32_t number)
{
    const kvreg_slot *slot = &index->slots[number];
    if (slot->key_bytes <= KVREG_KEY_NEAR)
        return kvreg_hash(&index->seed, slot->key, slot->key_bytes);
    uint8_t whole[KVREG_KEY_MAX];
    memcpy(whole, slot->key, KVREG_KEY_NEAR);
    memcpy(whole + KVREG_KEY_NEAR, index->rests[number].key, KVREG_KEY_MAX - KVREG_KEY_NEAR);
    return kvreg_hash(&index->seed, whole, slot->key_bytes);
}

/* -- Table --------------------------------------------------------------------------------- */

/* On average, at most: so many are needed for S3-FIFO's ghosts to fit into metadata of 128 bytes a
 * slot. A key that was passed on stays where it is when its home has room again: of the groups of a
 * table whose keys come and go, one in twelve counts such keys. With 8 a group it would be one in
 * three. */
enum { NUMBERS_IN_TWO_GROUPS = 13 };

uint32_t kvreg_index_group_count(uint32_t slots, uint32_t ghosts)
{
    return (uint32_t)((((uint64_t)slots + ghosts) * 2 - 1) / NUMBERS_IN_TWO_GROUPS + 1);
}

static uint32_t near_bytes(const kvreg_key *key)
{
    return key->bytes < KVREG_KEY_NEAR ? key->bytes : KVREG_KEY_NEAR;
}

static uint64_t *ghost_at(const kvreg_index *index, uint32_t ghost)
{
    return &index->ghosts[ghost - index->slot_count];
}

static bool slot_holds(const kvreg_index *index, uint32_t number, const kvreg_key *key)
{
    const kvreg_slot *slot = &index->slots[number];
    if (slot->hash != kvreg_groups_half(key->hash) || slot->key_bytes != key->bytes)
        return false;
    uint32_t near = near_bytes(key);
    return memcmp(slot->key, key->data, near) == 0 &&
           (near == key->bytes ||
            memcmp(index->rests[number].key, key->data + near, key->bytes - near) == 0);
}

/* Whether the number is that of the key's slot; notes it if it is that of the key's ghost. */
static bool holds(const void *owner, uint32_t number, void *sought)
{
    const kvreg_index *index = owner;
    kvreg_key *key = sought;
    if (number < index->slot_count)
        return slot_holds(index, number, key);
    if (*ghost_at(index, number) == key->hash)
        key->ghost = number;
    return false;
}

/* KVREG_NO_NUMBER is KVREG_NO_SLOT. */
uint32_t kvreg_index_find(const kvreg_index *index, kvreg_key *key)
{
    key->ghost = KVREG_NO_SLOT;
    return kvreg_groups_find(index->table, kvreg_groups_half(key->hash), holds, index, key);
}

static void store_key(kvreg_index *index, uint32_t number, const kvreg_key *key)
{
    kvreg_slot *slot = &index->slots[number];
    uint32_t near = near_bytes(key);
    slot->hash = kvreg_groups_half(key->hash);
    slot->key_bytes = (uint8_t)key->bytes;
    memcpy(slot->key, key->data, near);
    if (near < key->bytes)
        memcpy(index->rests[number].key, key->data + near, key->bytes - near);
}

void kvreg_index_insert(kvreg_index *index, const kvreg_key *key, uint32_t slot)
{
    kvreg_groups_insert(index->table, kvreg_groups_half(key->hash), slot);
    store_key(index, slot, key);
}

void kvreg_index_remove(kvreg_index *index, uint32_t slot)
{
    kvreg_groups_remove(index->table, index->slots[slot].hash, slot);
}

void kvreg_index_make_ghost(kvreg_index *index, uint32_t slot, uint32_t ghost)
{
    *ghost_at(index, ghost) = hash_of(index, slot);
    kvreg_groups_rename(index->table, index->slots[slot].hash, slot, ghost);
}

void kvreg_index_add_ghost(kvreg_index *index, const kvreg_key *key, uint32_t ghost)
{
    *ghost_at(index, ghost) = key->hash;
    kvreg_groups_insert(index->table, kvreg_groups_half(key->hash), ghost);
}

void kvreg_index_remove_ghost(kvreg_index *index, uint32_t ghost)
{
    uint64_t *hash = ghost_at(index, ghost);
    if (*hash == 0)
        return;
    kvreg_groups_remove(index->table, kvreg_groups_half(*hash), ghost);
    *hash = 0;
}

bool kvreg_index_is_ghost_of(const kvreg_index *index, const kvreg_key *key, uint32_t ghost)
{
    return ghost != KVREG_NO_SLOT && *ghost_at(index, ghost) == key->hash;
}

/* -- Prefetches ---------------------------------------------------------------------------- */

/* Of ghosts that are removed in order: the hash first, then its group. */
enum { HASH_AHEAD = 16, GROUP_AHEAD = 4 };

void kvreg_index_prefetch_group(const kvreg_index *index, uint64_t hash)
{
    kvreg_groups_prefetch(index->table, kvreg_groups_half(hash));
}

void kvreg_index_prefetch_entry(const kvreg_index *index, uint64_t hash)
{
    /* Most keys are where their tag is found first in their home; to go on costs more than it
     * gains. */
    uint32_t half = kvreg_groups_half(hash);
    const kvreg_group *group = &index->table.groups[kvreg_groups_home(index->table, half)];
    uint32_t places = kvreg_group_places_with(group, kvreg_groups_tag(half));
    if (places == 0)
        return;
    uint32_t number = group->numbers[kvreg_group_first_of(places)];
    if (number < index->slot_count)
        __builtin_prefetch(&index->slots[number], 1);
    else
        __builtin_prefetch(ghost_at(index, number), 1);
}

void kvreg_index_prefetch_group_of(const kvreg_index *index, uint32_t slot)
{
    kvreg_groups_prefetch(index->table, index->slots[slot].hash);
}

void kvreg_index_prefetch_ghosts_behind(const kvreg_index *index, uint32_t ghost)
{
    uint32_t behind = index->slot_count + index->ghost_count - ghost;
    if (HASH_AHEAD < behind)
        __builtin_prefetch(ghost_at(index, ghost + HASH_AHEAD), 1);
    if (GROUP_AHEAD < behind)
        kvreg_groups_prefetch(index->table,
                              kvreg_groups_half(*ghost_at(index, ghost + GROUP_AHEAD)));
}
