/* The clock that all processes of a machine share. */
#ifndef HAN_CLOCK_H
#define HAN_CLOCK_H

#include <stdint.h>

/* CLOCK_MONOTONIC in nanoseconds. */
uint64_t han_now_ns(void);
/* Sleep for less than a second. */
void han_nap(uint32_t ns);

#endif
