/* Kernels for every machine of an architecture: SSE2 on x86-64, NEON on AArch64. */
#include "data/kernels_table.h"

#define HAN_TARGET
#define HAN_TABLE han_kernels_baseline

#ifdef __aarch64__
#define HAN_ISA "neon"
#define HAN_HALF_LOOPS(OP, DTYPE) HAN_NUMBER_LOOPS(OP, DTYPE, __fp16, float)
#else
#include "data/kernels_half.h"
#define HAN_ISA "baseline"
#define HAN_HALF_LOOPS(OP, DTYPE) \
    HAN_LOOPS(                    \
        OP, DTYPE, uint16_t,      \
        han_half_of_float(HAN_OP_##OP(float, float, han_half_to_float(p), han_half_to_float(q))))
#endif

#include "data/kernels_loops.h"
