/* float16 in portable bit operations, without branches so that loops over it vectorise. */
#ifndef HAN_KERNELS_HALF_H
#define HAN_KERNELS_HALF_H

#include <stdint.h>

#include "data/float_bits.h"

static inline float han_half_to_float(uint16_t half) {
    const uint32_t sign = (uint32_t)(half & 0x8000u) << 16, magnitude = half & 0x7fffu;
    /* infinity stays infinity */
    const uint32_t rebias = han_select(magnitude >= 0x7c00u, 224u << 23, 112u << 23);
    const uint32_t normal = (magnitude << 13) + rebias;
    /* A subnormal is m * 2^-24, the step of floats in [0.5, 1). No float subnormal appears on the
     * way, so this also holds where the program has set denormals-are-zero. */
    const uint32_t tiny = han_bits_of_float(han_float_of_bits(0x3f000000u + magnitude) - 0.5f);
    return han_float_of_bits(sign | han_select(magnitude < 0x0400u, tiny, normal));
}

static inline uint16_t han_half_of_float(float value) {
    const uint32_t bits = han_bits_of_float(value);
    const uint32_t sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7fffffffu;
    /* Below 2^-14: adding 0.5 lets the float unit round to the step 2^-24. */
    const uint32_t tiny = han_bits_of_float(han_float_of_bits(magnitude) + 0.5f) - 0x3f000000u;
    /* Half of the last place, less one where that place is even; a carry may reach infinity. */
    const uint32_t odd = magnitude >> 13 & 1u;
    const uint32_t normal = (magnitude - (112u << 23) + 0x0fffu + odd) >> 13;
    const uint32_t finite = han_select(magnitude < 0x38800000u, tiny, normal);
    const uint32_t nan = 0x7e00u | (magnitude >> 13 & 0x03ffu);
    const uint32_t special = han_select(magnitude > 0x7f800000u, nan, 0x7c00u);
    return (uint16_t)(sign | han_select(magnitude >= 0x47800000u, special, finite));
}

#endif
