#include "hash_table.h"

/* On average, when every position is in: as few as metadata of 128 bytes a slot leave room for. */
enum { POSITIONS_IN_TWO_GROUPS = 13 };

/* Of positions that are removed in order: the hash first, then its group. */
enum { HASH_AHEAD = 16, GROUP_AHEAD = 4 };

static uint32_t group_count(uint32_t room)
{
    return (uint32_t)((uint64_t)room * 2 / POSITIONS_IN_TWO_GROUPS + 1);
}

size_t kvreg_hash_table_bytes(uint32_t room)
{
    return sizeof(kvreg_hash_table) + group_count(room) * sizeof(kvreg_group) +
           room * sizeof(uint64_t);
}

void kvreg_hash_table_init(kvreg_hash_table *table, uint32_t room)
{
    table->room = room;
    table->group_count = group_count(room);
}

static kvreg_groups groups_of(const kvreg_hash_table *table)
{
    return (kvreg_groups){ (kvreg_group *)table->groups, table->group_count };
}

static uint64_t *hash_at(const kvreg_hash_table *table, uint32_t position)
{
    return (uint64_t *)(table->groups + table->group_count) + position;
}

/* As it is kept: not 0, which marks positions that are not in. */
static uint64_t kept(uint64_t hash)
{
    return hash == 0 ? 1 : hash;
}

bool kvreg_hash_table_holds(const kvreg_hash_table *table, uint32_t position, uint64_t hash)
{
    return *hash_at(table, position) == kept(hash);
}

static bool holds(const void *owner, uint32_t number, const void *sought)
{
    return kvreg_hash_table_holds(owner, number, *(const uint64_t *)sought);
}

/* KVREG_NO_NUMBER is KVREG_NO_POSITION. */
uint32_t kvreg_hash_table_find(const kvreg_hash_table *table, uint64_t hash)
{
    return kvreg_groups_find(groups_of(table), kvreg_groups_half(hash), holds, table, &hash);
}

void kvreg_hash_table_add(kvreg_hash_table *table, uint32_t position, uint64_t hash)
{
    kvreg_groups_insert(groups_of(table), kvreg_groups_half(hash), position);
    *hash_at(table, position) = kept(hash);
}

void kvreg_hash_table_remove(kvreg_hash_table *table, uint32_t position)
{
    uint64_t *hash = hash_at(table, position);
    if (*hash == 0)
        return;
    kvreg_groups_remove(groups_of(table), kvreg_groups_half(*hash), position);
    *hash = 0;
}

void kvreg_hash_table_prefetch(const kvreg_hash_table *table, uint32_t half)
{
    kvreg_groups_prefetch(groups_of(table), half);
}

void kvreg_hash_table_prefetch_following(const kvreg_hash_table *table, uint32_t position)
{
    if (position + HASH_AHEAD < table->room)
        __builtin_prefetch(hash_at(table, position + HASH_AHEAD), 1);
    if (position + GROUP_AHEAD < table->room) {
        uint64_t hash = *hash_at(table, position + GROUP_AHEAD);
        kvreg_groups_prefetch(groups_of(table), kvreg_groups_half(hash));
    }
}
