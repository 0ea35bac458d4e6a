/* The loops of one instruction set, included once by each kernels_<isa>.c.
 *
 * Expects HAN_ISA (its name), HAN_TABLE (the table to define), HAN_TARGET (a function attribute)
 * and HAN_HALF_LOOPS(OP, DTYPE) (the loops of float16). Functions are named one_<op>_<dtype> and
 * two_<op>_<dtype> after the number of destinations. */
#include "data/kernels_bfloat.h"
#include "data/kernels_table.h"

/* An array element at any address, of whatever type the user's buffer has. */
#define HAN_UNALIGNED __attribute__((aligned(1), may_alias))

/* No element depends on another one, also if dst equals a or b. Without this pragma the compiler
 * tests for overlap at run time and takes the scalar loop for such in-place calls. */
#ifdef __clang__
#define HAN_INDEPENDENT _Pragma("clang loop vectorize(assume_safety) interleave(enable)")
#pragma clang diagnostic ignored "-Wpass-failed" /* builds without optimisation */
#pragma STDC FP_CONTRACT OFF                     /* same bits with and without fused multiply-add */
#else
#define HAN_INDEPENDENT _Pragma("GCC ivdep")
#endif

/* RESULT is an expression in the elements p and q. */
#define HAN_LOOPS(OP, DTYPE, T, RESULT)                                                            \
    HAN_TARGET static void one_##OP##_##DTYPE(void *dst, const void *a, const void *b, size_t n) { \
        typedef T HAN_UNALIGNED element;                                                           \
        element *d = dst;                                                                          \
        const element *x = a, *y = b;                                                              \
        HAN_INDEPENDENT                                                                            \
        for (size_t i = 0; i < n; i++) {                                                           \
            const T p = x[i], q = y[i];                                                            \
            d[i] = RESULT;                                                                         \
        }                                                                                          \
    }                                                                                              \
    HAN_TARGET static void two_##OP##_##DTYPE(void *dst, void *dst2, const void *a, const void *b, \
                                              size_t n) {                                          \
        typedef T HAN_UNALIGNED element;                                                           \
        element *d = dst, *e = dst2;                                                               \
        const element *x = a, *y = b;                                                              \
        HAN_INDEPENDENT                                                                            \
        for (size_t i = 0; i < n; i++) {                                                           \
            const T p = x[i], q = y[i];                                                            \
            d[i] = e[i] = RESULT;                                                                  \
        }                                                                                          \
    }

#define HAN_NUMBER_LOOPS(OP, DTYPE, T, W) HAN_LOOPS(OP, DTYPE, T, HAN_OP_##OP(T, W, p, q))

#define HAN_BFLOAT_LOOPS(OP, DTYPE) \
    HAN_LOOPS(OP, DTYPE, uint16_t,  \
              han_bfloat_of_float(  \
                  HAN_OP_##OP(float, float, han_bfloat_to_float(p), han_bfloat_to_float(q))))

/* A sum of complex numbers is a sum of twice as many parts. */
#define HAN_COMPLEX_LOOPS_SUM(DTYPE, T, PART)                                                   \
    HAN_TARGET static void one_SUM_##DTYPE(void *dst, const void *a, const void *b, size_t n) { \
        one_SUM_##PART(dst, a, b, 2 * n);                                                       \
    }                                                                                           \
    HAN_TARGET static void two_SUM_##DTYPE(void *dst, void *dst2, const void *a, const void *b, \
                                           size_t n) {                                          \
        two_SUM_##PART(dst, dst2, a, b, 2 * n);                                                 \
    }

/* gcc 12 fuses the multiplication and addition of a complex product into vfmaddsub even with
 * contraction off, which rounds differently: disable that instruction for these loops. */
#if defined(HAN_X86_64) && !defined(__clang__)
#define HAN_TARGET_UNFUSED HAN_TARGET __attribute__((target("no-fma,no-fma4,no-avx512f")))
#else
#define HAN_TARGET_UNFUSED HAN_TARGET
#endif

#define HAN_COMPLEX_LOOPS_PROD(DTYPE, T, PART)                                               \
    HAN_TARGET_UNFUSED static void one_PROD_##DTYPE(void *dst, const void *a, const void *b, \
                                                    size_t n) {                              \
        typedef T HAN_UNALIGNED part;                                                        \
        part *d = dst;                                                                       \
        const part *x = a, *y = b;                                                           \
        HAN_INDEPENDENT                                                                      \
        for (size_t i = 0; i < n; i++) {                                                     \
            const T xr = x[2 * i], xi = x[2 * i + 1], yr = y[2 * i], yi = y[2 * i + 1];      \
            d[2 * i] = xr * yr - xi * yi;                                                    \
            d[2 * i + 1] = xr * yi + xi * yr;                                                \
        }                                                                                    \
    }                                                                                        \
    HAN_TARGET_UNFUSED static void two_PROD_##DTYPE(void *dst, void *dst2, const void *a,    \
                                                    const void *b, size_t n) {               \
        typedef T HAN_UNALIGNED part;                                                        \
        part *d = dst, *e = dst2;                                                            \
        const part *x = a, *y = b;                                                           \
        HAN_INDEPENDENT                                                                      \
        for (size_t i = 0; i < n; i++) {                                                     \
            const T xr = x[2 * i], xi = x[2 * i + 1], yr = y[2 * i], yi = y[2 * i + 1];      \
            d[2 * i] = e[2 * i] = xr * yr - xi * yi;                                         \
            d[2 * i + 1] = e[2 * i + 1] = xr * yi + xi * yr;                                 \
        }                                                                                    \
    }

#define HAN_COMPLEX_LOOPS(OP, DTYPE, T, PART) HAN_COMPLEX_LOOPS_##OP(DTYPE, T, PART)

HAN_NUMBER_PAIRS(HAN_NUMBER_LOOPS)
HAN_HALF_PAIRS(HAN_HALF_LOOPS)
HAN_BFLOAT_PAIRS(HAN_BFLOAT_LOOPS)
HAN_COMPLEX_PAIRS(HAN_COMPLEX_LOOPS)

#define HAN_ONE(OP, DTYPE, ...) [HAN_##OP][HAN_##DTYPE] = one_##OP##_##DTYPE,
#define HAN_TWO(OP, DTYPE, ...) [HAN_##OP][HAN_##DTYPE] = two_##OP##_##DTYPE,

const struct han_kernels HAN_TABLE = {
    .isa = HAN_ISA,
    .reduce = {HAN_NUMBER_PAIRS(HAN_ONE) HAN_HALF_PAIRS(HAN_ONE) HAN_BFLOAT_PAIRS(HAN_ONE)
                   HAN_COMPLEX_PAIRS(HAN_ONE)},
    .reduce2 = {HAN_NUMBER_PAIRS(HAN_TWO) HAN_HALF_PAIRS(HAN_TWO) HAN_BFLOAT_PAIRS(HAN_TWO)
                    HAN_COMPLEX_PAIRS(HAN_TWO)},
};
