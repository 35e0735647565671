#include "copy_kernels.h"

#include <inttypes.h>
#include <stdlib.h>

#include "os.h"

static void copy_portable(void *dst, const void *src, size_t bytes, const void *next)
{
    (void)next;
    memcpy(dst, src, bytes);
}

const kvreg_copy_kernel kvreg_copy_portable = {"portable", copy_portable, NULL};

#if !defined(__x86_64__) && !defined(__aarch64__)
unsigned kvreg_copy_cpu_features(void)
{
    return 0;
}
#endif

/* -- The choice ---------------------------------------------------------------------------- */

typedef struct variant {
    const kvreg_copy_kernel *kernel;
    unsigned needs; /* KVREG_CPU_* */
} variant;

static const variant variants[] = {
    {&kvreg_copy_portable, 0},
#if defined(__x86_64__)
    {&kvreg_copy_sse2, KVREG_CPU_SSE2},
    {&kvreg_copy_sse2_nt, KVREG_CPU_SSE2},
    {&kvreg_copy_avx2, KVREG_CPU_AVX2},
    {&kvreg_copy_avx2_nt, KVREG_CPU_AVX2},
    {&kvreg_copy_avx512, KVREG_CPU_AVX512},
    {&kvreg_copy_avx512_nt, KVREG_CPU_AVX512},
#elif defined(__aarch64__)
    {&kvreg_copy_neon, KVREG_CPU_NEON},
    {&kvreg_copy_neon_nt, KVREG_CPU_NEON},
#endif
};

const kvreg_copy_kernel *kvreg_copy_kernel_at(unsigned features, size_t i)
{
    for (size_t v = 0; v < sizeof variants / sizeof variants[0]; v++) {
        if ((variants[v].needs & ~features) == 0 && i-- == 0)
            return variants[v].kernel;
    }
    return NULL;
}

static kvreg_status choose_by_name(unsigned features, const char *name,
                                   const kvreg_copy_kernel **kernel, kvreg_error *error)
{
    char names[160] = "";
    for (size_t i = 0; (*kernel = kvreg_copy_kernel_at(features, i)) != NULL; i++) {
        if (strcmp((*kernel)->name, name) == 0)
            return KVREG_OK;
        strcat(names, i > 0 ? ", " : "");
        strcat(names, (*kernel)->name);
    }
    return kvreg_fail(error, KVREG_E_ARGUMENT,
                      "KVREG_COPY is '%.32s'; this machine's copy kernels are: %s", name, names);
}

static const kvreg_copy_kernel *streaming_kernel(unsigned features)
{
#if defined(__x86_64__)
    if (features & KVREG_CPU_AVX2)
        return &kvreg_copy_avx2_nt;
    if (features & KVREG_CPU_SSE2)
        return &kvreg_copy_sse2_nt;
#elif defined(__aarch64__)
    if (features & KVREG_CPU_NEON)
        return &kvreg_copy_neon_nt;
#endif
    (void)features;
    return &kvreg_copy_portable;
}

kvreg_status kvreg_copy_choose_for(const kvreg_copy_machine *machine, const char *forced,
                                   size_t block_bytes, size_t working_set_bytes,
                                   const kvreg_copy_kernel **kernel, kvreg_error *error)
{
    if (forced != NULL)
        return choose_by_name(machine->features, forced, kernel, error);
    if (block_bytes >= 4096 && working_set_bytes > machine->llc_bytes / 2)
        *kernel = streaming_kernel(machine->features);
    else
        *kernel = &kvreg_copy_portable;
    return KVREG_OK;
}

kvreg_status kvreg_copy_choose(size_t block_bytes, size_t working_set_bytes,
                               const kvreg_copy_kernel **kernel, kvreg_error *error)
{
    kvreg_copy_machine machine = {kvreg_copy_cpu_features(), kvreg_os_llc_bytes("")};
    return kvreg_copy_choose_for(&machine, getenv("KVREG_COPY"), block_bytes,
                                 working_set_bytes, kernel, error);
}

/* -- The checks ---------------------------------------------------------------------------- */

static char *row_at(const kvreg_rows *side, size_t row)
{
    return (char *)side->base + row * side->stride;
}

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

typedef struct bitset {
    uint64_t *words;
} bitset;

static void add_bit(bitset set, size_t bit)
{
    set.words[bit / 64] |= (uint64_t)1 << bit % 64;
}

static bool has_bit(bitset set, size_t bit)
{
    return set.words[bit / 64] >> bit % 64 & 1;
}

/* Finds a written row of `dst` that shares bytes with the block at `src`; dst->rows: none. */
static size_t written_row_at(const kvreg_rows *dst, bitset written, const char *src,
                             size_t block_bytes)
{
    uintptr_t base = (uintptr_t)dst->base, begin = (uintptr_t)src, end = begin + block_bytes;
    if (end <= base)
        return dst->rows;
    size_t reach = begin > base ? begin - base : 0;
    size_t first = reach < block_bytes ? 0 : (reach - block_bytes) / dst->stride + 1;
    for (size_t row = first; row < dst->rows && row * dst->stride < end - base; row++) {
        if (has_bit(written, row))
            return row;
    }
    return dst->rows;
}

static kvreg_status check_overlap(const kvreg_rows *dst, const uint32_t *dst_ids,
                                  const kvreg_rows *src, const uint32_t *src_ids,
                                  size_t block_bytes, size_t n, kvreg_error *error)
{
    size_t named = dst->rows <= UINT32_MAX ? dst->rows : (size_t)UINT32_MAX + 1;
    bitset written = {calloc(named / 64 + 1, sizeof(uint64_t))};
    if (written.words == NULL)
        return kvreg_fail(error, KVREG_E_MEMORY, "no memory to compare %zu rows", named);

    kvreg_status status = KVREG_OK;
    for (size_t i = 0; i < n; i++)
        add_bit(written, dst_ids[i]);
    for (size_t i = 0; i < n && status == KVREG_OK; i++) {
        size_t row = written_row_at(dst, written, row_at(src, src_ids[i]), block_bytes);
        if (row < dst->rows)
            status = kvreg_fail(error, KVREG_E_ARGUMENT,
                                "src row %" PRIu32 " (src_ids[%zu]) overlaps dst row %zu, which "
                                "is written", src_ids[i], i, row);
    }
    free(written.words);
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
