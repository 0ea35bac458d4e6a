/* Element types and operations of reductions, and the type of a function that computes one.
 * han/model/element_types.py lists them in the same order. */
#ifndef HAN_REDUCTIONS_H
#define HAN_REDUCTIONS_H

#include <stddef.h>

enum han_dtype {
    HAN_BOOL,
    HAN_I8,
    HAN_I16,
    HAN_I32,
    HAN_I64,
    HAN_U8,
    HAN_U16,
    HAN_U32,
    HAN_U64,
    HAN_F16,
    HAN_F32,
    HAN_F64,
    HAN_C64,
    HAN_C128,
    HAN_BF16,
    HAN_DTYPES
};

enum han_op {
    HAN_SUM,
    HAN_PROD,
    HAN_MAX,
    HAN_MIN,
    HAN_LAND,
    HAN_LOR,
    HAN_LXOR,
    HAN_BAND,
    HAN_BOR,
    HAN_BXOR,
    HAN_OPS
};

/* dst[i] = a[i] op b[i]. Addresses need no alignment. dst may equal a or b; any other overlap is an
 * error of the caller. */
typedef void (*han_reduce_fn)(void *dst, const void *a, const void *b, size_t count);

/* The same in one pass with a second copy of the result in dst2, which overlaps nothing. */
typedef void (*han_reduce2_fn)(void *dst, void *dst2, const void *a, const void *b, size_t count);

#endif
