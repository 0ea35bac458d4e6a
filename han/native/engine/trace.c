/* Reading the system's clock would be most of the cost of tracing. Ticks are therefore those of the
 * processor where it has a constant rate; anchors say which time they stand for
 * (docs/decisions/trace-clock.md). */
#include "engine/stepping.h"

#include <string.h>

#include "clock.h"
#include "engine/lock.h"

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

enum { ANCHOR_EVERY = 1 << 30 }; /* ticks: the kernel adjusts the rate of its clock */

static uint64_t now(const han_trace *t) {
#if defined(__x86_64__)
    if (t->tsc) return __rdtsc();
#endif
    (void)t;
    return han_now_ns();
}

static han_anchor anchor_now(const han_engine *e) {
    return (han_anchor){now(e->trace), han_now_ns()};
}

static bool waits(const han_instr *i) {
    return i->code == HAN_WAIT || i->code == HAN_AWAIT || i->code & HAN_VOID;
}
static bool works(const han_instr *i) { return han_copies(i->code) || han_reduces(i->code); }

void han_trace_before(han_engine *e, uint32_t s, const han_instr *i, uint64_t *ticks) {
    han_event *task = &e->open[s];
    bool starts = !waits(i) && !task->start;
    if (!*ticks && (works(i) || starts || !task->begin)) *ticks = now(e->trace);
    if (!task->begin)
        *task = (han_event){.epoch = e->epoch,
                            .plan = e->plan->number,
                            .nbytes = e->plan->nbytes,
                            .begin = *ticks,
                            .stream = s,
                            .task = i->task};
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
    han_anchor anchor = anchor_now(e);
    e->anchored = anchor.ticks;
    add(e->trace, &(han_event){.begin = anchor.ticks, .end = anchor.ns, .stream = HAN_ANCHOR});
}

void han_trace_after(han_engine *e, uint32_t s, const han_instr *i, bool last, uint64_t *ticks) {
    han_event *task = &e->open[s];
    if (works(i)) {
        uint64_t from = *ticks;
        *ticks = now(e->trace);
        *(han_copies(i->code) ? &task->copying : &task->reducing) += *ticks - from;
    } else if (!waits(i) && i->code != HAN_POST) {
        *ticks = 0; /* the operation called the MPI library */
    }
    if (!last) return;
    if (!*ticks) *ticks = now(e->trace);
    end(e, task, *ticks);
}

void *han_trace_into(han_engine *e, han_trace *trace, void *owner) {
    han_lock(&e->busy);
    if (e->trace) e->trace->last = anchor_now(e);
    void *before = e->trace_owner;
    e->trace = trace;
    e->trace_owner = owner;
    memset(e->open, 0, sizeof e->open);
    if (trace) trace->first = anchor_now(e);
    e->anchored = trace ? trace->first.ticks : 0;
    han_unlock(&e->busy);
    return before;
}
