#include "copy_threads.h"

#include "transfer.h"

static void ignore_end(kvreg_transfer_job *job)
{
    (void)job; /* kvreg_transfer_close() waits for it */
}

/* How many threads a copy of `n` blocks is worth. */
static kvreg_status useful_threads(uint32_t *threads, const kvreg_rows *dst,
                                   const uint32_t *dst_ids, size_t n, kvreg_error *error)
{
    bool repeats = false;
    kvreg_status status = KVREG_OK;
    if (*threads > n)
        *threads = n > 1 ? (uint32_t)n : 1;
    if (*threads > 1)
        status = kvreg_copy_repeats(dst_ids, n, dst->rows, &repeats, error);
    if (repeats)
        *threads = 1;
    return status;
}

kvreg_status kvreg_copy_on_threads(uint32_t threads, const kvreg_copy_kernel *kernel,
                                   const kvreg_rows *dst, const uint32_t *dst_ids,
                                   const kvreg_rows *src, const uint32_t *src_ids,
                                   size_t block_bytes, size_t n, kvreg_error *error)
{
    kvreg_transfer *transfer;
    kvreg_transfer_job job = {
        .lane = KVREG_LANE_STORE,
        .kernel = kernel,
        .dst = *dst,
        .src = *src,
        .dst_rows = dst_ids,
        .src_rows = src_ids,
        .block_bytes = block_bytes,
        .blocks = n,
        .job_done = ignore_end,
    };
    kvreg_status status = kvreg_copy_check(dst, dst_ids, src, src_ids, block_bytes, n, error);
    if (status == KVREG_OK)
        status = useful_threads(&threads, dst, dst_ids, n, error);
    if (status != KVREG_OK)
        return status;
    if (threads == 1) {
        kvreg_copy_run(kernel, dst, dst_ids, src, src_ids, block_bytes, n);
        return KVREG_OK;
    }
    status = kvreg_transfer_open(threads, NULL, &transfer, error);
    if (status != KVREG_OK)
        return status;
    kvreg_transfer_submit(transfer, &job);
    kvreg_transfer_close(transfer);
    return KVREG_OK;
}
