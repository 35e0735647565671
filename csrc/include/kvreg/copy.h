/* Copies of fixed-size blocks between two buffers, at the speed of the memory.
 *
 * Part of the C core, which the Python package does not offer for linking: a program compiles the
 * files of csrc/ itself.
 *
 * A buffer is seen as rows; a block is the first `block_bytes` bytes of a row. Block i of a copy
 * goes from row src_ids[i] of the source to row dst_ids[i] of the destination.
 *
 * kvreg_copy_blocks() does it all. The steps below it are there for callers that copy in pieces
 * and on several threads: check once, choose a kernel once, then run each piece. Nothing here
 * starts a thread or keeps a pointer, and every function may be called by several threads at
 * once.
 */
#ifndef KVREG_COPY_H
#define KVREG_COPY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kvreg/error.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One side of a copy: `rows` rows, each `stride` bytes after the one before it, from `base`. */
typedef struct kvreg_rows {
    void *base;    /* any alignment; a source is only read */
    size_t stride; /* bytes from one row to the next, at least the block's */
    size_t rows;
} kvreg_rows;

/* One way to copy a block. Kernels are static: pointers to them stay valid and compare equal. */
typedef struct kvreg_copy_kernel {
    const char *name; /* as KVREG_COPY names it: "portable", "avx2", "avx2-nt", ... */

    /* Copies `bytes` bytes, any number at any alignment; the two must not overlap. `next` is
     * where the next source block of that size starts, so that prefetch runs across the seam;
     * NULL: there is none. It is only prefetched, never read. */
    void (*copy)(void *dst, const void *src, size_t bytes, const void *next);

    /* Orders this thread's earlier copies before its later stores. Non-temporal stores need it
     * before anything that tells another thread that the bytes are there; a mutex or an atomic
     * release does not order them. NULL: not needed. */
    void (*fence)(void);
} kvreg_copy_kernel;

/* Finds the kernel for blocks of `block_bytes` whose destination is `working_set_bytes` large in
 * all: every byte that such copies write over and over, not those of one call. SIZE_MAX where
 * several threads write to it in turns, so that no core's cache keeps it. Ordinary stores leave a
 * small destination in the cache; non-temporal stores spare reading a large one before it is
 * overwritten. Decided from the CPU's features, the two sizes and the size of a core's cache.
 *
 * The environment variable KVREG_COPY forces one kernel by its name; it is read at each call (not
 * while another thread changes the environment). KVREG_E_ARGUMENT: this machine has no kernel of
 * that name; the text lists those it has. */
kvreg_status kvreg_copy_choose(size_t block_bytes, size_t working_set_bytes,
                               const kvreg_copy_kernel **kernel, kvreg_error *error);

/* Checks a copy of `n` blocks before a byte moves: block_bytes >= 1, strides >= block_bytes,
 * buffers that fit the address space, every id below its side's `rows`, and no destination block
 * that shares a byte with a source block. A row may be named more than once.
 *
 * KVREG_E_ARGUMENT: the text names the argument and its value. KVREG_E_MEMORY: two buffers that
 * lie in each other need memory to be compared block by block, and there is none. */
kvreg_status kvreg_copy_check(const kvreg_rows *dst, const uint32_t *dst_ids,
                              const kvreg_rows *src, const uint32_t *src_ids,
                              size_t block_bytes, size_t n, kvreg_error *error);

/* Whether any of `ids`, all below `rows`, occurs more than once. A copy whose destination rows do
 * has one outcome only when one thread runs it in order. KVREG_E_MEMORY: it takes a bit a row. */
kvreg_status kvreg_copy_repeats(const uint32_t *ids, size_t n, size_t rows, bool *repeats,
                                kvreg_error *error);

/* Copies blocks that were checked, in order. Fenced before it returns: whoever sees a completion
 * that this thread publishes afterwards (by a release store or a mutex) sees the bytes. */
void kvreg_copy_run(const kvreg_copy_kernel *kernel,
                    const kvreg_rows *dst, const uint32_t *dst_ids,
                    const kvreg_rows *src, const uint32_t *src_ids,
                    size_t block_bytes, size_t n);

/* Checks, chooses (the working set is the whole destination) and runs, on this thread. */
kvreg_status kvreg_copy_blocks(const kvreg_rows *dst, const uint32_t *dst_ids,
                               const kvreg_rows *src, const uint32_t *src_ids,
                               size_t block_bytes, size_t n, kvreg_error *error);

#ifdef __cplusplus
}
#endif
#endif
