/* The copy kernel of every machine: the C library's memcpy. */
#include "copy_kernels.h"

static void copy_portable(void *dst, const void *src, size_t bytes, const void *next)
{
    (void)next; /* memcpy prefetches as it sees fit */
    memcpy(dst, src, bytes);
}

const kvreg_copy_kernel kvreg_copy_portable = {"portable", copy_portable, NULL};

#if !defined(__x86_64__) && !defined(__aarch64__)
unsigned kvreg_copy_cpu_features(void)
{
    return 0;
}
#endif
