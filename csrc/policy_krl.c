/* KRL: the block is given up whose next use is the farthest, as far as its past tells.
 *
 * Time is counted in ticks. Of each key there is the tick of its last use and a count of its uses
 * that decays with time (LRFU: D. Lee et al., IEEE Trans. Computers 50, 2001), kept as a logarithm.
 * Keys are remembered beyond their blocks, as ghosts (2Q: T. Johnson, D. Shasha, VLDB 1994; S3-FIFO:
 * J. Yang et al., SOSP 2023), so that a block that comes back brings its count along.
 *
 * The resident slots are in lists by their counts, each in the order of last uses. A list's place
 * is worth PLACE_TICKS more than that of the one below: the victim is, of the lists' fronts, the
 * one whose last use plus that credit is the least. That value is the inflation, as in GreedyDual
 * (N. Young, Algorithmica 11, 1994): what a slot has to be worth to stay.
 *
 * A block that is worth less than a learned time more than the inflation is not admitted: it would
 * be evicted before most blocks that are used a second time are. docs/eviction.md explains. */
#include "policy.h"
#include "ring.h"
#include "slot.h"

enum {
    /* A count is UNIT times its logarithm to base 2. */
    UNIT = 16,
    COUNT_LEAST = -24,
    COUNT_MOST = 39,
    COUNT_OF_CONTINUATION = -16, /* of the first new key behind a prefix that one request made */
    COUNT_OF_SHARED = 36,        /* from this on a prefix is taken for one that many share */
    COUNTS_A_REQUEST = 8,        /* by which the last new key of a request is below the first */
    LISTS = 16,
    COUNTS_A_LIST = 4,
    PLACE_TICKS = 600,   /* of a list above the one below it */
    DECAY_TICKS = 600,   /* in which a count loses 1 */
    GHOSTS_LEAST = 30000,
    ADAPT_TICKS = 160,
    BACK_TICKS = 160,    /* that a clock may go back and be waited for */
    OLDEST_AHEAD = 16,   /* ghosts, to prefetch by */
    FREE_PERCENT = 2,    /* of the slots, free: then every block is admitted */
    REQUEST_BITS = 23,   /* of a request's number that are kept */
};

/* -- State --------------------------------------------------------------------------------- */

/* What is known of a key. Packed by hand: bit fields may be written in parts, and who reads the
 * whole then has to wait for them. */
typedef struct krl_history {
    uint32_t used_at; /* tick of the last use */
    uint32_t packed;  /* see pack */
} krl_history;

/* `count`: COUNT_LEAST to COUNT_MOST. `once`: used by one request only, as far as is known.
 * `request`: of the last use; 0: not known. */
static krl_history pack(uint32_t used_at, int32_t count, bool once, uint32_t request)
{
    uint32_t packed = request << (32 - REQUEST_BITS) | (uint32_t)once << 8 | (uint8_t)count;
    return (krl_history){ used_at, packed };
}

static int32_t count_of(krl_history history)
{
    return (int8_t)history.packed;
}

static bool used_once(krl_history history)
{
    return history.packed >> 8 & 1;
}

static uint32_t request_of(krl_history history)
{
    return history.packed >> (32 - REQUEST_BITS);
}

/* A resident slot, or a ghost: each has its node at its number. */
typedef struct krl_node {
    kvreg_ring_node ring; /* a slot in its owner's hands is a ring by itself */
    krl_history history;
} krl_node;

_Static_assert(sizeof(krl_node) == 16, "a node is a quarter of a cache line");

/* Returns are counted by their time: one bucket each for times from 2^e ticks and from 3 * 2^(e-1)
 * ticks on. */
enum {
    BUCKETS = 64,
    RETURN_UNIT = 1 << 20, /* a return in the counts, which decay */
    RETURNS_LEAST = 200,   /* to learn from */
};

typedef struct krl {
    uint32_t slots;
    uint32_t ghosts;       /* numbers for them; they follow the slots' */
    uint32_t ghosts_used;  /* of these, that have ever been one's: they are in the ghosts' ring,
                            * those that are none's now in front */
    uint32_t now;
    uint32_t clock_lag;    /* by which the clock was set back; wraps */
    uint32_t request;      /* whose keys were observed last */
    uint32_t adapted_at;
    uint32_t inflation;
    uint32_t margin;       /* ticks above the inflation that a new block has to be worth; 0: none */
    uint32_t victim_list;  /* that the last victim was taken from */
    uint32_t rival_list;   /* the one whose front was then to be evicted next; LISTS: none */
    bool ranked;           /* these two are the first still, in this order or the other */
    bool started;          /* a use has told the time */
    bool evicted;          /* there has been an eviction */
    uint16_t filled;       /* a bit for each list that has a slot */
    uint32_t worths[LISTS]; /* of the front of each list that has one */
    uint64_t returns[BUCKETS]; /* second uses, by the time since the first */
    /* Of each list, of the slots that the request observed last found here, the one that entered it
     * first in the tick of the latest; KVREG_NO_SLOT: none. */
    uint32_t found[LISTS];
    krl_node nodes[];      /* slots, ghosts, and the ends of the lists and of the ghosts */
} krl;

/* -- Nodes --------------------------------------------------------------------------------- */

/* As many as slots, and such that all nodes can be numbered. */
static uint32_t krl_ghosts(uint32_t slots)
{
    uint32_t most = UINT32_MAX - KVREG_SLOTS_MAX - LISTS - 1;
    return slots < GHOSTS_LEAST ? GHOSTS_LEAST : slots < most ? slots : most;
}

static size_t node_count(uint32_t slots)
{
    return (size_t)slots + krl_ghosts(slots) + LISTS + 1;
}

static size_t krl_state_bytes(uint32_t slots)
{
    return sizeof(krl) + node_count(slots) * sizeof(krl_node);
}

static kvreg_rings rings_of(const krl *state)
{
    return (kvreg_rings){ (void *)state->nodes, sizeof(krl_node) };
}

static uint32_t list_end(const krl *state, uint32_t list)
{
    return state->slots + state->ghosts + list;
}

static uint32_t ghosts_end(const krl *state)
{
    return list_end(state, LISTS);
}

static bool is_ghost(const krl *state, uint32_t number)
{
    return number >= state->slots;
}

static uint32_t list_of_count(int32_t count)
{
    return (uint32_t)(count - COUNT_LEAST) / COUNTS_A_LIST;
}

static uint32_t list_of(const krl_node *node)
{
    return list_of_count(count_of(node->history));
}

/* What has to become less than the other slots' for the slot to be evicted; wraps. */
static uint32_t worth(const krl_node *node)
{
    return node->history.used_at + PLACE_TICKS * list_of(node);
}

/* Whether tick or worth `a` is before `b`, on a clock that wraps. */
static bool is_before(uint32_t a, uint32_t b)
{
    return (int32_t)(a - b) < 0;
}

/* -- Lists --------------------------------------------------------------------------------- */

/* Notes which slot is at the front of a list, after a change there. */
static void note_front(krl *state, uint32_t list)
{
    if (list != state->victim_list)
        state->ranked = false;
    uint32_t end = list_end(state, list), front = state->nodes[end].ring.next;
    if (front == end) {
        state->filled &= (uint16_t)~(1u << list);
    } else {
        state->filled |= (uint16_t)(1u << list);
        state->worths[list] = worth(&state->nodes[front]);
    }
}

/* Lets a slot enter its list in front of another node there, or of the list's end. */
static inline void enter_list(krl *state, uint32_t slot, uint32_t next)
{
    uint32_t list = list_of(&state->nodes[slot]), previous = state->nodes[next].ring.previous;
    kvreg_ring_link(rings_of(state), slot, previous, next);
    if (previous == list_end(state, list))
        note_front(state, list);
}

static inline void leave_list(krl *state, uint32_t slot)
{
    uint32_t list = list_of(&state->nodes[slot]), previous = state->nodes[slot].ring.previous;
    kvreg_ring_remove(rings_of(state), slot);
    if (previous == list_end(state, list))
        note_front(state, list);
    if (state->found[list] == slot)
        state->found[list] = KVREG_NO_SLOT;
}

static void forget_found(krl *state)
{
    for (uint32_t list = 0; list < LISTS; list++)
        state->found[list] = KVREG_NO_SLOT;
}

/* Lets a slot enter that a request found here. */
static inline void enter_found(krl *state, uint32_t slot)
{
    uint32_t list = list_of(&state->nodes[slot]), first = state->found[list];
    enter_list(state, slot, list_end(state, list));
    if (first == KVREG_NO_SLOT || state->nodes[first].history.used_at != state->now)
        state->found[list] = slot;
}

/* Lets a slot enter whose block a request brought: in front of those that it found here in the same
 * tick, so that it stands where its use does, and the request's blocks stand tail to head. */
static void enter_stored(krl *state, uint32_t slot)
{
    uint32_t list = list_of(&state->nodes[slot]), first = state->found[list];
    bool together = first != KVREG_NO_SLOT &&
                    state->nodes[first].history.used_at == state->nodes[slot].history.used_at;
    enter_list(state, slot, together ? first : list_end(state, list));
}

/* By how much the front of a list is worth less than any slot can be; does not wrap. */
static uint32_t shortfall(const krl *state, uint32_t list)
{
    return state->now + PLACE_TICKS * LISTS - state->worths[list];
}

/* Whether the front of list `a` is to be evicted before that of `b`, neither of which is empty. Of
 * equal worth it is the higher list's: its slot was used first. */
static bool goes_before(const krl *state, uint32_t a, uint32_t b)
{
    uint32_t of_a = shortfall(state, a), of_b = shortfall(state, b);
    return of_a > of_b || (of_a == of_b && a > b);
}

/* Finds victim_list, LISTS when all are empty, and rival_list. */
static void rank_lists(krl *state)
{
    uint32_t first = LISTS, second = LISTS;
    for (uint32_t left = state->filled; left != 0; left &= left - 1) {
        uint32_t list = (uint32_t)__builtin_ctz(left);
        if (first == LISTS || goes_before(state, list, first)) {
            second = first;
            first = list;
        } else if (second == LISTS || goes_before(state, list, second)) {
            second = list;
        }
    }
    state->victim_list = first;
    state->rival_list = second;
    state->ranked = true;
}

/* The list whose front is to be evicted next; LISTS when all are empty. Mostly it is the same as
 * for the victim before. */
static uint32_t least_list(krl *state)
{
    uint32_t list = state->victim_list, rival = state->rival_list;
    if (!state->ranked || (state->filled >> list & 1) == 0 ||
        (rival != LISTS && !goes_before(state, list, rival)))
        rank_lists(state);
    return state->victim_list;
}

/* -- Ghosts -------------------------------------------------------------------------------- */

/* The ghost of a key that was observed, now: since then others may have taken its number. */
static uint32_t ghost_of(const kvreg_index *index, const kvreg_key *key)
{
    return kvreg_index_is_ghost_of(index, key, key->ghost) ? key->ghost : KVREG_NO_SLOT;
}

/* Brings near what forgetting the next ghosts will touch. Mostly their numbers follow. */
static void prefetch_oldest(const krl *state, const kvreg_index *index, uint32_t oldest)
{
    uint32_t later = oldest + OLDEST_AHEAD;
    if (later < ghosts_end(state) - LISTS)
        __builtin_prefetch(&state->nodes[later], 1);
    kvreg_index_prefetch_ghosts_behind(index, oldest);
}

/* The number for one more ghost, out of the ring: the oldest's, once every number is in use. */
static uint32_t take_ghost_number(krl *state, kvreg_index *index)
{
    if (state->ghosts_used < state->ghosts)
        return state->slots + state->ghosts_used++;
    uint32_t front = state->nodes[ghosts_end(state)].ring.next;
    prefetch_oldest(state, index, front);
    kvreg_index_remove_ghost(index, front);
    kvreg_ring_remove(rings_of(state), front);
    return front;
}

/* The number of what is to be the youngest ghost. */
static uint32_t new_ghost(krl *state, kvreg_index *index, krl_history history)
{
    uint32_t ghost = take_ghost_number(state, index);
    kvreg_ring_append(rings_of(state), ghost, ghosts_end(state));
    state->nodes[ghost].history = history;
    return ghost;
}

static void drop_ghost(krl *state, kvreg_index *index, uint32_t ghost)
{
    kvreg_index_remove_ghost(index, ghost);
    kvreg_ring_remove(rings_of(state), ghost);
    kvreg_ring_prepend(rings_of(state), ghost, ghosts_end(state));
}

/* -- Counts -------------------------------------------------------------------------------- */

enum { SUMS_FROM = -64, SUMS = 128 };

/* What a count of SUMS_FROM + i becomes with one more use: UNIT * log2(1 + 2^(count / UNIT)),
 * rounded, COUNT_MOST at most. */
static const int8_t count_after_use[SUMS] = {
    1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 3, 3,
    3, 3, 3, 3, 3, 3, 3, 4, 4, 4, 4, 4, 4, 5, 5, 5,
    5, 5, 6, 6, 6, 6, 6, 7, 7, 7, 8, 8, 8, 8, 9, 9,
    9, 10, 10, 10, 11, 11, 12, 12, 12, 13, 13, 14, 14, 15, 15, 16,
    16, 17, 17, 18, 18, 19, 19, 20, 20, 21, 22, 22, 23, 23, 24, 25,
    25, 26, 27, 27, 28, 29, 30, 30, 31, 32, 32, 33, 34, 35, 36, 36,
    37, 38, 39, 39, 39, 39, 39, 39, 39, 39, 39, 39, 39, 39, 39, 39,
    39, 39, 39, 39, 39, 39, 39, 39, 39, 39, 39, 39, 39, 39, 39, 39,
};

/* The count of a key that is used again, `ticks` after the last time. */
static int32_t used_again(int32_t count, uint32_t ticks)
{
    int64_t decayed = (int64_t)count - ticks / DECAY_TICKS;
    return decayed < SUMS_FROM ? 0 : count_after_use[decayed - SUMS_FROM];
}

/* How much of a request's prefix is known from other requests. */
typedef struct known_prefix {
    size_t keys;
    bool is_private; /* it looks like one conversation's, not like a prompt that many share */
} known_prefix;

/* The count of the key at position i of n, if no request used it before, as far as is known. */
static int32_t first_count(const known_prefix *known, size_t i, size_t n)
{
    size_t behind = 0;
    if (i > known->keys)
        behind = COUNTS_A_REQUEST * (i - known->keys) / (n - known->keys);
    int32_t count = (known->is_private ? COUNT_OF_CONTINUATION : 0) - (int32_t)behind;
    return count < COUNT_LEAST ? COUNT_LEAST : count;
}

/* -- Admission ----------------------------------------------------------------------------- */

static uint32_t bucket_of(uint32_t ticks)
{
    if (ticks < 2)
        return ticks;
    uint32_t exponent = 31 - (uint32_t)__builtin_clz(ticks);
    return 2 * exponent + (ticks >> (exponent - 1) & 1);
}

/* The least time that is above those of a bucket. */
static uint64_t bucket_end(uint32_t bucket)
{
    return (bucket & 1) == 0 ? (uint64_t)3 << bucket / 2 >> 1 : (uint64_t)2 << bucket / 2;
}

/* The margin: the time within which nine in ten of the second uses come that waiting that long
 * pays for. Waiting pays most a tick at the largest ratio of returns to time. */
static uint32_t find_margin(const krl *state)
{
    uint64_t sum = 0, best = 0, ratios[BUCKETS];
    for (uint32_t i = 0; i < BUCKETS; i++) {
        sum += state->returns[i];
        ratios[i] = (sum << 8) / (bucket_end(i) + UNIT);
        best = ratios[i] > best ? ratios[i] : best;
    }
    if (sum <= (uint64_t)RETURNS_LEAST * RETURN_UNIT)
        return 0;
    uint32_t i = 0;
    while (ratios[i] * 10 < best * 9)
        i++;
    return (uint32_t)bucket_end(i);
}

static void adapt(krl *state)
{
    state->margin = find_margin(state);
    for (uint32_t i = 0; i < BUCKETS; i++)
        state->returns[i] -= state->returns[i] / 50;
}

/* Notes the time. It stands still while a clock is a little behind, as when threads overtake each
 * other. One that was set back, or so far ahead that nobody can tell, goes on from here: standing
 * still for long, the inflation would rise until no block is worth it. */
static void tell_time(krl *state, uint32_t clock)
{
    if (!state->started) {
        state->started = true;
        state->now = state->adapted_at = clock;
    }
    uint32_t now = clock + state->clock_lag;
    if (!is_before(now, state->now)) {
        state->now = now;
        state->ranked = false;
    } else if (state->now - now > BACK_TICKS) {
        state->clock_lag = state->now - clock;
    }
    if (state->now - state->adapted_at >= ADAPT_TICKS) {
        state->adapted_at = state->now;
        adapt(state);
    }
}

static void count_return(krl *state, uint32_t ticks)
{
    state->returns[bucket_of(ticks)] += RETURN_UNIT;
}

static bool krl_admits(const void *memory, const kvreg_index *index, const kvreg_key *key,
                       uint32_t used)
{
    const krl *state = memory;
    bool full = (uint64_t)(state->slots - used) * 100 <= (uint64_t)state->slots * FREE_PERCENT;
    if (!state->evicted || !full || state->margin == 0)
        return true;
    uint32_t ghost = ghost_of(index, key);
    int32_t count = ghost == KVREG_NO_SLOT ? key->rank : count_of(state->nodes[ghost].history);
    uint32_t list = list_of_count(count);
    return !is_before(state->now + PLACE_TICKS * list - state->inflation, state->margin);
}

/* -- Uses ---------------------------------------------------------------------------------- */

/* The node of a key, or KVREG_NO_SLOT. */
static uint32_t node_of(const kvreg_key *key)
{
    return key->slot != KVREG_NO_SLOT ? key->slot : key->ghost;
}

/* Whether a key's latest use is the doing of this request, too. */
static bool is_counted(krl_history history, const kvreg_use *use)
{
    return request_of(history) == use->request && use->request != 0;
}

static known_prefix find_known_prefix(const krl *state, const kvreg_key *keys, size_t n,
                                      const kvreg_use *use)
{
    size_t i = 0;
    int32_t last_count = 0;
    for (; i < n; i++) {
        uint32_t number = node_of(&keys[i]);
        if (number == KVREG_NO_SLOT)
            break;
        krl_history history = state->nodes[number].history;
        if (used_once(history) && is_counted(history, use))
            break;
        last_count = count_of(history);
    }
    return (known_prefix){ i, i >= 2 && last_count < COUNT_OF_SHARED };
}

/* A slot that the owner took out and has not given back. */
static bool is_out(const krl *state, uint32_t slot)
{
    return state->nodes[slot].ring.next == slot;
}

/* Gives a node its new history and moves it to where the youngest are. A slot that is out is moved
 * by its owner. */
static inline void renew(krl *state, kvreg_key *key, uint32_t number, krl_history history)
{
    krl_node *node = &state->nodes[number];
    if (is_ghost(state, number)) {
        node->history = history;
        kvreg_ring_remove(rings_of(state), number);
        kvreg_ring_append(rings_of(state), number, ghosts_end(state));
    } else if (is_out(state, number)) {
        node->history = history;
        key->used = true;
    } else {
        leave_list(state, number);
        node->history = history;
        enter_found(state, number);
    }
}

/* After the first use of a key. */
static krl_history first_history(const krl *state, int32_t count)
{
    return pack(state->now, count, true, state->request);
}

static void observe_key(krl *state, kvreg_key *key, const kvreg_use *use, int32_t count_if_new)
{
    uint32_t number = node_of(key);
    key->used = false;
    if (number == KVREG_NO_SLOT) {
        key->rank = (int8_t)count_if_new;
        return;
    }
    krl_history history = state->nodes[number].history;
    key->rank = COUNT_LEAST; /* should other keys push its ghost out */
    if (is_counted(history, use)) {
        /* Where the request's parts came first, only now it is known what they are parts of. */
        if (use->whole && used_once(history))
            renew(state, key, number, first_history(state, count_if_new));
        return;
    }
    uint32_t ticks = state->now - history.used_at;
    int32_t count = used_again(count_of(history), ticks);
    if (used_once(history))
        count_return(state, ticks);
    renew(state, key, number, pack(state->now, count, false, use->request));
}

/* As much of a request's number as a node keeps; 0 is kept for the unknown one. */
static uint32_t short_request(uint32_t request)
{
    return request == 0 ? 0 : 1 + request % ((1u << REQUEST_BITS) - 1);
}

/* Finds the ghost again of a key that has no slot: other keys of the call may have pushed it out,
 * or been the same key. */
static void find_ghost_again(const kvreg_index *index, kvreg_key *key)
{
    if (key->slot == KVREG_NO_SLOT && ghost_of(index, key) == KVREG_NO_SLOT)
        kvreg_index_find(index, key);
}

/* Makes a key a ghost that has no node. */
static void add_ghost(krl *state, kvreg_index *index, const kvreg_key *key)
{
    uint32_t ghost = new_ghost(state, index, first_history(state, key->rank));
    kvreg_index_add_ghost(index, key, ghost);
}

static void krl_observe(void *memory, kvreg_index *index, kvreg_key *keys, size_t n,
                        const kvreg_use *call, bool placed)
{
    krl *state = memory;
    kvreg_use use = *call;
    use.request = short_request(use.request);
    if (use.request != state->request || use.request == 0)
        forget_found(state);
    state->request = use.request;
    tell_time(state, use.now);
    known_prefix known = find_known_prefix(state, keys, n, &use);
    for (size_t i = n; i-- > 0;) {
        if (!placed)
            find_ghost_again(index, &keys[i]);
        observe_key(state, &keys[i], &use, first_count(&known, i, n));
        if (!placed && node_of(&keys[i]) == KVREG_NO_SLOT)
            add_ghost(state, index, &keys[i]);
    }
}

/* -- The rest of the vtable ---------------------------------------------------------------- */

static void krl_init(void *memory, uint32_t slots)
{
    krl *state = memory;
    state->slots = slots;
    state->ghosts = krl_ghosts(slots);
    for (uint32_t list = 0; list < LISTS; list++)
        kvreg_ring_init(rings_of(state), list_end(state, list));
    kvreg_ring_init(rings_of(state), ghosts_end(state));
    forget_found(state);
}

static void krl_prefetch(const void *memory, uint32_t number)
{
    const krl *state = memory;
    __builtin_prefetch(&state->nodes[number], 1);
}

/* Moves a slot whose use was observed while it was out. */
static void krl_use(void *memory, uint32_t slot)
{
    krl *state = memory;
    leave_list(state, slot);
    enter_found(state, slot);
}

static void krl_add(void *memory, kvreg_index *index, uint32_t slot, const kvreg_key *key)
{
    krl *state = memory;
    uint32_t ghost = ghost_of(index, key);
    if (ghost == KVREG_NO_SLOT) {
        state->nodes[slot].history = first_history(state, key->rank);
    } else {
        state->nodes[slot].history = state->nodes[ghost].history;
        drop_ghost(state, index, ghost);
    }
    enter_stored(state, slot);
}

/* A key that came twice has its ghost the second time. */
static void krl_missed(void *memory, kvreg_index *index, kvreg_key *key)
{
    find_ghost_again(index, key);
    if (key->ghost == KVREG_NO_SLOT)
        add_ghost(memory, index, key);
}

static uint32_t krl_remove(void *memory, kvreg_index *index, uint32_t slot)
{
    krl *state = memory;
    leave_list(state, slot);
    return new_ghost(state, index, state->nodes[slot].history);
}

static uint32_t krl_take_victim(void *memory)
{
    krl *state = memory;
    uint32_t list = least_list(state);
    if (list == LISTS)
        return KVREG_NO_SLOT;
    uint32_t slot = state->nodes[list_end(state, list)].ring.next;
    leave_list(state, slot);
    kvreg_ring_init(rings_of(state), slot);
    return slot;
}

static uint32_t krl_foresee(const void *memory, uint32_t others)
{
    const krl *state = memory;
    uint32_t end = list_end(state, state->victim_list);
    uint32_t slot = kvreg_ring_peek(rings_of(state), end, others);
    return slot < state->slots ? slot : KVREG_NO_SLOT;
}

static void krl_put_back(void *memory, uint32_t slot)
{
    krl *state = memory;
    uint32_t end = list_end(state, list_of(&state->nodes[slot]));
    enter_list(state, slot, state->nodes[end].ring.next);
}

static uint32_t krl_evicted(void *memory, kvreg_index *index, uint32_t slot)
{
    krl *state = memory;
    state->inflation = worth(&state->nodes[slot]);
    state->evicted = true;
    return new_ghost(state, index, state->nodes[slot].history);
}

const kvreg_policy kvreg_policy_krl = {
    .name = "krl",
    .ghosts = krl_ghosts,
    .state_bytes = krl_state_bytes,
    .init = krl_init,
    .prefetch = krl_prefetch,
    .observe = krl_observe,
    .use = krl_use,
    .admits = krl_admits,
    .add = krl_add,
    .missed = krl_missed,
    .remove = krl_remove,
    .take_victim = krl_take_victim,
    .foresee = krl_foresee,
    .put_back = krl_put_back,
    .evicted = krl_evicted,
};
