#include "policy.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "lines.h"
#include "seeds.h"
#include "slot.h"

/* -- Every policy -------------------------------------------------------------------------- */

enum { MOST_SLOTS = 64, STEPS = 100000, STEPS_A_COUNT = 100, NUMBERS = 100 };

/* Where a slot is: with its owner, without a block; in the policy; or with its owner, as one of
 * the candidates. */
enum place { IDLE, ORDERED, OUT };

/* A policy, and what its owner knows. Keys are numbers. */
typedef struct owner {
    const kvreg_policy *policy;
    void *state;
    kvreg_index index;
    enum place places[MOST_SLOTS];
    uint32_t now;
    uint32_t candidates[MOST_SLOTS]; /* slots taken out, the latest last */
    size_t candidate_count;
} owner;

static owner open_policy(const kvreg_policy *policy, uint32_t slots)
{
    uint32_t ghosts = policy->ghosts == NULL ? 0 : policy->ghosts(slots);
    uint32_t groups = kvreg_index_group_count(slots, ghosts);
    owner own = { .policy = policy };
    own.index = (kvreg_index){
        .seed = seed_of(0),
        .table = { new_lines(groups * sizeof(kvreg_group)), groups },
        .slots = new_lines(slots * sizeof(kvreg_slot)),
        .rests = new_lines(slots * sizeof(kvreg_slot_rest)),
        .ghosts = new_lines(ghosts * sizeof(uint64_t)),
        .slot_count = slots,
        .ghost_count = ghosts,
    };
    own.state = new_lines(policy->state_bytes(slots));
    policy->init(own.state, slots);
    return own;
}

static void close_policy(owner *own)
{
    free(own->state);
    free(own->index.table.groups);
    free(own->index.slots);
    free(own->index.rests);
    free(own->index.ghosts);
}

/* Searches for a key, whose bytes are those of `number`. */
static kvreg_key find(const owner *own, const uint64_t *number)
{
    kvreg_key key = { .data = (const uint8_t *)number, .bytes = sizeof *number };
    kvreg_index_hash(&own->index, &key);
    key.slot = kvreg_index_find(&own->index, &key);
    return key;
}

static kvreg_key observe_one(owner *own, const uint64_t *number, uint32_t request)
{
    kvreg_key key = find(own, number);
    kvreg_use use = { .request = request, .now = own->now };
    own->policy->observe(own->state, &own->index, &key, 1, &use, true);
    return key;
}

static bool admits(const owner *own, const kvreg_key *key, uint32_t used)
{
    return own->policy->admits == NULL ||
           own->policy->admits(own->state, &own->index, key, used);
}

/* Of a key that is in no slot. */
static void add(owner *own, uint32_t slot, uint64_t number)
{
    kvreg_key key = observe_one(own, &number, 0);
    CHECK(key.slot == KVREG_NO_SLOT);
    if (!admits(own, &key, 0)) {
        own->policy->missed(own->state, &own->index, &key);
        return;
    }
    kvreg_index_insert(&own->index, &key, slot);
    own->policy->add(own->state, &own->index, slot, &key);
    own->places[slot] = ORDERED;
}

static void take_key(owner *own, uint32_t slot, uint32_t ghost)
{
    own->places[slot] = IDLE;
    if (ghost == KVREG_NO_SLOT)
        kvreg_index_remove(&own->index, slot);
    else
        kvreg_index_make_ghost(&own->index, slot, ghost);
}

static bool take(owner *own)
{
    uint32_t slot = own->policy->take_victim(own->state);
    if (slot == KVREG_NO_SLOT)
        return false;
    CHECK(slot < own->index.slot_count && own->places[slot] == ORDERED);
    own->places[slot] = OUT;
    own->candidates[own->candidate_count++] = slot;
    return true;
}

/* Removes a candidate from the list and returns it. */
static uint32_t choose_candidate(owner *own, size_t i)
{
    uint32_t slot = own->candidates[i];
    own->candidate_count--;
    memmove(own->candidates + i, own->candidates + i + 1,
            (own->candidate_count - i) * sizeof *own->candidates);
    return slot;
}

static void put_back(owner *own, size_t i)
{
    uint32_t slot = choose_candidate(own, i);
    own->policy->put_back(own->state, slot);
    own->places[slot] = ORDERED;
}

static void evict(owner *own, size_t i)
{
    uint32_t slot = choose_candidate(own, i);
    take_key(own, slot, own->policy->evicted == NULL
                            ? KVREG_NO_SLOT
                            : own->policy->evicted(own->state, &own->index, slot));
}

static size_t candidate_of(const owner *own, uint32_t slot)
{
    size_t i = 0;
    while (own->candidates[i] != slot)
        i++;
    return i;
}

/* A request's use of some blocks, of which some are here. */
static void observe(owner *own)
{
    kvreg_key keys[6];
    uint64_t numbers[6];
    kvreg_use use = { .request = (uint32_t)rand() % 4, .now = own->now, .whole = rand() % 2 };
    size_t n = (size_t)rand() % 6;
    for (size_t i = 0; i < n; i++) {
        numbers[i] = (uint64_t)rand() % NUMBERS;
        keys[i] = find(own, &numbers[i]);
    }
    own->now += rand() % 8 == 0 ? (uint32_t)rand() : (uint32_t)rand() % 100;
    own->policy->observe(own->state, &own->index, keys, n, &use, false);
    for (size_t i = n; i-- > 0;) {
        if (!keys[i].used)
            continue;
        if (own->places[keys[i].slot] == OUT)
            put_back(own, candidate_of(own, keys[i].slot));
        own->policy->use(own->state, keys[i].slot);
    }
}

/* One call with a slot, of those that its place allows. */
static void do_something(owner *own, uint32_t slot)
{
    uint64_t number = (uint64_t)rand() % NUMBERS;
    size_t count = own->candidate_count;
    switch (rand() % 9) {
    case 0:
    case 1:
        take(own);
        break;
    case 2:
        if (count > 0)
            put_back(own, count - 1);
        break;
    case 3:
        if (count > 0)
            evict(own, (size_t)rand() % count);
        break;
    case 4: /* a use of a candidate */
        if (count > 0) {
            size_t i = (size_t)rand() % count;
            slot = own->candidates[i];
            put_back(own, i);
            own->policy->use(own->state, slot);
        }
        break;
    case 5:
        if (own->places[slot] == ORDERED && rand() % 4 == 0) {
            take_key(own, slot, own->policy->remove(own->state, &own->index, slot));
        }
        break;
    case 6:
        observe(own);
        break;
    default:
        if (own->places[slot] == ORDERED)
            own->policy->use(own->state, slot);
        else if (own->places[slot] == IDLE && find(own, &number).slot == KVREG_NO_SLOT)
            add(own, slot, number);
        break;
    }
}

/* Takes out everything, and puts it back. */
static void check_every_slot_is_there_once(owner *own)
{
    size_t before = own->candidate_count, ordered = 0;
    for (uint32_t slot = 0; slot < own->index.slot_count; slot++)
        ordered += own->places[slot] == ORDERED;
    while (take(own))
        ;
    CHECK(own->candidate_count - before == ordered);
    while (own->candidate_count > before)
        put_back(own, own->candidate_count - 1);
}

static size_t count_ghosts(const owner *own, uint64_t hash)
{
    size_t count = 0;
    for (uint32_t i = 0; i < own->index.ghost_count; i++)
        count += own->index.ghosts[i] == hash;
    return count;
}

/* A key is in a slot, or one ghost, or neither; and the index lists nothing else. */
static void check_every_key_is_there_once(const owner *own)
{
    size_t listed = 0;
    for (uint32_t i = 0; i < own->index.table.count * KVREG_GROUP_PLACES; i++)
        listed += own->index.table.groups[i / KVREG_GROUP_PLACES].tags[i % KVREG_GROUP_PLACES]
                  != KVREG_NO_TAG;
    for (uint32_t slot = 0; slot < own->index.slot_count; slot++)
        listed -= own->places[slot] != IDLE;
    CHECK(listed == own->index.ghost_count - count_ghosts(own, 0));
    for (uint64_t number = 0; number < NUMBERS; number++) {
        kvreg_key key = find(own, &number);
        CHECK(count_ghosts(own, key.hash) <= (key.slot == KVREG_NO_SLOT));
    }
}

static void any_sequence_of_calls_keeps_each_slot_once(void)
{
    srand(1);
    for (size_t i = 0; kvreg_policies[i] != NULL; i++) {
        for (uint32_t slots = 1; slots <= MOST_SLOTS; slots = slots * 2 + rand() % 2) {
            owner own = open_policy(kvreg_policies[i], slots);
            for (int step = 0; step < STEPS; step++) {
                do_something(&own, (uint32_t)rand() % slots);
                if (step % STEPS_A_COUNT == 0)
                    check_every_slot_is_there_once(&own);
            }
            check_every_key_is_there_once(&own);
            close_policy(&own);
        }
    }
}

/* Far more blocks than there is room for ghosts. */
static void blocks_without_end_leave_no_more_than_their_ghosts(void)
{
    for (size_t i = 0; kvreg_policies[i] != NULL; i++) {
        owner own = open_policy(kvreg_policies[i], MOST_SLOTS);
        for (uint64_t number = 0; number < STEPS; number++) {
            uint32_t slot = (uint32_t)number;
            if (number >= MOST_SLOTS) {
                CHECK(take(&own));
                slot = own.candidates[0];
                evict(&own, 0);
            }
            add(&own, slot, number);
        }
        check_every_key_is_there_once(&own);
        CHECK(count_ghosts(&own, 0) == 0);
        close_policy(&own);
    }
}

static void a_key_that_is_missed_twice_is_one_ghost(void)
{
    for (size_t i = 0; kvreg_policies[i] != NULL; i++) {
        owner own = open_policy(kvreg_policies[i], 1);
        uint64_t number = 5;
        kvreg_key keys[] = { find(&own, &number), find(&own, &number) };
        own.policy->observe(own.state, &own.index, keys, 2, &(kvreg_use){ .request = 1 }, true);
        for (size_t j = 2; j-- > 0 && own.policy->missed != NULL;)
            own.policy->missed(own.state, &own.index, &keys[j]);
        check_every_key_is_there_once(&own);
        close_policy(&own);
    }
}

static void what_is_put_back_comes_again_in_the_same_order(void)
{
    srand(2);
    for (size_t i = 0; kvreg_policies[i] != NULL; i++) {
        owner own = open_policy(kvreg_policies[i], MOST_SLOTS);
        for (int step = 0; step < STEPS; step++) {
            do_something(&own, (uint32_t)rand() % MOST_SLOTS);
            uint32_t order[MOST_SLOTS];
            size_t first = own.candidate_count;
            size_t wanted = first + (size_t)rand() % 5;
            while (own.candidate_count < wanted && take(&own))
                ;
            size_t taken = own.candidate_count - first;
            memcpy(order, own.candidates + first, taken * sizeof *order);
            while (own.candidate_count > first)
                put_back(&own, own.candidate_count - 1);
            for (size_t j = 0; j < taken; j++)
                CHECK(take(&own) && own.candidates[first + j] == order[j]);
            while (own.candidate_count > first)
                put_back(&own, own.candidate_count - 1);
        }
        close_policy(&own);
    }
}

static void what_is_added_tail_first_is_given_up_tail_first(void)
{
    for (size_t i = 0; kvreg_policies[i] != NULL; i++) {
        owner own = open_policy(kvreg_policies[i], MOST_SLOTS);
        for (uint32_t slot = MOST_SLOTS; slot-- > 0;)
            add(&own, slot, slot);
        for (uint32_t slot = MOST_SLOTS; slot-- > 0;)
            CHECK(own.policy->take_victim(own.state) == slot);
        close_policy(&own);
    }
}

/* -- S3-FIFO ------------------------------------------------------------------------------- */

/* A cache of 20 blocks: 2 make up the small queue's share, 18 the main queue's. */
enum { SLOTS = 20, MAIN_SHARE = 18, NOTHING = -1 };

static owner queues;
static int block_of[SLOTS];

static void open_queues(void)
{
    queues = open_policy(&kvreg_policy_s3fifo, SLOTS);
    for (int i = 0; i < SLOTS; i++)
        block_of[i] = NOTHING;
}

static void close_queues(void)
{
    close_policy(&queues);
}

/* The slot of a block; of NOTHING, a free one, or SLOTS. */
static uint32_t slot_of(int block)
{
    uint32_t slot = 0;
    while (slot < SLOTS && block_of[slot] != block)
        slot++;
    return slot;
}

static bool is_there(int block)
{
    return slot_of(block) < SLOTS;
}

/* Puts a new block, whose number is its key as well, where need be in place of a victim. */
static void insert(int block)
{
    uint32_t slot = slot_of(NOTHING);
    if (slot == SLOTS) {
        CHECK(take(&queues));
        slot = queues.candidates[0];
        evict(&queues, 0);
    }
    block_of[slot] = block;
    add(&queues, slot, (uint32_t)block);
}

static void insert_all(int first, int end)
{
    for (int block = first; block < end; block++)
        insert(block);
}

static void use(int block, int times)
{
    CHECK(is_there(block));
    for (int i = 0; i < times; i++)
        queues.policy->use(queues.state, slot_of(block));
}

/* How many of the blocks from `first` on, before `end`, are there. */
static int count_there(int first, int end)
{
    int count = 0;
    for (int block = first; block < end; block++)
        count += is_there(block);
    return count;
}

/* Fills the cache: blocks 0 to 17 in the main queue, 18 and 19 in the small one. */
static void fill(void)
{
    insert_all(0, SLOTS);
    for (int block = 0; block < MAIN_SHARE; block++)
        use(block, 2);
    /* The search for a victim moves them. */
    CHECK(take(&queues) && block_of[queues.candidates[0]] == MAIN_SHARE);
    put_back(&queues, 0);
}

static void a_scan_leaves_the_main_queue_alone(void)
{
    open_queues();
    fill();
    insert_all(100, 1000);
    CHECK(count_there(0, MAIN_SHARE) == MAIN_SHARE);
    CHECK(is_there(998) && is_there(999));
    close_queues();
}

static void two_uses_lead_from_the_small_queue_to_the_main_one(void)
{
    open_queues();
    fill();
    insert_all(100, 102);
    use(100, 1);
    use(101, 2);
    insert_all(200, 300);
    CHECK(!is_there(100) && is_there(101));
    close_queues();
}

static void a_ghost_enters_the_main_queue(void)
{
    open_queues();
    fill();
    insert_all(100, 103);
    CHECK(!is_there(100));
    insert(100);
    insert_all(200, 300);
    CHECK(is_there(100) && count_there(0, MAIN_SHARE) == MAIN_SHARE - 1);
    close_queues();
}

static void ghosts_are_as_many_as_the_main_queues_share(void)
{
    /* Before 100 is added again, it and 1 + `others` after it became ghosts. */
    for (int others = 0; others <= MAIN_SHARE; others++) {
        open_queues();
        fill();
        insert_all(100, 103 + others);
        insert(100);
        insert_all(200, 202);
        CHECK(is_there(100) == (others < MAIN_SHARE - 1));
        close_queues();
    }
}

static void a_victim_of_the_main_queue_is_no_ghost(void)
{
    open_queues();
    fill();
    insert_all(100, 103);
    insert(100);
    /* The main queue is over its share. */
    insert(200);
    CHECK(!is_there(0));
    insert(0);
    insert_all(201, 203);
    CHECK(!is_there(0));
    close_queues();
}

static void the_main_queue_keeps_a_block_a_round_longer_for_each_of_three_uses(void)
{
    for (int uses = 0; uses <= 5; uses++) {
        open_queues();
        fill();
        use(0, uses);
        int rounds = 0;
        for (int block = 100; is_there(0); block++) {
            /* A ghost pushes a block out of the main queue. */
            insert_all(block * 10, block * 10 + 3);
            insert(block * 10);
            rounds += block % MAIN_SHARE == 100 % MAIN_SHARE;
        }
        CHECK(rounds == 1 + (uses < 3 ? uses : 3));
        close_queues();
    }
}

static void a_candidate_that_is_used_goes_through_its_queue_again(void)
{
    open_queues();
    fill();
    CHECK(take(&queues) && take(&queues));
    CHECK(block_of[queues.candidates[0]] == 18 && block_of[queues.candidates[1]] == 19);
    /* Used tail first, as the order in the queue is. */
    put_back(&queues, 0);
    use(18, 1);
    put_back(&queues, 0);
    use(19, 1);
    insert(100);
    CHECK(!is_there(18) && is_there(19));
    insert(101);
    CHECK(!is_there(19));
    close_queues();
}

static void a_search_ends_although_every_block_was_used(void)
{
    enum { SLOTS = 5000 };
    owner own = open_policy(&kvreg_policy_s3fifo, SLOTS);
    for (uint32_t slot = 0; slot < SLOTS; slot++) {
        own.policy->add(own.state, &own.index, slot, &(kvreg_key){ .ghost = KVREG_NO_SLOT });
        for (int uses = 0; uses < 3; uses++)
            own.policy->use(own.state, slot);
    }
    /* It moved the thousand before this one on, and does not come round to the first. */
    CHECK(own.policy->take_victim(own.state) == 1000);
    CHECK(own.policy->take_victim(own.state) == 2001);
    close_policy(&own);
}

/* -- KRL ----------------------------------------------------------------------------------- */

/* Whether a block of a new key would be admitted to the full cache. */
static bool admits_new(owner *own, uint64_t number)
{
    kvreg_key key = observe_one(own, &number, 1);
    return admits(own, &key, own->index.slot_count);
}

/* A cache of one slot that has seen enough keys come back a minute later to learn from, and that has
 * evicted a block that was worth as much as a new one. */
static owner open_declining(uint32_t now)
{
    owner own = open_policy(&kvreg_policy_krl, 1);
    own.now = now;
    for (uint64_t number = 1; number <= 300; number++) {
        kvreg_key key = observe_one(&own, &number, 1);
        own.policy->missed(own.state, &own.index, &key);
    }
    own.now += 60 * KVREG_TICKS_A_SECOND;
    for (uint64_t number = 1; number <= 300; number++)
        observe_one(&own, &number, 2);
    own.now += 60 * KVREG_TICKS_A_SECOND;
    add(&own, 0, 1000);
    CHECK(take(&own));
    evict(&own, 0);
    return own;
}

static void what_is_declined_is_admitted_some_time_later(void)
{
    /* Also where ticks wrap in the meantime. */
    const uint32_t starts[] = { 0, 5, UINT32_MAX, 0u - 61 * KVREG_TICKS_A_SECOND,
                                0u - 121 * KVREG_TICKS_A_SECOND, 0x7fffff00u };
    for (size_t i = 0; i < sizeof starts / sizeof *starts; i++) {
        owner own = open_declining(starts[i]);
        CHECK(!admits_new(&own, 2000));
        own.now += 120 * KVREG_TICKS_A_SECOND;
        CHECK(admits_new(&own, 2001));
        close_policy(&own);
    }
}

static void time_goes_on_after_a_clock_was_set(void)
{
    /* Back by an hour, by a day, and by most of what ticks can tell; ahead by as much. */
    const uint32_t jumps[] = { 0u - 3600 * KVREG_TICKS_A_SECOND,
                               0u - 86400 * KVREG_TICKS_A_SECOND, 0x80000001u, 0x80000000u };
    for (size_t i = 0; i < sizeof jumps / sizeof *jumps; i++) {
        owner own = open_declining(100000);
        own.now += jumps[i];
        CHECK(!admits_new(&own, 2000));
        own.now += 120 * KVREG_TICKS_A_SECOND;
        CHECK(admits_new(&own, 2001));
        close_policy(&own);
    }
}

static void time_stands_still_while_a_clock_is_a_little_behind(void)
{
    owner own = open_declining(100000);
    own.now += 120 * KVREG_TICKS_A_SECOND;
    CHECK(admits_new(&own, 2000));
    own.now -= 9 * KVREG_TICKS_A_SECOND;
    CHECK(admits_new(&own, 2001));
    close_policy(&own);
}

int main(void)
{
    RUN(any_sequence_of_calls_keeps_each_slot_once);
    RUN(blocks_without_end_leave_no_more_than_their_ghosts);
    RUN(a_key_that_is_missed_twice_is_one_ghost);
    RUN(what_is_put_back_comes_again_in_the_same_order);
    RUN(what_is_added_tail_first_is_given_up_tail_first);
    RUN(a_scan_leaves_the_main_queue_alone);
    RUN(two_uses_lead_from_the_small_queue_to_the_main_one);
    RUN(a_ghost_enters_the_main_queue);
    RUN(ghosts_are_as_many_as_the_main_queues_share);
    RUN(a_victim_of_the_main_queue_is_no_ghost);
    RUN(the_main_queue_keeps_a_block_a_round_longer_for_each_of_three_uses);
    RUN(a_candidate_that_is_used_goes_through_its_queue_again);
    RUN(a_search_ends_although_every_block_was_used);
    RUN(what_is_declined_is_admitted_some_time_later);
    RUN(time_goes_on_after_a_clock_was_set);
    RUN(time_stands_still_while_a_clock_is_a_little_behind);
    return check_end();
}
