/* Which block to give up: the vtable that eviction policies fill.
 *
 * A policy orders the slots that it was given, and knows neither bytes nor why a slot cannot be
 * evicted; of keys it knows their hashes. Its owner takes candidates out one by one, keeps those
 * that it may not evict, and puts them back in the reverse order. One that is used while it is out
 * is put back at once, before its use.
 *
 * A policy lives in memory that others map at other addresses: `state` holds slot numbers, never
 * pointers. It guards nothing: its owner's lock does. */
#ifndef KVREG_POLICY_H
#define KVREG_POLICY_H

#include <stddef.h>
#include <stdint.h>

#include "kvreg/error.h"

typedef struct kvreg_policy {
    const char *name; /* as users choose it */
    /* Bytes of state for `slots` slots. */
    size_t (*state_bytes)(uint32_t slots);
    /* Makes zeroed memory a state that orders no slot. */
    void (*init)(void *state, uint32_t slots);
    /* Adds a slot that holds a new block, whose key has this hash. */
    void (*add)(void *state, uint32_t slot, uint32_t hash);
    /* Notes a use of a slot. */
    void (*use)(void *state, uint32_t slot);
    /* Forgets a slot. */
    void (*remove)(void *state, uint32_t slot);
    /* Takes out the slot to evict next; KVREG_NO_SLOT when there is none. */
    uint32_t (*take_victim)(void *state);
    /* The slot that take_victim is likely to return after `others` more: a hint, to prefetch by.
     * KVREG_NO_SLOT when there is none. */
    uint32_t (*foresee)(const void *state, uint32_t others);
    /* Undoes a take_victim, the latest first: the slot is the one to evict next again. */
    void (*put_back)(void *state, uint32_t slot);
    /* Learns that a slot that is taken out lost its block, whose key has this hash. */
    void (*evicted)(void *state, uint32_t slot, uint32_t hash);
} kvreg_policy;

extern const kvreg_policy kvreg_policy_lru;
extern const kvreg_policy kvreg_policy_s3fifo;

/* All policies; NULL ends them. */
extern const kvreg_policy *const kvreg_policies[];

/* The policy of that name; KVREG_E_ARGUMENT, with the names there are, when there is none. */
kvreg_status kvreg_policy_find(const char *name, const kvreg_policy **policy, kvreg_error *error);

#endif
