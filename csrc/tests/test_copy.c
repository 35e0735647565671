#define _GNU_SOURCE /* setenv, MAP_NORESERVE */
#include "copy_kernels.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "check.h"

enum {
    GUARD = 192, /* bytes around each buffer that no copy may touch */
    GUARD_BYTE = 0xA5,
    ROUNDS = 400,
};

static uint64_t random_state = 20240607;

static size_t random_below(size_t limit)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (size_t)(random_state >> 33) % limit;
}

/* Small and large alike, and the lengths around a line and around the prefetch distance. */
static size_t random_length(void)
{
    static const size_t around[] = {16, 32, 64, 128, 4096, KVREG_COPY_AHEAD, 3 * KVREG_COPY_AHEAD};
    if (random_below(2) == 0)
        return around[random_below(sizeof around / sizeof around[0])] - 3 + random_below(7);
    return 1 + random_below((size_t)1 << (1 + random_below(16)));
}

typedef struct buffer {
    unsigned char *memory; /* all of it, the guards included */
    size_t bytes;
    kvreg_rows rows; /* inside */
} buffer;

static buffer make_buffer(size_t rows, size_t stride, size_t alignment)
{
    buffer b = {.bytes = rows * stride + alignment + 2 * GUARD};
    b.memory = malloc(b.bytes);
    CHECK(b.memory != NULL);
    memset(b.memory, GUARD_BYTE, b.bytes);
    b.rows = (kvreg_rows){b.memory + GUARD + alignment, stride, rows};
    return b;
}

static void fill_rows(buffer *b)
{
    unsigned char *base = b->rows.base;
    for (size_t i = 0; i < b->rows.rows * b->rows.stride; i++)
        base[i] = (unsigned char)random_below(256);
}

static uint32_t *random_ids(size_t n, size_t rows)
{
    uint32_t *ids = malloc((n + 1) * sizeof *ids);
    CHECK(ids != NULL);
    for (size_t i = 0; i < n; i++)
        ids[i] = (uint32_t)random_below(rows);
    return ids;
}

/* What every kernel must do. */
static void copy_bytewise(unsigned char *dst, const uint32_t *dst_ids, const kvreg_rows *dst_rows,
                          const kvreg_rows *src, const uint32_t *src_ids, size_t block_bytes,
                          size_t n)
{
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < block_bytes; j++)
            dst[dst_ids[i] * dst_rows->stride + j] =
                ((const unsigned char *)src->base)[src_ids[i] * src->stride + j];
}

static void compare_with_reference(const kvreg_copy_kernel *kernel)
{
    size_t block = random_length(), rows = 1 + random_below(6), n = random_below(9);
    buffer dst = make_buffer(rows, block + random_below(3) * random_below(100), random_below(65));
    buffer src = make_buffer(1 + random_below(6), block + random_below(2) * random_below(100),
                             random_below(65));
    fill_rows(&src);
    uint32_t *dst_ids = random_ids(n, dst.rows.rows), *src_ids = random_ids(n, src.rows.rows);

    unsigned char *expected = malloc(dst.bytes), *src_before = malloc(src.bytes);
    CHECK(expected != NULL && src_before != NULL);
    memcpy(expected, dst.memory, dst.bytes);
    memcpy(src_before, src.memory, src.bytes);
    copy_bytewise(expected + ((unsigned char *)dst.rows.base - dst.memory), dst_ids, &dst.rows,
                  &src.rows, src_ids, block, n);

    kvreg_error error;
    CHECK(kvreg_copy_check(&dst.rows, dst_ids, &src.rows, src_ids, block, n, &error) == KVREG_OK);
    kvreg_copy_run(kernel, &dst.rows, dst_ids, &src.rows, src_ids, block, n);
    CHECK(memcmp(dst.memory, expected, dst.bytes) == 0);
    CHECK(memcmp(src.memory, src_before, src.bytes) == 0);

    free(expected);
    free(src_before);
    free(dst.memory);
    free(src.memory);
    free(dst_ids);
    free(src_ids);
}

static const kvreg_copy_kernel *kernel_here(size_t i)
{
    return kvreg_copy_kernel_at(kvreg_copy_cpu_features(), i);
}

static void every_kernel_copies_like_the_bytewise_reference(void)
{
    const kvreg_copy_kernel *kernel;
    for (size_t k = 0; (kernel = kernel_here(k)) != NULL; k++) {
        printf("  %s\n", kernel->name);
        for (int round = 0; round < ROUNDS; round++)
            compare_with_reference(kernel);
    }
}

static void every_kernel_copies_every_length_at_every_alignment_of_a_line(void)
{
    enum { LONGEST = 200 };
    unsigned char src[64 + LONGEST], dst[64 + LONGEST + 1];
    for (size_t i = 0; i < sizeof src; i++)
        src[i] = (unsigned char)(i + 1);
    const kvreg_copy_kernel *kernel;
    for (size_t k = 0; (kernel = kernel_here(k)) != NULL; k++)
        for (size_t at = 0; at < 64; at++)
            for (size_t length = 1; length <= LONGEST; length++) {
                size_t from = (at * 7 + length) % 64;
                memset(dst, 0, sizeof dst);
                kernel->copy(dst + at, src + from, length, NULL);
                if (kernel->fence != NULL)
                    kernel->fence();
                CHECK(memcmp(dst + at, src + from, length) == 0);
                CHECK(at == 0 || dst[at - 1] == 0);
                CHECK(dst[at + length] == 0);
            }
}

/* A prefetch of what is not mapped does nothing; a read would end the program. */
static void the_next_block_is_never_read(void)
{
    enum { BYTES = 3 * KVREG_COPY_AHEAD };
    unsigned char *src = malloc(BYTES), *dst = malloc(BYTES);
    CHECK(src != NULL && dst != NULL);
    memset(src, 7, BYTES);
    const kvreg_copy_kernel *kernel;
    for (size_t k = 0; (kernel = kernel_here(k)) != NULL; k++) {
        memset(dst, 0, BYTES);
        kernel->copy(dst, src, BYTES, (const void *)(uintptr_t)64);
        CHECK(memcmp(dst, src, BYTES) == 0);
    }
    free(src);
    free(dst);
}

/* Address space without memory, until it is written. */
static void *map_sparse(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(memory != MAP_FAILED);
    return memory;
}

/* Rows so far apart that offsets need more than 32 bits. */
static void offsets_beyond_4_gib_are_exact(void)
{
    enum { ROWS = 5, BLOCK = 5000 };
    const size_t stride = ((size_t)3 << 30) + 4096 + 24;
    kvreg_rows dst = {map_sparse(ROWS * stride), stride, ROWS};
    kvreg_rows src = {map_sparse(ROWS * stride), stride, ROWS};
    uint32_t dst_ids[] = {4, 0, 2}, src_ids[] = {3, 4, 1};
    for (size_t i = 0; i < 3; i++)
        memset((char *)src.base + src_ids[i] * stride, (int)(i + 1), BLOCK);
    const kvreg_copy_kernel *kernel;
    for (size_t k = 0; (kernel = kernel_here(k)) != NULL; k++) {
        for (size_t i = 0; i < 3; i++)
            memset((char *)dst.base + dst_ids[i] * stride, 0, BLOCK + 1);
        kvreg_copy_run(kernel, &dst, dst_ids, &src, src_ids, BLOCK, 3);
        for (size_t i = 0; i < 3; i++) {
            const char *block = (const char *)dst.base + dst_ids[i] * stride;
            CHECK(memcmp(block, (char *)src.base + src_ids[i] * stride, BLOCK) == 0);
            CHECK(block[BLOCK] == 0);
        }
    }
    munmap(dst.base, ROWS * stride);
    munmap(src.base, ROWS * stride);
}

/* -- Checks -------------------------------------------------------------------------------- */

static void expect_refusal(kvreg_rows dst, uint32_t dst_id, kvreg_rows src, uint32_t src_id,
                           size_t block_bytes, const char *text)
{
    kvreg_error error = {KVREG_OK, ""};
    CHECK(kvreg_copy_blocks(&dst, &dst_id, &src, &src_id, block_bytes, 1, &error)
          == KVREG_E_ARGUMENT);
    if (strstr(error.text, text) == NULL)
        fprintf(stderr, "expected '%s' in '%s'\n", text, error.text);
    CHECK(error.status == KVREG_E_ARGUMENT && strstr(error.text, text) != NULL);
}

static void bad_arguments_are_named_and_nothing_is_copied(void)
{
    char a[80], b[80];
    memset(a, 1, sizeof a);
    memset(b, 2, sizeof b);
    kvreg_rows dst = {a, 10, 8}, src = {b, 20, 4};
    expect_refusal(dst, 0, src, 0, 0, "block_bytes is 0");
    expect_refusal(dst, 0, src, 0, 11, "dst: the row stride is 10 bytes");
    expect_refusal((kvreg_rows){a, 30, 2}, 0, src, 0, 21, "src: the row stride is 20 bytes");
    expect_refusal(dst, 8, src, 0, 10, "dst_ids[0] is 8, but dst has 8 rows");
    expect_refusal(dst, 0, src, UINT32_MAX, 10, "src_ids[0] is 4294967295, but src has 4 rows");
    expect_refusal((kvreg_rows){a, 10, 0}, 0, src, 0, 10, "dst_ids[0] is 0, but dst has 0 rows");
    expect_refusal((kvreg_rows){NULL, 10, 8}, 0, src, 0, 10, "dst: the base is NULL");
    expect_refusal(dst, 0, (kvreg_rows){b, SIZE_MAX / 2, 4}, 0, 10,
                   "src: 4 rows of 9223372036854775807 bytes do not fit");
    for (size_t i = 0; i < sizeof a; i++)
        CHECK(a[i] == 1 && b[i] == 2);

    /* The last id of many is found too, before the first block is copied. */
    uint32_t dst_ids[] = {0, 1, 9}, src_ids[] = {0, 1, 2};
    kvreg_error error;
    CHECK(kvreg_copy_blocks(&dst, dst_ids, &src, src_ids, 10, 3, &error) == KVREG_E_ARGUMENT);
    CHECK(strcmp(error.text, "dst_ids[2] is 9, but dst has 8 rows") == 0);
    CHECK(a[0] == 1 && a[10] == 1);
}

static void no_blocks_are_a_copy_too(void)
{
    char byte = 1;
    kvreg_rows side = {&byte, 1, 1}, none = {NULL, 8, 0};
    kvreg_error error;
    CHECK(kvreg_copy_blocks(&side, NULL, &side, NULL, 1, 0, &error) == KVREG_OK);
    CHECK(kvreg_copy_blocks(&none, NULL, &none, NULL, 8, 0, &error) == KVREG_OK);
    CHECK(byte == 1);
}

/* Against the definition: two blocks overlap if they share a byte. */
static void overlap_is_found_exactly(void)
{
    static char memory[600];
    for (int round = 0; round < 20000; round++) {
        size_t block = 1 + random_below(20), n = 1 + random_below(4);
        kvreg_rows dst = {memory + random_below(200), block + random_below(20), 1 + random_below(8)};
        kvreg_rows src = {memory + random_below(200), block + random_below(20), 1 + random_below(8)};
        uint32_t dst_ids[4], src_ids[4];
        bool overlap = false;
        for (size_t i = 0; i < n; i++) {
            dst_ids[i] = (uint32_t)random_below(dst.rows);
            src_ids[i] = (uint32_t)random_below(src.rows);
        }
        for (size_t i = 0; i < n; i++)
            for (size_t j = 0; j < n; j++) {
                const char *d = (char *)dst.base + dst_ids[i] * dst.stride;
                const char *s = (char *)src.base + src_ids[j] * src.stride;
                overlap |= d < s + block && s < d + block;
            }
        kvreg_error error = {KVREG_OK, ""};
        kvreg_status status = kvreg_copy_check(&dst, dst_ids, &src, src_ids, block, n, &error);
        CHECK(status == (overlap ? KVREG_E_ARGUMENT : KVREG_OK));
        CHECK(!overlap || strstr(error.text, "overlaps dst row") != NULL);
    }
}

static void one_buffer_can_be_both_sides_where_rows_differ(void)
{
    char memory[4][8] = {"row 0", "row 1", "row 2", "row 3"};
    kvreg_rows side = {memory, 8, 4};
    uint32_t dst_ids[] = {0, 3}, src_ids[] = {1, 2}, same[] = {1};
    kvreg_error error;
    CHECK(kvreg_copy_blocks(&side, dst_ids, &side, src_ids, 8, 2, &error) == KVREG_OK);
    CHECK(strcmp(memory[0], "row 1") == 0 && strcmp(memory[3], "row 2") == 0);
    CHECK(kvreg_copy_blocks(&side, same, &side, same, 8, 1, &error) == KVREG_E_ARGUMENT);
    CHECK(strcmp(error.text, "src row 1 (src_ids[0]) overlaps dst row 1, which is written") == 0);
}

static void repeated_ids_are_found(void)
{
    uint32_t ids[] = {5, 0, 4294967295u, 1, 0};
    bool repeats = true;
    kvreg_error error;
    CHECK(kvreg_copy_repeats(NULL, 0, 0, &repeats, &error) == KVREG_OK && !repeats);
    CHECK(kvreg_copy_repeats(ids, 2, 6, &repeats, &error) == KVREG_OK && !repeats);
    CHECK(kvreg_copy_repeats(ids + 3, 2, 2, &repeats, &error) == KVREG_OK && !repeats);
    ids[2] = 64;
    CHECK(kvreg_copy_repeats(ids, 4, 65, &repeats, &error) == KVREG_OK && !repeats);
    CHECK(kvreg_copy_repeats(ids, 5, 65, &repeats, &error) == KVREG_OK && repeats);
}

/* -- The choice ---------------------------------------------------------------------------- */

static const char *choice(unsigned features, size_t l2_bytes, size_t block_bytes,
                          size_t working_set_bytes)
{
    kvreg_copy_machine machine = {features, l2_bytes};
    const kvreg_copy_kernel *kernel = NULL;
    kvreg_error error;
    CHECK(kvreg_copy_choose_for(&machine, NULL, block_bytes, working_set_bytes, &kernel, &error)
          == KVREG_OK);
    return kernel->name;
}

#if defined(__x86_64__)
enum { EVERY_FEATURE = KVREG_CPU_SSE2 | KVREG_CPU_AVX2 | KVREG_CPU_AVX512 };
static const char *const every_name = "portable, sse2, sse2-nt, avx2, avx2-nt, avx512, avx512-nt";
static const char *const streaming_names[] = {
    "portable",  "sse2-nt",   "avx2-nt",   "avx2-nt",
    "avx512-nt", "avx512-nt", "avx512-nt", "avx512-nt",
};
#elif defined(__aarch64__)
enum { EVERY_FEATURE = KVREG_CPU_NEON };
static const char *const every_name = "portable, neon, neon-nt";
static const char *const streaming_names[] = {"portable", [KVREG_CPU_NEON] = "neon-nt"};
#else
enum { EVERY_FEATURE = 0 };
static const char *const every_name = "portable";
static const char *const streaming_names[] = {"portable"};
#endif

/* Goes through every subset of EVERY_FEATURE, down to none; false at the end. */
static bool next_subset(unsigned *features)
{
    if (*features == 0)
        return false;
    *features = (*features - 1) & EVERY_FEATURE;
    return true;
}

static void large_destinations_are_streamed_with_every_feature_masked_in_turn(void)
{
    unsigned features = EVERY_FEATURE;
    do {
        CHECK(strcmp(choice(features, 2 << 20, 65536, (size_t)4 << 30), streaming_names[features])
              == 0);
        CHECK(strcmp(choice(features, 2 << 20, 65536, 1 << 20), "portable") == 0);
    } while (next_subset(&features));
}

static void a_masked_feature_hides_its_kernels(void)
{
    unsigned features = EVERY_FEATURE;
    do {
        kvreg_copy_machine machine = {features, 2 << 20};
        for (size_t i = 0, j; kvreg_copy_kernel_at(EVERY_FEATURE, i) != NULL; i++) {
            const kvreg_copy_kernel *wanted = kvreg_copy_kernel_at(EVERY_FEATURE, i), *found;
            kvreg_error error;
            for (j = 0; (found = kvreg_copy_kernel_at(features, j)) != NULL && found != wanted; j++)
                ;
            kvreg_status status =
                kvreg_copy_choose_for(&machine, wanted->name, 1, 1, &found, &error);
            CHECK(status == (kvreg_copy_kernel_at(features, j) == wanted ? KVREG_OK
                                                                        : KVREG_E_ARGUMENT));
            CHECK(status != KVREG_OK || found == wanted);
        }
    } while (next_subset(&features));
    CHECK(kvreg_copy_kernel_at(0, 0) == &kvreg_copy_portable);
    CHECK(kvreg_copy_kernel_at(0, 1) == NULL);
}

static void small_blocks_and_small_destinations_stay_in_the_cache(void)
{
    CHECK(strcmp(choice(EVERY_FEATURE, 2 << 20, 511, (size_t)4 << 30), "portable") == 0);
    CHECK(strcmp(choice(EVERY_FEATURE, 2 << 20, 512, 1 << 20), "portable") == 0);
    CHECK(strcmp(choice(EVERY_FEATURE, 2 << 20, 512, (1 << 20) + 1), "portable") != 0
          || EVERY_FEATURE == 0);
    CHECK(strcmp(choice(EVERY_FEATURE, 0, 4096, 4096), "portable") == 0);
    CHECK(strcmp(choice(EVERY_FEATURE, 0, 4096, 64 << 20), "portable") != 0
          || EVERY_FEATURE == 0);
}

#if defined(__x86_64__)
static void wide_stores_are_for_blocks_larger_than_a_page(void)
{
    CHECK(strcmp(choice(EVERY_FEATURE, 2 << 20, 8191, (size_t)4 << 30), "avx2-nt") == 0);
    CHECK(strcmp(choice(EVERY_FEATURE, 2 << 20, 8192, (size_t)4 << 30), "avx512-nt") == 0);
}
#endif

static void an_unknown_name_lists_the_kernels(void)
{
    kvreg_copy_machine machine = {EVERY_FEATURE, 2 << 20};
    const kvreg_copy_kernel *kernel;
    kvreg_error error;
    char expected[256];
    snprintf(expected, sizeof expected,
             "KVREG_COPY is 'fast'; this machine's copy kernels are: %s", every_name);
    CHECK(kvreg_copy_choose_for(&machine, "fast", 1, 1, &kernel, &error) == KVREG_E_ARGUMENT);
    CHECK(strcmp(error.text, expected) == 0);
    CHECK(kvreg_copy_choose_for(&machine, "", 1, 1, &kernel, &error) == KVREG_E_ARGUMENT);
}

static void the_environment_forces_a_kernel(void)
{
    const kvreg_copy_kernel *kernel, *forced;
    kvreg_error error;
    for (size_t k = 0; (forced = kernel_here(k)) != NULL; k++) {
        setenv("KVREG_COPY", forced->name, 1);
        CHECK(kvreg_copy_choose(1 << 20, (size_t)1 << 40, &kernel, &error) == KVREG_OK);
        CHECK(kernel == forced);
    }
    setenv("KVREG_COPY", "no such kernel", 1);
    CHECK(kvreg_copy_choose(1 << 20, (size_t)1 << 40, &kernel, &error) == KVREG_E_ARGUMENT);
    char src[4] = "abc", dst[4] = "";
    uint32_t id = 0;
    kvreg_rows to = {dst, 4, 1}, from = {src, 4, 1};
    CHECK(kvreg_copy_blocks(&to, &id, &from, &id, 4, 1, &error) == KVREG_E_ARGUMENT);
    CHECK(dst[0] == '\0');
    unsetenv("KVREG_COPY");
    CHECK(kvreg_copy_blocks(&to, &id, &from, &id, 4, 1, &error) == KVREG_OK);
    CHECK(strcmp(dst, "abc") == 0);
}

/* -- Threads ------------------------------------------------------------------------------- */

enum { THREADS = 4, THREAD_ROWS = 32, THREAD_BLOCK = 9000 };

typedef struct share {
    kvreg_rows dst, src;
    uint32_t ids[THREAD_ROWS];
    _Atomic bool done;
} share;

static void *copy_a_share(void *argument)
{
    share *s = argument;
    kvreg_error error;
    CHECK(kvreg_copy_blocks(&s->dst, s->ids, &s->src, s->ids, THREAD_BLOCK, THREAD_ROWS, &error)
          == KVREG_OK);
    s->done = true;
    return NULL;
}

/* Threads copy different rows of the same buffers at once, and choose their kernels at once. A
 * thread that sees `done` sees the bytes. */
static void threads_copy_side_by_side(void)
{
    enum { ROWS = THREADS * THREAD_ROWS };
    buffer dst = make_buffer(ROWS, THREAD_BLOCK, 5), src = make_buffer(ROWS, THREAD_BLOCK, 3);
    fill_rows(&src);
    static share shares[THREADS];
    pthread_t threads[THREADS];
    for (size_t t = 0; t < THREADS; t++) {
        shares[t].dst = dst.rows;
        shares[t].src = src.rows;
        for (size_t i = 0; i < THREAD_ROWS; i++)
            shares[t].ids[i] = (uint32_t)(i * THREADS + t);
        CHECK(pthread_create(&threads[t], NULL, copy_a_share, &shares[t]) == 0);
    }
    for (size_t t = 0; t < THREADS; t++) {
        while (!shares[t].done)
            ;
        for (size_t i = 0; i < THREAD_ROWS; i++) {
            size_t offset = shares[t].ids[i] * (size_t)THREAD_BLOCK;
            CHECK(memcmp((char *)dst.rows.base + offset, (char *)src.rows.base + offset,
                         THREAD_BLOCK) == 0);
        }
    }
    for (size_t t = 0; t < THREADS; t++)
        pthread_join(threads[t], NULL);
    free(dst.memory);
    free(src.memory);
}

int main(void)
{
    RUN(every_kernel_copies_like_the_bytewise_reference);
    RUN(every_kernel_copies_every_length_at_every_alignment_of_a_line);
    RUN(the_next_block_is_never_read);
    RUN(offsets_beyond_4_gib_are_exact);
    RUN(bad_arguments_are_named_and_nothing_is_copied);
    RUN(no_blocks_are_a_copy_too);
    RUN(overlap_is_found_exactly);
    RUN(one_buffer_can_be_both_sides_where_rows_differ);
    RUN(repeated_ids_are_found);
    RUN(large_destinations_are_streamed_with_every_feature_masked_in_turn);
    RUN(a_masked_feature_hides_its_kernels);
    RUN(small_blocks_and_small_destinations_stay_in_the_cache);
#if defined(__x86_64__)
    RUN(wide_stores_are_for_blocks_larger_than_a_page);
#endif
    RUN(an_unknown_name_lists_the_kernels);
    RUN(the_environment_forces_a_kernel);
    RUN(threads_copy_side_by_side);
    return check_end();
}
