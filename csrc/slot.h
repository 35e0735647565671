/* One block's metadata. The slots of a region lie side by side; a slot's number is its position.
 *
 * Keys of up to 48 bytes, which is every key in use by engines today, share their cache line with
 * all that a lookup reads; the rest of longer keys lies apart. */
#ifndef KVREG_SLOT_H
#define KVREG_SLOT_H

#include <stdint.h>

enum {
    KVREG_KEY_MAX = 64,       /* bytes */
    KVREG_KEY_NEAR = 48,      /* bytes of a key in its slot's first line */
};

/* Slots have numbers below this. */
enum { KVREG_SLOTS_MAX = 0x7fffffff };

/* No slot has this number. */
#define KVREG_NO_SLOT UINT32_MAX

/* The part that a lookup reads: one cache line. Guarded by the cache lock. */
typedef struct kvreg_slot {
    /* Written by the index; of the last key, where the slot holds none. */
    uint32_t hash;
    uint8_t key_bytes;
    /* Written by the cache; see cache.c. */
    uint8_t state;
    uint8_t place;
    uint8_t kept;           /* 1: the store that runs names the block and must not evict it */
    uint32_t promised_step; /* the step in which a lookup last promised the block; 0: never */
    uint32_t pins;          /* loads that read the slot */
    uint8_t key[KVREG_KEY_NEAR];
} kvreg_slot;

_Static_assert(sizeof(kvreg_slot) == 64, "a slot's first part is one cache line");

/* The part that is rarely read. Guarded by the cache lock. */
typedef struct kvreg_slot_rest {
    uint8_t key[KVREG_KEY_MAX - KVREG_KEY_NEAR]; /* written by the index */
    uint32_t previous, next; /* written by the cache: neighbours in the free or the aside list */
    uint32_t checksum;       /* of the bytes. Not under the lock: written by the one who writes
                              * the bytes, read by those who hold the slot pinned */
} kvreg_slot_rest;

#endif
