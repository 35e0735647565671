/* 64-bit hash -> position: chained buckets over the positions of an array that their owner keeps.
 * Several positions may have one hash.
 *
 * They live in memory that others map at other addresses, and hold no pointers. They guard
 * nothing: their owner's lock does. */
#ifndef KVREG_CHAINS_H
#define KVREG_CHAINS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { KVREG_CHAINS_NONE = 0xffffffff };

/* Two words rather than one, so that links need no more than their 12 bytes. */
typedef struct kvreg_chain_link {
    uint32_t hash_high, hash_low;
    uint32_t older; /* 1 + a position; 0 ends a chain */
} kvreg_chain_link;

typedef struct kvreg_chains {
    uint32_t room;            /* positions */
    kvreg_chain_link links[]; /* one a position; behind them the heads of the chains, uint32_t,
                               * which are as `older` */
} kvreg_chains;

/* Bytes for `room` positions, 1 to 2^31 - 1. */
size_t kvreg_chains_bytes(uint32_t room);

/* Makes zeroed memory, aligned to 4 bytes, hold no position. */
void kvreg_chains_init(kvreg_chains *chains, uint32_t room);

/* The position added last of those with this hash; KVREG_CHAINS_NONE when there is none. */
uint32_t kvreg_chains_find(const kvreg_chains *chains, uint64_t hash);

/* Whether a position that is in was added under this hash. */
static inline bool kvreg_chains_holds(const kvreg_chains *chains, uint32_t position, uint64_t hash)
{
    const kvreg_chain_link *link = &chains->links[position];
    return link->hash_high == (uint32_t)(hash >> 32) && link->hash_low == (uint32_t)hash;
}

/* Adds a position, which is not in, under a hash. */
void kvreg_chains_add(kvreg_chains *chains, uint32_t position, uint64_t hash);

/* Removes a position; nothing happens when it is not in. */
void kvreg_chains_remove(kvreg_chains *chains, uint32_t position);

/* Bring near what kvreg_chains_find and kvreg_chains_add touch for a hash: the head of its chain
 * first, then, some time later, the chain's first link. Of many hashes the misses then overlap. */
void kvreg_chains_prefetch_head(const kvreg_chains *chains, uint64_t hash);
void kvreg_chains_prefetch_link(const kvreg_chains *chains, uint64_t hash);

/* The same for a position that will be removed: its link first, then the head of its chain. */
void kvreg_chains_prefetch_position(const kvreg_chains *chains, uint32_t position);
void kvreg_chains_prefetch_head_of(const kvreg_chains *chains, uint32_t position);

#endif
