/* Rings of slots, linked both ways through one array of nodes.
 *
 * Node i is slot i's; those after the slots' are the ends of rings. An end's next is the first slot
 * of its ring, its previous the last. A slot is in one ring at most. A node may be the first member
 * of a larger element: the stride says how large. */
#ifndef KVREG_RING_H
#define KVREG_RING_H

#include <stddef.h>
#include <stdint.h>

typedef struct kvreg_ring_node {
    uint32_t previous, next;
} kvreg_ring_node;

/* The array: where it lies, and bytes from an element to the next. */
typedef struct kvreg_rings {
    void *nodes;
    size_t stride;
} kvreg_rings;

static inline kvreg_ring_node *kvreg_ring_at(kvreg_rings rings, uint32_t slot)
{
    return (kvreg_ring_node *)((uint8_t *)rings.nodes + slot * rings.stride);
}

/* Makes `end` a ring without a slot. */
static inline void kvreg_ring_init(kvreg_rings rings, uint32_t end)
{
    *kvreg_ring_at(rings, end) = (kvreg_ring_node){ end, end };
}

static inline void kvreg_ring_link(kvreg_rings rings, uint32_t slot, uint32_t previous,
                                   uint32_t next)
{
    *kvreg_ring_at(rings, slot) = (kvreg_ring_node){ previous, next };
    kvreg_ring_at(rings, previous)->next = slot;
    kvreg_ring_at(rings, next)->previous = slot;
}

static inline void kvreg_ring_prepend(kvreg_rings rings, uint32_t slot, uint32_t end)
{
    kvreg_ring_link(rings, slot, end, kvreg_ring_at(rings, end)->next);
}

static inline void kvreg_ring_append(kvreg_rings rings, uint32_t slot, uint32_t end)
{
    kvreg_ring_link(rings, slot, kvreg_ring_at(rings, end)->previous, end);
}

/* The slot behind the first `others` of a ring; the end itself when it has no more. Its node is
 * brought near for the next one to be found by it. */
static inline uint32_t kvreg_ring_peek(kvreg_rings rings, uint32_t end, uint32_t others)
{
    uint32_t slot = kvreg_ring_at(rings, end)->next;
    while (others-- > 0 && slot != end)
        slot = kvreg_ring_at(rings, slot)->next;
    __builtin_prefetch(kvreg_ring_at(rings, slot), 1);
    return slot;
}

static inline void kvreg_ring_remove(kvreg_rings rings, uint32_t slot)
{
    kvreg_ring_node node = *kvreg_ring_at(rings, slot);
    kvreg_ring_at(rings, node.previous)->next = node.next;
    kvreg_ring_at(rings, node.next)->previous = node.previous;
}

#endif
