#include "tier.h"

#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backend_dram.h"
#include "check.h"

enum { BLOCK_BYTES = 512, ROWS = 64, SLOTS = 32, MOST_KEYS = 64 };

/* Calls on behalf of no request in particular. */
static const kvreg_use nobody;

static uint8_t primary[ROWS][BLOCK_BYTES];

static kvreg_tier_config config(void)
{
    return (kvreg_tier_config){
        .primary = { primary, BLOCK_BYTES, ROWS },
        .block_bytes = BLOCK_BYTES,
        .capacity_bytes = SLOTS * BLOCK_BYTES,
        .workers = 2,
        .policy = "lru",
        .backend = &kvreg_backend_dram,
    };
}

static kvreg_tier *open_tier(void)
{
    kvreg_tier_config chosen = config();
    kvreg_tier *tier;
    kvreg_error error;
    CHECK(kvreg_tier_open(&chosen, &tier, &error) == KVREG_OK);
    return tier;
}

static void end_tier(kvreg_tier *tier)
{
    kvreg_tier_close(tier);
    kvreg_tier_close(tier);
    kvreg_tier_free(tier);
}

/* Blocks are named by numbers, and the bytes of each follow from its number. */

static void fill(uint8_t *row, uint32_t number)
{
    for (uint32_t i = 0; i < BLOCK_BYTES; i++)
        row[i] = (uint8_t)(number * 31 + i * (1 + number % 7));
}

static bool filled(const uint8_t *row, uint32_t number)
{
    uint8_t expected[BLOCK_BYTES];
    fill(expected, number);
    return memcmp(row, expected, BLOCK_BYTES) == 0;
}

/* Keys of blocks first, first + 1, ... and the rows from `row` on. */
typedef struct request {
    uint32_t numbers[MOST_KEYS], rows[MOST_KEYS];
    kvreg_key keys[MOST_KEYS];
    size_t n;
} request;

static void make_request(request *made, uint32_t first, size_t n, uint32_t row)
{
    made->n = n;
    for (size_t i = 0; i < n; i++) {
        made->numbers[i] = first + (uint32_t)i;
        made->rows[i] = row + (uint32_t)i;
        made->keys[i] = (kvreg_key){
            .data = (const uint8_t *)&made->numbers[i],
            .bytes = sizeof made->numbers[i],
        };
    }
}

static void submit_store(kvreg_tier *tier, int64_t job, uint32_t first, size_t n, uint32_t row)
{
    request made;
    kvreg_error error;
    make_request(&made, first, n, row);
    for (size_t i = 0; i < n; i++)
        fill(primary[row + i], first + (uint32_t)i);
    CHECK(kvreg_tier_store(tier, job, made.keys, made.rows, n, &nobody, &error) == KVREG_OK);
}

static void submit_load(kvreg_tier *tier, int64_t job, uint32_t first, size_t n, uint32_t row)
{
    request made;
    kvreg_error error;
    make_request(&made, first, n, row);
    for (size_t i = 0; i < n; i++)
        memset(primary[row + i], 0, BLOCK_BYTES);
    CHECK(kvreg_tier_load(tier, job, made.keys, made.rows, n, &nobody, &error) == KVREG_OK);
}

static kvreg_tier_result take_result(kvreg_tier *tier)
{
    kvreg_tier_result result;
    CHECK(kvreg_tier_take_result(tier, &result));
    return result;
}

static kvreg_found look(kvreg_tier *tier, uint32_t number)
{
    kvreg_key key = { .data = (const uint8_t *)&number, .bytes = sizeof number };
    return kvreg_tier_lookup(tier, &key);
}

static void a_stored_block_comes_back(void)
{
    kvreg_tier *tier = open_tier();
    submit_store(tier, 7, 100, 20, 0);
    kvreg_tier_drain(tier);
    kvreg_tier_result result = take_result(tier);
    CHECK(result.job == 7 && !result.load && result.keys == 20 && result.failed == 0);
    CHECK(result.blocks == 20 && result.bytes == 20 * BLOCK_BYTES);
    kvreg_tier_free_result(&result);
    CHECK(look(tier, 119) == KVREG_HIT && look(tier, 120) == KVREG_MISS);
    submit_load(tier, 8, 100, 20, 30);
    kvreg_tier_drain(tier);
    result = take_result(tier);
    CHECK(result.job == 8 && result.load && result.failed == 0);
    kvreg_tier_free_result(&result);
    for (uint32_t i = 0; i < 20; i++)
        CHECK(filled(primary[30 + i], 100 + i));
    CHECK(!kvreg_tier_pending(tier));
    end_tier(tier);
}

static void a_load_says_which_keys_it_served(void)
{
    kvreg_tier *tier = open_tier();
    submit_store(tier, 1, 10, 2, 0);
    kvreg_tier_drain(tier);
    submit_load(tier, 2, 9, 4, 20);
    kvreg_tier_drain(tier);
    kvreg_tier_result result = take_result(tier);
    kvreg_tier_free_result(&result);
    result = take_result(tier);
    CHECK(result.keys == 4 && result.failed == 2 && result.blocks == 2);
    CHECK(result.served[0].key == 1 && result.served[1].key == 2);
    CHECK(filled(primary[21], 10) && filled(primary[22], 11));
    kvreg_tier_free_result(&result);
    end_tier(tier);
}

static void jobs_without_a_copy_end_at_once(void)
{
    kvreg_tier *tier = open_tier();
    submit_store(tier, 1, 0, 0, 0);
    submit_load(tier, 2, 500, 5, 0);
    kvreg_tier_result result = take_result(tier);
    CHECK(result.job == 1 && result.keys == 0 && result.failed == 0);
    kvreg_tier_free_result(&result);
    result = take_result(tier);
    CHECK(result.job == 2 && result.failed == 5 && result.blocks == 0);
    kvreg_tier_free_result(&result);
    end_tier(tier);
}

static void a_store_larger_than_the_tier_keeps_its_head(void)
{
    kvreg_tier *tier = open_tier();
    submit_store(tier, 1, 0, SLOTS + 5, 0);
    kvreg_tier_drain(tier);
    kvreg_tier_result result = take_result(tier);
    CHECK(result.failed == 5 && result.blocks == SLOTS);
    kvreg_tier_free_result(&result);
    CHECK(look(tier, SLOTS - 1) == KVREG_HIT && look(tier, SLOTS) == KVREG_MISS);
    end_tier(tier);
}

static void figures_are_exact_and_outlive_the_tier(void)
{
    kvreg_tier *tier = open_tier();
    kvreg_tier_stats stats;
    submit_store(tier, 1, 0, 10, 0);
    kvreg_tier_drain(tier);
    submit_load(tier, 2, 0, 4, 20);
    look(tier, 3), look(tier, 99);
    for (int i = 0; i < 2; i++) {
        if (i == 1)
            kvreg_tier_close(tier);
        kvreg_tier_drain(tier);
        kvreg_tier_read_stats(tier, &stats);
        CHECK(stats.slots == SLOTS && stats.cache.used == 10 && stats.workers == 2);
        CHECK(stats.stored_blocks == 10 && stats.stored_bytes == 10 * BLOCK_BYTES);
        CHECK(stats.loaded_blocks == 4 && stats.loaded_bytes == 4 * BLOCK_BYTES);
        CHECK(stats.cache.hits == 1 && stats.cache.misses == 1 && stats.results == 2);
        CHECK(stats.data_bytes == kvreg_os_page_round(SLOTS * BLOCK_BYTES));
    }
    end_tier(tier);
}

static void what_cannot_be_had_is_refused_with_the_reason(void)
{
    kvreg_tier *tier;
    kvreg_error error;
    kvreg_tier_config wrong = config();
    wrong.capacity_bytes = BLOCK_BYTES - 1;
    CHECK(kvreg_tier_open(&wrong, &tier, &error) == KVREG_E_ARGUMENT);
    CHECK(strstr(error.text, "511") != NULL && strstr(error.text, "512") != NULL);
    wrong.capacity_bytes = (uint64_t)BLOCK_BYTES << 40;
    CHECK(kvreg_tier_open(&wrong, &tier, &error) == KVREG_E_ARGUMENT);
    wrong.capacity_bytes = (uint64_t)BLOCK_BYTES * KVREG_SLOTS_MAX;
    wrong.block_bytes = BLOCK_BYTES;
    CHECK(kvreg_tier_open(&wrong, &tier, &error) == KVREG_E_MEMORY);
    CHECK(strstr(error.text, "leaves") != NULL);
    wrong = config();
    wrong.policy = "best";
    CHECK(kvreg_tier_open(&wrong, &tier, &error) == KVREG_E_ARGUMENT);
    wrong = config();
    wrong.workers = 5000;
    CHECK(kvreg_tier_open(&wrong, &tier, &error) == KVREG_E_ARGUMENT);
}

/* A backend of someone else's, with room between the slots. */

static uint8_t *spaced_slots;
static size_t spaced_stride;

static kvreg_status always(const kvreg_backend_request *request, kvreg_error *error)
{
    (void)request, (void)error;
    return KVREG_OK;
}

static kvreg_status open_spaced(const kvreg_backend_request *request,
                                kvreg_backend_memory *memory, kvreg_error *error)
{
    (void)error;
    memory->stride = request->block_bytes + 64;
    memory->bytes = request->slots * memory->stride;
    memory->base = memory->context = spaced_slots = malloc(memory->bytes);
    spaced_stride = memory->stride;
    return KVREG_OK;
}

static void close_spaced(kvreg_backend_memory *memory)
{
    free(memory->context);
}

static kvreg_tier *open_spaced_tier(bool verify)
{
    static const kvreg_backend spaced = {
        KVREG_BACKEND_VERSION, "spaced", always, open_spaced, close_spaced,
    };
    kvreg_tier_config chosen = config();
    kvreg_tier *tier;
    kvreg_error error;
    chosen.backend = &spaced;
    chosen.verify = verify;
    chosen.watched = true;
    CHECK(kvreg_tier_open(&chosen, &tier, &error) == KVREG_OK);
    return tier;
}

static void a_backend_may_space_the_slots(void)
{
    kvreg_tier *tier = open_spaced_tier(false);
    submit_store(tier, 1, 0, SLOTS, 0);
    kvreg_tier_drain(tier);
    submit_load(tier, 2, 0, SLOTS, 10);
    kvreg_tier_drain(tier);
    for (uint32_t i = 0; i < SLOTS; i++)
        CHECK(filled(primary[10 + i], i));
    end_tier(tier);
}

static size_t take_events(kvreg_tier *tier, kvreg_event *last)
{
    kvreg_event *list;
    size_t count;
    kvreg_error error;
    CHECK(kvreg_tier_take_events(tier, &list, &count, &error) == KVREG_OK);
    if (count > 0)
        *last = list[count - 1];
    kvreg_os_free(list);
    return count;
}

static void a_block_whose_bytes_changed_fails_alone_and_is_forgotten(void)
{
    kvreg_tier *tier = open_spaced_tier(true);
    kvreg_tier_result result;
    kvreg_tier_stats stats;
    kvreg_event event;
    submit_store(tier, 1, 100, 10, 0);
    kvreg_tier_drain(tier);
    kvreg_tier_free_result((result = take_result(tier), &result));
    spaced_slots[4 * spaced_stride + BLOCK_BYTES - 1] ^= 1;
    submit_load(tier, 2, 98, 10, 20);
    kvreg_tier_drain(tier);
    result = take_result(tier);
    CHECK(result.keys == 10 && result.failed == 3 && result.blocks == 7);
    CHECK(result.bytes == 7 * BLOCK_BYTES);
    CHECK(result.served[0].key == 2 && result.served[3].key == 5 && result.served[4].key == 7);
    kvreg_tier_free_result(&result);
    CHECK(filled(primary[22], 100) && filled(primary[29], 107) && primary[26][1] == 0);
    CHECK(look(tier, 104) == KVREG_MISS && look(tier, 105) == KVREG_HIT);
    kvreg_tier_read_stats(tier, &stats);
    CHECK(stats.cache.rejected == 1 && stats.cache.absent == 2 && stats.cache.used == 9);
    CHECK(stats.loaded_blocks == 7);
    CHECK(take_events(tier, &event) == 11 && event.removed && event.key[0] == 104);
    submit_store(tier, 3, 104, 1, 0);
    kvreg_tier_drain(tier);
    CHECK(look(tier, 104) == KVREG_HIT);
    end_tier(tier);
}

static void a_reset_waits_and_forgets_everything(void)
{
    kvreg_tier *tier = open_spaced_tier(false);
    kvreg_error error;
    kvreg_event event;
    submit_store(tier, 1, 0, SLOTS, 0);
    CHECK(kvreg_tier_reset(tier, &error) == KVREG_OK);
    kvreg_tier_result result = take_result(tier);
    CHECK(result.failed == 0);
    kvreg_tier_free_result(&result);
    for (uint32_t i = 0; i < SLOTS; i++)
        CHECK(look(tier, i) == KVREG_MISS);
    submit_store(tier, 2, 0, 1, 0);
    kvreg_tier_close(tier);
    CHECK(take_events(tier, &event) == 2 * SLOTS + 1 && !event.removed);
    CHECK(take_events(tier, &event) == 0);
    end_tier(tier);
}

static void a_backend_of_another_version_is_refused(void)
{
    const kvreg_backend future = {
        KVREG_BACKEND_VERSION + 1, "future", always, open_spaced, close_spaced,
    };
    kvreg_tier_config chosen = config();
    kvreg_tier *tier;
    kvreg_error error;
    chosen.backend = &future;
    CHECK(kvreg_tier_open(&chosen, &tier, &error) == KVREG_E_ARGUMENT);
    CHECK(strstr(error.text, "future") != NULL);
}

static kvreg_memory_options options_seen;

static kvreg_status note_options(const kvreg_backend_request *request, kvreg_error *error)
{
    options_seen = request->options;
    return kvreg_fail(error, KVREG_E_MEMORY, "noted");
}

static void the_backend_is_told_which_memory_is_wished(void)
{
    const kvreg_backend noting = {
        KVREG_BACKEND_VERSION, "noting", note_options, open_spaced, close_spaced,
    };
    kvreg_tier_config chosen = config();
    kvreg_tier *tier;
    kvreg_error error;
    chosen.backend = &noting;
    chosen.memory = (kvreg_memory_options){
        KVREG_HUGE_PAGES_1GIB, KVREG_NUMA_NODE, .node = 7, .prefault = true,
    };
    CHECK(kvreg_tier_open(&chosen, &tier, &error) == KVREG_E_MEMORY);
    CHECK(options_seen.huge_pages == KVREG_HUGE_PAGES_1GIB && options_seen.prefault);
    CHECK(options_seen.numa == KVREG_NUMA_NODE && options_seen.node == 7);
}

static void blocks_come_back_while_memory_comes_in_the_background(void)
{
    kvreg_tier_config chosen = config();
    kvreg_tier *tier;
    kvreg_error error;
    chosen.memory.prefault = true;
    chosen.capacity_bytes = (uint64_t)BLOCK_BYTES << 16;
    CHECK(kvreg_tier_open(&chosen, &tier, &error) == KVREG_OK);
    for (uint32_t first = 0; first < 200 * ROWS / 2; first += ROWS / 2) {
        submit_store(tier, 1, first, ROWS / 2, 0);
        kvreg_tier_drain(tier);
        submit_load(tier, 2, first, ROWS / 2, ROWS / 2);
        kvreg_tier_drain(tier);
        for (uint32_t i = 0; i < ROWS / 2; i++)
            CHECK(filled(primary[ROWS / 2 + i], first + i));
    }
    end_tier(tier);
}

static void a_fork_leaves_the_tier_to_the_parent(void)
{
    kvreg_tier *tier = open_tier();
    submit_store(tier, 1, 0, 10, 0);
    pid_t child = fork();
    if (child == 0) {
        bool inherited = kvreg_tier_inherited(tier);
        end_tier(tier);
        _exit(inherited ? 0 : 1);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(!kvreg_tier_inherited(tier));
    kvreg_tier_drain(tier);
    CHECK(look(tier, 9) == KVREG_HIT);
    end_tier(tier);
}

/* -- Several threads ------------------------------------------------------------------------- */

enum { THREADS = 4, STEPS = 400, THREAD_ROWS = ROWS / THREADS };

static kvreg_tier *shared_tier;

/* Each thread stores and loads through rows of its own, blocks that all of them share. */
static void *run_requests(void *argument)
{
    uint32_t thread = (uint32_t)(uintptr_t)argument, row = thread * THREAD_ROWS;
    uint64_t state = thread + 1;
    request made;
    kvreg_error error;
    for (int step = 0; step < STEPS; step++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        uint32_t first = (uint32_t)(state >> 33) % 50;
        size_t n = 1 + (uint32_t)(state >> 50) % THREAD_ROWS;
        make_request(&made, first, n, row);
        for (size_t i = 0; i < n; i++)
            fill(primary[row + i], first + (uint32_t)i);
        CHECK(kvreg_tier_store(shared_tier, 1, made.keys, made.rows, n, &nobody, &error) == KVREG_OK);
        kvreg_tier_touch(shared_tier, made.keys, n / 2, &nobody);
        kvreg_tier_drain(shared_tier);
        for (size_t i = 0; i < n; i++)
            memset(primary[row + i], 0, BLOCK_BYTES);
        CHECK(kvreg_tier_load(shared_tier, 2, made.keys, made.rows, n, &nobody, &error) == KVREG_OK);
        kvreg_tier_drain(shared_tier);
        for (size_t i = 0; i < n; i++) {
            bool empty = primary[row + i][1] == 0 && primary[row + i][2] == 0;
            CHECK(empty || filled(primary[row + i], first + (uint32_t)i));
            kvreg_tier_lookup(shared_tier, &made.keys[i]);
        }
        kvreg_tier_end_step(shared_tier);
        if (step % 16 == 0)
            CHECK(kvreg_tier_reset(shared_tier, &error) == KVREG_OK);
    }
    return NULL;
}

static void threads_share_a_tier(void)
{
    kvreg_os_thread threads[THREADS];
    kvreg_tier_result result;
    kvreg_tier_stats stats;
    kvreg_error error;
    size_t results = 0;
    kvreg_tier_config chosen = config();
    chosen.verify = chosen.watched = true;
    CHECK(kvreg_tier_open(&chosen, &shared_tier, &error) == KVREG_OK);
    for (uintptr_t i = 0; i < THREADS; i++)
        CHECK(kvreg_os_thread_start(&threads[i], "test", -1, run_requests, (void *)i, &error) ==
              KVREG_OK);
    while (results < THREADS * STEPS) {
        while (kvreg_tier_take_result(shared_tier, &result)) {
            results++;
            kvreg_tier_free_result(&result);
        }
        kvreg_event event;
        take_events(shared_tier, &event);
        kvreg_tier_read_stats(shared_tier, &stats);
        CHECK(stats.cache.used <= SLOTS && stats.cache.pinned <= SLOTS);
    }
    for (int i = 0; i < THREADS; i++)
        kvreg_os_thread_join(&threads[i]);
    kvreg_tier_read_stats(shared_tier, &stats);
    CHECK(stats.cache.pinned == 0 && stats.loads_in_flight == 0 && stats.stores_in_flight == 0);
    end_tier(shared_tier);
}

static void *reset_for_a_while(void *argument)
{
    kvreg_error error;
    for (int i = 0; i < 20; i++)
        CHECK(kvreg_tier_reset(argument, &error) == KVREG_OK);
    return NULL;
}

static void a_close_takes_nothing_from_under_a_reset(void)
{
    for (int round = 0; round < 50; round++) {
        kvreg_tier *tier = open_tier();
        kvreg_os_thread threads[THREADS];
        kvreg_error error;
        submit_store(tier, 1, 0, SLOTS, 0);
        for (int i = 0; i < THREADS; i++)
            CHECK(kvreg_os_thread_start(&threads[i], "test", -1, reset_for_a_while, tier,
                                        &error) == KVREG_OK);
        kvreg_tier_close(tier);
        for (int i = 0; i < THREADS; i++)
            kvreg_os_thread_join(&threads[i]);
        end_tier(tier);
    }
}

static void a_result_that_is_given_back_is_the_oldest_again(void)
{
    kvreg_tier *tier = open_tier();
    for (int64_t job = 1; job <= 3; job++)
        submit_load(tier, job, 500, 1, 0);
    kvreg_tier_result first = take_result(tier), second = take_result(tier);
    kvreg_tier_give_back_result(tier, &second);
    kvreg_tier_give_back_result(tier, &first);
    for (int64_t job = 1; job <= 3; job++) {
        kvreg_tier_result result = take_result(tier);
        CHECK(result.job == job);
        if (job == 3)
            kvreg_tier_give_back_result(tier, &result);
        else
            kvreg_tier_free_result(&result);
    }
    kvreg_tier_stats stats;
    kvreg_tier_read_stats(tier, &stats);
    CHECK(stats.results == 1 && kvreg_tier_pending(tier));
    end_tier(tier);
}

int main(void)
{
    RUN(a_stored_block_comes_back);
    RUN(a_load_says_which_keys_it_served);
    RUN(jobs_without_a_copy_end_at_once);
    RUN(a_store_larger_than_the_tier_keeps_its_head);
    RUN(figures_are_exact_and_outlive_the_tier);
    RUN(what_cannot_be_had_is_refused_with_the_reason);
    RUN(a_backend_may_space_the_slots);
    RUN(a_block_whose_bytes_changed_fails_alone_and_is_forgotten);
    RUN(a_reset_waits_and_forgets_everything);
    RUN(a_backend_of_another_version_is_refused);
    RUN(the_backend_is_told_which_memory_is_wished);
    RUN(blocks_come_back_while_memory_comes_in_the_background);
    RUN(a_fork_leaves_the_tier_to_the_parent);
    RUN(threads_share_a_tier);
    RUN(a_close_takes_nothing_from_under_a_reset);
    RUN(a_result_that_is_given_back_is_the_oldest_again);
    return check_end();
}
