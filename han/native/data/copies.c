/* A vector store to a line that a peer has read fetches the line from the peer's cache first. The
 * stores of a string instruction (`rep movsb`) write whole lines and fetch nothing
 * (docs/decisions/string-copies.md). */
#include "data/copies.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "data/processor.h"

#ifdef __x86_64__
#include <immintrin.h>
#endif

enum {
    ALIAS = 64, /* `rep movsb` fetches if dst is fewer bytes ahead of src, modulo a page */
    PAGE = 4096,
};

struct chunk16 {
    uint64_t word[2];
};

/* Copy the first and the last TYPE of the range; they overlap where n is less than two of them.
 * Both are loaded before either is stored. Compilers turn a memcpy of fixed size into plain
 * moves. */
#define COPY_ENDS(TYPE, d, s, n)                             \
    do {                                                     \
        TYPE head, tail;                                     \
        memcpy(&head, (s), sizeof head);                     \
        memcpy(&tail, (s) + (n) - sizeof tail, sizeof tail); \
        memcpy((d), &head, sizeof head);                     \
        memcpy((d) + (n) - sizeof tail, &tail, sizeof tail); \
    } while (0)

static void copy_up_to_16(unsigned char *d, const unsigned char *s, size_t n) {
    if (n >= 8)
        COPY_ENDS(uint64_t, d, s, n);
    else if (n >= 4)
        COPY_ENDS(uint32_t, d, s, n);
    else if (n >= 2)
        COPY_ENDS(uint16_t, d, s, n);
    else if (n == 1)
        *d = *s;
}

static void copy_up_to_64(unsigned char *d, const unsigned char *s, size_t n) {
    if (n <= 16) {
        copy_up_to_16(d, s, n);
    } else if (n <= 32) {
        COPY_ENDS(struct chunk16, d, s, n);
    } else {
        COPY_ENDS(struct chunk16, d, s, 32);
        COPY_ENDS(struct chunk16, d + n - 32, s + n - 32, 32);
    }
}

typedef uint64_t vector __attribute__((vector_size(32), aligned(1), may_alias));

enum { STEP = 4 * sizeof(vector) };

/* Instructions of SSE, which programs and libraries have everywhere, are slow as long as the upper halves of
 * vector registers hold something. Compilers do not clear them at the end of all of these functions. */
#define CLEAR_AVX2 __builtin_ia32_vzeroupper()
#define CLEAR_PLAIN (void)0

/* Align stores (CUT is d) or loads (CUT is s) to cache lines. */
#define DEFINE_COPY(NAME, CUT, CLEAR, TARGET)                                     \
    TARGET static void NAME(unsigned char *d, const unsigned char *s, size_t n) { \
        size_t head = -(uintptr_t)(CUT) & 63;                                     \
        copy_up_to_64(d, s, head);                                                \
        d += head, s += head, n -= head;                                          \
        for (; n >= STEP; d += STEP, s += STEP, n -= STEP) {                      \
            const vector *from = (const vector *)(const void *)s;                 \
            vector *to = (vector *)(void *)d;                                     \
            vector w = from[0], x = from[1], y = from[2], z = from[3];            \
            to[0] = w, to[1] = x, to[2] = y, to[3] = z;                           \
        }                                                                         \
        CLEAR;                                                                    \
        if (n > 64) {                                                             \
            copy_up_to_64(d, s, 64);                                              \
            d += 64, s += 64, n -= 64;                                            \
        }                                                                         \
        copy_up_to_64(d, s, n);                                                   \
    }

/* The same with a step of each of four pages in turn, while at least four pages are left. A
 * hardware prefetcher follows the lines of each page separately, so several pages have more
 * lines under way from the caches of other cores (docs/decisions/paged-copies.md). */
#define DEFINE_WALK(NAME, COPY, CUT, TARGET)                                       \
    TARGET static void NAME(unsigned char *d, const unsigned char *s, size_t n) {  \
        size_t head = -(uintptr_t)(CUT) & 63;                                      \
        copy_up_to_64(d, s, head);                                                 \
        d += head, s += head, n -= head;                                           \
        for (; n >= HAN_WALK; d += HAN_WALK, s += HAN_WALK, n -= HAN_WALK)         \
            for (size_t at = 0; at < HAN_WALK_PAGE; at += STEP)                    \
                for (size_t part = at; part < HAN_WALK; part += HAN_WALK_PAGE) {   \
                    const vector *from = (const vector *)(const void *)(s + part); \
                    vector *to = (vector *)(void *)(d + part);                     \
                    vector w = from[0], x = from[1], y = from[2], z = from[3];     \
                    to[0] = w, to[1] = x, to[2] = y, to[3] = z;                    \
                }                                                                  \
        COPY(d, s, n);                                                             \
    }

#ifdef __x86_64__
DEFINE_COPY(copy_avx2, d, CLEAR_AVX2, __attribute__((target("avx2"))))
DEFINE_COPY(copy_in_avx2, s, CLEAR_AVX2, __attribute__((target("avx2"))))
DEFINE_WALK(walk_avx2, copy_avx2, d, __attribute__((target("avx2"))))
DEFINE_WALK(walk_in_avx2, copy_in_avx2, s, __attribute__((target("avx2"))))
#endif
DEFINE_COPY(copy_plain, d, CLEAR_PLAIN, )
DEFINE_COPY(copy_in_plain, s, CLEAR_PLAIN, )
DEFINE_WALK(walk_plain, copy_plain, d, )
DEFINE_WALK(walk_in_plain, copy_in_plain, s, )

#ifdef __x86_64__
/* Stores past the caches neither fetch the destination's lines nor displace other lines. */
__attribute__((target("avx2"))) static void stream_avx2(unsigned char *d, const unsigned char *s,
                                                        size_t n) {
    size_t head = -(uintptr_t)d & 63;
    copy_up_to_64(d, s, head);
    d += head, s += head, n -= head;
    for (; n >= STEP; d += STEP, s += STEP, n -= STEP) {
        const __m256i *from = (const __m256i *)(const void *)s;
        __m256i *to = (__m256i *)(void *)d;
        __m256i w = _mm256_loadu_si256(from), x = _mm256_loadu_si256(from + 1);
        __m256i y = _mm256_loadu_si256(from + 2), z = _mm256_loadu_si256(from + 3);
        _mm256_stream_si256(to, w), _mm256_stream_si256(to + 1, x);
        _mm256_stream_si256(to + 2, y), _mm256_stream_si256(to + 3, z);
    }
    _mm_sfence(); /* the release store of a flag does not order such stores */
    copy_avx2(d, s, n);
}
#endif

#if defined HAN_STRINGS_BY_MEMCPY || !defined __x86_64__
#undef HAN_NO_STRINGS
#define HAN_NO_STRINGS
#endif

void han_copy_streaming(void *dst, const void *src, size_t n) {
#ifdef __x86_64__
    if (n >= STEP + 64 && han_vectors.avx2) {
        stream_avx2(dst, src, n);
        return;
    }
#endif
    han_copy(dst, src, n);
}

/* The stores of a string instruction may become visible in any order, but before every later store
 * (Intel's manual, volume 3, "Fast-String Operation and Out-of-Order Stores"; AMD's, volume 2,
 * "Memory Ordering"): the release store of a flag needs no fence. */
void han_copy_out(void *dst, const void *src, size_t n) {
#ifdef HAN_STRINGS_BY_MEMCPY /* sanitizers do not see the accesses of assembly */
    if (n >= HAN_STRING_LEAST) {
        memcpy(dst, src, n);
        return;
    }
#elif !defined HAN_NO_STRINGS
    size_t ahead = ((uintptr_t)dst - (uintptr_t)src) % PAGE;
    if (n >= HAN_STRING_LEAST && (!ahead || ahead >= ALIAS) && han_copies_strings()) {
        __asm__ volatile("rep movsb" : "+D"(dst), "+S"(src), "+c"(n) : : "memory");
        return;
    }
#endif
    han_copy(dst, src, n);
}

#ifdef __x86_64__
#define BEST(NAME) (han_vectors.avx2 ? NAME##_avx2 : NAME##_plain)
#else
#define BEST(NAME) NAME##_plain
#endif

void han_copy_paged(void *dst, const void *src, size_t n) {
    if (n <= 64)
        copy_up_to_64(dst, src, n);
    else
        BEST(walk)(dst, src, n);
}

void han_copy_in(void *dst, const void *src, size_t n) {
    if (n <= 64)
        copy_up_to_64(dst, src, n);
    else if (n >= HAN_WALK && han_on_mesh())
        BEST(walk_in)(dst, src, n);
    else
        BEST(copy_in)(dst, src, n);
}

void han_copy(void *dst, const void *src, size_t n) {
    if (n <= 64)
        copy_up_to_64(dst, src, n);
    else
        BEST(copy)(dst, src, n);
}
