/* Measures every copy kernel beside memcpy over a grid of block sizes, working sets, thread
 * counts, id orders and page sizes, and says whether the kernel that kvreg_copy_choose() picks is
 * the right one. `bench_copy --help` lists the options.
 *
 * The methods take turns within a round, so that a neighbour's noise meets all of them. Bandwidth
 * is payload: bytes copied a second, in units of 10^9. */
#define _GNU_SOURCE
#include "copy_kernels.h"

#include <getopt.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "os.h"

enum {
    MOST_METHODS = 16,
    MOST_ROUNDS = 101,
    MOST_VALUES = 16,
    MOST_THREADS = 64,
    /* Bytes of one timed run: long enough for the clock, and for the caches to settle. */
    RUN_BYTES = 128 << 20,
};

typedef struct list {
    size_t values[MOST_VALUES];
    size_t count;
} list;

typedef struct options {
    list block_bytes, set_bytes, threads;
    list shuffled, huge; /* of 0 and 1 */
    size_t rounds;
} options;

/* One point of the grid. */
typedef struct point {
    size_t block_bytes;
    size_t set_bytes; /* of each buffer */
    size_t threads;
    bool shuffled, huge;
} point;

typedef enum method_kind {
    ONE_MEMCPY,    /* a single memcpy of the run's bytes, for each thread */
    BLOCK_MEMCPY,  /* one memcpy a block */
    KERNEL,        /* kvreg_copy_run() */
} method_kind;

typedef struct method {
    const char *name;
    method_kind kind;
    const kvreg_copy_kernel *kernel;
} method;

typedef struct bench {
    point at;
    kvreg_rows dst, src;
    uint32_t *dst_ids, *src_ids; /* all rows, in the order of copying */
    size_t blocks;               /* rows of a buffer */
    size_t start, run_blocks;    /* the timed run copies [start, start + run_blocks) */
    size_t passes;               /* so often, when the buffers are small */
    const method *method;        /* NULL: the threads end */
    pthread_barrier_t begin, end;
} bench;

typedef struct helper {
    bench *bench;
    size_t thread;
} helper;

static char *row_at(const kvreg_rows *side, size_t row)
{
    return (char *)side->base + row * side->stride;
}

static void copy_pass(const bench *b, size_t first, size_t count)
{
    switch (b->method->kind) {
    case ONE_MEMCPY:
        memcpy(row_at(&b->dst, first), row_at(&b->src, first), count * b->at.block_bytes);
        break;
    case BLOCK_MEMCPY:
        for (size_t i = first; i < first + count; i++)
            memcpy(row_at(&b->dst, b->dst_ids[i]), row_at(&b->src, b->src_ids[i]),
                   b->at.block_bytes);
        break;
    case KERNEL:
        kvreg_copy_run(b->method->kernel, &b->dst, b->dst_ids + first, &b->src,
                       b->src_ids + first, b->at.block_bytes, count);
        break;
    }
}

/* The shares rotate, as they do among workers that take what comes: no thread keeps its part of
 * small buffers in a cache of its own. */
static void copy_share(const bench *b, size_t thread)
{
    for (size_t pass = 0; pass < b->passes; pass++) {
        size_t share = (thread + pass) % b->at.threads;
        size_t first = b->run_blocks * share / b->at.threads;
        size_t end = b->run_blocks * (share + 1) / b->at.threads;
        copy_pass(b, b->start + first, end - first);
    }
}

static void *help(void *argument)
{
    helper *self = argument;
    for (;;) {
        pthread_barrier_wait(&self->bench->begin);
        if (self->bench->method == NULL)
            return NULL;
        copy_share(self->bench, self->thread);
        pthread_barrier_wait(&self->bench->end);
    }
}

/* One timed run; GB/s. */
static double run_once(bench *b, const method *m)
{
    b->method = m;
    if (b->run_blocks == b->blocks) {
        /* The buffers may fit a cache: the method before this one must not decide what is in it. */
        pthread_barrier_wait(&b->begin);
        copy_share(b, 0);
        pthread_barrier_wait(&b->end);
    }
    pthread_barrier_wait(&b->begin);
    uint64_t start = kvreg_os_monotonic_ns();
    copy_share(b, 0);
    pthread_barrier_wait(&b->end);
    uint64_t ns = kvreg_os_monotonic_ns() - start;
    b->start += b->run_blocks;
    if (b->start + b->run_blocks > b->blocks)
        b->start = 0;
    return (double)(b->run_blocks * b->passes * b->at.block_bytes) / (double)ns;
}

/* -- Statistics ---------------------------------------------------------------------------- */

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double quantile(const double *values, size_t n, double q)
{
    double sorted[MOST_ROUNDS];
    memcpy(sorted, values, n * sizeof *values);
    qsort(sorted, n, sizeof *sorted, compare_doubles);
    return sorted[(size_t)(q * (double)(n - 1) + 0.5)];
}

static double median(const double *values, size_t n)
{
    return quantile(values, n, 0.5);
}

/* -- One point ----------------------------------------------------------------------------- */

static uint32_t *make_ids(size_t n, bool shuffled, uint64_t seed)
{
    uint32_t *ids = malloc(n * sizeof *ids);
    for (size_t i = 0; i < n; i++)
        ids[i] = (uint32_t)i;
    for (size_t i = n; shuffled && i > 1; i--) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        size_t j = (seed >> 33) % i;
        uint32_t other = ids[j];
        ids[j] = ids[i - 1];
        ids[i - 1] = other;
    }
    return ids;
}

static char *map_buffer(size_t bytes, bool huge, int fill)
{
    char *memory = kvreg_os_map(bytes);
    if (memory == NULL) {
        fprintf(stderr, "no memory for a buffer of %zu MiB\n", bytes >> 20);
        exit(1);
    }
    madvise(memory, bytes, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    memset(memory, fill, bytes);
    return memory;
}

/* The best result of any kernel that the choice may not fall behind. */
typedef struct verdict {
    size_t chosen, best; /* method numbers */
    double of_memcpy;    /* chosen to memcpy a block: median of the rounds' ratios */
    double of_best;      /* chosen to best, likewise */
    double upper;        /* upper quartile of the latter */
    bool good;
} verdict;

static double ratio_quantile(const double *a, const double *b, size_t n, double q)
{
    double ratios[MOST_ROUNDS];
    for (size_t i = 0; i < n; i++)
        ratios[i] = a[i] / b[i];
    return quantile(ratios, n, q);
}

static verdict judge(const method *methods, size_t count, double speed[][MOST_ROUNDS],
                     size_t rounds, const point *at)
{
    verdict v = {0};
    kvreg_error error;
    const kvreg_copy_kernel *chosen;
    if (kvreg_copy_choose(at->block_bytes, at->set_bytes, &chosen, &error) != KVREG_OK) {
        fprintf(stderr, "%s\n", error.text);
        exit(1);
    }
    size_t block_memcpy = 0;
    for (size_t m = 0; m < count; m++) {
        if (methods[m].kind == BLOCK_MEMCPY)
            block_memcpy = m;
        if (methods[m].kind != KERNEL)
            continue;
        if (methods[m].kernel == chosen)
            v.chosen = m;
        if (methods[v.best].kind != KERNEL
            || median(speed[m], rounds) > median(speed[v.best], rounds))
            v.best = m;
    }
    v.of_memcpy = ratio_quantile(speed[v.chosen], speed[block_memcpy], rounds, 0.5);
    v.of_best = ratio_quantile(speed[v.chosen], speed[v.best], rounds, 0.5);
    v.upper = ratio_quantile(speed[v.chosen], speed[v.best], rounds, 0.75);
    v.good = v.of_best >= 0.9 || v.upper >= 1;
    return v;
}

static bool measure(bench *b, const method *methods, size_t count, size_t rounds)
{
    static double speed[MOST_METHODS][MOST_ROUNDS];
    pthread_t threads[MOST_THREADS];
    helper helpers[MOST_THREADS];
    point at = b->at;

    pthread_barrier_init(&b->begin, NULL, (unsigned)at.threads);
    pthread_barrier_init(&b->end, NULL, (unsigned)at.threads);
    for (size_t t = 1; t < at.threads; t++) {
        helpers[t] = (helper){b, t};
        pthread_create(&threads[t], NULL, help, &helpers[t]);
    }
    for (size_t m = 0; m < count; m++)
        run_once(b, &methods[m]);
    for (size_t round = 0; round < rounds; round++)
        for (size_t m = 0; m < count; m++)
            speed[m][round] = run_once(b, &methods[m]);
    b->method = NULL;
    pthread_barrier_wait(&b->begin);
    for (size_t t = 1; t < at.threads; t++)
        pthread_join(threads[t], NULL);
    pthread_barrier_destroy(&b->begin);
    pthread_barrier_destroy(&b->end);

    verdict v = judge(methods, count, speed, rounds, &at);
    printf("%8zu %8.1f %2zu %-10s %-5s", at.block_bytes >> 10, (double)at.set_bytes / (1 << 20),
           at.threads, at.shuffled ? "shuffled" : "sequential", at.huge ? "huge" : "plain");
    for (size_t m = 0; m < count; m++)
        printf(" %10.2f", median(speed[m], rounds));
    const double *chosen = speed[v.chosen];
    printf("  %-9s %5.2f %5.2f %4.0f%% %s\n", methods[v.chosen].name, v.of_memcpy, v.of_best,
           100 * (quantile(chosen, rounds, 0.75) - quantile(chosen, rounds, 0.25))
               / median(chosen, rounds),
           v.good ? "yes" : "NO");
    fflush(stdout);
    return v.good;
}

static bool measure_buffers(const options *o, const method *methods, size_t count,
                            size_t set_bytes, bool huge)
{
    bool good = true;
    char *dst = map_buffer(set_bytes, huge, 1), *src = map_buffer(set_bytes, huge, 2);
    for (size_t s = 0; s < o->shuffled.count; s++)
        for (size_t t = 0; t < o->threads.count; t++)
            for (size_t k = 0; k < o->block_bytes.count; k++) {
                size_t block = o->block_bytes.values[k], blocks = set_bytes / block;
                if (blocks < 2 * o->threads.values[t])
                    continue;
                bench b = {
                    .at = {block, set_bytes, o->threads.values[t], o->shuffled.values[s], huge},
                    .dst = {dst, block, blocks},
                    .src = {src, block, blocks},
                    .dst_ids = make_ids(blocks, o->shuffled.values[s], 1),
                    .src_ids = make_ids(blocks, o->shuffled.values[s], 2),
                    .blocks = blocks,
                    .run_blocks = set_bytes > RUN_BYTES ? RUN_BYTES / block : blocks,
                    .passes = set_bytes > RUN_BYTES ? 1 : RUN_BYTES / set_bytes,
                };
                good &= measure(&b, methods, count, o->rounds);
                free(b.dst_ids);
                free(b.src_ids);
            }
    kvreg_os_unmap(dst, set_bytes);
    kvreg_os_unmap(src, set_bytes);
    return good;
}

/* -- Options ------------------------------------------------------------------------------- */

static list parse_list(const char *text, double unit)
{
    list result = {.count = 0};
    char *end;
    while (result.count < MOST_VALUES) {
        result.values[result.count++] = (size_t)(strtod(text, &end) * unit);
        if (*end != ',')
            break;
        text = end + 1;
    }
    return result;
}

static void usage(void)
{
    puts("bench_copy [options]; lists are separated by commas\n"
         "  --block-kib LIST   block sizes (4,16,64,256,1024,4096)\n"
         "  --set-mib LIST     sizes of each buffer (1/4 and 4 times the second-level cache;\n"
         "                     1/16, 1/4, 1 and 8 times the last-level cache)\n"
         "  --threads LIST     (1,2)\n"
         "  --shuffled LIST    0: ids in order, 1: shuffled (0,1)\n"
         "  --huge LIST        0: ordinary pages, 1: transparent huge pages (0,1)\n"
         "  --rounds N         (9)");
}

/* Bytes of the cache of a level; where the system does not say, what servers have at least. */
static size_t cache_bytes(uint64_t level)
{
    size_t bytes = kvreg_os_cache_bytes("", level);
    return bytes > 0 ? bytes : level == 2 ? 1 << 20 : 32 << 20;
}

static options parse_options(int argc, char **argv)
{
    static const struct option names[] = {
        {"block-kib", required_argument, NULL, 'b'}, {"set-mib", required_argument, NULL, 's'},
        {"threads", required_argument, NULL, 't'},   {"shuffled", required_argument, NULL, 'i'},
        {"huge", required_argument, NULL, 'p'},      {"rounds", required_argument, NULL, 'r'},
        {"help", no_argument, NULL, 'h'},            {0},
    };
    size_t l2 = cache_bytes(2), llc = cache_bytes(3);
    options o = {
        .block_bytes = parse_list("4,16,64,256,1024,4096", 1 << 10),
        .set_bytes = {{l2 / 4, 4 * l2, llc / 16, llc / 4, llc, 8 * llc}, 6},
        .threads = parse_list("1,2", 1),
        .shuffled = parse_list("0,1", 1),
        .huge = parse_list("0,1", 1),
        .rounds = 9,
    };
    for (int c; (c = getopt_long(argc, argv, "", names, NULL)) != -1;) {
        switch (c) {
        case 'b': o.block_bytes = parse_list(optarg, 1 << 10); break;
        case 's': o.set_bytes = parse_list(optarg, 1 << 20); break;
        case 't': o.threads = parse_list(optarg, 1); break;
        case 'i': o.shuffled = parse_list(optarg, 1); break;
        case 'p': o.huge = parse_list(optarg, 1); break;
        case 'r': o.rounds = strtoul(optarg, NULL, 10); break;
        default: usage(); exit(c == 'h' ? 0 : 2);
        }
    }
    if (o.rounds < 1 || o.rounds > MOST_ROUNDS) {
        fprintf(stderr, "--rounds must be 1 to %d\n", MOST_ROUNDS);
        exit(2);
    }
    return o;
}

int main(int argc, char **argv)
{
    options o = parse_options(argc, argv);
    method methods[MOST_METHODS] = {{"one-memcpy", ONE_MEMCPY, NULL}, {"memcpy", BLOCK_MEMCPY, NULL}};
    size_t count = 2;
    const kvreg_copy_kernel *kernel;
    unsigned features = kvreg_copy_cpu_features();
    for (size_t i = 0; (kernel = kvreg_copy_kernel_at(features, i)) != NULL; i++)
        methods[count++] = (method){kernel->name, KERNEL, kernel};

    printf("last-level cache: %zu MiB. GB/s, medians of %zu interleaved rounds\n",
           cache_bytes(3) >> 20, o.rounds);
    printf("%8s %8s %2s %-10s %-5s", "block/Ki", "set/Mi", "th", "ids", "pages");
    for (size_t m = 0; m < count; m++)
        printf(" %10s", methods[m].name);
    printf("  %-9s %5s %5s %5s %s\n", "chosen", "/mcpy", "/best", "IQR", "within 10%");
    bool good = true;
    for (size_t s = 0; s < o.set_bytes.count; s++)
        for (size_t p = 0; p < o.huge.count; p++)
            good &= measure_buffers(&o, methods, count, o.set_bytes.values[s], o.huge.values[p]);
    printf("the choice is %swithin 10 %% of the best kernel, or within the spread, everywhere\n",
           good ? "" : "NOT ");
    return 0;
}
