#include "ghosts.h"

#include "hash_table.h"

/* The table's positions are a ring: a ghost that is taken leaves its place empty. */
struct kvreg_ghosts {
    _Alignas(64) uint32_t next; /* position for the next ghost: the oldest's, once the ring is full.
                                 * The table lies behind */
};

static kvreg_hash_table *table_of(const kvreg_ghosts *ghosts)
{
    return (kvreg_hash_table *)(ghosts + 1);
}

size_t kvreg_ghosts_bytes(uint32_t room)
{
    return sizeof(kvreg_ghosts) + kvreg_hash_table_bytes(room);
}

void kvreg_ghosts_init(kvreg_ghosts *ghosts, uint32_t room)
{
    kvreg_hash_table_init(table_of(ghosts), room);
}

void kvreg_ghosts_add(kvreg_ghosts *ghosts, uint64_t hash)
{
    kvreg_hash_table *table = table_of(ghosts);
    uint32_t position = ghosts->next;
    kvreg_hash_table_prefetch_following(table, position);
    kvreg_hash_table_remove(table, position);
    kvreg_hash_table_add(table, position, hash);
    ghosts->next = position + 1 == table->room ? 0 : position + 1;
}

bool kvreg_ghosts_take(kvreg_ghosts *ghosts, uint64_t hash)
{
    kvreg_hash_table *table = table_of(ghosts);
    uint32_t position = kvreg_hash_table_find(table, hash);
    if (position == KVREG_NO_POSITION)
        return false;
    kvreg_hash_table_remove(table, position);
    return true;
}

void kvreg_ghosts_prefetch(const kvreg_ghosts *ghosts, uint32_t half)
{
    kvreg_hash_table_prefetch(table_of(ghosts), half);
}
