/* The layout of a trace: when tasks ran. han/trace/recording.py reads it. */
#ifndef HAN_EVENTS_H
#define HAN_EVENTS_H

#include <stdint.h>

/* One task of one run. It begins when its stream reaches it, and starts with its first operation
 * that does not wait for a flag or another stream. */
typedef struct {
    uint64_t epoch, plan, nbytes; /* nbytes: of the message, if the plan is for many sizes */
    uint64_t begin, start, end;   /* in ticks */
    uint64_t copying, reducing;   /* ticks spent in such operations */
    uint32_t stream, task;
} han_event;

/* One moment by both clocks. An event with stream HAN_ANCHOR holds one in `begin` and `end`. */
typedef struct {
    uint64_t ticks, ns; /* ns: CLOCK_MONOTONIC */
} han_anchor;
#define HAN_ANCHOR UINT32_MAX

/* The owner of this memory outlives the recording. */
typedef struct {
    uint64_t n, max, dropped; /* events recorded, room for events, events without room */
    uint64_t tsc;             /* 1: ticks are those of the processor; 0: nanoseconds */
    han_anchor first, last;
    uint64_t unused; /* as long as an event */
    han_event events[];
} han_trace;

_Static_assert(sizeof(han_event) == 72 && sizeof(han_trace) == 72, "as in han/trace/recording.py");

#endif
