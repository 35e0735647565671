/* Least recently used: one list, from the next victim to the most recently used slot.
 *
 * That the head of a prefix outlives its tail is the doing of the order in which uses arrive: the
 * cache reports those of one request from its tail to its head. */
#include "policy.h"
#include "slot.h"

/* A ring through a node that is no slot's: its next is the next victim, its previous the most
 * recently used. */
typedef struct lru_node {
    uint32_t previous, next;
} lru_node;

typedef struct lru {
    uint32_t end;     /* number of the node that is no slot's */
    lru_node nodes[]; /* one a slot, then that one */
} lru;

static size_t lru_state_bytes(uint32_t slots)
{
    return sizeof(lru) + ((size_t)slots + 1) * sizeof(lru_node);
}

static void lru_init(void *state, uint32_t slots)
{
    lru *list = state;
    list->end = slots;
    list->nodes[slots] = (lru_node){ slots, slots };
}

static void link_between(lru *list, uint32_t slot, uint32_t previous, uint32_t next)
{
    list->nodes[slot] = (lru_node){ previous, next };
    list->nodes[previous].next = slot;
    list->nodes[next].previous = slot;
}

static void lru_remove(void *state, uint32_t slot)
{
    lru *list = state;
    lru_node node = list->nodes[slot];
    list->nodes[node.previous].next = node.next;
    list->nodes[node.next].previous = node.previous;
}

static void lru_add(void *state, uint32_t slot)
{
    lru *list = state;
    link_between(list, slot, list->nodes[list->end].previous, list->end);
}

static void lru_use(void *state, uint32_t slot)
{
    lru_remove(state, slot);
    lru_add(state, slot);
}

static uint32_t lru_take_victim(void *state)
{
    lru *list = state;
    uint32_t victim = list->nodes[list->end].next;
    if (victim == list->end)
        return KVREG_NO_SLOT;
    lru_remove(state, victim);
    return victim;
}

static void lru_put_back(void *state, uint32_t slot)
{
    lru *list = state;
    link_between(list, slot, list->end, list->nodes[list->end].next);
}

const kvreg_policy kvreg_policy_lru = {
    .name = "lru",
    .state_bytes = lru_state_bytes,
    .init = lru_init,
    .add = lru_add,
    .use = lru_use,
    .remove = lru_remove,
    .take_victim = lru_take_victim,
    .put_back = lru_put_back,
};
