/* float16 loops over F16C intrinsics; compilers do not vectorise these conversions themselves.
 *
 * Expects HAN_TARGET, and of one vector: HAN_HALF_VECTOR (its type), HAN_HALVES (elements),
 * HAN_HALF_LOAD(p), HAN_HALF_STORE(p, v) and HAN_HALF_<OP>(v, w). */
#include <immintrin.h>
#include <stdint.h>

HAN_TARGET static inline float han_half_to_float(uint16_t half) { return _cvtsh_ss(half); }

HAN_TARGET static inline uint16_t han_half_of_float(float value) {
    return (uint16_t)_cvtss_sh(value, _MM_FROUND_TO_NEAREST_INT);
}

#define HAN_HALF_SCALAR(OP, p, q) \
    han_half_of_float(HAN_OP_##OP(float, float, han_half_to_float(p), han_half_to_float(q)))

#define HAN_HALF_LOOPS(OP, DTYPE)                                                                  \
    HAN_TARGET static void one_##OP##_##DTYPE(void *dst, const void *a, const void *b, size_t n) { \
        typedef uint16_t HAN_UNALIGNED element;                                                    \
        element *d = dst;                                                                          \
        const element *x = a, *y = b;                                                              \
        size_t i = 0;                                                                              \
        for (; n - i >= HAN_HALVES; i += HAN_HALVES)                                               \
            HAN_HALF_STORE(d + i, HAN_HALF_##OP(HAN_HALF_LOAD(x + i), HAN_HALF_LOAD(y + i)));      \
        for (; i < n; i++) d[i] = HAN_HALF_SCALAR(OP, x[i], y[i]);                                 \
    }                                                                                              \
    HAN_TARGET static void two_##OP##_##DTYPE(void *dst, void *dst2, const void *a, const void *b, \
                                              size_t n) {                                          \
        typedef uint16_t HAN_UNALIGNED element;                                                    \
        element *d = dst, *e = dst2;                                                               \
        const element *x = a, *y = b;                                                              \
        size_t i = 0;                                                                              \
        for (; n - i >= HAN_HALVES; i += HAN_HALVES) {                                             \
            const HAN_HALF_VECTOR v = HAN_HALF_##OP(HAN_HALF_LOAD(x + i), HAN_HALF_LOAD(y + i));   \
            HAN_HALF_STORE(d + i, v);                                                              \
            HAN_HALF_STORE(e + i, v);                                                              \
        }                                                                                          \
        for (; i < n; i++) d[i] = e[i] = HAN_HALF_SCALAR(OP, x[i], y[i]);                          \
    }
