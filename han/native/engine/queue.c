#include "engine/queue.h"

#include "data/operands.h"
#include "data/processor.h"
#include "engine/sizes.h"
#include "engine/stepping.h"
#include "engine/lock.h"

/* ---- active engines ----------------------------------------------------------------------- */

/* A thread holds the lock of the list for a few instructions only, never during a step: it pins the
 * engine that it steps, so that the engine stays in the list. */
static struct {
    atomic_flag lock;
    _Atomic int count;
    han_engine *first;
} active = {.lock = ATOMIC_FLAG_INIT};

static _Atomic bool forked;

bool han_forked(void) { return forked; }

void han_after_fork(void) {
    forked = true;
    han_unlock(&active.lock);
}

void han_activate(han_engine *e) {
    if (e->active) return;
    han_lock(&active.lock);
    if (!e->active) { /* another thread may have added it meanwhile */
        e->next_active = active.first;
        active.first = e;
        e->active = true;
        atomic_fetch_add(&active.count, 1);
    }
    han_unlock(&active.lock);
}

void han_deactivate(han_engine *e) {
    if (!e->active) return;
    han_lock(&active.lock);
    while (e->pins) {
        han_unlock(&active.lock);
        sched_yield();
        han_lock(&active.lock);
    }
    if (e->active) {
        han_engine **link = &active.first;
        while (*link != e) link = &(*link)->next_active;
        *link = e->next_active;
        e->active = false;
        atomic_fetch_sub(&active.count, 1);
    }
    han_unlock(&active.lock);
}

void han_drop_idle(han_engine *e) {
    if (e->issued == e->finished) han_deactivate(e);
}

bool han_others_active(const han_engine *e) {
    return atomic_load_explicit(&active.count, memory_order_relaxed) > (e && e->active);
}

/* ---- queue -------------------------------------------------------------------------------- */

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
    uint64_t issued = atomic_load_explicit(&e->issued, memory_order_relaxed);
    atomic_store_explicit(&e->issued, issued + 1, memory_order_relaxed);
}

void han_enqueue(han_engine *e, han_run *run) {
    han_lock(&e->busy);
    append(e, run);
    han_unlock(&e->busy);
}

enum han_status han_fail(han_engine *e, enum han_status status) {
    e->failed = status;
    return status;
}

/* ---- steps -------------------------------------------------------------------------------- */

static _Thread_local bool inside __attribute__((tls_model("initial-exec")));

bool han_inside_op(void) { return inside; }

bool han_set_inside_op(bool now) {
    bool before = inside;
    inside = now;
    return before;
}

static enum han_status step_locked(han_engine *e) {
    if (e->failed) return HAN_E_FAILED;
    if (!e->head) return HAN_BLOCKED;
    bool before = han_set_inside_op(true);
    enum han_status status = han_step(e);
    (void)han_set_inside_op(before);
    if (status == HAN_MOVED) han_add(&e->moves, 1);
    return status > HAN_BLOCKED && status != HAN_E_NOTICE ? han_fail(e, status) : status;
}

enum han_status han_engine_step(han_engine *e) {
    if (!han_try_lock(&e->busy)) return HAN_BLOCKED;
    enum han_status status = step_locked(e);
    e->steps++;
    han_unlock(&e->busy);
    return status;
}

/* An error stays in the engine, and a notice in its channel, for the next step. */
bool han_try_begin(han_engine *e, han_run *run) {
    if (!han_try_lock(&e->busy)) return false;
    append(e, run);
    if (e->head == run && han_is_brief(run)) {
        (void)step_locked(e);
        e->steps++;
    }
    han_unlock(&e->busy);
    return true;
}

enum han_status han_try(han_engine *e, const han_run *run, int rounds) {
    while (rounds-- > 0 && run->status != HAN_OK) {
        if (!han_try_lock(&e->busy)) return HAN_BLOCKED;
        enum han_status status = HAN_BLOCKED;
        bool turn = e->head == run;
        if (turn) status = step_locked(e);
        e->steps++;
        han_unlock(&e->busy);
        if (!turn) break;
        if (status > HAN_BLOCKED) return status;
        if (status == HAN_BLOCKED) han_cpu_relax();
    }
    return run->status;
}

/* Call `step` for every active engine but `self` that no thread steps, with the lock of the engine
 * held. Returns the largest answer. */
static enum han_status step_active(const han_engine *self,
                                   enum han_status (*step)(han_engine *, unsigned), unsigned how) {
    enum han_status most = HAN_OK;
    if (!han_try_lock(&active.lock)) return most;
    for (han_engine *e = active.first; e; e = e->next_active) {
        if (e == self) continue;
        e->pins++;
        han_unlock(&active.lock);
        if (han_try_lock(&e->busy)) {
            enum han_status status = step(e, how);
            most = most == HAN_MOVED || status == HAN_OK ? most : status;
            han_unlock(&e->busy);
        }
        han_lock(&active.lock);
        e->pins--;
    }
    han_unlock(&active.lock);
    return most;
}

static enum han_status step_other(han_engine *e, unsigned unused) {
    (void)unused;
    if (e->head && !e->head->plan->blocks) (void)step_locked(e);
    e->steps++;
    return HAN_OK;
}

void han_progress_others(const han_engine *self) {
    if (han_others_active(self)) (void)step_active(self, step_other, 0);
}

/* Whether nobody else steps an engine. A thread that waits for a run will. */
static bool left_alone(han_engine *e, unsigned how) {
    bool still = e->seen == e->steps || how & HAN_OVER_AT_ONCE;
    e->seen = e->steps;
    return still && !atomic_load_explicit(&e->awaited, memory_order_relaxed);
}

static enum han_status step_left_alone(han_engine *e, unsigned how) {
    if (!e->head || e->failed || !left_alone(e, how)) return HAN_OK;
    const han_plan *p = e->plan ? e->plan : e->head->plan;
    if (p->blocks || (p->calls_mpi && !(how & HAN_OVER_WITH_MPI))) return HAN_OK;
    return step_locked(e) == HAN_MOVED ? HAN_MOVED : HAN_BLOCKED;
}

enum han_status han_take_over(unsigned how) {
    return han_others_active(NULL) ? step_active(NULL, step_left_alone, how) : HAN_OK;
}
