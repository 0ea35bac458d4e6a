/* Properties of the processor that decide how data is copied. */
#ifndef HAN_PROCESSOR_H
#define HAN_PROCESSOR_H

#include <stdbool.h>
#include <stddef.h>

/* Whether `rep movsb` is fast and does not fetch the lines that it writes. */
bool han_copies_strings(void);

/* Whether cores sit on a mesh, so that a line moves slowly from core to core. */
bool han_on_mesh(void);

/* Bytes of the last-level cache for each of `ranks` ranks on this machine; a guess where the system
 * does not tell. */
size_t han_cache_share(unsigned ranks);

#ifdef __x86_64__
/* Vectors that the processor has and whose registers the system saves; known when han is loaded. */
typedef struct {
    bool avx2;   /* with conversions of float16 */
    bool avx512; /* F, BW, DQ and VL */
} han_vector_sets;
extern han_vector_sets han_vectors;
#endif

/* Fetch the line of an address, which this thread will write soon. Compilers would fetch it to read unless
 * they are told that the processor can do this. Older processors ignore the instruction. */
static inline void han_fetch_to_write(const void *at) {
#if defined(__x86_64__)
    __asm__ volatile("prefetchw %0" ::"m"(*(const char *)at));
#else
    __builtin_prefetch(at, 1);
#endif
}

/* Tell the processor that this thread spins. */
static inline void han_cpu_relax(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb" ::: "memory");
#endif
}

#endif
