/* Which block to give up: the vtable that eviction policies fill.
 *
 * A policy orders the slots that it was given, and knows neither bytes nor why a slot cannot be
 * evicted. Keys whose blocks are gone it may have the index remember, as ghosts. Its owner takes
 * candidates out one by one, keeps those that it may not evict, and puts them back in the reverse
 * order. One that is used while it is out is put back at once, before its use.
 *
 * A policy lives in memory that others map at other addresses: `state` holds slot numbers, never
 * pointers. It guards nothing: its owner's lock does. */
#ifndef KVREG_POLICY_H
#define KVREG_POLICY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "index.h"
#include "kvreg/error.h"

enum { KVREG_TICKS_A_SECOND = 16 };

/* Who uses blocks, and when. */
typedef struct kvreg_use {
    uint32_t request; /* tells requests apart; 0: not known, every call is one of its own */
    uint32_t now;     /* in ticks, on a clock that may wrap */
    bool whole;       /* the keys of the call are all of the request's, not a part of them */
} kvreg_use;

/* A number for a request's name; never 0. Two names may share one. */
uint32_t kvreg_request_number(const char *name, size_t bytes);

typedef struct kvreg_policy {
    const char *name; /* as users choose it */
    /* How many ghosts it has the index keep at most, for `slots` slots. NULL: none. */
    uint32_t (*ghosts)(uint32_t slots);
    /* Bytes of state for `slots` slots. */
    size_t (*state_bytes)(uint32_t slots);
    /* Makes zeroed memory a state that orders no slot. */
    void (*init)(void *state, uint32_t slots);
    /* Brings near what the other calls will touch for a slot or a ghost. NULL: nothing. */
    void (*prefetch)(const void *state, uint32_t number);
    /* Learns that a request uses keys, in prefix order, that were searched for; their slot is
     * KVREG_NO_SLOT where the block is not here; if they are `placed`, each of these is then added
     * or missed. Sets `used` of those for whose slot `use` is to be called; `rank` is the policy's
     * own, for the calls below that get the key. */
    void (*observe)(void *state, kvreg_index *index, kvreg_key *keys, size_t n,
                    const kvreg_use *use, bool placed);
    /* Notes a use of a slot. */
    void (*use)(void *state, uint32_t slot);
    /* Whether a block whose key was observed deserves a slot, of which `used` are taken. NULL:
     * every block does. */
    bool (*admits)(const void *state, const kvreg_index *index, const kvreg_key *key,
                   uint32_t used);
    /* Adds a slot that holds a new block, whose key was observed and inserted. */
    void (*add)(void *state, kvreg_index *index, uint32_t slot, const kvreg_key *key);
    /* Learns that a block whose key was observed was to be placed and got no slot, which is
     * KVREG_NO_SLOT. NULL: it is of no interest. */
    void (*missed)(void *state, kvreg_index *index, kvreg_key *key);
    /* Forgets a slot. Returns the number of the ghost that its key is to be from now on, or
     * KVREG_NO_SLOT. */
    uint32_t (*remove)(void *state, kvreg_index *index, uint32_t slot);
    /* Takes out the slot to evict next; KVREG_NO_SLOT when there is none. */
    uint32_t (*take_victim)(void *state);
    /* The slot that take_victim is likely to return after `others` more: a hint, to prefetch by.
     * KVREG_NO_SLOT when there is none. */
    uint32_t (*foresee)(const void *state, uint32_t others);
    /* Undoes a take_victim, the latest first: the slot is the one to evict next again. */
    void (*put_back)(void *state, uint32_t slot);
    /* Forgets a slot that is taken out, whose block is evicted. Returns what remove returns. NULL:
     * KVREG_NO_SLOT. */
    uint32_t (*evicted)(void *state, kvreg_index *index, uint32_t slot);
} kvreg_policy;

extern const kvreg_policy kvreg_policy_krl;
extern const kvreg_policy kvreg_policy_lru;
extern const kvreg_policy kvreg_policy_s3fifo;

/* All policies; NULL ends them. */
extern const kvreg_policy *const kvreg_policies[];

/* `observe` of policies to which every key that has a slot is a use of it. */
void kvreg_policy_observe_slots(void *state, kvreg_index *index, kvreg_key *keys, size_t n,
                                const kvreg_use *use, bool placed);

/* The policy of that name; KVREG_E_ARGUMENT, with the names there are, when there is none. */
kvreg_status kvreg_policy_find(const char *name, const kvreg_policy **policy, kvreg_error *error);

#endif
