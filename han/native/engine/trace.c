/* Recording tasks. A clock that takes 30 ns to read would be most of the cost, so ticks are the
 * processor's own where they are fit for it; anchors say what time they stand for. */
#include "engine.h"

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

enum { ANCHOR_EVERY = 1 << 30 }; /* ticks: the kernel may steer its clock meanwhile */

static uint64_t now(const han_trace *t) {
#if defined(__x86_64__)
    if (t->tsc) return __rdtsc();
#endif
    (void)t;
    return han_now_ns();
}

han_anchor han_anchor_now(const han_engine *e) {
    return (han_anchor){now(e->trace), han_now_ns()};
}

static bool waits(const han_instr *i) { return i->code == HAN_WAIT || i->code == HAN_AWAIT; }
static bool copies(const han_instr *i) { return i->code == HAN_COPY || i->code >= HAN_PULL; }
static bool works(const han_instr *i) { return i->code <= HAN_REDUCE2 || copies(i); }

void han_trace_before(han_engine *e, uint32_t s, const han_instr *i, uint64_t *ticks) {
    han_event *task = &e->open[s];
    bool starts = !waits(i) && !task->start;
    if (!*ticks && (works(i) || starts || !task->begin)) *ticks = now(e->trace);
    if (!task->begin)
        *task = (han_event){.epoch = e->epoch, .plan = e->plan->number, .begin = *ticks,
                            .stream = s, .task = i->task};
    if (starts) task->start = *ticks;
}

static void add(han_trace *t, const han_event *event) {
    if (t->n < t->max)
        t->events[t->n++] = *event;
    else
        t->dropped += event->stream != HAN_ANCHOR;
}

static void end(han_engine *e, han_event *task, uint64_t ticks) {
    task->end = ticks;
    if (!task->start) task->start = ticks;
    add(e->trace, task);
    *task = (han_event){0};
    if (ticks - e->anchored < ANCHOR_EVERY) return;
    han_anchor anchor = han_anchor_now(e);
    e->anchored = anchor.ticks;
    add(e->trace, &(han_event){.begin = anchor.ticks, .end = anchor.ns, .stream = HAN_ANCHOR});
}

void han_trace_after(han_engine *e, uint32_t s, const han_instr *i, bool last, uint64_t *ticks) {
    han_event *task = &e->open[s];
    if (works(i)) {
        uint64_t from = *ticks;
        *ticks = now(e->trace);
        *(copies(i) ? &task->copying : &task->reducing) += *ticks - from;
    } else if (!waits(i) && i->code != HAN_POST) {
        *ticks = 0; /* the MPI library takes its time */
    }
    if (!last) return;
    if (!*ticks) *ticks = now(e->trace);
    end(e, task, *ticks);
}
