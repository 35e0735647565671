/* One copy on several threads, for callers that have no workers running. */
#ifndef KVREG_COPY_THREADS_H
#define KVREG_COPY_THREADS_H

#include "kvreg/copy.h"

/* Checks a copy as kvreg_copy_check() does, starts up to `threads` threads (1 to
 * KVREG_WORKERS_MAX), lets them copy with `kernel`, and ends them. A copy too small to be worth a
 * second thread runs on the caller's, and so does one that names a destination row twice: the
 * outcome is always that of copying in order. KVREG_E_SYSTEM: the system would not start a thread. */
kvreg_status kvreg_copy_on_threads(uint32_t threads, const kvreg_copy_kernel *kernel,
                                   const kvreg_rows *dst, const uint32_t *dst_ids,
                                   const kvreg_rows *src, const uint32_t *src_ids,
                                   size_t block_bytes, size_t n, kvreg_error *error);

#endif
