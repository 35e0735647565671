#include "copy_threads.h"

#include "transfer.h"

static void ignore_end(kvreg_transfer_job *job)
{
    (void)job; /* kvreg_transfer_close() waits for it */
}

enum {
    /* Copying less takes about as long as starting and ending the thread that would do it. */
    LEAST_BYTES_OF_A_THREAD = 4 << 20,
};

/* How many of `wanted` threads a copy of `n` blocks is worth; at least 1. */
static uint32_t worthwhile_threads(uint32_t wanted, size_t block_bytes, size_t n)
{
    size_t blocks_of_a_thread = LEAST_BYTES_OF_A_THREAD / block_bytes;
    size_t most = n / (blocks_of_a_thread > 1 ? blocks_of_a_thread : 1);
    return most >= wanted ? wanted : most > 1 ? (uint32_t)most : 1;
}

/* The calling thread is one of them: it has a CPU, and where the system would place the last of
 * the others is not to be seen before they have run for a while. */
static kvreg_status run_on_threads(uint32_t threads, kvreg_transfer_job *job, kvreg_error *error)
{
    kvreg_transfer *transfer;
    kvreg_status status = kvreg_transfer_open(threads - 1, NULL, &transfer, error);
    if (status != KVREG_OK)
        return status;
    kvreg_transfer_submit(transfer, job);
    kvreg_transfer_close(transfer);
    return KVREG_OK;
}

kvreg_status kvreg_copy_on_threads(uint32_t threads, const kvreg_copy_kernel *kernel,
                                   const kvreg_rows *dst, const uint32_t *dst_ids,
                                   const kvreg_rows *src, const uint32_t *src_ids,
                                   size_t block_bytes, size_t n, kvreg_error *error)
{
    bool repeats = false;
    kvreg_transfer_job job = {
        .lane = KVREG_LANE_STORE,
        .kernel = kernel,
        .dst = *dst,
        .src = *src,
        .dst_rows = dst_ids,
        .src_rows = src_ids,
        .block_bytes = block_bytes,
        .blocks = n,
        .copy = kvreg_transfer_copy,
        .job_done = ignore_end,
    };
    kvreg_status status = kvreg_copy_check(dst, dst_ids, src, src_ids, block_bytes, n, error);
    if (status != KVREG_OK)
        return status;
    threads = worthwhile_threads(threads, block_bytes, n);
    if (threads > 1)
        status = kvreg_copy_repeats(dst_ids, n, dst->rows, &repeats, error);
    if (status != KVREG_OK)
        return status;
    if (threads > 1 && !repeats)
        return run_on_threads(threads, &job, error);
    kvreg_copy_run(kernel, dst, dst_ids, src, src_ids, block_bytes, n);
    return KVREG_OK;
}
