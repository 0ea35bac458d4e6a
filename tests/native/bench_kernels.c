/* GB/s of every reduction kernel by instruction set, and of copies. Not a test: nothing is checked.
 *
 * gcc -std=c11 -O2 -Ihan/native tests/native/bench_kernels.c \
 *     han/native/data/{kernels*,copies,processor}.c -o bench && ./bench
 *
 * Bytes are those of both operands and the result, or of source and destination. */
#define _POSIX_C_SOURCE 200809L
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "data/copies.h"
#include "data/kernels.h"

static const char *const DTYPES[HAN_DTYPES] = {"bool", "i8",  "i16", "i32",  "i64",
                                               "u8",   "u16", "u32", "u64",  "f16",
                                               "f32",  "f64", "c64", "c128", "bf16"};
static const char *const OPS[HAN_OPS] = {"sum", "prod", "max",  "min", "land",
                                         "lor", "lxor", "band", "bor", "bxor"};
static const char *const ISAS[] = {"avx512", "avx2", "neon", "baseline"};

enum { BATCHES = 7, KIB = 1024, MIB = 1024 * 1024, CELLS = 2 * MIB, LARGEST = 64 * MIB };

static unsigned char *dst, *a, *b;

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* The best of some batches: disturbances only make a batch slower. */
static double best_of(void (*work)(size_t), size_t nbytes, double moved) {
    size_t repeats = 1 + 2 * MIB / nbytes;
    double best = 1e9;
    for (int batch = 0; batch < BATCHES; batch++) {
        double start = seconds();
        for (size_t k = 0; k < repeats; k++) work(nbytes);
        double took = (seconds() - start) / (double)repeats;
        best = took < best ? took : best;
    }
    return moved / best * 1e-9;
}

static han_reduce_fn kernel;
static size_t element;

static void reduce(size_t nbytes) { kernel(dst, a, b, nbytes / element); }

/* As from the cells of a ring: the source is in a cache; a large destination is not. */
static void copy(size_t nbytes) {
    for (size_t at = 0; at < nbytes; at += 256 * KIB)
        han_copy(dst + at, a + at % CELLS, nbytes - at < 256 * KIB ? nbytes - at : 256 * KIB);
}

static void copy_streaming(size_t nbytes) {
    for (size_t at = 0; at < nbytes; at += 256 * KIB)
        han_copy_streaming(dst + at, a + at % CELLS,
                           nbytes - at < 256 * KIB ? nbytes - at : 256 * KIB);
}

static void copy_libc(size_t nbytes) {
    for (size_t at = 0; at < nbytes; at += 256 * KIB)
        memcpy(dst + at, a + at % CELLS, nbytes - at < 256 * KIB ? nbytes - at : 256 * KIB);
}

static void reductions(size_t nbytes) {
    for (int dtype = 0; dtype < HAN_DTYPES; dtype++) {
        element = han_dtype_size((enum han_dtype)dtype);
        printf("%-9s", DTYPES[dtype]);
        for (int op = 0; op < HAN_OPS; op++) {
            kernel = han_reduce_kernel((enum han_op)op, (enum han_dtype)dtype);
            if (kernel)
                printf("%7.1f", best_of(reduce, nbytes, 3.0 * (double)nbytes));
            else
                printf("%7s", "-");
        }
        printf("\n");
    }
}

int main(void) {
    static const size_t sizes[] = {16 * KIB, 256 * KIB, MIB, 8 * MIB, LARGEST};
    dst = malloc(LARGEST), a = malloc(LARGEST), b = malloc(LARGEST);
    if (!dst || !a || !b) return 1;
    memset(dst, 0, LARGEST), memset(a, 0, LARGEST), memset(b, 0, LARGEST);
    for (size_t k = 0; k < sizeof ISAS / sizeof *ISAS; k++) {
        han_kernels_limit(ISAS[k]);
        if (strcmp(han_kernels_isa(), ISAS[k]) != 0)
            continue; /* not an instruction set of this machine */
        printf("%s, 16 KiB, GB/s\n%-9s", ISAS[k], "");
        for (int op = 0; op < HAN_OPS; op++) printf("%7s", OPS[op]);
        printf("\n");
        reductions(16 * KIB);
    }
    printf("copies from cells, GB/s\n%-12s%10s%10s%10s\n", "bytes", "han", "streaming", "memcpy");
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++)
        printf("%-12zu%10.1f%10.1f%10.1f\n", sizes[k],
               best_of(copy, sizes[k], 2.0 * (double)sizes[k]),
               best_of(copy_streaming, sizes[k], 2.0 * (double)sizes[k]),
               best_of(copy_libc, sizes[k], 2.0 * (double)sizes[k]));
    free(dst), free(a), free(b);
    return 0;
}
