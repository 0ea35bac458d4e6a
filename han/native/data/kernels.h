/* Element-wise reductions and small copies: the arithmetic under every collective. */
#ifndef HAN_KERNELS_H
#define HAN_KERNELS_H

#include <stdbool.h>
#include <stddef.h>

#include "processor.h"

enum han_dtype {
    HAN_BOOL,
    HAN_I8, HAN_I16, HAN_I32, HAN_I64,
    HAN_U8, HAN_U16, HAN_U32, HAN_U64,
    HAN_F16, HAN_F32, HAN_F64,
    HAN_C64, HAN_C128,
    HAN_DTYPES
};

enum han_op {
    HAN_SUM, HAN_PROD, HAN_MAX, HAN_MIN,
    HAN_LAND, HAN_LOR, HAN_LXOR,
    HAN_BAND, HAN_BOR, HAN_BXOR,
    HAN_OPS
};

/* dst[i] = a[i] op b[i]. Addresses need no alignment. dst may be exactly a or b; any other
 * overlap is an error of the caller. */
typedef void (*han_reduce_fn)(void *dst, const void *a, const void *b, size_t count);

/* The same, with the result also written to dst2 (which overlaps nothing) in the one pass. */
typedef void (*han_reduce2_fn)(void *dst, void *dst2, const void *a, const void *b, size_t count);

/* The kernel of the best instruction set of this machine; NULL where MPI defines no such pair.
 *
 * Integers wrap on overflow. Logical operations give 0 or 1. MAX is a > b ? a : b (so b where
 * either is NaN), MIN likewise. float16 is computed in float32 and rounded to nearest even.
 * Every instruction set gives the same bits, except for the sign and payload of a NaN. */
han_reduce_fn han_reduce_kernel(enum han_op op, enum han_dtype dtype);
han_reduce2_fn han_reduce2_kernel(enum han_op op, enum han_dtype dtype);

/* Bytes of one element; 0 for a value that is no dtype. */
size_t han_dtype_size(enum han_dtype dtype);

/* memcpy, without the call for the sizes (up to 64 bytes) where the call is what costs. */
void han_copy(void *dst, const void *src, size_t n);

/* The same from where a peer has written: no load waits for two lines that are not in this cache. */
void han_copy_in(void *dst, const void *src, size_t n);

#ifndef HAN_WALK_PAGE
#define HAN_WALK_PAGE 4096
#endif
#ifndef HAN_WALK_LEAST
#define HAN_WALK_LEAST 65536 /* bytes from which on it pays to write so */
#endif
#ifndef HAN_WALK_STEP
#define HAN_WALK_STEP 1024 /* bytes of a page that are combined in its turn */
#endif
enum { HAN_WALK = 4 * HAN_WALK_PAGE }; /* bytes that are copied in turns */
/* The same, on four pages in turns, where lines of the destination are slow from core to core. */
void han_copy_paged(void *dst, const void *src, size_t n);

/* The same past the caches where the machine can: for what nobody reads soon, or a peer whose caches
 * are far. A fence follows such stores: a flag posted afterwards orders them. */
void han_copy_streaming(void *dst, const void *src, size_t n);

#ifndef HAN_STRING_LEAST
#define HAN_STRING_LEAST 2048 /* bytes; below, a string's start costs what it saves */
#endif
/* The same for what peers have read, or will read: without fetching from their caches what is
 * overwritten, where the processor can. */
void han_copy_out(void *dst, const void *src, size_t n);

/* The instruction set in use: "avx512", "avx2", "neon" or "baseline". */
const char *han_kernels_isa(void);

/* Use nothing better than `isa` from now on; NULL or an unknown name lifts the limit. For tests:
 * kernels already handed out stay as they are. */
void han_kernels_limit(const char *isa);

#endif
