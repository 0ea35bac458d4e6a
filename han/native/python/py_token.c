#include "python/py_token.h"

#include <stdlib.h>

#include "clock.h"
#include "data/processor.h"
#include "engine/helper.h"
#include "engine/lock.h"
#include "engine/pace.h"
#include "engine/queue.h"
#include "engine/stepping.h"
#include "python/py_run.h"

enum {
    MOST_POOLED = 1024,
    BATCH = 16,
    PATIENCE_NS = 5000000, /* between two checks of a token */
    FORGET_NS = 100000000, /* MPI has not asked for so long: it did not wait */
};

static struct {
    const han_mpi *mpi;
    han_status_fields status;
    han_ended ended;
    han_token *pool;
    int pooled;
    _Atomic int telling; /* completions that MPI is being told of */
    _Atomic bool closed; /* MPI must not be called any more */
    han_pace pace;       /* of looks around */
} tokens;

/* ---- states ------------------------------------------------------------------------------- */

/* Mark a token as complete, under the lock; returns whether the caller must call `tell`. */
static bool mark_complete(han_token *t) {
    int before = t->state;
    bool must = (before == ARMED || before == RESTING) && !tokens.closed &&
                atomic_compare_exchange_strong(&t->state, &before, COMPLETE);
    if (must && before == ARMED) han_helper_count(-1);
    if (must) atomic_fetch_add(&tokens.telling, 1);
    return must;
}

/* MPI may free the request, and its token, meanwhile: only the handle is used. */
static void tell(uint64_t handle) {
    (void)han_grequest_complete(tokens.mpi, handle);
    atomic_fetch_sub(&tokens.telling, 1);
}

/* Wait until MPI knows of all completions. It may have woken up a thread before. */
static void wait_until_told(void) {
    while (atomic_load(&tokens.telling)) sched_yield();
}

static void complete(han_token *t) {
    han_lock(&han_shown.lock);
    bool must = mark_complete(t);
    uint64_t handle = t->handle;
    han_unlock(&han_shown.lock);
    if (must) tell(handle);
}

/* ---- progress while MPI waits ------------------------------------------------------------- */

/* Report an error or a notice. Returns whether the run is over. */
static bool reported(han_token *t, enum han_status status) {
    PyGILState_STATE gil = PyGILState_Ensure();
    bool over = t->owner && han_py_put_off(t->engine, status);
    PyGILState_Release(gil);
    return over;
}

/* At intervals, check for what no flag tells. The time limit counts from the last progress, and only
 * while MPI waits for this request. */
static enum han_status look(han_token *t, bool waits) {
    if (!waits) return han_check_peers(&t->engine->engine, 0); /* the caller minds the intervals */
    uint64_t now = han_now_ns();
    if (!t->since || now > t->slow + FORGET_NS) t->since = now, t->slow = now + PATIENCE_NS;
    if (now < t->slow) return HAN_BLOCKED;
    t->slow = now + PATIENCE_NS;
    return han_check_peers(&t->engine->engine, (double)(now - t->since) * 1e-9);
}

static bool over(const han_token *t) {
    return t->run->status != HAN_BLOCKED || t->engine->engine.failed;
}

/* Step the run of an armed token; returns whether it is over. `waits`: MPI waits for it. */
static bool advance(han_token *t, bool waits) {
    if (over(t)) return true;
    if (han_inside_op() || tokens.closed) return false;
    uint64_t before = t->engine->engine.moves;
    enum han_status status = han_progress(&t->engine->engine, t->run, false);
    if (t->engine->engine.moves != before) t->since = 0;
    if (status == HAN_BLOCKED) status = look(t, waits);
    return status == HAN_OK || (status > HAN_BLOCKED && reported(t, status));
}

/* Complete some tokens whose run is over, or (`resting`) those without a run. Returns whether these were
 * all. */
static bool complete_some(bool resting) {
    uint64_t handles[BATCH];
    int n = 0;
    han_lock(&han_shown.lock);
    for (han_token *t = han_shown.list.next; t != &han_shown.list && n < BATCH; t = t->next)
        if ((resting ? t->state == RESTING : han_token_armed(t) && over(t)) && mark_complete(t))
            handles[n++] = t->handle;
    han_unlock(&han_shown.lock);
    for (int k = 0; k < n; k++) tell(handles[k]);
    return n < BATCH;
}

void han_tokens_collect(void) {
    if (atomic_load_explicit(&han_shown.n, memory_order_relaxed)) (void)complete_some(false);
}

/* ---- MPI's callbacks ---------------------------------------------------------------------- */

static int queried(void *state, void *status) {
    han_token *t = state;
    han_status_empty(tokens.mpi, &tokens.status, status);
    if (t->ours || !t->owner || tokens.closed) return 0;
    PyGILState_STATE gil = PyGILState_Ensure();
    int code = t->owner ? tokens.ended(t->owner) : 0;
    PyGILState_Release(gil);
    return code;
}

static int freed(void *state) {
    han_token *t = state;
    han_lock(&han_shown.lock);
    han_token_set_state(t, GONE);
    bool dropped = !t->owner && !t->ours;
    han_unlock(&han_shown.lock);
    if (dropped) free(t);
    return 0;
}

static int cancelled(void *state, int is_complete) {
    (void)state, (void)is_complete; /* MPI does not allow it: nothing happens */
    return 0;
}

static int polled(void *state, void *Py_UNUSED(status)) {
    han_token *t = state;
    if (!han_token_armed(t) || advance(t, true))
        complete(t);
    else if (++t->fruitless > t->engine->engine.spins)
        sched_yield();
    return 0;
}

static int waited(int n, void **states, double Py_UNUSED(timeout), void *Py_UNUSED(status)) {
    for (int k = 0; k < n; k++) {
        han_token *t = states[k];
        for (uint32_t round = 0; han_token_armed(t) && !advance(t, true); round++)
            if (round < t->engine->engine.spins)
                han_cpu_relax();
            else
                sched_yield();
        complete(t);
    }
    wait_until_told();
    return 0;
}

/* Whether a thread steps the engine of a token: perhaps this one, which has called MPI in a step. An
 * error would stop the engine, and wait for that step for ever. */
static bool stepped(const han_token *t) {
    atomic_flag *lock = &t->engine->engine.busy;
    if (!han_try_lock(lock)) return true;
    han_unlock(lock);
    return false;
}

/* Complete what rests: MPI may be waiting for it. Check one armed token. */
static void look_around(void) {
    while (!complete_some(true)) continue;
    han_token *one = han_token_next_armed();
    if (!one) return;
    if (!stepped(one)) (void)advance(one, false);
    one->pins--;
}

/* Open MPI calls this in each round of any waiting. */
static int progressed(void) {
    if (!atomic_load_explicit(&han_shown.n, memory_order_relaxed)) return 0;
    if (han_inside_op() || tokens.closed) return 0;
    if (han_helper_load()) {
        han_progress_others(NULL);
        han_tokens_collect();
    }
    if (han_due(&tokens.pace)) look_around();
    return 0;
}

static const han_grequest_fns callbacks = {queried, freed, cancelled, polled, waited};

/* ---- the pool ----------------------------------------------------------------------------- */

void han_tokens_open(const han_mpi *mpi, han_status_fields status, han_ended ended) {
    if (tokens.mpi) return;
    tokens.mpi = mpi;
    tokens.status = status;
    tokens.ended = ended;
    (void)han_progress_register(mpi, progressed);
}

static han_token *new_token(void) {
    han_token *t = calloc(1, sizeof *t);
    int rc = 1;
    if (t && !tokens.closed) {
        Py_BEGIN_ALLOW_THREADS /* MPI may hold a lock while it calls Python */
        rc = han_grequest_start(tokens.mpi, &callbacks, t, &t->handle);
        Py_END_ALLOW_THREADS
    }
    if (rc) free(t);
    return rc ? NULL : t;
}

han_token *han_token_take(PyObject *owner, EngineObject *engine, han_run *run) {
    han_token *t = tokens.pool;
    if (t)
        tokens.pool = t->next, tokens.pooled--;
    else if (!(t = new_token()))
        return NULL;
    t->owner = owner;
    t->engine = engine;
    t->run = run;
    han_token_show(t);
    return t;
}

uint64_t han_token_handle(const han_token *t) { return t->handle; }

/* Without the lock: nobody else changes the state of a token at rest but to complete it. */
bool han_token_arm(han_token *t) {
    int rests = RESTING;
    t->since = t->fruitless = 0;
    bool done = atomic_compare_exchange_strong(&t->state, &rests, ARMED);
    if (done) han_helper_count(1);
    return done;
}

bool han_token_resume(han_token *t) {
    if (!han_token_arm(t)) return false;
    if (!t->shown) han_token_show(t);
    return true;
}

bool han_token_gone(const han_token *t) {
    if (t->state == COMPLETE) wait_until_told();
    return atomic_load_explicit(&t->state, memory_order_acquire) == GONE;
}

/* Let MPI free the request. */
static void finish(han_token *t) {
    t->ours = true;
    complete(t);
    if (tokens.closed) return;
    if (!han_token_gone(t)) {
        uint64_t handle = t->handle;
        Py_BEGIN_ALLOW_THREADS(void)
        han_wait(tokens.mpi, &handle);
        Py_END_ALLOW_THREADS
    }
    if (han_token_gone(t)) free(t); /* else MPI has failed, and may still use it */
}

void han_token_give(han_token *t) {
    (void)han_token_rest(t, false);
    han_token_hide(t);
    t->owner = NULL;
    if (t->state != RESTING || tokens.pooled == MOST_POOLED) {
        finish(t);
        return;
    }
    t->next = tokens.pool;
    tokens.pool = t;
    tokens.pooled++;
}

void han_token_drop(han_token *t) {
    han_token_hide(t);
    han_lock(&han_shown.lock);
    t->owner = NULL;
    bool gone = t->state == GONE, must = mark_complete(t);
    uint64_t handle = t->handle;
    han_unlock(&han_shown.lock);
    if (gone) free(t);
    if (!must) return;
    Py_BEGIN_ALLOW_THREADS
    tell(handle);
    Py_END_ALLOW_THREADS
}

void han_tokens_close(void) {
    tokens.closed = true;
    wait_until_told();
}
