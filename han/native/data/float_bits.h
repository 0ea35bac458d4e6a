/* The bits of a float, for types that are computed in float32. */
#ifndef HAN_FLOAT_BITS_H
#define HAN_FLOAT_BITS_H

#include <stdint.h>
#include <string.h>

static inline float han_float_of_bits(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint32_t han_bits_of_float(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* `yes` if the condition is 1, `no` if it is 0. With ?: a compiler computes only one side, since
 * the other might raise a floating-point flag, and so takes a branch. */
static inline uint32_t han_select(uint32_t condition, uint32_t yes, uint32_t no) {
    return (yes & (0u - condition)) | (no & (condition - 1u));
}

#endif
