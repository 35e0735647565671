/* 64-bit hash -> position: a hash table (groups.h) over the positions of an array that its owner
 * keeps. Hashes are told apart by all their bits; only 0 is taken for 1.
 *
 * It lives in memory that others map at other addresses, and holds no pointers. It guards nothing:
 * its owner's lock does. */
#ifndef KVREG_HASH_TABLE_H
#define KVREG_HASH_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "groups.h"

enum { KVREG_NO_POSITION = 0xffffffff };

typedef struct kvreg_hash_table {
    uint32_t room;        /* positions */
    uint32_t group_count;
    kvreg_group groups[]; /* behind them, of each position the hash, uint64_t; 0: it is not in */
} kvreg_hash_table;

/* Bytes for `room` positions, 1 to 2^31 - 1. */
size_t kvreg_hash_table_bytes(uint32_t room);

/* Makes zeroed memory, aligned to a cache line, hold no position. */
void kvreg_hash_table_init(kvreg_hash_table *table, uint32_t room);

/* A position with this hash; KVREG_NO_POSITION when there is none. */
uint32_t kvreg_hash_table_find(const kvreg_hash_table *table, uint64_t hash);

/* Whether a position is in, under this hash. */
bool kvreg_hash_table_holds(const kvreg_hash_table *table, uint32_t position, uint64_t hash);

/* Adds a position, which is not in, under a hash. */
void kvreg_hash_table_add(kvreg_hash_table *table, uint32_t position, uint64_t hash);

/* Removes a position; nothing happens when it is not in. */
void kvreg_hash_table_remove(kvreg_hash_table *table, uint32_t position);

/* Brings near what finding or adding a hash with this upper half will touch. */
void kvreg_hash_table_prefetch(const kvreg_hash_table *table, uint32_t half);

/* The same for removing the positions that follow one, when they are removed in that order. */
void kvreg_hash_table_prefetch_following(const kvreg_hash_table *table, uint32_t position);

#endif
