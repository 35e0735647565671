#include "cache.h"

#include <string.h>

/* How far ahead of the key at hand a batch prefetches: the group first, then the slot or
 * ghost in it. */
enum { GROUP_AHEAD = 16, ENTRY_AHEAD = 8 };

/* The same for the victims of a store: the slot first, then what evicting it touches. */
enum { VICTIM_AHEAD = 4, EVICTION_AHEAD = 2 };

/* Slots that are settled under one hold of the lock: a microsecond or two, so that a lookup never
 * waits longer for a worker. */
enum { SLOTS_A_HOLD = 64 };

/* The same for slots that are cleared, by a thread that is in no hurry: about 100 microseconds. */
enum { CLEARED_A_HOLD = 1024 };

/* A doomed slot's block is forgotten, and loads still read it. */
enum slot_state { FREE, WRITING, READY, DOOMED };

/* Who orders a slot: nobody while it is free or in the hands of the call that runs. */
enum slot_place { NOWHERE, IN_POLICY, ASIDE };

/* Slots linked through their rests, in order. */
typedef struct slot_list {
    uint32_t first, last;
} slot_list;

/* The head of a region; slots, rests, the index's table and ghosts, and the policy's state follow,
 * in this order, each at a multiple of a cache line. */
struct kvreg_region {
    kvreg_os_mutex lock;
    uint32_t slots;
    uint32_t step;        /* number of the running step; never 0; after 2^32 - 1 comes 1 */
    uint32_t aged;        /* slots up to this number lost their promises of earlier steps */
    uint32_t untouched;   /* slots from this number on have never been used */
    slot_list free;       /* slots that were used and are free again */
    /* Slots that the policy offered as victims in this step and that could not be evicted, the
     * policy's first choice first. They go back when the step ends, so that a search passes each
     * at most once a step. */
    slot_list aside;
    uint32_t released;    /* the first slot in `aside` that may have become evictable there; all
                           * before it are not. KVREG_NO_SLOT: none is */
    /* Victims whose slots were prefetched, the next one first, or KVREG_NO_SLOT. */
    uint32_t foreseen[VICTIM_AHEAD - EVICTION_AHEAD];
    kvreg_cache_stats stats;
};

/* -- Layout -------------------------------------------------------------------------------- */

static size_t line_round(size_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

static uint32_t ghost_count(uint32_t slots, const kvreg_policy *policy)
{
    return policy->ghosts == NULL ? 0 : policy->ghosts(slots);
}

/* Offsets of a region's parts. */
typedef struct layout {
    size_t slots, rests, groups, ghosts, policy, end;
} layout;

static layout lay_out(uint32_t slots, const kvreg_policy *policy)
{
    uint32_t ghosts = ghost_count(slots, policy);
    layout at;
    at.slots = line_round(sizeof(struct kvreg_region));
    at.rests = at.slots + line_round(slots * sizeof(kvreg_slot));
    at.groups = at.rests + line_round(slots * sizeof(kvreg_slot_rest));
    at.ghosts = at.groups + kvreg_index_group_count(slots, ghosts) * sizeof(kvreg_group);
    at.policy = at.ghosts + line_round(ghosts * sizeof(uint64_t));
    at.end = at.policy + line_round(policy->state_bytes(slots));
    return at;
}

size_t kvreg_cache_region_bytes(uint32_t slots, const kvreg_policy *policy)
{
    return kvreg_os_page_round(lay_out(slots, policy).end);
}

void kvreg_cache_init(kvreg_cache *cache, void *region, uint32_t slots,
                      const kvreg_policy *policy, bool watched)
{
    layout at = lay_out(slots, policy);
    uint32_t ghosts = ghost_count(slots, policy);
    uint8_t *base = region;
    cache->region = region;
    cache->policy = policy;
    cache->policy_state = base + at.policy;
    cache->slots = (kvreg_slot *)(base + at.slots);
    cache->rests = (kvreg_slot_rest *)(base + at.rests);
    cache->watched = watched;
    cache->events = (kvreg_events){ .list = NULL };
    cache->index = (kvreg_index){
        .table = { (kvreg_group *)(base + at.groups), kvreg_index_group_count(slots, ghosts) },
        .slots = cache->slots,
        .rests = cache->rests,
        .ghosts = (uint64_t *)(base + at.ghosts),
        .slot_count = slots,
        .ghost_count = ghosts,
    };
    kvreg_os_random(&cache->index.seed, sizeof cache->index.seed);
    kvreg_os_mutex_init(&cache->region->lock);
    cache->region->slots = slots;
    cache->region->step = 1;
    cache->region->free = (slot_list){ KVREG_NO_SLOT, KVREG_NO_SLOT };
    cache->region->aside = (slot_list){ KVREG_NO_SLOT, KVREG_NO_SLOT };
    cache->region->released = KVREG_NO_SLOT;
    cache->region->foreseen[0] = cache->region->foreseen[1] = KVREG_NO_SLOT;
    policy->init(cache->policy_state, slots);
}

void kvreg_cache_destroy(kvreg_cache *cache)
{
    kvreg_os_mutex_destroy(&cache->region->lock);
}

/* -- Lists --------------------------------------------------------------------------------- */

static void append(kvreg_cache *cache, slot_list *list, uint32_t slot)
{
    cache->rests[slot].previous = list->last;
    cache->rests[slot].next = KVREG_NO_SLOT;
    if (list->last == KVREG_NO_SLOT)
        list->first = slot;
    else
        cache->rests[list->last].next = slot;
    list->last = slot;
}

static void take_out(kvreg_cache *cache, slot_list *list, uint32_t slot)
{
    uint32_t previous = cache->rests[slot].previous, next = cache->rests[slot].next;
    if (previous == KVREG_NO_SLOT)
        list->first = next;
    else
        cache->rests[previous].next = next;
    if (next == KVREG_NO_SLOT)
        list->last = previous;
    else
        cache->rests[next].previous = previous;
}

/* -- Events -------------------------------------------------------------------------------- */

static bool reserve_events(kvreg_cache *cache, size_t n)
{
    return !cache->watched || kvreg_events_reserve(&cache->events, n);
}

static void release_events(kvreg_cache *cache, size_t n)
{
    if (cache->watched)
        kvreg_events_release(&cache->events, n);
}

static void add_event(kvreg_cache *cache, uint32_t slot, bool removed)
{
    if (cache->watched)
        kvreg_events_add(&cache->events, removed, cache->slots[slot].key, cache->rests[slot].key,
                         cache->slots[slot].key_bytes);
}

/* -- Victims ------------------------------------------------------------------------------- */

static bool evictable(const kvreg_cache *cache, uint32_t number)
{
    const kvreg_slot *slot = &cache->slots[number];
    return slot->state == READY && slot->pins == 0 && !slot->kept &&
           slot->promised_step != cache->region->step;
}

static void take_from_aside(kvreg_cache *cache, uint32_t slot)
{
    struct kvreg_region *region = cache->region;
    if (region->released == slot)
        region->released = cache->rests[slot].next;
    take_out(cache, &region->aside, slot);
}

/* After a change of a slot's state: where it was set aside, it may have become evictable there. */
static void note_release(kvreg_cache *cache, uint32_t slot)
{
    if (cache->slots[slot].place == ASIDE && evictable(cache, slot))
        cache->region->released = cache->region->aside.first;
}

/* The first slot set aside that has become evictable, taken from the list. */
static uint32_t take_released(kvreg_cache *cache)
{
    uint32_t slot = cache->region->released;
    while (slot != KVREG_NO_SLOT && !evictable(cache, slot))
        slot = cache->rests[slot].next;
    cache->region->released = slot;
    if (slot != KVREG_NO_SLOT)
        take_from_aside(cache, slot);
    return slot;
}

/* The slot to evict, taken from every list; KVREG_NO_SLOT when none can be. */
static uint32_t take_victim(kvreg_cache *cache)
{
    uint32_t slot = take_released(cache);
    if (slot != KVREG_NO_SLOT)
        return slot;
    while ((slot = cache->policy->take_victim(cache->policy_state)) != KVREG_NO_SLOT) {
        if (evictable(cache, slot))
            return slot;
        cache->slots[slot].place = ASIDE;
        append(cache, &cache->region->aside, slot);
    }
    return KVREG_NO_SLOT;
}

/* Brings near what evicting the next victims will touch: of one the slot, of one before it, whose
 * slot has arrived, the rest. */
static void prefetch_victims(kvreg_cache *cache)
{
    uint32_t *foreseen = cache->region->foreseen;
    uint32_t sooner = foreseen[0];
    uint32_t later = cache->policy->foresee(cache->policy_state, VICTIM_AHEAD);
    foreseen[0] = foreseen[1];
    foreseen[1] = later;
    if (later != KVREG_NO_SLOT)
        __builtin_prefetch(&cache->slots[later], 1);
    if (sooner != KVREG_NO_SLOT)
        kvreg_index_prefetch_group_of(&cache->index, sooner);
}

/* Lets a slot hold no key any more; that is the ghost of this number from now on, if of any. */
static void take_key(kvreg_cache *cache, uint32_t slot, uint32_t ghost)
{
    if (ghost == KVREG_NO_SLOT)
        kvreg_index_remove(&cache->index, slot);
    else
        kvreg_index_make_ghost(&cache->index, slot, ghost);
}

static void evict(kvreg_cache *cache, uint32_t slot)
{
    uint32_t ghost = KVREG_NO_SLOT;
    add_event(cache, slot, true);
    if (cache->policy->evicted != NULL)
        ghost = cache->policy->evicted(cache->policy_state, &cache->index, slot);
    take_key(cache, slot, ghost);
    cache->region->stats.evictions++;
}

/* A slot for a new block, in no list and not in the index: a free one, or else a victim's. */
static uint32_t take_slot(kvreg_cache *cache)
{
    struct kvreg_region *region = cache->region;
    uint32_t slot = region->free.first;
    if (slot != KVREG_NO_SLOT) {
        take_out(cache, &region->free, slot);
        region->stats.used++;
    } else if (region->untouched < region->slots) {
        slot = region->untouched++;
        region->stats.used++;
    } else {
        slot = take_victim(cache);
        if (slot == KVREG_NO_SLOT)
            return slot;
        prefetch_victims(cache);
        evict(cache, slot);
    }
    cache->slots[slot].place = NOWHERE;
    return slot;
}

static void free_slot(kvreg_cache *cache, uint32_t slot)
{
    cache->slots[slot].state = FREE;
    append(cache, &cache->region->free, slot);
    cache->region->stats.used--;
}

/* -- Use ----------------------------------------------------------------------------------- */

static void put_back(kvreg_cache *cache, uint32_t slot)
{
    take_from_aside(cache, slot);
    cache->slots[slot].place = IN_POLICY;
    cache->policy->put_back(cache->policy_state, slot);
}

/* Counts a key's slot as used; one that just got its block is added to the policy. */
static void use(kvreg_cache *cache, const kvreg_key *key)
{
    kvreg_slot *slot = &cache->slots[key->slot];
    if (slot->place == NOWHERE) {
        slot->place = IN_POLICY;
        cache->policy->add(cache->policy_state, &cache->index, key->slot, key);
    } else if (key->used) {
        if (slot->place == ASIDE)
            put_back(cache, key->slot);
        cache->policy->use(cache->policy_state, key->slot);
    }
}

/* Returns the number of the ghost that the slot's key is to be, or KVREG_NO_SLOT. */
static uint32_t leave_policy(kvreg_cache *cache, uint32_t slot)
{
    if (cache->slots[slot].place == ASIDE)
        put_back(cache, slot);
    cache->slots[slot].place = NOWHERE;
    return cache->policy->remove(cache->policy_state, &cache->index, slot);
}

/* Makes lookups miss a block that is ready. An event's room is reserved. */
static void forget(kvreg_cache *cache, uint32_t number)
{
    kvreg_slot *slot = &cache->slots[number];
    add_event(cache, number, true);
    take_key(cache, number, leave_policy(cache, number));
    cache->region->stats.promised -= slot->promised_step == cache->region->step;
    slot->promised_step = 0;
    slot->state = DOOMED;
    if (slot->pins == 0)
        free_slot(cache, number);
}

/* -- Batches ------------------------------------------------------------------------------- */

static void hash_all(const kvreg_cache *cache, kvreg_key *keys, size_t n)
{
    for (size_t i = 0; i < n; i++)
        kvreg_index_hash(&cache->index, &keys[i]);
}

/* Brings near what the keys after position i need. */
static void prefetch_ahead(const kvreg_cache *cache, const kvreg_key *keys, size_t n, size_t i)
{
    if (i + GROUP_AHEAD < n)
        kvreg_index_prefetch_group(&cache->index, keys[i + GROUP_AHEAD].hash);
    if (i + ENTRY_AHEAD < n)
        kvreg_index_prefetch_entry(&cache->index, keys[i + ENTRY_AHEAD].hash);
}

/* Finds the slot, or else the ghost, of the key at position i, as part of a batch. */
static uint32_t find(const kvreg_cache *cache, kvreg_key *keys, size_t n, size_t i)
{
    kvreg_key *key = &keys[i];
    prefetch_ahead(cache, keys, n, i);
    key->slot = kvreg_index_find(&cache->index, key);
    uint32_t number = key->slot == KVREG_NO_SLOT ? key->ghost : key->slot;
    if (cache->policy->prefetch != NULL && number != KVREG_NO_SLOT)
        cache->policy->prefetch(cache->policy_state, number);
    return key->slot;
}

static void lock(kvreg_cache *cache)
{
    kvreg_os_mutex_lock(&cache->region->lock);
}

static void unlock(kvreg_cache *cache)
{
    kvreg_os_mutex_unlock(&cache->region->lock);
}

/* -- Interface ----------------------------------------------------------------------------- */

static kvreg_found look_up(kvreg_cache *cache, kvreg_key *key)
{
    uint32_t number = kvreg_index_find(&cache->index, key);
    if (number == KVREG_NO_SLOT) {
        cache->region->stats.misses++;
        return KVREG_MISS;
    }
    kvreg_slot *slot = &cache->slots[number];
    if (slot->state == WRITING) {
        cache->region->stats.retries++;
        return KVREG_RETRY;
    }
    cache->region->stats.promised += slot->promised_step != cache->region->step;
    slot->promised_step = cache->region->step;
    cache->region->stats.hits++;
    return KVREG_HIT;
}

kvreg_found kvreg_cache_lookup(kvreg_cache *cache, kvreg_key *key)
{
    kvreg_index_hash(&cache->index, key);
    lock(cache);
    kvreg_found found = look_up(cache, key);
    unlock(cache);
    return found;
}

/* Counts keys as used whose slots were searched for, tail first. Blocks that are being written too:
 * the policy has observed them, and those set aside wait for their use. */
static void observe_and_use(kvreg_cache *cache, kvreg_key *keys, size_t n, const kvreg_use *by)
{
    cache->policy->observe(cache->policy_state, &cache->index, keys, n, by, false);
    for (size_t i = n; i-- > 0;) {
        if (keys[i].slot != KVREG_NO_SLOT)
            use(cache, &keys[i]);
    }
}

void kvreg_cache_touch(kvreg_cache *cache, kvreg_key *keys, size_t n, const kvreg_use *by)
{
    hash_all(cache, keys, n);
    lock(cache);
    for (size_t i = 0; i < n; i++)
        find(cache, keys, n, i);
    observe_and_use(cache, keys, n, by);
    unlock(cache);
}

/* Finds every key's slot and keeps it, so that no later key of the call evicts it. Returns how many
 * slots they are. */
static size_t keep_present(kvreg_cache *cache, kvreg_key *keys, size_t n)
{
    size_t kept = 0;
    for (size_t i = 0; i < n; i++) {
        find(cache, keys, n, i);
        if (keys[i].slot != KVREG_NO_SLOT) {
            kept += !cache->slots[keys[i].slot].kept;
            cache->slots[keys[i].slot].kept = 1;
        }
    }
    return kept;
}

/* The keys of a call so far, by their hashes: may take a new key for one of them, and never one of
 * them for a new one. Spares most keys a second search of the index. */
typedef struct key_filter {
    uint64_t words[128];
} key_filter;

/* Whether the key may be in the filter already; it is from now on. */
static bool may_repeat(key_filter *filter, const kvreg_key *key)
{
    uint64_t *word = &filter->words[key->hash >> 57];
    uint64_t bit = (uint64_t)1 << (key->hash >> 51) % 64;
    bool seen = (*word & bit) != 0;
    *word |= bit;
    return seen;
}

/* The counter of keys dropped for what holds the slots, when `held` are the call's own. */
static uint64_t *drop_counter(struct kvreg_region *region, size_t held)
{
    if (held >= region->slots)
        return &region->stats.dropped_oversized;
    return region->stats.promised > 0 ? &region->stats.dropped_promised
                                      : &region->stats.dropped_busy;
}

/* Notes the KV-cache group of a key that has one: engines end a block's hash with its number, as 4
 * bytes, the highest first. */
static void note_group(struct kvreg_region *region, const kvreg_key *key)
{
    if (key->bytes <= 4)
        return;
    const uint8_t *group = key->data + key->bytes - 4;
    if ((group[0] | group[1] | group[2]) == 0 && group[3] < 64)
        region->stats.groups |= (uint64_t)1 << group[3];
}

/* Set instead of a slot for a key that the policy did not admit. */
enum { DECLINED = KVREG_SLOTS_MAX };

/* Marks the keys whose blocks the policy does not admit, before anything is evicted for others;
 * returns their number. */
static size_t decline(const kvreg_cache *cache, kvreg_key *keys, size_t n)
{
    size_t declined = 0;
    for (size_t i = 0; i < n; i++) {
        if (keys[i].slot == KVREG_NO_SLOT &&
            !cache->policy->admits(cache->policy_state, &cache->index, &keys[i],
                                   cache->region->stats.used)) {
            keys[i].slot = DECLINED;
            declined++;
        }
    }
    return declined;
}

/* Gives each key that has no slot one, head first, while there are any. Other keys of the call have
 * `kept` slots. A key that was declined where it came again, and not before, shares the slot. */
static void place_absent(kvreg_cache *cache, kvreg_key *keys, size_t n, size_t kept,
                         kvreg_cache_block *blocks, kvreg_cache_placed *placed)
{
    uint64_t *counter = NULL;
    key_filter earlier = { { 0 } };
    for (size_t i = 0; i < n; i++) {
        bool is_declined = keys[i].slot == DECLINED;
        if (keys[i].slot != KVREG_NO_SLOT && !is_declined)
            continue;
        uint32_t slot = KVREG_NO_SLOT;
        if (may_repeat(&earlier, &keys[i])) {
            kvreg_key again = keys[i]; /* the key keeps the ghost that it had without a slot */
            slot = kvreg_index_find(&cache->index, &again);
        }
        if (is_declined && slot == KVREG_NO_SLOT)
            continue;
        placed->declined -= is_declined;
        if (slot == KVREG_NO_SLOT && placed->dropped == 0) {
            slot = take_slot(cache);
            if (slot == KVREG_NO_SLOT) {
                counter = drop_counter(cache->region, kept + placed->blocks);
            } else {
                kvreg_index_insert(&cache->index, &keys[i], slot);
                cache->slots[slot].state = WRITING;
                note_group(cache->region, &keys[i]);
                blocks[placed->blocks++] = (kvreg_cache_block){ slot, (uint32_t)i };
            }
        }
        placed->dropped += slot == KVREG_NO_SLOT;
        keys[i].slot = slot;
        keys[i].used = true; /* of keys that came twice, once more than the addition */
    }
    if (counter != NULL)
        *counter += placed->dropped;
}

static void let_go_and_use(kvreg_cache *cache, kvreg_key *keys, size_t n)
{
    for (size_t i = n; i-- > 0;) {
        if (keys[i].slot >= KVREG_SLOTS_MAX) {
            keys[i].slot = KVREG_NO_SLOT; /* policies know nothing of DECLINED */
            if (cache->policy->missed != NULL)
                cache->policy->missed(cache->policy_state, &cache->index, &keys[i]);
            continue;
        }
        cache->slots[keys[i].slot].kept = 0;
        use(cache, &keys[i]);
        note_release(cache, keys[i].slot);
    }
}

bool kvreg_cache_begin_store(kvreg_cache *cache, kvreg_key *keys, size_t n, const kvreg_use *by,
                             kvreg_cache_block *blocks, kvreg_cache_placed *placed)
{
    hash_all(cache, keys, n);
    lock(cache);
    /* Each key may evict a block and become one. */
    bool reserved = reserve_events(cache, 2 * n);
    if (reserved) {
        uint64_t evictions = cache->region->stats.evictions;
        size_t kept = keep_present(cache, keys, n);
        *placed = (kvreg_cache_placed){ .blocks = 0 };
        cache->policy->observe(cache->policy_state, &cache->index, keys, n, by, true);
        if (cache->policy->admits != NULL)
            placed->declined = decline(cache, keys, n);
        place_absent(cache, keys, n, kept, blocks, placed);
        cache->region->stats.declined += placed->declined;
        let_go_and_use(cache, keys, n);
        evictions = cache->region->stats.evictions - evictions;
        release_events(cache, 2 * n - evictions - placed->blocks);
    }
    unlock(cache);
    return reserved;
}

/* Calls `settle` for each slot. */
static void settle_slots(kvreg_cache *cache, const uint32_t *slots, size_t n,
                         void (*settle)(kvreg_cache *cache, uint32_t slot))
{
    for (size_t first = 0; first < n; first += SLOTS_A_HOLD) {
        size_t end = n - first < SLOTS_A_HOLD ? n : first + SLOTS_A_HOLD;
        for (size_t i = first; i < end; i++)
            __builtin_prefetch(&cache->slots[slots[i]], 1);
        lock(cache);
        for (size_t i = first; i < end; i++) {
            settle(cache, slots[i]);
            note_release(cache, slots[i]);
        }
        unlock(cache);
    }
}

static void make_ready(kvreg_cache *cache, uint32_t slot)
{
    cache->slots[slot].state = READY;
    add_event(cache, slot, false);
}

void kvreg_cache_end_store(kvreg_cache *cache, const uint32_t *slots, size_t n)
{
    settle_slots(cache, slots, n, make_ready);
}

bool kvreg_cache_begin_load(kvreg_cache *cache, kvreg_key *keys, size_t n, const kvreg_use *by,
                            kvreg_cache_block *blocks, size_t *found)
{
    hash_all(cache, keys, n);
    lock(cache);
    *found = 0;
    /* Each block may turn out to be wrong and be forgotten. */
    bool reserved = reserve_events(cache, n);
    for (size_t i = 0; reserved && i < n; i++) {
        uint32_t slot = find(cache, keys, n, i);
        if (slot == KVREG_NO_SLOT || cache->slots[slot].state != READY)
            continue;
        cache->region->stats.pinned += cache->slots[slot].pins++ == 0;
        blocks[(*found)++] = (kvreg_cache_block){ slot, (uint32_t)i };
    }
    if (reserved) {
        observe_and_use(cache, keys, n, by);
        cache->region->stats.absent += n - *found;
        release_events(cache, n - *found);
    }
    unlock(cache);
    return reserved;
}

static void unpin(kvreg_cache *cache, uint32_t number)
{
    kvreg_slot *slot = &cache->slots[number];
    if (--slot->pins > 0)
        return;
    cache->region->stats.pinned--;
    if (slot->state == DOOMED)
        free_slot(cache, number);
}

static void accept(kvreg_cache *cache, uint32_t slot)
{
    release_events(cache, 1);
    unpin(cache, slot);
}

static void reject(kvreg_cache *cache, uint32_t slot)
{
    cache->region->stats.rejected++;
    /* Another load may have found it wrong before. */
    if (cache->slots[slot].state == READY)
        forget(cache, slot);
    else
        release_events(cache, 1);
    unpin(cache, slot);
}

void kvreg_cache_end_load(kvreg_cache *cache, const uint32_t *slots, size_t n)
{
    settle_slots(cache, slots, n, accept);
}

void kvreg_cache_reject_load(kvreg_cache *cache, const uint32_t *slots, size_t n)
{
    settle_slots(cache, slots, n, reject);
}

/* Forgets the blocks in slots [first, end) that are ready. An event's room is reserved for each
 * slot. */
static void clear_slots(kvreg_cache *cache, uint32_t first, uint32_t end)
{
    lock(cache);
    for (uint32_t slot = first; slot < end; slot++) {
        if (cache->slots[slot].state == READY)
            forget(cache, slot);
        else
            release_events(cache, 1);
    }
    unlock(cache);
}

bool kvreg_cache_clear(kvreg_cache *cache)
{
    lock(cache);
    uint32_t slots = cache->region->untouched;
    bool reserved = reserve_events(cache, slots);
    unlock(cache);
    for (uint32_t first = 0; reserved && first < slots; first += CLEARED_A_HOLD) {
        uint32_t end = slots - first < CLEARED_A_HOLD ? slots : first + CLEARED_A_HOLD;
        /* The lock is not fair: who waits for it gets it while this thread sleeps. */
        if (first > 0)
            kvreg_os_sleep_briefly();
        clear_slots(cache, first, end);
    }
    return reserved;
}

/* Takes the stamp of an earlier step from one slot. Each has its turn long before the numbers of
 * steps come again, so that a stamp never equals the number of a step that did not set it. */
static void age_promise(kvreg_cache *cache)
{
    struct kvreg_region *region = cache->region;
    if (region->aged >= region->untouched)
        region->aged = 0;
    if (region->untouched > 0)
        cache->slots[region->aged++].promised_step = 0;
}

void kvreg_cache_end_step(kvreg_cache *cache)
{
    struct kvreg_region *region = cache->region;
    lock(cache);
    region->step = region->step == UINT32_MAX ? 1 : region->step + 1;
    age_promise(cache);
    while (region->aside.last != KVREG_NO_SLOT)
        put_back(cache, region->aside.last);
    region->stats.promised = 0;
    unlock(cache);
}

uint32_t *kvreg_cache_checksum(kvreg_cache *cache, uint32_t slot)
{
    return &cache->rests[slot].checksum;
}

bool kvreg_cache_take_events(kvreg_cache *cache, kvreg_event **list, size_t *count)
{
    lock(cache);
    bool taken = kvreg_events_take(&cache->events, list, count);
    unlock(cache);
    return taken;
}

void kvreg_cache_read_stats(kvreg_cache *cache, kvreg_cache_stats *stats)
{
    lock(cache);
    *stats = cache->region->stats;
    unlock(cache);
}
