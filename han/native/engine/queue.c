/* The queue of an engine, and the list of engines that whoever waits gives a step. */
#define _GNU_SOURCE
#include "engine.h"

#include <sched.h>
#include <string.h>

enum {
    SETTLE_NS = 50000000, /* how long an engine that stops waits for its messages */
    LOOKS = 10000,        /* attempts to look into an engine that another thread is stepping */
};

/* Engines with runs under way, of any thread: whoever waits gives each of them a step, since a
 * peer may wait for one of theirs. The lock is held for a few instructions, never over a step:
 * an engine that is being stepped is pinned, and stays in the list. */
static struct {
    atomic_flag lock;
    _Atomic int count;
    han_engine *first;
} active = {.lock = ATOMIC_FLAG_INIT};

static bool try_lock(atomic_flag *lock) {
    return !atomic_flag_test_and_set_explicit(lock, memory_order_acquire);
}

static void lock(atomic_flag *l) {
    while (!try_lock(l)) sched_yield();
}

static void unlock(atomic_flag *l) { atomic_flag_clear_explicit(l, memory_order_release); }

void han_activate(han_engine *e) {
    if (e->active) return;
    lock(&active.lock);
    if (!e->active) { /* or another thread was quicker */
        e->next_active = active.first;
        active.first = e;
        e->active = true;
        atomic_fetch_add(&active.count, 1);
    }
    unlock(&active.lock);
}

static void deactivate(han_engine *e) {
    if (!e->active) return;
    lock(&active.lock);
    while (e->pins) {
        unlock(&active.lock);
        sched_yield();
        lock(&active.lock);
    }
    if (e->active) {
        han_engine **link = &active.first;
        while (*link != e) link = &(*link)->next_active;
        *link = e->next_active;
        e->active = false;
        atomic_fetch_sub(&active.count, 1);
    }
    unlock(&active.lock);
}

static void append(han_engine *e, han_run *run) {
    run->next = NULL;
    run->left = false;
    run->idle = (han_idler){0};
    atomic_store_explicit(&run->status, HAN_BLOCKED, memory_order_relaxed);
    if (e->tail)
        e->tail->next = run;
    else
        e->head = run;
    e->tail = run;
    e->issued++;
}

bool han_try_enqueue(han_engine *e, han_run *run) {
    if (!try_lock(&e->busy)) return false;
    append(e, run);
    unlock(&e->busy);
    return true;
}

void han_enqueue(han_engine *e, han_run *run) {
    lock(&e->busy);
    append(e, run);
    unlock(&e->busy);
}

enum han_status han_fail(han_engine *e, enum han_status status) {
    e->failed = status;
    return status;
}

/* A user's reduction runs inside of a step, and may call back into Python: it must not wait for
 * an engine, least of all for this one. */
static _Thread_local bool inside __attribute__((tls_model("initial-exec")));

bool han_inside_op(void) { return inside; }

bool han_enter(bool now) {
    bool before = inside;
    inside = now;
    return before;
}

static enum han_status step_locked(han_engine *e) {
    if (e->failed) return HAN_E_FAILED;
    if (!e->head) return HAN_BLOCKED;
    bool before = han_enter(true);
    enum han_status status = han_step(e);
    (void)han_enter(before);
    return status > HAN_BLOCKED && status != HAN_E_NOTICE ? han_fail(e, status) : status;
}

enum han_status han_engine_step(han_engine *e) {
    if (!try_lock(&e->busy)) return HAN_BLOCKED;
    enum han_status status = step_locked(e);
    unlock(&e->busy);
    return status;
}

enum han_status han_try(han_engine *e, const han_run *run, int rounds) {
    while (rounds-- > 0 && run->status != HAN_OK) {
        if (!try_lock(&e->busy)) return HAN_BLOCKED;
        enum han_status status = HAN_BLOCKED;
        bool turn = e->head == run;
        if (turn) status = step_locked(e);
        unlock(&e->busy);
        if (!turn) break;
        if (status > HAN_BLOCKED) return status;
        if (status == HAN_BLOCKED) han_cpu_relax();
    }
    return run->status;
}

void han_progress_others(const han_engine *self) {
    if (atomic_load_explicit(&active.count, memory_order_relaxed) <= (self && self->active))
        return;
    if (!try_lock(&active.lock)) return;
    for (han_engine *e = active.first; e; e = e->next_active) {
        if (e == self) continue;
        e->pins++;
        unlock(&active.lock);
        if (try_lock(&e->busy)) {
            if (e->head && !e->head->plan->blocks) (void)step_locked(e);
            unlock(&e->busy);
        }
        lock(&active.lock);
        e->pins--;
    }
    unlock(&active.lock);
}

/* ---- looking in --------------------------------------------------------------------------- */

static han_where where(const han_plan *p, uint32_t s, uint32_t pc) {
    const han_instr *i = &p->code[pc];
    han_where row = {i->code, i->peer, i->task};
    if (i->code != HAN_TEST) return row;
    for (uint32_t k = p->streams[s].start; k < pc; k++) { /* the message that is tested for */
        const han_instr *m = &p->code[k];
        if ((m->code == HAN_ISEND || m->code == HAN_IRECV) && m->slot == i->slot) row.peer = m->peer;
    }
    return row;
}

uint32_t han_engine_blocked(han_engine *e, han_where *rows, uint64_t *signature) {
    uint32_t n = 0;
    for (int k = 0; !try_lock(&e->busy); k++) {
        if (k == LOOKS) return 0;
        han_cpu_relax();
    }
    if (e->started && e->head) {
        const han_plan *p = e->plan ? e->plan : e->head->plan;
        *signature = p->signature;
        if (!e->plan) n = han_undecided(e, rows);
        for (uint32_t s = 0; e->plan && s < p->n_streams; s++)
            if (e->pc[s] < p->streams[s].stop) rows[n++] = where(p, s, e->pc[s]);
    }
    unlock(&e->busy);
    return n;
}

int han_engine_awaits(han_engine *e, bool *brief) {
    int channel = -1;
    *brief = atomic_load_explicit(&active.count, memory_order_relaxed) > e->active;
    if (!try_lock(&e->busy)) return -1;
    const han_plan *p = e->started && e->head ? e->plan : NULL;
    if (e->started && e->head && !p) channel = (int)e->head->plan->whole;
    for (uint32_t s = 0; p && s < p->n_streams; s++) {
        if (e->pc[s] == p->streams[s].stop) continue;
        const han_instr *i = &p->code[e->pc[s]];
        if (i->code == HAN_AWAIT) continue; /* for another stream, which is looked at too */
        int here = i->code == HAN_WAIT ? (i->base[0] - HAN_B_CHANNEL) / HAN_B_PER_CHANNEL : -1;
        if (here >= 0 && channel < 0) channel = here;
        if (here < 0 || here != channel) *brief = true;
    }
    unlock(&e->busy);
    return channel;
}

void *han_engine_trace(han_engine *e, han_trace *trace, void *owner) {
    lock(&e->busy);
    if (e->trace) e->trace->last = han_anchor_now(e);
    void *before = e->trace_owner;
    e->trace = trace;
    e->trace_owner = owner;
    memset(e->open, 0, sizeof e->open);
    if (trace) trace->first = han_anchor_now(e);
    e->anchored = trace ? trace->first.ticks : 0;
    unlock(&e->busy);
    return before;
}

bool han_engine_mismatch(han_engine *e) {
    if (!try_lock(&e->busy)) return false;
    bool found = han_mismatch(e);
    unlock(&e->busy);
    return found;
}

/* ---- stopping ----------------------------------------------------------------------------- */

/* Test every message and collective under way, and recall receives; whether all are over. */
static bool over(han_engine *e, const han_plan *p, bool recall) {
    bool all = true;
    for (uint32_t s = 0; s < p->n_streams; s++)
        for (uint32_t k = p->streams[s].start; k < e->pc[s]; k++) {
            const han_instr *i = &p->code[k];
            bool coll = i->code == HAN_COLL && !(HAN_COLL_KIND(i) & HAN_C_BLOCKING);
            int flag = 1;
            if (i->code != HAN_IRECV && i->code != HAN_ISEND && !coll) continue;
            if (han_test(e->mpi, &p->requests[i->slot], &flag)) flag = 1; /* over, with an error */
            if (!flag && recall && i->code == HAN_IRECV)
                (void)han_cancel(e->mpi, &p->requests[i->slot]);
            all = all && flag;
        }
    return all;
}

/* Give what was sent a moment to go; a collective, or a message half received, has no recall. */
static bool settle(han_engine *e, const han_plan *p) {
    if (!e->mpi) return true;
    if (han_mpi_finalized(e->mpi)) return false;
    uint64_t until = han_now_ns() + SETTLE_NS;
    for (bool recall = true; !over(e, p, recall); recall = false) {
        if (han_now_ns() > until) return false;
        sched_yield();
    }
    return true;
}

/* Whether peers may still push to the buffers of a plan under way. */
static bool given(const han_plan *p) {
    bool any = false;
    for (int c = 0; c < HAN_MAX_CHANNELS; c++) any |= p->writes[c] & HAN_W_GIVEN;
    return any;
}

void han_engine_stop(han_engine *e) {
    deactivate(e);
    lock(&e->busy);
    if (e->started && e->plan) {
        e->left = !settle(e, e->plan);
        e->head->left = e->left || given(e->plan);
    }
    e->started = false;
    e->plan = NULL;
    if (!e->failed) e->failed = HAN_E_FAILED;
    for (han_run *run = e->head, *next; run; run = next) {
        next = run->next;
        atomic_store_explicit(&run->status, HAN_E_FAILED, memory_order_release);
    }
    e->head = e->tail = NULL;
    unlock(&e->busy);
}
