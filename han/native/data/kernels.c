/* The choice of an instruction set. The loops are in kernels_loops.h. */
#include "data/kernels.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "data/kernels_table.h"
#include "data/processor.h"

#ifdef HAN_X86_64
static bool has_avx2(void) { return han_vectors.avx2; }
static bool has_avx512(void) { return han_vectors.avx512; }
#endif

static bool always(void) { return true; }

/* Best first; the last one runs everywhere. */
static const struct {
    const struct han_kernels *kernels;
    bool (*supported)(void);
} isas[] = {
#ifdef HAN_X86_64
    {&han_kernels_avx512, has_avx512},
    {&han_kernels_avx2, has_avx2},
#endif
    {&han_kernels_baseline, always},
};
enum { ISAS = sizeof isas / sizeof isas[0] };

/* Threads that use it first at the same time store the same choice. */
static _Atomic(const struct han_kernels *) chosen;

static size_t isa_index(const char *isa) {
    for (size_t i = 0; isa && i < ISAS; i++)
        if (strcmp(isas[i].kernels->isa, isa) == 0) return i;
    return 0;
}

static const struct han_kernels *choose(size_t best) {
    while (!isas[best].supported()) best++;
    atomic_store(&chosen, isas[best].kernels);
    return isas[best].kernels;
}

static const struct han_kernels *kernels(void) {
    const struct han_kernels *found = atomic_load(&chosen);
    return found ? found : choose(0);
}

static bool known(enum han_op op, enum han_dtype dtype) {
    return (unsigned)op < HAN_OPS && (unsigned)dtype < HAN_DTYPES;
}

han_reduce_fn han_reduce_kernel(enum han_op op, enum han_dtype dtype) {
    return known(op, dtype) ? kernels()->reduce[op][dtype] : NULL;
}

han_reduce2_fn han_reduce2_kernel(enum han_op op, enum han_dtype dtype) {
    return known(op, dtype) ? kernels()->reduce2[op][dtype] : NULL;
}

const char *han_kernels_isa(void) { return kernels()->isa; }

void han_kernels_limit(const char *isa) { choose(isa_index(isa)); }

size_t han_dtype_size(enum han_dtype dtype) {
    static const size_t sizes[HAN_DTYPES] = {
        [HAN_BOOL] = 1, [HAN_I8] = 1,  [HAN_I16] = 2, [HAN_I32] = 4,   [HAN_I64] = 8,
        [HAN_U8] = 1,   [HAN_U16] = 2, [HAN_U32] = 4, [HAN_U64] = 8,   [HAN_F16] = 2,
        [HAN_F32] = 4,  [HAN_F64] = 8, [HAN_C64] = 8, [HAN_C128] = 16, [HAN_BF16] = 2,
    };
    return (unsigned)dtype < HAN_DTYPES ? sizes[dtype] : 0;
}
