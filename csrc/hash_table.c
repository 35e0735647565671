#include "hash_table.h"

/* On average, when every position is in: metadata has to be small. */
enum { POSITIONS_A_GROUP = 7 };

static uint32_t group_count(uint32_t room)
{
    return (room - 1) / POSITIONS_A_GROUP + 1;
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

void kvreg_hash_table_prefetch_position(const kvreg_hash_table *table, uint32_t position)
{
    kvreg_groups_prefetch(groups_of(table), kvreg_groups_half(*hash_at(table, position)));
}
