/* Microseconds to hand data over to another core, for each kind of copy. Not a test: nothing is
 * checked.
 *
 * gcc -std=c11 -O2 -pthread -Ihan/native tests/native/bench_handover.c \
 *     han/native/data/{kernels*,copies,processor}.c -o bench && ./bench
 *
 * One thread puts data into the next of a few cells, which the other thread has read before;
 * then the other thread takes the data with vector loads. The numbers are medians. On a virtual
 * machine run it several times: the host may move a virtual processor in between. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "data/copies.h"
#include "data/processor.h"

enum { KIB = 1024, LARGEST = 1024 * KIB, CELLS = 4, ROUNDS = 201, WAYS = 4 };

typedef void copying(void *, const void *, size_t);

static void by_libc(void *dst, const void *src, size_t n) { memcpy(dst, src, n); }

static copying *const ways[WAYS] = {han_copy, han_copy_out, han_copy_streaming, by_libc};
static const char *const names[WAYS] = {"vectors", "out", "streaming", "memcpy"};

static unsigned char *cells, *source, *result;
static _Atomic int turn;     /* the number of times that data was put and taken */
static _Atomic size_t bytes; /* 0: the end */
static double taken[ROUNDS];

static double microseconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return 1e6 * (double)now.tv_sec + 1e-3 * (double)now.tv_nsec;
}

static void pin(int cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    (void)pthread_setaffinity_np(pthread_self(), sizeof set, &set); /* without it: anywhere */
}

static void await(int value) {
    while (atomic_load_explicit(&turn, memory_order_acquire) != value) {
    }
}

static void *take(void *unused) {
    (void)unused;
    pin(1);
    for (int k = 0;; k++) {
        await(2 * k + 1);
        size_t n = atomic_load(&bytes);
        if (!n) return NULL;
        double begun = microseconds();
        han_copy(result, cells + (size_t)(k % CELLS) * n, n);
        taken[k % ROUNDS] = microseconds() - begun;
        atomic_store_explicit(&turn, 2 * k + 2, memory_order_release);
    }
}

static int order(const void *x, const void *y) {
    double a = *(const double *)x, b = *(const double *)y;
    return (a > b) - (a < b);
}

static double median(double *times) {
    qsort(times, ROUNDS, sizeof *times, order);
    return times[ROUNDS / 2];
}

static void measure(copying *put, size_t n, int *k) {
    static double spent[ROUNDS];
    atomic_store(&bytes, n);
    for (int r = 0; r < ROUNDS; r++, ++*k) {
        double begun = microseconds();
        put(cells + (size_t)(*k % CELLS) * n, source, n);
        spent[r] = microseconds() - begun;
        atomic_store_explicit(&turn, 2 * *k + 1, memory_order_release);
        await(2 * *k + 2);
    }
    printf("%9.2f +%6.2f", median(spent), median(taken));
}

int main(void) {
    pthread_t other;
    int k = 0;
    cells = aligned_alloc(4 * KIB, CELLS * LARGEST);
    source = aligned_alloc(4 * KIB, LARGEST);
    result = aligned_alloc(4 * KIB, LARGEST);
    if (!cells || !source || !result || pthread_create(&other, NULL, take, NULL)) return 1;
    pin(0);
    memset(cells, 0, CELLS * LARGEST), memset(source, 1, LARGEST), memset(result, 0, LARGEST);
    printf("microseconds to put and to take; processor quick at strings: %s\n%-9s",
           han_copies_strings() ? "yes" : "no", "bytes");
    for (int w = 0; w < WAYS; w++) printf("%17s", names[w]);
    printf("\n");
    for (size_t n = 4 * KIB; n <= LARGEST; n *= 4) {
        printf("%-9zu", n);
        for (int w = 0; w < WAYS; w++) measure(ways[w], n, &k);
        printf("\n");
    }
    atomic_store(&bytes, 0);
    atomic_store_explicit(&turn, 2 * k + 1, memory_order_release);
    pthread_join(other, NULL);
    free(cells), free(source), free(result);
    return 0;
}
