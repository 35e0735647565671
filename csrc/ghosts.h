/* Keys evicted lately, by their hashes: what an eviction policy remembers of blocks that are gone.
 *
 * A hash is forgotten when as many others as there is room for have been added after it, or when
 * it is taken. Another key with the same 64-bit hash is taken for the ghost.
 *
 * They live in memory that others map at other addresses, and hold no pointers. They guard
 * nothing: their owner's lock does. */
#ifndef KVREG_GHOSTS_H
#define KVREG_GHOSTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct kvreg_ghosts kvreg_ghosts;

/* Bytes for `room` ghosts, 1 to 2^31 - 1. */
size_t kvreg_ghosts_bytes(uint32_t room);

/* Makes zeroed memory, aligned to a cache line, hold no ghost. */
void kvreg_ghosts_init(kvreg_ghosts *ghosts, uint32_t room);

void kvreg_ghosts_add(kvreg_ghosts *ghosts, uint64_t hash);

/* Forgets a ghost with this hash; false when there is none. */
bool kvreg_ghosts_take(kvreg_ghosts *ghosts, uint64_t hash);

/* Brings near what adding or taking a hash with this upper half will touch. */
void kvreg_ghosts_prefetch(const kvreg_ghosts *ghosts, uint32_t half);

#endif
