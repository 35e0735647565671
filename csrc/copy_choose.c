/* Which kernel copies: by name, or by what was measured to be fastest. */
#include "copy_kernels.h"

#include <pthread.h>
#include <stdlib.h>

#include "os.h"

/* -- The kernels of this architecture ------------------------------------------------------ */

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

/* A non-temporal kernel, and the blocks that it is for. */
typedef struct streaming_variant {
    variant kernel;
    size_t least_block_bytes;
} streaming_variant;

/* The first that fits is the fastest. 512-bit stores gain a few percent over 256-bit ones, except
 * with blocks of a page or less. */
static const streaming_variant streaming[] = {
#if defined(__x86_64__)
    {{&kvreg_copy_avx512_nt, KVREG_CPU_AVX512}, 8192},
    {{&kvreg_copy_avx2_nt, KVREG_CPU_AVX2}, 0},
    {{&kvreg_copy_sse2_nt, KVREG_CPU_SSE2}, 0},
#elif defined(__aarch64__)
    {{&kvreg_copy_neon_nt, KVREG_CPU_NEON}, 0},
#endif
    {{&kvreg_copy_portable, 0}, 0},
};

static bool is_allowed(const variant *v, unsigned features)
{
    return (v->needs & ~features) == 0;
}

const kvreg_copy_kernel *kvreg_copy_kernel_at(unsigned features, size_t i)
{
    for (size_t v = 0; v < sizeof variants / sizeof variants[0]; v++)
        if (is_allowed(&variants[v], features) && i-- == 0)
            return variants[v].kernel;
    return NULL;
}

static const kvreg_copy_kernel *streaming_kernel(unsigned features, size_t block_bytes)
{
    const streaming_variant *s = streaming;
    while (!is_allowed(&s->kernel, features) || block_bytes < s->least_block_bytes)
        s++;
    return s->kernel.kernel;
}

/* -- The choice ---------------------------------------------------------------------------- */

enum {
    /* Below this, the ordinary stores that bring a destination to a line boundary and finish it
     * weigh more than the non-temporal ones between them gain. */
    LEAST_STREAMED_BYTES = 512,
    /* Where the system does not say how large a core's own cache is: what servers have at least. */
    ASSUMED_CACHE_BYTES = 1 << 20,
};

static kvreg_status choose_by_name(unsigned features, const char *name,
                                   const kvreg_copy_kernel **kernel, kvreg_error *error)
{
    char names[128] = "";
    for (size_t i = 0; (*kernel = kvreg_copy_kernel_at(features, i)) != NULL; i++) {
        if (strcmp((*kernel)->name, name) == 0)
            return KVREG_OK;
        strcat(strcat(names, i > 0 ? ", " : ""), (*kernel)->name);
    }
    return kvreg_fail(error, KVREG_E_ARGUMENT,
                      "KVREG_COPY is '%.32s'; this machine's copy kernels are: %s", name, names);
}

/* Whether source and destination together outgrow a core's own cache. Beyond it ordinary stores
 * lose even where a larger, shared cache would hold the destination: each first reads the line
 * that it replaces, through the same queues. */
static bool should_stream(const kvreg_copy_machine *machine, size_t block_bytes,
                          size_t working_set_bytes)
{
    size_t cache = machine->l2_bytes > 0 ? machine->l2_bytes : ASSUMED_CACHE_BYTES;
    return block_bytes >= LEAST_STREAMED_BYTES && working_set_bytes > cache / 2;
}

kvreg_status kvreg_copy_choose_for(const kvreg_copy_machine *machine, const char *forced,
                                   size_t block_bytes, size_t working_set_bytes,
                                   const kvreg_copy_kernel **kernel, kvreg_error *error)
{
    if (forced != NULL)
        return choose_by_name(machine->features, forced, kernel, error);
    *kernel = should_stream(machine, block_bytes, working_set_bytes)
                  ? streaming_kernel(machine->features, block_bytes)
                  : &kvreg_copy_portable;
    return KVREG_OK;
}

/* -- This machine -------------------------------------------------------------------------- */

static kvreg_copy_machine this_machine;
static pthread_once_t machine_known = PTHREAD_ONCE_INIT;

static void look_at_machine(void)
{
    this_machine.features = kvreg_copy_cpu_features();
    this_machine.l2_bytes = kvreg_os_cache_bytes("", 2);
}

kvreg_status kvreg_copy_choose(size_t block_bytes, size_t working_set_bytes,
                               const kvreg_copy_kernel **kernel, kvreg_error *error)
{
    pthread_once(&machine_known, look_at_machine);
    return kvreg_copy_choose_for(&this_machine, getenv("KVREG_COPY"), block_bytes,
                                 working_set_bytes, kernel, error);
}
