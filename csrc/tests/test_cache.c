#include "cache.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

/* Calls on behalf of no request in particular. */
static const kvreg_use nobody;

/* A cache and the memory below it. */
static kvreg_cache cache;
static void *region;
static size_t region_bytes;

static void open_cache_with(const kvreg_policy *policy, uint32_t slots, bool watched)
{
    region_bytes = kvreg_cache_region_bytes(slots, policy);
    region = kvreg_os_map(region_bytes);
    CHECK(region != NULL);
    kvreg_cache_init(&cache, region, slots, policy, watched);
}

static void open_watched_cache(uint32_t slots, bool watched)
{
    open_cache_with(&kvreg_policy_lru, slots, watched);
}

static void open_cache(uint32_t slots)
{
    open_watched_cache(slots, false);
}

static void close_cache(void)
{
    kvreg_cache_destroy(&cache);
    kvreg_events_free(&cache.events);
    kvreg_os_unmap(region, region_bytes);
}

enum { MOST_KEYS = 64 };

/* Keys of one byte, one a character of `names`. */
static size_t make_keys(const char *names, kvreg_key *keys)
{
    size_t n = strlen(names);
    CHECK(n <= MOST_KEYS);
    for (size_t i = 0; i < n; i++)
        keys[i] = (kvreg_key){ .data = (const uint8_t *)names + i, .bytes = 1 };
    return n;
}

static kvreg_cache_block blocks[MOST_KEYS];

/* Begins a store; fills blocks[] and returns their number. */
static size_t begin_store(const char *names, size_t *dropped)
{
    kvreg_key keys[MOST_KEYS];
    size_t n = make_keys(names, keys);
    kvreg_cache_placed placed;
    CHECK(kvreg_cache_begin_store(&cache, keys, n, &nobody, blocks, &placed));
    *dropped = placed.dropped;
    return placed.blocks;
}

static void end(void (*call)(kvreg_cache *, const uint32_t *, size_t), size_t n)
{
    uint32_t slots[MOST_KEYS];
    for (size_t i = 0; i < n; i++)
        slots[i] = blocks[i].slot;
    call(&cache, slots, n);
}

/* Stores from beginning to end; returns how many keys were dropped. */
static size_t store(const char *names)
{
    size_t dropped;
    end(kvreg_cache_end_store, begin_store(names, &dropped));
    return dropped;
}

static size_t begin_load(const char *names)
{
    kvreg_key keys[MOST_KEYS];
    size_t n = make_keys(names, keys);
    size_t found;
    CHECK(kvreg_cache_begin_load(&cache, keys, n, &nobody, blocks, &found));
    return found;
}

static void touch(const char *names)
{
    kvreg_key keys[MOST_KEYS];
    size_t n = make_keys(names, keys);
    kvreg_cache_touch(&cache, keys, n, &nobody);
}

static kvreg_found look(char name)
{
    kvreg_key key = { .data = (const uint8_t *)&name, .bytes = 1 };
    return kvreg_cache_lookup(&cache, &key);
}

/* Whether exactly the keys in `names`, out of a to z, are hits. Ends the step, so that its own
 * lookups promise nothing to what follows. */
static bool holds(const char *names)
{
    bool same = true;
    for (char name = 'a'; name <= 'z'; name++)
        same &= (look(name) == KVREG_HIT) == (strchr(names, name) != NULL);
    kvreg_cache_end_step(&cache);
    return same;
}

static void a_block_is_a_hit_only_when_it_is_complete(void)
{
    size_t dropped;
    open_cache(2);
    CHECK(look('a') == KVREG_MISS);
    size_t n = begin_store("a", &dropped);
    CHECK(n == 1 && dropped == 0 && blocks[0].key == 0);
    CHECK(look('a') == KVREG_RETRY);
    end(kvreg_cache_end_store, n);
    CHECK(look('a') == KVREG_HIT);
    close_cache();
}

static void the_tail_of_a_prefix_is_evicted_first(void)
{
    open_cache(4);
    store("abcd");
    CHECK(store("e") == 0 && holds("abce"));
    CHECK(store("fg") == 0 && holds("aefg"));
    close_cache();
}

static void touch_and_load_change_recency_and_lookup_does_not(void)
{
    open_cache(3);
    store("a"), store("b"), store("c");
    touch("azb");
    CHECK(store("d") == 0 && holds("abd"));
    end(kvreg_cache_end_load, begin_load("b"));
    CHECK(look('a') == KVREG_HIT);
    kvreg_cache_end_step(&cache);
    CHECK(store("e") == 0 && holds("bde"));
    close_cache();
}

static void a_store_that_does_not_fit_keeps_the_head(void)
{
    open_cache(3);
    CHECK(store("abcde") == 2 && holds("abc"));
    CHECK(store("axyz") == 1 && holds("axy"));
    close_cache();
}

static void a_store_evicts_none_of_its_own_blocks(void)
{
    open_cache(3);
    store("a"), store("b"), store("c");
    CHECK(store("xba") == 0 && holds("abx"));
    CHECK(store("yxba") == 1 && holds("abx"));
    close_cache();
}

static void duplicates_in_a_store_are_one(void)
{
    size_t dropped;
    open_cache(4);
    store("a");
    CHECK(begin_store("abab", &dropped) == 1 && dropped == 0 && blocks[0].key == 1);
    end(kvreg_cache_end_store, 1);
    kvreg_cache_stats stats;
    kvreg_cache_read_stats(&cache, &stats);
    CHECK(stats.used == 2);
    close_cache();
}

static void a_promised_block_stays_until_the_step_ends(void)
{
    open_cache(3);
    store("a"), store("b"), store("c");
    CHECK(look('a') == KVREG_HIT && look('b') == KVREG_HIT);
    CHECK(store("xy") == 1 && look('a') == KVREG_HIT && look('b') == KVREG_HIT);
    CHECK(look('x') == KVREG_HIT && look('c') == KVREG_MISS);
    kvreg_cache_end_step(&cache);
    /* What was passed over is still in its old place: a before b before x. */
    CHECK(store("z") == 0 && holds("bxz"));
    CHECK(store("w") == 0 && holds("wxz"));
    close_cache();
}

static void a_pinned_block_stays_until_its_loads_end(void)
{
    open_cache(2);
    store("a"), store("b");
    CHECK(begin_load("a") == 1 && begin_load("ab") == 2);
    CHECK(store("x") == 1);
    kvreg_cache_stats stats;
    kvreg_cache_read_stats(&cache, &stats);
    CHECK(stats.pinned == 2);
    end(kvreg_cache_end_load, 2);
    /* One load of a is left. b was passed over in this step, and can be evicted in it. */
    CHECK(store("x") == 0 && holds("ax"));
    uint32_t slot = 0;
    kvreg_cache_end_load(&cache, &slot, 1);
    CHECK(store("y") == 0);
    kvreg_cache_read_stats(&cache, &stats);
    CHECK(stats.pinned == 0 && stats.evictions == 2);
    close_cache();
}

static void end_load_of(kvreg_cache_block block)
{
    kvreg_cache_end_load(&cache, &block.slot, 1);
}

static void blocks_released_within_a_step_are_evicted_in_the_policys_order(void)
{
    open_cache(4);
    store("d"), store("c"), store("b"), store("a");
    CHECK(begin_load("abcd") == 4);
    kvreg_cache_block a = blocks[0], b = blocks[1], c = blocks[2], d = blocks[3];
    CHECK(store("v") == 1);
    end_load_of(c), end_load_of(b);
    CHECK(store("w") == 0 && look('c') == KVREG_MISS);
    /* d goes before b, though the search has passed it. */
    end_load_of(d);
    CHECK(store("x") == 0 && look('d') == KVREG_MISS);
    /* b is where the search would go on, and is used: w and x are older now. */
    touch("b");
    CHECK(store("y") == 0 && look('w') == KVREG_MISS && look('b') == KVREG_HIT);
    end_load_of(a);
    CHECK(store("z") == 0 && look('a') == KVREG_MISS && look('x') == KVREG_HIT);
    close_cache();
}

static void a_block_being_written_is_not_evicted(void)
{
    size_t dropped;
    open_cache(2);
    size_t n = begin_store("ab", &dropped);
    kvreg_cache_block writing[2] = { blocks[0], blocks[1] };
    CHECK(store("x") == 1);
    memcpy(blocks, writing, sizeof writing);
    end(kvreg_cache_end_store, n);
    CHECK(store("x") == 0 && holds("ax"));
    close_cache();
}

static void a_load_serves_what_is_ready(void)
{
    size_t dropped;
    open_cache(4);
    store("ab");
    begin_store("c", &dropped);
    CHECK(begin_load("zbca") == 2 && blocks[0].key == 1 && blocks[1].key == 3);
    close_cache();
}

static void a_rejected_block_is_forgotten_and_its_slot_reused_when_nobody_reads_it(void)
{
    kvreg_cache_stats stats;
    open_cache(2);
    store("ab");
    CHECK(begin_load("a") == 1);
    kvreg_cache_block first = blocks[0];
    CHECK(look('a') == KVREG_HIT);
    CHECK(begin_load("a") == 1);
    end(kvreg_cache_reject_load, 1);
    CHECK(look('a') == KVREG_MISS && begin_load("a") == 0);
    kvreg_cache_read_stats(&cache, &stats);
    CHECK(stats.used == 2 && stats.pinned == 1 && stats.rejected == 1 && stats.promised == 0);
    /* Somebody still reads the slot, so that b has to go. */
    CHECK(store("x") == 0 && holds("x"));
    blocks[0] = first;
    end(kvreg_cache_reject_load, 1);
    kvreg_cache_read_stats(&cache, &stats);
    CHECK(stats.used == 1 && stats.pinned == 0 && stats.rejected == 2 && stats.evictions == 1);
    CHECK(store("a") == 0 && holds("ax"));
    kvreg_cache_read_stats(&cache, &stats);
    CHECK(stats.used == 2 && stats.evictions == 1);
    close_cache();
}

static void a_rejected_block_may_have_been_set_aside(void)
{
    open_cache(2);
    store("ab");
    CHECK(begin_load("a") == 1 && look('b') == KVREG_HIT);
    CHECK(store("x") == 1);
    end(kvreg_cache_reject_load, 1);
    CHECK(store("x") == 0 && look('x') == KVREG_HIT && look('b') == KVREG_HIT);
    kvreg_cache_end_step(&cache);
    CHECK(store("yz") == 0 && holds("yz"));
    close_cache();
}

static void a_cleared_cache_is_empty_and_as_good_as_new(void)
{
    kvreg_cache_stats stats;
    size_t dropped;
    open_cache(4);
    store("abc");
    look('a');
    CHECK(begin_store("d", &dropped) == 1);
    kvreg_cache_block writing = blocks[0];
    CHECK(begin_load("b") == 1);
    CHECK(kvreg_cache_clear(&cache));
    CHECK(look('a') == KVREG_MISS && look('b') == KVREG_MISS && look('d') == KVREG_RETRY);
    kvreg_cache_read_stats(&cache, &stats);
    CHECK(stats.used == 2 && stats.pinned == 1 && stats.promised == 0);
    end(kvreg_cache_end_load, 1);
    blocks[0] = writing;
    end(kvreg_cache_end_store, 1);
    CHECK(store("efg") == 0 && holds("defg"));
    close_cache();
}

static void no_promise_is_remembered_for_as_many_steps_as_there_are_slots(void)
{
    open_cache(4);
    store("abc");
    for (int step = 0; step < 9; step++)
        kvreg_cache_end_step(&cache);
    CHECK(look('a') == KVREG_HIT && look('b') == KVREG_HIT && look('c') == KVREG_HIT);
    for (int slot = 0; slot < 3; slot++)
        CHECK(cache.slots[slot].promised_step != 0);
    for (int step = 0; step < 3; step++)
        kvreg_cache_end_step(&cache);
    for (int slot = 0; slot < 3; slot++)
        CHECK(cache.slots[slot].promised_step == 0);
    close_cache();
}

/* -- Clearing while others call -------------------------------------------------------------- */

enum { MANY_SLOTS = 50000 };

static _Atomic bool cleared;

static kvreg_key numbered_key(const uint32_t *number)
{
    return (kvreg_key){ .data = (const uint8_t *)number, .bytes = sizeof *number };
}

static void *clear(void *unused)
{
    (void)unused;
    CHECK(kvreg_cache_clear(&cache));
    atomic_store(&cleared, true);
    return NULL;
}

static kvreg_found look_for_number(uint32_t number)
{
    kvreg_key key = numbered_key(&number);
    return kvreg_cache_lookup(&cache, &key);
}

static void lookups_are_answered_while_a_cache_is_cleared(void)
{
    kvreg_os_thread thread;
    kvreg_error error;
    size_t between = 0;
    open_cache(MANY_SLOTS);
    for (uint32_t i = 0; i < MANY_SLOTS; i++) {
        kvreg_key key = numbered_key(&i);
        kvreg_cache_placed placed;
        CHECK(kvreg_cache_begin_store(&cache, &key, 1, &nobody, blocks, &placed));
        end(kvreg_cache_end_store, placed.blocks);
    }
    CHECK(kvreg_os_thread_start(&thread, "clear", -1, clear, NULL, &error) == KVREG_OK);
    while (!atomic_load(&cleared))
        between += look_for_number(0) == KVREG_MISS &&
                   look_for_number(MANY_SLOTS - 1) == KVREG_HIT;
    kvreg_os_thread_join(&thread);
    CHECK(between > 0);
    kvreg_cache_stats stats;
    kvreg_cache_read_stats(&cache, &stats);
    CHECK(stats.used == 0 && stats.promised == 0);
    close_cache();
}

static void drops_are_counted_by_what_holds_the_slots(void)
{
    kvreg_cache_stats stats;
    size_t dropped;
    open_cache(2);
    store("abc");
    kvreg_cache_read_stats(&cache, &stats);
    CHECK(stats.dropped_oversized == 1);
    look('a');
    store("xy");
    kvreg_cache_read_stats(&cache, &stats);
    CHECK(stats.dropped_promised == 1 && stats.promised == 1);
    kvreg_cache_end_step(&cache);
    CHECK(begin_store("vw", &dropped) == 2);
    kvreg_cache_block writing[2] = { blocks[0], blocks[1] };
    store("pqr");
    kvreg_cache_read_stats(&cache, &stats);
    CHECK(stats.dropped_busy == 3 && stats.promised == 0);
    memcpy(blocks, writing, sizeof writing);
    end(kvreg_cache_end_store, 2);
    /* A key named twice holds one slot, and the promise holds the other. */
    look('v');
    store("wwx");
    kvreg_cache_read_stats(&cache, &stats);
    CHECK(stats.dropped_oversized == 1 && stats.dropped_promised == 2);
    close_cache();
}

/* Takes the events as text: "+a" for a stored, "-a" for a removed block. */
static const char *events(void)
{
    static char text[256];
    kvreg_event *list;
    size_t count;
    CHECK(kvreg_cache_take_events(&cache, &list, &count) && count < sizeof text / 2);
    for (size_t i = 0; i < count; i++) {
        CHECK(list[i].key_bytes == 1);
        text[2 * i] = list[i].removed ? '-' : '+';
        text[2 * i + 1] = (char)list[i].key[0];
    }
    text[2 * count] = '\0';
    kvreg_os_free(list);
    return text;
}

static void events_tell_each_change_once_and_in_order(void)
{
    size_t dropped;
    open_watched_cache(2, true);
    CHECK(strcmp(events(), "") == 0);
    store("ab");
    CHECK(strcmp(events(), "+a+b") == 0);
    CHECK(begin_store("c", &dropped) == 1);
    CHECK(strcmp(events(), "-b") == 0);
    end(kvreg_cache_end_store, 1);
    store("a");
    CHECK(begin_load("ac") == 2);
    blocks[0] = blocks[1];
    end(kvreg_cache_reject_load, 1);
    CHECK(strcmp(events(), "+c-c") == 0);
    CHECK(kvreg_cache_clear(&cache));
    CHECK(strcmp(events(), "-a") == 0);
    CHECK(strcmp(events(), "") == 0);
    close_cache();
}

static void events_of_long_keys_are_whole(void)
{
    uint8_t bytes[KVREG_KEY_MAX];
    kvreg_cache_placed placed;
    size_t count;
    kvreg_event *list;
    for (uint8_t i = 0; i < KVREG_KEY_MAX; i++)
        bytes[i] = i;
    open_watched_cache(1, true);
    kvreg_key key = { .data = bytes, .bytes = KVREG_KEY_MAX };
    CHECK(kvreg_cache_begin_store(&cache, &key, 1, &nobody, blocks, &placed));
    CHECK(placed.blocks == 1);
    end(kvreg_cache_end_store, 1);
    CHECK(kvreg_cache_take_events(&cache, &list, &count) && count == 1);
    CHECK(list->key_bytes == KVREG_KEY_MAX && memcmp(list->key, bytes, KVREG_KEY_MAX) == 0);
    kvreg_os_free(list);
    close_cache();
}

static void a_block_that_a_load_did_not_find_ready_is_used(void)
{
    open_cache(3);
    size_t dropped;
    CHECK(begin_store("a", &dropped) == 1);
    kvreg_cache_block a = blocks[0];
    CHECK(store("b") == 0 && store("c") == 0);
    /* The search for a victim passes a over. */
    CHECK(store("d") == 0 && look('b') == KVREG_MISS);
    CHECK(begin_load("a") == 0);
    kvreg_cache_end_store(&cache, &a.slot, 1);
    CHECK(store("e") == 0 && holds("ade"));
    close_cache();
}

/* -- Declined blocks ----------------------------------------------------------------------- */

static void observe_positions(void *state, kvreg_index *index, kvreg_key *keys, size_t n,
                              const kvreg_use *by, bool placed)
{
    kvreg_policy_observe_slots(state, index, keys, n, by, placed);
    for (size_t i = 0; i < n; i++)
        keys[i].rank = (int8_t)i;
}

static bool admits_the_first_two(const void *state, const kvreg_index *index,
                                 const kvreg_key *key, uint32_t used)
{
    (void)state, (void)index, (void)used;
    return key->rank < 2;
}

/* What becomes of a store's keys with a policy that declines all but its first two. */
static kvreg_cache_placed store_declining(const char *names)
{
    kvreg_policy policy = kvreg_policy_lru;
    kvreg_key keys[MOST_KEYS];
    kvreg_cache_placed placed;
    policy.observe = observe_positions;
    policy.admits = admits_the_first_two;
    open_cache_with(&policy, 4, false);
    CHECK(kvreg_cache_begin_store(&cache, keys, make_keys(names, keys), &nobody, blocks, &placed));
    kvreg_cache_stats stats;
    kvreg_cache_read_stats(&cache, &stats);
    CHECK(stats.declined == placed.declined && stats.used == placed.blocks);
    close_cache();
    return placed;
}

static void declined_keys_get_no_slot(void)
{
    kvreg_cache_placed placed = store_declining("abcde");
    CHECK(placed.blocks == 2 && placed.declined == 3 && placed.dropped == 0);
    placed = store_declining("abcc");
    CHECK(placed.blocks == 2 && placed.declined == 2 && placed.dropped == 0);
}

static void a_key_that_got_a_slot_is_not_declined_where_it_comes_again(void)
{
    kvreg_cache_placed placed = store_declining("abcaab");
    CHECK(placed.blocks == 2 && placed.declined == 1 && placed.dropped == 0);
}

enum { GHOSTS = 30000 }; /* of KRL, with few slots */

static uint64_t numbers[GHOSTS];
static kvreg_key numbered[GHOSTS];

/* Keys whose bytes are those of numbers in order. */
static void number_keys(uint64_t first, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        numbers[i] = first + i;
        numbered[i] = (kvreg_key){ .data = (const uint8_t *)&numbers[i], .bytes = sizeof *numbers };
    }
}

/* Stores the numbered keys; returns how many were declined. */
static size_t store_numbered(size_t n, const kvreg_use *by)
{
    kvreg_cache_block placed_blocks[8];
    kvreg_cache_placed placed;
    CHECK(kvreg_cache_begin_store(&cache, numbered, n, by, placed_blocks, &placed));
    for (size_t i = 0; i < placed.blocks; i++)
        kvreg_cache_end_store(&cache, &placed_blocks[i].slot, 1);
    return placed.declined;
}

static size_t ghosts_of(uint64_t number)
{
    kvreg_key key = { .data = (const uint8_t *)&number, .bytes = sizeof number };
    size_t count = 0;
    kvreg_index_hash(&cache.index, &key);
    for (uint32_t i = 0; i < cache.index.ghost_count; i++)
        count += cache.index.ghosts[i] == key.hash;
    return count;
}

/* A cache of KRL with one slot that has seen enough keys come back a minute later to decline new
 * ones, and evicted a block that was worth as much. Returns the time. */
static uint32_t open_declining(void)
{
    enum { MINUTE = 60 * KVREG_TICKS_A_SECOND, RETURNS = 300 };
    open_cache_with(&kvreg_policy_krl, 1, false);
    for (uint32_t request = 1; request <= 2; request++) {
        number_keys(1, RETURNS);
        for (size_t i = 0; i < RETURNS; i++)
            kvreg_cache_touch(&cache, &numbered[i], 1,
                              &(kvreg_use){ .request = request, .now = request * MINUTE });
    }
    for (uint64_t number = 1000; number < 1002; number++) {
        number_keys(number, 1);
        CHECK(store_numbered(1, &(kvreg_use){ .now = 3 * MINUTE }) == 0);
    }
    return 3 * MINUTE;
}

static void a_key_that_krl_declines_twice_in_a_store_is_one_ghost(void)
{
    kvreg_use by = { .request = 3, .now = open_declining() };
    number_keys(5000, 2);
    numbers[1] = numbers[0];
    CHECK(store_numbered(2, &by) == 2 && ghosts_of(5000) == 1);
    close_cache();
}

static void a_declined_key_whose_ghost_its_own_store_pushes_out_is_a_ghost_again(void)
{
    kvreg_use by = { .request = 3, .now = open_declining() };
    number_keys(5000, 1);
    CHECK(store_numbered(1, &by) == 1);
    by.request = 4;
    number_keys(10000, GHOSTS - 1);
    kvreg_cache_touch(&cache, numbered, GHOSTS - 1, &by);
    CHECK(ghosts_of(5000) == 1);
    by.request = 3;
    number_keys(50000, 4);
    numbers[0] = 5000;
    CHECK(store_numbered(4, &by) == 4 && ghosts_of(5000) == 1);
    close_cache();
}

/* As the documentation says it. Where its figures are larger than they need be, that shows too. */
static void check_metadata(const kvreg_policy *policy, size_t slot_bytes)
{
    for (uint32_t slots = 1; slots <= 1 << 24; slots += 1 + slots / 7) {
        size_t ghosts = policy != &kvreg_policy_krl ? 0 : slots < GHOSTS ? GHOSTS : slots;
        size_t most = slots * slot_bytes + ghosts * 34 + 8192;
        size_t bytes = kvreg_cache_region_bytes(slots, policy);
        CHECK(bytes <= most && bytes + 8192 >= most - most / 50);
    }
}

static void metadata_is_what_is_documented(void)
{
    check_metadata(&kvreg_policy_lru, 110);
    check_metadata(&kvreg_policy_s3fifo, 127);
    check_metadata(&kvreg_policy_krl, 118);
}

static void groups_are_those_whose_numbers_end_the_keys_that_were_stored(void)
{
    static const uint8_t names[][6] = {
        { 'a', 'a', 0, 0, 0, 0 }, { 'b', 'b', 0, 0, 0, 0 },  { 'a', 'a', 0, 0, 0, 63 },
        { 'a', 'a', 0, 0, 0, 64 }, { 'a', 'a', 0, 0, 1, 5 }, { 'a', 'a', 'a', 0, 0, 5 },
    };
    static const uint8_t short_name[4] = { 0, 0, 0, 7 };
    kvreg_cache_placed placed;
    kvreg_cache_stats stats;
    open_cache(2);
    for (size_t i = 0; i <= sizeof names / sizeof names[0]; i++) {
        kvreg_key key = { .data = short_name, .bytes = sizeof short_name };
        if (i < sizeof names / sizeof names[0])
            key = (kvreg_key){ .data = names[i], .bytes = sizeof names[i] };
        CHECK(kvreg_cache_begin_store(&cache, &key, 1, &nobody, blocks, &placed));
        end(kvreg_cache_end_store, placed.blocks);
    }
    kvreg_cache_read_stats(&cache, &stats);
    CHECK(stats.groups == ((uint64_t)1 | (uint64_t)1 << 63));
    close_cache();
}

static void unknown_policies_are_refused_with_the_names_there_are(void)
{
    const kvreg_policy *policy;
    kvreg_error error;
    CHECK(kvreg_policy_find("lru", &policy, &error) == KVREG_OK && policy == &kvreg_policy_lru);
    CHECK(kvreg_policy_find("mru", &policy, &error) == KVREG_E_ARGUMENT);
    CHECK(strstr(error.text, "mru") != NULL && strstr(error.text, "lru") != NULL);
}

int main(void)
{
    RUN(a_block_is_a_hit_only_when_it_is_complete);
    RUN(a_block_that_a_load_did_not_find_ready_is_used);
    RUN(declined_keys_get_no_slot);
    RUN(a_key_that_got_a_slot_is_not_declined_where_it_comes_again);
    RUN(the_tail_of_a_prefix_is_evicted_first);
    RUN(touch_and_load_change_recency_and_lookup_does_not);
    RUN(a_store_that_does_not_fit_keeps_the_head);
    RUN(a_store_evicts_none_of_its_own_blocks);
    RUN(duplicates_in_a_store_are_one);
    RUN(a_promised_block_stays_until_the_step_ends);
    RUN(a_pinned_block_stays_until_its_loads_end);
    RUN(blocks_released_within_a_step_are_evicted_in_the_policys_order);
    RUN(a_block_being_written_is_not_evicted);
    RUN(a_load_serves_what_is_ready);
    RUN(a_rejected_block_is_forgotten_and_its_slot_reused_when_nobody_reads_it);
    RUN(a_rejected_block_may_have_been_set_aside);
    RUN(a_cleared_cache_is_empty_and_as_good_as_new);
    RUN(no_promise_is_remembered_for_as_many_steps_as_there_are_slots);
    RUN(lookups_are_answered_while_a_cache_is_cleared);
    RUN(drops_are_counted_by_what_holds_the_slots);
    RUN(events_tell_each_change_once_and_in_order);
    RUN(events_of_long_keys_are_whole);
    RUN(a_key_that_krl_declines_twice_in_a_store_is_one_ghost);
    RUN(a_declined_key_whose_ghost_its_own_store_pushes_out_is_a_ghost_again);
    RUN(metadata_is_what_is_documented);
    RUN(groups_are_those_whose_numbers_end_the_keys_that_were_stored);
    RUN(unknown_policies_are_refused_with_the_names_there_are);
    return check_end();
}
