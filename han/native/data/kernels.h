/* Element-wise reductions: one kernel for each operation and element type. */
#ifndef HAN_KERNELS_H
#define HAN_KERNELS_H

#include "reductions.h"

/* The kernel for the best instruction set of this machine; NULL where MPI does not define the pair.
 *
 * Integers wrap on overflow. Logical operations give 0 or 1. MAX is a > b ? a : b (so b where
 * either is NaN), MIN likewise. float16 and bfloat16 are computed in float32 and
 * rounded to nearest even.
 * Every instruction set gives the same bits, except for the sign and payload of a NaN. */
han_reduce_fn han_reduce_kernel(enum han_op op, enum han_dtype dtype);
han_reduce2_fn han_reduce2_kernel(enum han_op op, enum han_dtype dtype);

/* Bytes of one element; 0 for a value that is no dtype. */
size_t han_dtype_size(enum han_dtype dtype);

/* The instruction set in use: "avx512", "avx2", "neon" or "baseline". */
const char *han_kernels_isa(void);

/* Use nothing better than `isa` from now on; NULL or an unknown name lifts the limit. For tests:
 * kernels that were returned before do not change. */
void han_kernels_limit(const char *isa);

#endif
