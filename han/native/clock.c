#define _POSIX_C_SOURCE 200809L
#include "clock.h"

#include <time.h>

uint64_t han_now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void han_nap(uint32_t ns) {
    struct timespec t = {0, (long)ns};
    nanosleep(&t, NULL);
}
