/* Copy kernels of aarch64, where every CPU has NEON. */
#include "copy_kernels.h"

#if defined(__aarch64__)

#include <arm_neon.h>

unsigned kvreg_copy_cpu_features(void)
{
    return KVREG_CPU_NEON;
}

static void loop_neon(char *dst, const char *src, size_t bytes, const char *ahead)
{
    for (size_t i = 0; i < bytes; i += KVREG_COPY_LINE) {
        __builtin_prefetch(ahead + i);
        uint8x16_t a = vld1q_u8((const uint8_t *)src + i);
        uint8x16_t b = vld1q_u8((const uint8_t *)src + i + 16);
        uint8x16_t c = vld1q_u8((const uint8_t *)src + i + 32);
        uint8x16_t d = vld1q_u8((const uint8_t *)src + i + 48);
        vst1q_u8((uint8_t *)dst + i, a);
        vst1q_u8((uint8_t *)dst + i + 16, b);
        vst1q_u8((uint8_t *)dst + i + 32, c);
        vst1q_u8((uint8_t *)dst + i + 48, d);
    }
}

/* Stores a pair of registers with the non-temporal hint, for which C has no intrinsic. */
static inline void store_pair_nt(char *dst, uint8x16_t a, uint8x16_t b)
{
    __asm__("stnp %q1, %q2, [%3]" : "=m"(*(char(*)[32])dst) : "w"(a), "w"(b), "r"(dst));
}

static void loop_neon_nt(char *dst, const char *src, size_t bytes, const char *ahead)
{
    for (size_t i = 0; i < bytes; i += KVREG_COPY_LINE) {
        __builtin_prefetch(ahead + i);
        uint8x16_t a = vld1q_u8((const uint8_t *)src + i);
        uint8x16_t b = vld1q_u8((const uint8_t *)src + i + 16);
        uint8x16_t c = vld1q_u8((const uint8_t *)src + i + 32);
        uint8x16_t d = vld1q_u8((const uint8_t *)src + i + 48);
        store_pair_nt(dst + i, a, b);
        store_pair_nt(dst + i + 32, c, d);
    }
}

static void copy_neon(void *dst, const void *src, size_t bytes, const void *next)
{
    kvreg_copy_by_lines(dst, src, bytes, next, loop_neon);
}

static void copy_neon_nt(void *dst, const void *src, size_t bytes, const void *next)
{
    kvreg_copy_by_lines(dst, src, bytes, next, loop_neon_nt);
}

/* STNP is only a hint: unlike x86's non-temporal stores it keeps the order that barriers and
 * store-release ask for, so neither kernel needs a fence of its own. */
const kvreg_copy_kernel kvreg_copy_neon = {"neon", copy_neon, NULL};
const kvreg_copy_kernel kvreg_copy_neon_nt = {"neon-nt", copy_neon_nt, NULL};

#endif
