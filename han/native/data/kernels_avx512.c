/* Kernels for AVX-512 F, BW, DQ and VL: x86-64 servers since 2017. */
#include "data/kernels_table.h"

#ifdef HAN_X86_64
#define HAN_ISA "avx512"
#define HAN_TABLE han_kernels_avx512
#define HAN_TARGET __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,f16c")))

#define HAN_HALVES 16
#define HAN_HALF_VECTOR __m512
#define HAN_HALF_LOAD(p) _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)(p)))
#define HAN_HALF_STORE(p, v) \
    _mm256_storeu_si256((__m256i *)(void *)(p), _mm512_cvtps_ph((v), _MM_FROUND_TO_NEAREST_INT))
#define HAN_HALF_SUM _mm512_add_ps
#define HAN_HALF_PROD _mm512_mul_ps
#define HAN_HALF_MAX _mm512_max_ps
#define HAN_HALF_MIN _mm512_min_ps

#include "data/kernels_half_x86.h"
#include "data/kernels_loops.h"
#endif
