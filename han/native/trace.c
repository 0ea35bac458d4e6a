/* Recording tasks. A clock that takes 30 ns to read would be most of the cost, so ticks are the
 * processor's own where they are fit for it; anchors say what time they stand for. */
#include "engine.h"

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

enum { ANCHOR_EVERY = 1 << 30 }; /* ticks: the kernel may steer its clock meanwhile */

uint64_t han_ticks(const han_engine *e) {
#if defined(__x86_64__)
    if (e->trace->tsc) return __rdtsc();
#endif
    return han_now_ns();
}

static void add(han_trace *t, const han_event *event) {
    if (t->n < t->max)
        t->events[t->n++] = *event;
    else
        t->dropped += event->stream != HAN_ANCHOR;
}

void han_trace_end(han_engine *e, uint32_t stream, uint64_t ticks) {
    han_event *task = &e->open[stream];
    task->end = ticks;
    if (!task->start) task->start = ticks;
    add(e->trace, task);
    *task = (han_event){0};
    if (ticks - e->anchored < ANCHOR_EVERY) return;
    e->anchored = ticks;
    han_event anchor = {.begin = han_ticks(e), .end = han_now_ns(), .stream = HAN_ANCHOR};
    add(e->trace, &anchor);
}
