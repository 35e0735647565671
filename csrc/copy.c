#include "kvreg/copy.h"

#include <inttypes.h>
#include <stdbool.h>

#include "os.h"

static char *row_at(const kvreg_rows *side, size_t row)
{
    return (char *)side->base + row * side->stride;
}

/* -- The checks ---------------------------------------------------------------------------- */

/* Bytes from the base to the end of the last row's block. */
static size_t span(const kvreg_rows *side, size_t block_bytes)
{
    return side->rows == 0 ? 0 : (side->rows - 1) * side->stride + block_bytes;
}

static kvreg_status check_side(const char *name, const kvreg_rows *side, const uint32_t *ids,
                               size_t block_bytes, size_t n, kvreg_error *error)
{
    if (side->stride < block_bytes)
        return kvreg_fail(error, KVREG_E_ARGUMENT,
                          "%s: the row stride is %zu bytes, less than the block's %zu", name,
                          side->stride, block_bytes);
    size_t room = SIZE_MAX - (uintptr_t)side->base;
    if (side->rows > 0 && (room < block_bytes
                           || (room - block_bytes) / side->stride < side->rows - 1))
        return kvreg_fail(error, KVREG_E_ARGUMENT,
                          "%s: %zu rows of %zu bytes do not fit the address space", name,
                          side->rows, side->stride);
    if (n > 0 && side->base == NULL)
        return kvreg_fail(error, KVREG_E_ARGUMENT, "%s: the base is NULL", name);
    for (size_t i = 0; i < n; i++) {
        if (ids[i] >= side->rows)
            return kvreg_fail(error, KVREG_E_ARGUMENT,
                              "%s_ids[%zu] is %" PRIu32 ", but %s has %zu rows", name, i, ids[i],
                              name, side->rows);
    }
    return KVREG_OK;
}

/* Whether a byte of either side's rows could belong to the other's. */
static bool sides_meet(const kvreg_rows *dst, const kvreg_rows *src, size_t block_bytes)
{
    uintptr_t d = (uintptr_t)dst->base, s = (uintptr_t)src->base;
    return d < s + span(src, block_bytes) && s < d + span(dst, block_bytes);
}

/* One bit for each row that an id can name. */
typedef struct row_set {
    uint64_t *words;
    size_t rows;
} row_set;

static kvreg_status make_row_set(row_set *set, size_t rows, kvreg_error *error)
{
    set->rows = rows <= UINT32_MAX ? rows : (size_t)UINT32_MAX + 1;
    set->words = kvreg_os_alloc_zeroed((set->rows / 64 + 1) * sizeof *set->words);
    return set->words != NULL ? KVREG_OK
                              : kvreg_fail(error, KVREG_E_MEMORY,
                                           "no memory for a set of %zu rows", set->rows);
}

static bool has_row(const row_set *set, size_t row)
{
    return row < set->rows && (set->words[row / 64] >> row % 64 & 1);
}

static void add_row(row_set *set, size_t row)
{
    set->words[row / 64] |= (uint64_t)1 << row % 64;
}

/* Finds a written row of `dst` that shares bytes with the block at `src`; dst->rows: none. */
static size_t written_row_at(const kvreg_rows *dst, const row_set *written, const char *src,
                             size_t block_bytes)
{
    uintptr_t base = (uintptr_t)dst->base, begin = (uintptr_t)src, end = begin + block_bytes;
    if (end <= base)
        return dst->rows;
    size_t reach = begin > base ? begin - base : 0;
    size_t first = reach < block_bytes ? 0 : (reach - block_bytes) / dst->stride + 1;
    for (size_t row = first; row < dst->rows && row * dst->stride < end - base; row++) {
        if (has_row(written, row))
            return row;
    }
    return dst->rows;
}

static kvreg_status check_overlap(const kvreg_rows *dst, const uint32_t *dst_ids,
                                  const kvreg_rows *src, const uint32_t *src_ids,
                                  size_t block_bytes, size_t n, kvreg_error *error)
{
    row_set written;
    kvreg_status status = make_row_set(&written, dst->rows, error);
    if (status != KVREG_OK)
        return status;
    for (size_t i = 0; i < n; i++)
        add_row(&written, dst_ids[i]);
    for (size_t i = 0; i < n && status == KVREG_OK; i++) {
        size_t row = written_row_at(dst, &written, row_at(src, src_ids[i]), block_bytes);
        if (row < dst->rows)
            status = kvreg_fail(error, KVREG_E_ARGUMENT,
                                "src row %" PRIu32 " (src_ids[%zu]) overlaps dst row %zu, which "
                                "is written", src_ids[i], i, row);
    }
    kvreg_os_free(written.words);
    return status;
}

kvreg_status kvreg_copy_check(const kvreg_rows *dst, const uint32_t *dst_ids,
                              const kvreg_rows *src, const uint32_t *src_ids,
                              size_t block_bytes, size_t n, kvreg_error *error)
{
    if (block_bytes == 0)
        return kvreg_fail(error, KVREG_E_ARGUMENT, "block_bytes is 0; a block has 1 byte or more");
    kvreg_status status = check_side("dst", dst, dst_ids, block_bytes, n, error);
    if (status == KVREG_OK)
        status = check_side("src", src, src_ids, block_bytes, n, error);
    if (status == KVREG_OK && n > 0 && sides_meet(dst, src, block_bytes))
        status = check_overlap(dst, dst_ids, src, src_ids, block_bytes, n, error);
    return status;
}

kvreg_status kvreg_copy_repeats(const uint32_t *ids, size_t n, size_t rows, bool *repeats,
                                kvreg_error *error)
{
    row_set seen;
    kvreg_status status = make_row_set(&seen, rows, error);
    if (status != KVREG_OK)
        return status;
    *repeats = false;
    for (size_t i = 0; i < n && !*repeats; i++) {
        *repeats = has_row(&seen, ids[i]);
        add_row(&seen, ids[i]);
    }
    kvreg_os_free(seen.words);
    return KVREG_OK;
}

/* -- The copy ------------------------------------------------------------------------------ */

void kvreg_copy_run(const kvreg_copy_kernel *kernel,
                    const kvreg_rows *dst, const uint32_t *dst_ids,
                    const kvreg_rows *src, const uint32_t *src_ids,
                    size_t block_bytes, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const char *next = i + 1 < n ? row_at(src, src_ids[i + 1]) : NULL;
        kernel->copy(row_at(dst, dst_ids[i]), row_at(src, src_ids[i]), block_bytes, next);
    }
    if (kernel->fence != NULL)
        kernel->fence();
}

kvreg_status kvreg_copy_blocks(const kvreg_rows *dst, const uint32_t *dst_ids,
                               const kvreg_rows *src, const uint32_t *src_ids,
                               size_t block_bytes, size_t n, kvreg_error *error)
{
    const kvreg_copy_kernel *kernel;
    kvreg_status status = kvreg_copy_check(dst, dst_ids, src, src_ids, block_bytes, n, error);
    if (status == KVREG_OK)
        status = kvreg_copy_choose(block_bytes, span(dst, block_bytes), &kernel, error);
    if (status == KVREG_OK)
        kvreg_copy_run(kernel, dst, dst_ids, src, src_ids, block_bytes, n);
    return status;
}
