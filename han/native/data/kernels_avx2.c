/* Kernels for AVX2 with F16C: x86-64 machines since 2013. */
#include "data/kernels_table.h"

#ifdef HAN_X86_64
#define HAN_ISA "avx2"
#define HAN_TABLE han_kernels_avx2
#define HAN_TARGET __attribute__((target("avx2,f16c")))

#define HAN_HALVES 8
#define HAN_HALF_VECTOR __m256
#define HAN_HALF_LOAD(p) _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(p)))
#define HAN_HALF_STORE(p, v) \
    _mm_storeu_si128((__m128i *)(void *)(p), _mm256_cvtps_ph((v), _MM_FROUND_TO_NEAREST_INT))
#define HAN_HALF_SUM _mm256_add_ps
#define HAN_HALF_PROD _mm256_mul_ps
#define HAN_HALF_MAX _mm256_max_ps
#define HAN_HALF_MIN _mm256_min_ps

#include "data/kernels_half_x86.h"
#include "data/kernels_loops.h"
#endif
