#include "transfer.h"

#include <stdlib.h>
#include <string.h>

#include "check.h"

enum { BLOCK_BYTES = 4096, ROWS = 4096 };

static uint8_t *source, *target;
static uint32_t rows[ROWS], shuffled[ROWS];

static void fill_buffers(void)
{
    source = kvreg_os_map((size_t)ROWS * BLOCK_BYTES);
    target = kvreg_os_map((size_t)ROWS * BLOCK_BYTES);
    CHECK(source != NULL && target != NULL);
    for (size_t i = 0; i < (size_t)ROWS * BLOCK_BYTES; i++)
        source[i] = (uint8_t)(i * 2654435761u >> 13);
    for (uint32_t i = 0; i < ROWS; i++)
        rows[i] = shuffled[i] = i;
    for (uint32_t i = ROWS - 1; i > 0; i--) {
        uint32_t j = (uint32_t)rand() % (i + 1), kept = shuffled[i];
        shuffled[i] = shuffled[j];
        shuffled[j] = kept;
    }
}

static void unmap_buffers(void)
{
    kvreg_os_unmap(source, (size_t)ROWS * BLOCK_BYTES);
    kvreg_os_unmap(target, (size_t)ROWS * BLOCK_BYTES);
}

/* A job and what its callbacks saw of it. */
typedef struct watched_job {
    kvreg_transfer_job transfer;
    _Atomic size_t blocks_done;
    _Atomic uint32_t *order; /* counts jobs as they end */
    uint32_t place;          /* in that order, from 1 */
    _Atomic bool done;
} watched_job;

static void count_blocks(kvreg_transfer_job *job, size_t first, size_t count)
{
    CHECK(first + count <= job->blocks);
    atomic_fetch_add(&((watched_job *)job)->blocks_done, count);
}

static void note_end(kvreg_transfer_job *job)
{
    watched_job *watched = (watched_job *)job;
    if (watched->order != NULL)
        watched->place = 1 + atomic_fetch_add(watched->order, 1);
    atomic_store(&watched->done, true);
}

static watched_job new_job(kvreg_lane lane, size_t first, size_t blocks)
{
    const kvreg_copy_kernel *kernel;
    kvreg_error error;
    CHECK(kvreg_copy_choose(BLOCK_BYTES, (size_t)ROWS * BLOCK_BYTES, &kernel, &error) ==
          KVREG_OK);
    return (watched_job){
        .transfer = {
            .lane = lane,
            .kernel = kernel,
            .dst = { target, BLOCK_BYTES, ROWS },
            .src = { source, BLOCK_BYTES, ROWS },
            .dst_rows = shuffled + first,
            .src_rows = rows + first,
            .block_bytes = BLOCK_BYTES,
            .blocks = blocks,
            .copy = kvreg_transfer_copy,
            .piece_done = count_blocks,
            .job_done = note_end,
        },
    };
}

static kvreg_transfer *open_transfer(uint32_t workers)
{
    kvreg_transfer *transfer;
    kvreg_error error;
    CHECK(kvreg_transfer_open(workers, NULL, &transfer, &error) == KVREG_OK);
    return transfer;
}

static void every_block_of_every_job_is_copied_once(void)
{
    for (uint32_t workers = 1; workers <= 5; workers++) {
        static watched_job jobs[ROWS];
        size_t count = 0;
        fill_buffers();
        kvreg_transfer *transfer = open_transfer(workers);
        for (size_t first = 0; first < ROWS; count++) {
            size_t blocks = 1 + (size_t)rand() % (count % 2 ? 4 : 900);
            blocks = blocks < ROWS - first ? blocks : ROWS - first;
            jobs[count] = new_job(rand() % KVREG_LANES, first, blocks);
            first += blocks;
        }
        for (size_t i = 0; i < count; i++)
            kvreg_transfer_submit(transfer, &jobs[i].transfer);
        kvreg_transfer_close(transfer);
        for (size_t i = 0; i < count; i++)
            CHECK(jobs[i].done && jobs[i].blocks_done == jobs[i].transfer.blocks);
        for (uint32_t i = 0; i < ROWS; i++)
            CHECK(memcmp(target + (size_t)shuffled[i] * BLOCK_BYTES,
                         source + (size_t)i * BLOCK_BYTES, BLOCK_BYTES) == 0);
        unmap_buffers();
    }
}

/* Holds the only worker in its first piece until the test has submitted the rest. */
static _Atomic bool held;

static void wait_while_held(kvreg_transfer_job *job, size_t first, size_t count)
{
    count_blocks(job, first, count);
    while (atomic_load(&held))
        ;
}

static void loads_go_before_stores_that_came_earlier(void)
{
    fill_buffers();
    _Atomic uint32_t order = 0;
    watched_job large_store = new_job(KVREG_LANE_STORE, 0, ROWS);
    watched_job small_store = new_job(KVREG_LANE_STORE, 0, 1);
    watched_job first_load = new_job(KVREG_LANE_LOAD, 0, 1);
    watched_job second_load = new_job(KVREG_LANE_LOAD, 1, 1);
    large_store.transfer.piece_done = wait_while_held;
    large_store.order = small_store.order = first_load.order = second_load.order = &order;
    atomic_store(&held, true);
    kvreg_transfer *transfer = open_transfer(1);
    kvreg_transfer_submit(transfer, &large_store.transfer);
    kvreg_transfer_submit(transfer, &small_store.transfer);
    while (atomic_load(&large_store.blocks_done) == 0)
        ;
    kvreg_transfer_submit(transfer, &first_load.transfer);
    kvreg_transfer_submit(transfer, &second_load.transfer);
    atomic_store(&held, false);
    /* To close it would add the calling thread to the only worker. */
    while (atomic_load(&order) < 4)
        ;
    kvreg_transfer_close(transfer);
    CHECK(first_load.place == 1 && second_load.place == 2);
    CHECK(large_store.place == 3 && small_store.place == 4);
    unmap_buffers();
}

/* For jobs of which only the order counts. */
static void copy_nothing(kvreg_transfer_job *job, size_t first, size_t count)
{
    (void)job, (void)first, (void)count;
}

static watched_job new_ordered_job(kvreg_lane lane, size_t block_bytes, size_t blocks,
                                   _Atomic uint32_t *order)
{
    watched_job job = new_job(lane, 0, blocks);
    job.transfer.block_bytes = block_bytes;
    job.transfer.copy = copy_nothing;
    job.order = order;
    return job;
}

static void a_store_is_overtaken_by_a_bounded_amount_of_loads(void)
{
    enum { LOADS = 100, STORES = 3, MIB = 1 << 20 };
    static watched_job loads[LOADS], stores[STORES];
    _Atomic uint32_t order = 0;
    fill_buffers();
    watched_job first = new_ordered_job(KVREG_LANE_LOAD, 4 * MIB, 1, &order);
    first.transfer.piece_done = wait_while_held;
    atomic_store(&held, true);
    kvreg_transfer *transfer = open_transfer(1);
    kvreg_transfer_submit(transfer, &first.transfer);
    while (atomic_load(&first.blocks_done) == 0)
        ;
    for (int i = 0; i < STORES; i++) {
        stores[i] = new_ordered_job(KVREG_LANE_STORE, MIB, 1, &order);
        kvreg_transfer_submit(transfer, &stores[i].transfer);
    }
    for (int i = 0; i < LOADS; i++) {
        loads[i] = new_ordered_job(KVREG_LANE_LOAD, 4 * MIB, 1, &order);
        kvreg_transfer_submit(transfer, &loads[i].transfer);
    }
    atomic_store(&held, false);
    while (atomic_load(&order) < 1 + LOADS + STORES)
        ;
    kvreg_transfer_close(transfer);
    /* 64 MiB are 16 of the loads; each store waits for as many after the one before it. */
    for (uint32_t i = 0; i < STORES; i++)
        CHECK(stores[i].place == 1 + 17 * (i + 1));
    unmap_buffers();
}

static void loads_alone_are_no_debt_to_a_store_that_comes_later(void)
{
    enum { LOADS = 40, MIB = 1 << 20 };
    static watched_job loads[LOADS];
    _Atomic uint32_t order = 0;
    fill_buffers();
    for (int i = 0; i < LOADS; i++)
        loads[i] = new_ordered_job(KVREG_LANE_LOAD, 4 * MIB, 1, &order);
    watched_job store = new_ordered_job(KVREG_LANE_STORE, MIB, 1, &order);
    loads[LOADS - 3].transfer.piece_done = wait_while_held;
    atomic_store(&held, true);
    kvreg_transfer *transfer = open_transfer(1);
    for (int i = 0; i < LOADS; i++)
        kvreg_transfer_submit(transfer, &loads[i].transfer);
    while (atomic_load(&loads[LOADS - 3].blocks_done) == 0)
        ;
    kvreg_transfer_submit(transfer, &store.transfer);
    atomic_store(&held, false);
    while (atomic_load(&order) < 1 + LOADS)
        ;
    kvreg_transfer_close(transfer);
    CHECK(store.place == 1 + LOADS);
    unmap_buffers();
}

static void idle_workers_wake_for_each_job(void)
{
    fill_buffers();
    kvreg_transfer *transfer = open_transfer(3);
    for (int round = 0; round < 300; round++) {
        watched_job job = new_job(round % KVREG_LANES, 0, 1 + (size_t)round);
        kvreg_transfer_submit(transfer, &job.transfer);
        while (!atomic_load(&job.done))
            ;
    }
    kvreg_transfer_close(transfer);
    unmap_buffers();
}

static void a_number_of_workers_out_of_range_is_refused(void)
{
    kvreg_transfer *transfer;
    kvreg_error error;
    CHECK(kvreg_transfer_open(0, NULL, &transfer, &error) == KVREG_E_ARGUMENT);
    CHECK(kvreg_transfer_open(1025, NULL, &transfer, &error) == KVREG_E_ARGUMENT);
    CHECK(strstr(error.text, "1025") != NULL);
}

static void a_worker_that_cannot_start_leaves_none_behind(void)
{
    int cpus[3] = { 0, 0, 1 << 19 };
    kvreg_transfer *transfer;
    kvreg_error error;
    CHECK(kvreg_transfer_open(3, cpus, &transfer, &error) == KVREG_E_SYSTEM);
    CHECK(strstr(error.text, "524288") != NULL);
}

static void the_default_leaves_a_cpu_to_the_scheduler(void)
{
    uint32_t cpus = kvreg_os_usable_cpus(""), workers = kvreg_transfer_default_workers();
    CHECK(workers >= 1 && workers <= 8);
    CHECK(cpus == 1 ? workers == 1 : workers < cpus);
}

int main(void)
{
    srand(1);
    RUN(every_block_of_every_job_is_copied_once);
    RUN(loads_go_before_stores_that_came_earlier);
    RUN(a_store_is_overtaken_by_a_bounded_amount_of_loads);
    RUN(loads_alone_are_no_debt_to_a_store_that_comes_later);
    RUN(idle_workers_wake_for_each_job);
    RUN(a_number_of_workers_out_of_range_is_refused);
    RUN(a_worker_that_cannot_start_leaves_none_behind);
    RUN(the_default_leaves_a_cpu_to_the_scheduler);
    return check_end();
}
