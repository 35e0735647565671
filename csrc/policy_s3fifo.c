/* S3-FIFO: J. Yang, Y. Zhang, Z. Qiu, Y. Yue, R. Vinayak, "FIFO queues are all you need for cache
 * eviction", SOSP 2023.
 *
 * A new block enters the small queue, a tenth of the slots. At its end a block that was used more
 * than once since it came moves to the main queue; any other is the victim, and becomes a ghost. A
 * new block that is among the ghosts, as many as the main queue may have slots, enters the main
 * queue at once. At the end of the main queue a block goes round again for each use, 3 at most;
 * then it is the victim.
 *
 * The paper evicts for one block at a time from a cache that is full, and asks whether the small
 * queue is over its share. Here the slots of a whole store are taken before its first block is
 * added; to ask whether the main queue is over its own share is the same when no slot is out, and
 * counts those that are out as small. Otherwise a store would find the small queue within its
 * share after a few victims and take the rest from the main queue.
 *
 * Slots that were put back come before both queues. One that is used there goes to the end of its
 * queue that is evicted last, so that the order of uses, tail first, is the order there, too.
 *
 * A search moves the blocks that it finds used, each for a use or for its way out of the small
 * queue: constant time a call on average. Where very many in a row were used, a search ends after
 * MOST_MOVES of them, used or not: no caller is to wait while it goes round a large main queue. */
#include "policy.h"
#include "ring.h"
#include "slot.h"

enum {
    SLOTS_A_SMALL_SLOT = 10, /* the small queue's share is one slot of so many */
    FREQUENCY_MAX = 3,
    FREQUENCY_TO_STAY = 2,   /* at the end of the small queue */
    MOST_MOVES = 1000,       /* in one search: some tens of microseconds */
};

/* The rings; the slots enter them at the back and leave them at the front. */
enum ring { SMALL, MAIN, PUT_BACK, RINGS };

/* What is known of a slot from its addition on, also while it is taken out. */
typedef struct slot_mark {
    uint8_t frequency : 2; /* uses not yet honoured */
    uint8_t queue : 1;     /* SMALL or MAIN: where it is, or was before it was taken out */
    uint8_t put_back : 1;  /* whether it is in the ring of those that were put back */
} slot_mark;

typedef struct s3fifo {
    uint32_t slots;
    uint32_t main_share;     /* slots of the main queue above which it has the victims */
    uint32_t in_main;        /* slots in its ring */
    uint32_t next_ghost;     /* its number; the oldest has it, if any: they follow each other round */
    kvreg_ring_node nodes[]; /* one a slot, then the ends of the rings; behind them a mark a slot */
} s3fifo;

static kvreg_rings rings_of(const s3fifo *queues)
{
    return (kvreg_rings){ (void *)queues->nodes, sizeof(kvreg_ring_node) };
}

static uint32_t main_share(uint32_t slots)
{
    uint32_t small_share = slots / SLOTS_A_SMALL_SLOT;
    return slots - (small_share == 0 ? 1 : small_share);
}

static uint32_t s3fifo_ghosts(uint32_t slots)
{
    return slots == 1 ? 1 : main_share(slots);
}

static size_t s3fifo_state_bytes(uint32_t slots)
{
    return sizeof(s3fifo) + ((size_t)slots + RINGS) * sizeof(kvreg_ring_node) +
           slots * sizeof(slot_mark);
}

static slot_mark *mark_of(s3fifo *queues, uint32_t slot)
{
    return (slot_mark *)(queues->nodes + queues->slots + RINGS) + slot;
}

static uint32_t end_of(const s3fifo *queues, enum ring ring)
{
    return queues->slots + ring;
}

static uint32_t front_of(const s3fifo *queues, enum ring ring)
{
    return queues->nodes[end_of(queues, ring)].next;
}

static bool is_empty(const s3fifo *queues, enum ring ring)
{
    return front_of(queues, ring) == end_of(queues, ring);
}

static void enter(s3fifo *queues, uint32_t slot, enum ring queue)
{
    slot_mark *mark = mark_of(queues, slot);
    mark->queue = queue;
    mark->put_back = false;
    queues->in_main += queue == MAIN;
    kvreg_ring_append(rings_of(queues), slot, end_of(queues, queue));
}

static void leave(s3fifo *queues, uint32_t slot)
{
    const slot_mark *mark = mark_of(queues, slot);
    queues->in_main -= mark->queue == MAIN && !mark->put_back;
    kvreg_ring_remove(rings_of(queues), slot);
}

static void s3fifo_init(void *state, uint32_t slots)
{
    s3fifo *queues = state;
    queues->slots = slots;
    queues->main_share = main_share(slots);
    for (enum ring ring = SMALL; ring < RINGS; ring++)
        kvreg_ring_init(rings_of(queues), end_of(queues, ring));
    queues->next_ghost = slots;
}

static void s3fifo_add(void *state, kvreg_index *index, uint32_t slot, const kvreg_key *key)
{
    s3fifo *queues = state;
    mark_of(queues, slot)->frequency = 0;
    bool is_ghost = kvreg_index_is_ghost_of(index, key, key->ghost);
    if (is_ghost)
        kvreg_index_remove_ghost(index, key->ghost);
    enter(queues, slot, is_ghost ? MAIN : SMALL);
}

static void s3fifo_use(void *state, uint32_t slot)
{
    s3fifo *queues = state;
    slot_mark *mark = mark_of(queues, slot);
    if (mark->frequency < FREQUENCY_MAX)
        mark->frequency++;
    if (mark->put_back) {
        leave(queues, slot);
        enter(queues, slot, mark->queue);
    }
}

static uint32_t s3fifo_remove(void *state, kvreg_index *index, uint32_t slot)
{
    (void)index;
    leave(state, slot);
    return KVREG_NO_SLOT;
}

static enum ring ring_to_search(const s3fifo *queues)
{
    if (!is_empty(queues, PUT_BACK))
        return PUT_BACK;
    if (is_empty(queues, SMALL))
        return MAIN;
    if (is_empty(queues, MAIN))
        return SMALL;
    return queues->in_main > queues->main_share ? MAIN : SMALL;
}

/* Whether a slot that came to the front has earned another way through the main queue; it is on it
 * then. */
static bool goes_on(s3fifo *queues, uint32_t slot)
{
    slot_mark *mark = mark_of(queues, slot);
    if (mark->queue == SMALL && mark->frequency >= FREQUENCY_TO_STAY)
        mark->frequency = 0;
    else if (mark->queue == MAIN && mark->frequency > 0)
        mark->frequency--;
    else
        return false;
    enter(queues, slot, MAIN);
    return true;
}

static uint32_t s3fifo_take_victim(void *state)
{
    s3fifo *queues = state;
    for (uint32_t moves = 0;; moves++) {
        enum ring ring = ring_to_search(queues);
        if (is_empty(queues, ring))
            return KVREG_NO_SLOT;
        uint32_t slot = front_of(queues, ring);
        leave(queues, slot);
        if (moves == MOST_MOVES || !goes_on(queues, slot))
            return slot;
    }
}

static uint32_t s3fifo_foresee(const void *state, uint32_t others)
{
    const s3fifo *queues = state;
    uint32_t end = end_of(queues, ring_to_search(queues));
    uint32_t slot = kvreg_ring_peek(rings_of(queues), end, others);
    return slot == end ? KVREG_NO_SLOT : slot;
}

static void s3fifo_put_back(void *state, uint32_t slot)
{
    s3fifo *queues = state;
    mark_of(queues, slot)->put_back = true;
    kvreg_ring_prepend(rings_of(queues), slot, end_of(queues, PUT_BACK));
}

static uint32_t s3fifo_evicted(void *state, kvreg_index *index, uint32_t slot)
{
    s3fifo *queues = state;
    if (mark_of(queues, slot)->queue == MAIN)
        return KVREG_NO_SLOT;
    uint32_t ghost = queues->next_ghost;
    kvreg_index_prefetch_ghosts_behind(index, ghost);
    kvreg_index_remove_ghost(index, ghost);
    bool is_last = ghost + 1 == queues->slots + s3fifo_ghosts(queues->slots);
    queues->next_ghost = is_last ? queues->slots : ghost + 1;
    return ghost;
}

const kvreg_policy kvreg_policy_s3fifo = {
    .name = "s3fifo",
    .ghosts = s3fifo_ghosts,
    .state_bytes = s3fifo_state_bytes,
    .init = s3fifo_init,
    .observe = kvreg_policy_observe_slots,
    .use = s3fifo_use,
    .add = s3fifo_add,
    .remove = s3fifo_remove,
    .take_victim = s3fifo_take_victim,
    .foresee = s3fifo_foresee,
    .put_back = s3fifo_put_back,
    .evicted = s3fifo_evicted,
};
