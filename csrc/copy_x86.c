/* Copy kernels of x86-64. Each carries its own target attribute, so that one binary runs on every
 * CPU and no compiler flag decides what it may use. */
#include "copy_kernels.h"

#if defined(__x86_64__)

#include <immintrin.h>

unsigned kvreg_copy_cpu_features(void)
{
    unsigned features = KVREG_CPU_SSE2;
    if (__builtin_cpu_supports("avx2"))
        features |= KVREG_CPU_AVX2;
    if (__builtin_cpu_supports("avx512f"))
        features |= KVREG_CPU_AVX512;
    return features;
}

static void fence_stores(void)
{
    _mm_sfence();
}

static void loop_sse2(char *dst, const char *src, size_t bytes, const char *ahead)
{
    for (size_t i = 0; i < bytes; i += KVREG_COPY_LINE) {
        _mm_prefetch(ahead + i, _MM_HINT_T0);
        __m128i a = _mm_loadu_si128((const __m128i *)(src + i));
        __m128i b = _mm_loadu_si128((const __m128i *)(src + i + 16));
        __m128i c = _mm_loadu_si128((const __m128i *)(src + i + 32));
        __m128i d = _mm_loadu_si128((const __m128i *)(src + i + 48));
        _mm_store_si128((__m128i *)(dst + i), a);
        _mm_store_si128((__m128i *)(dst + i + 16), b);
        _mm_store_si128((__m128i *)(dst + i + 32), c);
        _mm_store_si128((__m128i *)(dst + i + 48), d);
    }
}

static void loop_sse2_nt(char *dst, const char *src, size_t bytes, const char *ahead)
{
    for (size_t i = 0; i < bytes; i += KVREG_COPY_LINE) {
        _mm_prefetch(ahead + i, _MM_HINT_T1);
        __m128i a = _mm_loadu_si128((const __m128i *)(src + i));
        __m128i b = _mm_loadu_si128((const __m128i *)(src + i + 16));
        __m128i c = _mm_loadu_si128((const __m128i *)(src + i + 32));
        __m128i d = _mm_loadu_si128((const __m128i *)(src + i + 48));
        _mm_stream_si128((__m128i *)(dst + i), a);
        _mm_stream_si128((__m128i *)(dst + i + 16), b);
        _mm_stream_si128((__m128i *)(dst + i + 32), c);
        _mm_stream_si128((__m128i *)(dst + i + 48), d);
    }
}

__attribute__((target("avx2")))
static void loop_avx2(char *dst, const char *src, size_t bytes, const char *ahead)
{
    for (size_t i = 0; i < bytes; i += KVREG_COPY_LINE) {
        _mm_prefetch(ahead + i, _MM_HINT_T0);
        __m256i a = _mm256_loadu_si256((const __m256i *)(src + i));
        __m256i b = _mm256_loadu_si256((const __m256i *)(src + i + 32));
        _mm256_store_si256((__m256i *)(dst + i), a);
        _mm256_store_si256((__m256i *)(dst + i + 32), b);
    }
}

__attribute__((target("avx2")))
static void loop_avx2_nt(char *dst, const char *src, size_t bytes, const char *ahead)
{
    for (size_t i = 0; i < bytes; i += KVREG_COPY_LINE) {
        _mm_prefetch(ahead + i, _MM_HINT_T1);
        __m256i a = _mm256_loadu_si256((const __m256i *)(src + i));
        __m256i b = _mm256_loadu_si256((const __m256i *)(src + i + 32));
        _mm256_stream_si256((__m256i *)(dst + i), a);
        _mm256_stream_si256((__m256i *)(dst + i + 32), b);
    }
}

__attribute__((target("avx512f")))
static void loop_avx512(char *dst, const char *src, size_t bytes, const char *ahead)
{
    for (size_t i = 0; i < bytes; i += KVREG_COPY_LINE) {
        _mm_prefetch(ahead + i, _MM_HINT_T0);
        _mm512_store_si512(dst + i, _mm512_loadu_si512(src + i));
    }
}

__attribute__((target("avx512f")))
static void loop_avx512_nt(char *dst, const char *src, size_t bytes, const char *ahead)
{
    for (size_t i = 0; i < bytes; i += KVREG_COPY_LINE) {
        _mm_prefetch(ahead + i, _MM_HINT_T1);
        _mm512_stream_si512((__m512i *)(dst + i), _mm512_loadu_si512(src + i));
    }
}

static void copy_sse2(void *dst, const void *src, size_t bytes, const void *next)
{
    kvreg_copy_by_lines(dst, src, bytes, next, loop_sse2);
}

static void copy_sse2_nt(void *dst, const void *src, size_t bytes, const void *next)
{
    kvreg_copy_by_lines(dst, src, bytes, next, loop_sse2_nt);
}

static void copy_avx2(void *dst, const void *src, size_t bytes, const void *next)
{
    kvreg_copy_by_lines(dst, src, bytes, next, loop_avx2);
}

static void copy_avx2_nt(void *dst, const void *src, size_t bytes, const void *next)
{
    kvreg_copy_by_lines(dst, src, bytes, next, loop_avx2_nt);
}

static void copy_avx512(void *dst, const void *src, size_t bytes, const void *next)
{
    kvreg_copy_by_lines(dst, src, bytes, next, loop_avx512);
}

static void copy_avx512_nt(void *dst, const void *src, size_t bytes, const void *next)
{
    kvreg_copy_by_lines(dst, src, bytes, next, loop_avx512_nt);
}

const kvreg_copy_kernel kvreg_copy_sse2 = {"sse2", copy_sse2, NULL};
const kvreg_copy_kernel kvreg_copy_sse2_nt = {"sse2-nt", copy_sse2_nt, fence_stores};
const kvreg_copy_kernel kvreg_copy_avx2 = {"avx2", copy_avx2, NULL};
const kvreg_copy_kernel kvreg_copy_avx2_nt = {"avx2-nt", copy_avx2_nt, fence_stores};
const kvreg_copy_kernel kvreg_copy_avx512 = {"avx512", copy_avx512, NULL};
const kvreg_copy_kernel kvreg_copy_avx512_nt = {"avx512-nt", copy_avx512_nt, fence_stores};

#endif
