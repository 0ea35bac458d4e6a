/* bfloat16, the upper half of a float32, without branches so that loops over it vectorise. */
#ifndef HAN_KERNELS_BFLOAT_H
#define HAN_KERNELS_BFLOAT_H

#include <stdint.h>

#include "data/float_bits.h"

static inline float han_bfloat_to_float(uint16_t bfloat) {
    return han_float_of_bits((uint32_t)bfloat << 16);
}

static inline uint16_t han_bfloat_of_float(float value) {
    const uint32_t bits = han_bits_of_float(value);
    /* Half of the last place, less one where that place is even; a carry may reach infinity. */
    const uint32_t nearest = bits + 0x7fffu + (bits >> 16 & 1u);
    const uint32_t nan = bits | 0x00400000u;
    return (uint16_t)(han_select((bits & 0x7fffffffu) > 0x7f800000u, nan, nearest) >> 16);
}

#endif
