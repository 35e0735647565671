/* Worker threads that copy blocks between two buffers.
 *
 * A job is a list of blocks. Workers cut it into pieces when they take work, so that one large job
 * keeps every worker busy, the last pieces are small, and a load waits for no more than the pieces
 * being copied when it comes. Jobs of the load lane go before jobs of the store lane, but after 64 MiB
 * of loads a store that waits is given a piece; within a lane they start in the order of submission.
 *
 * One lock, the queue lock, guards the lanes. It is never held during a copy or a callback. */
#ifndef KVREG_TRANSFER_H
#define KVREG_TRANSFER_H

#include <stdatomic.h>

#include "kvreg/copy.h"
#include "os.h"

enum { KVREG_WORKERS_MAX = 1024 };

/* In order of priority. */
typedef enum kvreg_lane { KVREG_LANE_LOAD, KVREG_LANE_STORE, KVREG_LANES } kvreg_lane;

/* The caller owns the memory of a job and of what it points to, until job_done. */
typedef struct kvreg_transfer_job {
    /* Set by the caller before it submits the job; constant from then on. */
    kvreg_lane lane;
    const kvreg_copy_kernel *kernel;
    kvreg_rows dst, src;
    const uint32_t *dst_rows, *src_rows; /* one row a block on each side */
    size_t block_bytes;
    size_t blocks; /* at least 1 */
    /* Copies blocks [first, first + count) and orders its stores before what this thread publishes
     * afterwards, as kvreg_copy_run does; kvreg_transfer_copy where there is nothing else to do. */
    void (*copy)(struct kvreg_transfer_job *job, size_t first, size_t count);
    /* Called by a worker when the bytes of blocks [first, first + count) are complete and visible
     * to any thread; several workers may call it at once. NULL: not called. */
    void (*piece_done)(struct kvreg_transfer_job *job, size_t first, size_t count);
    /* Called once, by a worker, after every piece_done; the workers do not touch the job again. */
    void (*job_done)(struct kvreg_transfer_job *job);

    /* The workers' own. */
    struct kvreg_transfer_job *next; /* in its lane; under the queue lock */
    size_t taken;                    /* blocks handed to workers; under the queue lock */
    _Atomic size_t left;             /* blocks whose piece is not done */
    _Atomic uint64_t copy_ns;        /* time spent copying, summed over the workers; complete when
                                        job_done is called */
} kvreg_transfer_job;

typedef struct kvreg_transfer kvreg_transfer;

/* How many workers to start where the user does not say: the CPUs that the process may use, less
 * one for the scheduler where there are several, and at most 8: a few cores reach the bandwidth of
 * a machine's memory. */
uint32_t kvreg_transfer_default_workers(void);

/* Starts `workers` threads (1 to KVREG_WORKERS_MAX). `cpus` holds one CPU number for each, to pin it
 * there, or is NULL: then they run anywhere, and where they are as many as the CPUs that the process
 * may use, each on one of these. */
kvreg_status kvreg_transfer_open(uint32_t workers, const int *cpus, kvreg_transfer **transfer,
                                 kvreg_error *error);

/* Copies blocks of a job by its kernel. */
void kvreg_transfer_copy(kvreg_transfer_job *job, size_t first, size_t count);

/* Hands a job to the workers; from any thread. Does not wait for a copy. */
void kvreg_transfer_submit(kvreg_transfer *transfer, kvreg_transfer_job *job);

/* Finishes every submitted job, with the calling thread as one more worker, then ends the threads
 * and frees *transfer. No thread may submit at the same time. */
void kvreg_transfer_close(kvreg_transfer *transfer);

#endif
