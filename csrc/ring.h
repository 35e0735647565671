/* Rings of slots, linked both ways through one array of nodes.
 *
 * Node i is slot i's; those after the slots' are the ends of rings. An end's next is the first slot
 * of its ring, its previous the last. A slot is in one ring at most. */
#ifndef KVREG_RING_H
#define KVREG_RING_H

#include <stdint.h>

typedef struct kvreg_ring_node {
    uint32_t previous, next;
} kvreg_ring_node;

/* Makes `end` a ring without a slot. */
static inline void kvreg_ring_init(kvreg_ring_node *nodes, uint32_t end)
{
    nodes[end] = (kvreg_ring_node){ end, end };
}

static inline void kvreg_ring_link(kvreg_ring_node *nodes, uint32_t slot, uint32_t previous,
                                   uint32_t next)
{
    nodes[slot] = (kvreg_ring_node){ previous, next };
    nodes[previous].next = slot;
    nodes[next].previous = slot;
}

static inline void kvreg_ring_prepend(kvreg_ring_node *nodes, uint32_t slot, uint32_t end)
{
    kvreg_ring_link(nodes, slot, end, nodes[end].next);
}

static inline void kvreg_ring_append(kvreg_ring_node *nodes, uint32_t slot, uint32_t end)
{
    kvreg_ring_link(nodes, slot, nodes[end].previous, end);
}

/* The slot behind the first `others` of a ring; the end itself when it has no more. */
static inline uint32_t kvreg_ring_peek(const kvreg_ring_node *nodes, uint32_t end, uint32_t others)
{
    uint32_t slot = nodes[end].next;
    while (others-- > 0 && slot != end)
        slot = nodes[slot].next;
    return slot;
}

static inline void kvreg_ring_remove(kvreg_ring_node *nodes, uint32_t slot)
{
    kvreg_ring_node node = nodes[slot];
    nodes[node.previous].next = node.next;
    nodes[node.next].previous = node.previous;
}

#endif
