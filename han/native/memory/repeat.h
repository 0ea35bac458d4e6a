/* Programs of large messages from those of two smaller ones. All are programs for many sizes, with the
 * same signature but for the size. */
#ifndef HAN_REPEAT_H
#define HAN_REPEAT_H

#include <stdint.h>

#include "memory/roll.h"

/* The grains of the message after which all streams of a program repeat: the same operations in the
 * same memory, with the same requests, for later grains. 0: none was found. */
uint32_t han_period(const han_records_of *program);

/* Two programs, and what is longer in the second one's message: `grains`. It needs `scratch` bytes
 * more of private memory. */
typedef struct {
    const han_records_of *shorter, *longer;
    uint32_t grains;
    uint64_t scratch;
} han_samples;

/* Write into `out`, whose memory the caller frees, the program of a message that is longer than that
 * of the shorter one by `times` times the difference, as a program with loops: in each stream the
 * longer one repeats a group of operations once more. Returns 1; 0 if the samples do not show this,
 * and `out` is empty; -1 if there is no memory. */
int han_repeat(const han_samples *samples, uint32_t times, han_records_of *out);

#endif
