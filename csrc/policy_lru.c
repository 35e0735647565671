/* Least recently used: one ring, from the next victim to the most recently used slot.
 *
 * That the head of a prefix outlives its tail is the doing of the order in which uses arrive: the
 * cache reports those of one request from its tail to its head. */
#include "policy.h"
#include "ring.h"
#include "slot.h"

typedef struct lru {
    uint32_t end;            /* number of the ring's end */
    kvreg_ring_node nodes[]; /* one a slot, then the end */
} lru;

static kvreg_rings rings_of(const lru *list)
{
    return (kvreg_rings){ (void *)list->nodes, sizeof(kvreg_ring_node) };
}

static size_t lru_state_bytes(uint32_t slots)
{
    return sizeof(lru) + ((size_t)slots + 1) * sizeof(kvreg_ring_node);
}

static void lru_init(void *state, uint32_t slots)
{
    lru *list = state;
    list->end = slots;
    kvreg_ring_init(rings_of(list), list->end);
}

static void lru_add(void *state, kvreg_index *index, uint32_t slot, const kvreg_key *key)
{
    lru *list = state;
    (void)index, (void)key;
    kvreg_ring_append(rings_of(list), slot, list->end);
}

static void lru_use(void *state, uint32_t slot)
{
    lru *list = state;
    kvreg_ring_remove(rings_of(list), slot);
    kvreg_ring_append(rings_of(list), slot, list->end);
}

static uint32_t lru_remove(void *state, kvreg_index *index, uint32_t slot)
{
    lru *list = state;
    (void)index;
    kvreg_ring_remove(rings_of(list), slot);
    return KVREG_NO_SLOT;
}

static uint32_t lru_take_victim(void *state)
{
    lru *list = state;
    uint32_t victim = list->nodes[list->end].next;
    if (victim == list->end)
        return KVREG_NO_SLOT;
    kvreg_ring_remove(rings_of(list), victim);
    return victim;
}

static uint32_t lru_foresee(const void *state, uint32_t others)
{
    const lru *list = state;
    uint32_t slot = kvreg_ring_peek(rings_of(list), list->end, others);
    return slot == list->end ? KVREG_NO_SLOT : slot;
}

static void lru_put_back(void *state, uint32_t slot)
{
    lru *list = state;
    kvreg_ring_prepend(rings_of(list), slot, list->end);
}

const kvreg_policy kvreg_policy_lru = {
    .name = "lru",
    .state_bytes = lru_state_bytes,
    .init = lru_init,
    .observe = kvreg_policy_observe_slots,
    .use = lru_use,
    .add = lru_add,
    .remove = lru_remove,
    .take_victim = lru_take_victim,
    .foresee = lru_foresee,
    .put_back = lru_put_back,
};
