/* Inside the copy engine: what a kernel is made of, and how one is chosen. */
#ifndef KVREG_COPY_KERNELS_H
#define KVREG_COPY_KERNELS_H

#include <stdbool.h>
#include <string.h>

#include "kvreg/copy.h"

/* What the choice of a kernel depends on, apart from the copy itself. */
typedef struct kvreg_copy_machine {
    unsigned features; /* KVREG_CPU_* of this CPU that the system lets programs use */
    size_t l2_bytes;   /* the largest cache that a core has for itself; 0: not known */
} kvreg_copy_machine;

enum {
    KVREG_CPU_SSE2 = 1 << 0,
    KVREG_CPU_AVX2 = 1 << 1,
    KVREG_CPU_AVX512 = 1 << 2, /* AVX-512F */
    KVREG_CPU_NEON = 1 << 3,
};

/* The features of this CPU. Each architecture's file defines it. */
unsigned kvreg_copy_cpu_features(void);

/* kvreg_copy_choose() for any machine; `forced` is the value of KVREG_COPY, or NULL. */
kvreg_status kvreg_copy_choose_for(const kvreg_copy_machine *machine, const char *forced,
                                   size_t block_bytes, size_t working_set_bytes,
                                   const kvreg_copy_kernel **kernel, kvreg_error *error);

/* Kernel number `i` of those that `features` allow; NULL after the last. */
const kvreg_copy_kernel *kvreg_copy_kernel_at(unsigned features, size_t i);

extern const kvreg_copy_kernel kvreg_copy_portable;
#if defined(__x86_64__)
extern const kvreg_copy_kernel kvreg_copy_sse2, kvreg_copy_sse2_nt;
extern const kvreg_copy_kernel kvreg_copy_avx2, kvreg_copy_avx2_nt;
extern const kvreg_copy_kernel kvreg_copy_avx512, kvreg_copy_avx512_nt;
#elif defined(__aarch64__)
extern const kvreg_copy_kernel kvreg_copy_neon, kvreg_copy_neon_nt;
#endif

enum {
    KVREG_COPY_LINE = 64,     /* bytes of a cache line, and of one step of a kernel's loop */
    KVREG_COPY_AHEAD = 8192,  /* bytes between what is copied and what is prefetched */
};

/* A kernel's loop: copies `bytes`, a multiple of KVREG_COPY_LINE, to a line boundary, and
 * prefetches as many bytes from `ahead`. */
typedef void kvreg_copy_loop(char *dst, const char *src, size_t bytes, const char *ahead);

/* Brings the destination to a line boundary, runs the loop, and copies what is left. Over the
 * last KVREG_COPY_AHEAD bytes the loop prefetches the head of the next block. */
static inline void kvreg_copy_by_lines(char *dst, const char *src, size_t bytes,
                                       const char *next, kvreg_copy_loop *loop)
{
    size_t head = (size_t)(-(uintptr_t)dst % KVREG_COPY_LINE);
    if (head > bytes)
        head = bytes;
    if (head > 0) {
        memcpy(dst, src, head);
        dst += head;
        src += head;
        bytes -= head;
    }

    size_t tail = bytes % KVREG_COPY_LINE;
    size_t lines = bytes - tail;
    size_t seam = lines > KVREG_COPY_AHEAD ? lines - KVREG_COPY_AHEAD : 0;
    loop(dst, src, seam, src + (lines - seam));
    loop(dst + seam, src + seam, lines - seam, next != NULL ? next : src + seam);
    if (tail > 0)
        memcpy(dst + lines, src + lines, tail);
}

#endif
