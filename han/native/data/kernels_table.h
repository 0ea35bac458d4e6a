/* The pairs of operation and element type, what each computes, and the table of kernels that each
 * kernels_<isa>.c defines. */
#ifndef HAN_KERNELS_TABLE_H
#define HAN_KERNELS_TABLE_H

#include <stddef.h>
#include <stdint.h>

#include "reductions.h"

struct han_kernels {
    const char *isa;
    han_reduce_fn reduce[HAN_OPS][HAN_DTYPES];
    han_reduce2_fn reduce2[HAN_OPS][HAN_DTYPES];
};

extern const struct han_kernels han_kernels_baseline;
#if defined(__x86_64__) && defined(__GNUC__)
#define HAN_X86_64 1
extern const struct han_kernels han_kernels_avx2;
extern const struct han_kernels han_kernels_avx512;
#endif

/* MPI's table of defined pairs, as X(op, dtype, element type, type computed in). Integers are
 * computed in an unsigned type no narrower than int: narrower ones would be promoted to int,
 * where overflow is undefined. */
#define HAN_INTEGERS(X, OP)        \
    X(OP, I8, int8_t, uint32_t)    \
    X(OP, I16, int16_t, uint32_t)  \
    X(OP, I32, int32_t, uint32_t)  \
    X(OP, I64, int64_t, uint64_t)  \
    X(OP, U8, uint8_t, uint32_t)   \
    X(OP, U16, uint16_t, uint32_t) \
    X(OP, U32, uint32_t, uint32_t) \
    X(OP, U64, uint64_t, uint64_t)

#define HAN_FLOATS(X, OP)    \
    X(OP, F32, float, float) \
    X(OP, F64, double, double)

#define HAN_LOGICALS(X, OP)        \
    X(OP, BOOL, uint8_t, uint32_t) \
    HAN_INTEGERS(X, OP)

/* clang-format off */
#define HAN_NUMBER_PAIRS(X)                     \
    HAN_INTEGERS(X, SUM) HAN_FLOATS(X, SUM)     \
    HAN_INTEGERS(X, PROD) HAN_FLOATS(X, PROD)   \
    HAN_INTEGERS(X, MAX) HAN_FLOATS(X, MAX)     \
    HAN_INTEGERS(X, MIN) HAN_FLOATS(X, MIN)     \
    HAN_LOGICALS(X, LAND)                       \
    HAN_LOGICALS(X, LOR)                        \
    HAN_LOGICALS(X, LXOR)                       \
    HAN_INTEGERS(X, BAND)                       \
    HAN_INTEGERS(X, BOR)                        \
    HAN_INTEGERS(X, BXOR)
/* clang-format on */

/* X(op, dtype) */
#define HAN_HALF_PAIRS(X) X(SUM, F16) X(PROD, F16) X(MAX, F16) X(MIN, F16)
#define HAN_BFLOAT_PAIRS(X) X(SUM, BF16) X(PROD, BF16) X(MAX, BF16) X(MIN, BF16)

/* X(op, dtype, type of a part, dtype of a part) */
#define HAN_COMPLEX_PAIRS(X)  \
    X(SUM, C64, float, F32)   \
    X(SUM, C128, double, F64) \
    X(PROD, C64, float, F32)  \
    X(PROD, C128, double, F64)

/* One element of each operation: T the element type, W the type computed in. */
#define HAN_OP_SUM(T, W, p, q) ((T)((W)(p) + (W)(q)))
#define HAN_OP_PROD(T, W, p, q) ((T)((W)(p) * (W)(q)))
#define HAN_OP_MAX(T, W, p, q) ((p) > (q) ? (p) : (q))
#define HAN_OP_MIN(T, W, p, q) ((p) < (q) ? (p) : (q))
#define HAN_OP_LAND(T, W, p, q) ((T)(((p) != 0) & ((q) != 0)))
#define HAN_OP_LOR(T, W, p, q) ((T)(((p) != 0) | ((q) != 0)))
#define HAN_OP_LXOR(T, W, p, q) ((T)(((p) != 0) ^ ((q) != 0)))
#define HAN_OP_BAND(T, W, p, q) ((T)((W)(p) & (W)(q)))
#define HAN_OP_BOR(T, W, p, q) ((T)((W)(p) | (W)(q)))
#define HAN_OP_BXOR(T, W, p, q) ((T)((W)(p) ^ (W)(q)))

#endif
