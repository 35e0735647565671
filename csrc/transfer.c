#include "transfer.h"

#include <stdio.h>

enum {
    MOST_DEFAULT_WORKERS = 8,
    /* A piece is what a load may have to wait for: under a millisecond at a few GB/s. */
    LARGEST_PIECE_BYTES = 4 << 20,
    /* Below this, taking work costs more than the balance gains. */
    SMALLEST_PIECE_BYTES = 128 << 10,
    /* What loads may copy before a store that waits has its turn: they are slowed by a piece in
     * that many bytes, one part in 17 at most. */
    OVERTAKING_BYTES = 64 << 20,
};

/* Jobs that have blocks not yet taken, oldest first. */
typedef struct lane_queue {
    kvreg_transfer_job *first, *last;
} lane_queue;

struct kvreg_transfer {
    kvreg_os_mutex queue_lock;
    kvreg_os_condition work; /* signalled when a worker should look at the lanes again */
    lane_queue lanes[KVREG_LANES];
    size_t overtaken;  /* bytes that loads have taken while the first store waits; under the
                        * queue lock */
    uint32_t idle;     /* workers waiting for `work`; under the queue lock */
    bool closing;      /* under the queue lock */
    uint32_t workers;
    kvreg_os_thread threads[];
};

/* Blocks of one job that one worker copies in one go. */
typedef struct piece {
    kvreg_transfer_job *job;
    size_t first, count;
} piece;

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* How many of a job's blocks to take next. Half a fair share of what is left: the pieces shrink
 * towards the end of a job, and the workers finish close together. */
static size_t piece_blocks(const kvreg_transfer *transfer, const kvreg_transfer_job *job)
{
    size_t left = job->blocks - job->taken;
    size_t share = left / (2 * (size_t)transfer->workers);
    size_t smallest = SMALLEST_PIECE_BYTES / job->block_bytes;
    size_t largest = LARGEST_PIECE_BYTES / job->block_bytes;
    size_t blocks = share < smallest ? smallest : least(share, largest);
    return least(blocks < 1 ? 1 : blocks, left);
}

/* The lane that the next piece comes from; NULL when there is nothing to do. */
static lane_queue *most_urgent_lane(kvreg_transfer *transfer)
{
    lane_queue *loads = &transfer->lanes[KVREG_LANE_LOAD];
    lane_queue *stores = &transfer->lanes[KVREG_LANE_STORE];
    if (stores->first == NULL)
        return loads->first != NULL ? loads : NULL;
    return loads->first == NULL || transfer->overtaken >= OVERTAKING_BYTES ? stores : loads;
}

static void append(lane_queue *lane, kvreg_transfer_job *job)
{
    job->next = NULL;
    if (lane->first == NULL)
        lane->first = job;
    else
        lane->last->next = job;
    lane->last = job;
}

static piece take_piece(kvreg_transfer *transfer, lane_queue *lane)
{
    kvreg_transfer_job *job = lane->first;
    piece taken = { job, job->taken, piece_blocks(transfer, job) };
    job->taken += taken.count;
    if (job->taken == job->blocks)
        lane->first = job->next;
    if (job->lane == KVREG_LANE_STORE || transfer->lanes[KVREG_LANE_STORE].first == NULL)
        transfer->overtaken = 0;
    else
        transfer->overtaken += taken.count * job->block_bytes;
    return taken;
}

/* Waits for work and takes a piece of it; false when there will be no more. A worker that leaves
 * work behind wakes the next one, so that submitting costs one wake-up however many sleep. */
static bool wait_for_piece(kvreg_transfer *transfer, piece *taken)
{
    lane_queue *lane;
    bool wake_another = false;
    kvreg_os_mutex_lock(&transfer->queue_lock);
    while ((lane = most_urgent_lane(transfer)) == NULL && !transfer->closing) {
        transfer->idle++;
        kvreg_os_condition_wait(&transfer->work, &transfer->queue_lock);
        transfer->idle--;
    }
    if (lane != NULL) {
        *taken = take_piece(transfer, lane);
        wake_another = transfer->idle > 0 && most_urgent_lane(transfer) != NULL;
    }
    kvreg_os_mutex_unlock(&transfer->queue_lock);
    if (wake_another)
        kvreg_os_condition_wake_one(&transfer->work);
    return lane != NULL;
}

void kvreg_transfer_copy(kvreg_transfer_job *job, size_t first, size_t count)
{
    kvreg_copy_run(job->kernel, &job->dst, job->dst_rows + first, &job->src,
                   job->src_rows + first, job->block_bytes, count);
}

static void copy_piece(const piece *taken)
{
    kvreg_transfer_job *job = taken->job;
    uint64_t start = kvreg_os_monotonic_ns();
    job->copy(job, taken->first, taken->count);
    /* Relaxed: the decrement of `left` orders it before job_done. */
    atomic_fetch_add_explicit(&job->copy_ns, kvreg_os_monotonic_ns() - start,
                              memory_order_relaxed);
    if (job->piece_done != NULL)
        job->piece_done(job, taken->first, taken->count);
    /* Release for this worker's writes, acquire for those of the workers before it: the last one
     * sees the whole job and is the only one to touch it afterwards. */
    if (atomic_fetch_sub_explicit(&job->left, taken->count, memory_order_acq_rel) == taken->count)
        job->job_done(job);
}

static void *work(void *argument)
{
    kvreg_transfer *transfer = argument;
    piece taken;
    while (wait_for_piece(transfer, &taken))
        copy_piece(&taken);
    return NULL;
}

/* Whether there is no CPU to spare for the system to move a worker to: then it may leave two on one
 * for many milliseconds while another is idle. A quota spares CPUs: it says how much time they
 * give, not which they are, and every process that it bounds would choose the first ones. */
static bool should_spread(uint32_t workers)
{
    return workers > 1 && workers >= kvreg_os_allowed_cpus();
}

uint32_t kvreg_transfer_default_workers(void)
{
    uint32_t cpus = kvreg_os_usable_cpus("");
    return cpus <= 1 ? 1 : (uint32_t)least(cpus - 1, MOST_DEFAULT_WORKERS);
}

kvreg_status kvreg_transfer_open(uint32_t workers, const int *cpus, kvreg_transfer **opened,
                                 kvreg_error *error)
{
    if (workers < 1 || workers > KVREG_WORKERS_MAX)
        return kvreg_fail(error, KVREG_E_ARGUMENT,
                          "the number of worker threads must be 1 to %d, not %u",
                          KVREG_WORKERS_MAX, workers);
    kvreg_transfer *transfer =
        kvreg_os_alloc(sizeof *transfer + workers * sizeof transfer->threads[0]);
    if (transfer == NULL)
        return kvreg_fail(error, KVREG_E_MEMORY, "no memory for %u worker threads", workers);
    *transfer = (kvreg_transfer){ .workers = 0 };
    kvreg_os_mutex_init(&transfer->queue_lock);
    kvreg_os_condition_init(&transfer->work);
    bool spread = cpus == NULL && should_spread(workers);
    for (uint32_t i = 0; i < workers; i++) {
        char name[16];
        snprintf(name, sizeof name, "kvreg-%u", i);
        kvreg_status status = kvreg_os_thread_start(&transfer->threads[i], name,
                                                    cpus == NULL ? -1 : cpus[i], work, transfer,
                                                    error);
        if (status != KVREG_OK) {
            kvreg_transfer_close(transfer);
            return status;
        }
        if (spread)
            kvreg_os_thread_spread(&transfer->threads[i], i);
        /* The threads that run already read it. */
        kvreg_os_mutex_lock(&transfer->queue_lock);
        transfer->workers++;
        kvreg_os_mutex_unlock(&transfer->queue_lock);
    }
    *opened = transfer;
    return KVREG_OK;
}

void kvreg_transfer_submit(kvreg_transfer *transfer, kvreg_transfer_job *job)
{
    job->taken = 0;
    atomic_init(&job->left, job->blocks);
    atomic_init(&job->copy_ns, 0);
    kvreg_os_mutex_lock(&transfer->queue_lock);
    append(&transfer->lanes[job->lane], job);
    bool wake = transfer->idle > 0;
    kvreg_os_mutex_unlock(&transfer->queue_lock);
    if (wake)
        kvreg_os_condition_wake_one(&transfer->work);
}

void kvreg_transfer_close(kvreg_transfer *transfer)
{
    kvreg_os_mutex_lock(&transfer->queue_lock);
    transfer->closing = true;
    kvreg_os_mutex_unlock(&transfer->queue_lock);
    kvreg_os_condition_wake_all(&transfer->work);
    work(transfer);
    for (uint32_t i = 0; i < transfer->workers; i++)
        kvreg_os_thread_join(&transfer->threads[i]);
    kvreg_os_condition_destroy(&transfer->work);
    kvreg_os_mutex_destroy(&transfer->queue_lock);
    kvreg_os_free(transfer);
}
