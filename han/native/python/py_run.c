#include "python/py_run.h"

#include <sched.h>

#include "clock.h"
#include "engine/queue.h"
#include "engine/sizes.h"
#include "engine/stepping.h"

enum {
    MOST_ROUNDS = 256,     /* rounds of a brief plan while this thread holds the lock */
    GRACE_NS = 1000000000, /* nanoseconds in which a call may complete after an interrupt */
};

int han_py_refuse_inside_op(void) {
    if (!han_inside_op()) return 0;
    return HAN_RAISE(PyExc_RuntimeError,
                     "a reduction operation must not call han: it runs inside a collective");
}

void han_py_stop(EngineObject *self) {
    Py_BEGIN_ALLOW_THREADS /* another thread may be in a step that needs Python */
    han_engine_stop(&self->engine);
    Py_END_ALLOW_THREADS
}

/* Call engine.on_error; `later` tells it that its error cannot be raised now. */
static int report(EngineObject *self, enum han_status status, bool later) {
    PyObject *type = NULL, *value = NULL, *tb = NULL;
    han_engine *e = &self->engine;
    if (status == HAN_E_FAILED) status = (enum han_status)e->failed;
    int detail = status == HAN_E_MPI ? e->mpi_error : e->dead_rank;
    if (status == HAN_E_INTERRUPT) PyErr_Fetch(&type, &value, &tb);
    PyObject *answer = PyObject_CallFunction(self->on_error, "iiO", (int)status, detail,
                                             later ? Py_True : Py_False);
    if (han_may_go_on(status) && answer) {
        Py_DECREF(answer);
        return 0;
    }
    Py_XDECREF(answer);
    PyObject *own[3];
    PyErr_Fetch(&own[0], &own[1], &own[2]);
    han_py_stop(self);
    if (type) { /* raise the exception of the signal handler */
        for (int k = 0; k < 3; k++) Py_XDECREF(own[k]);
        PyErr_Restore(type, value, tb);
    } else if (own[0]) {
        PyErr_Restore(own[0], own[1], own[2]);
    } else {
        PyErr_SetString(PyExc_SystemError, "han: on_error did not raise");
    }
    return -1;
}

int han_py_report(EngineObject *self, enum han_status status) {
    return report(self, status, false);
}

bool han_py_put_off(EngineObject *self, enum han_status status) {
    bool over = report(self, status, true) != 0;
    if (over) PyErr_Clear();
    return over;
}

int han_py_enqueue(EngineObject *self, han_run *run) {
    if (han_py_refuse_inside_op()) return -1;
    if (self->engine.failed) return han_py_report(self, HAN_E_FAILED);
    if (han_try_begin(&self->engine, run)) return 0;
    Py_BEGIN_ALLOW_THREADS
    han_enqueue(&self->engine, run);
    if (han_is_brief(run)) (void)han_try(&self->engine, run, 1);
    Py_END_ALLOW_THREADS
    return 0;
}

enum han_status han_py_try(EngineObject *self, const han_run *run) {
    han_engine *e = &self->engine;
    if (run->status == HAN_OK || !han_is_brief(run)) return run->status;
    return han_try(e, run, e->spins < MOST_ROUNDS ? (int)e->spins : MOST_ROUNDS);
}

/* A signal handler has raised. As in MPI, the call completes first, if the peers come in time. */
static bool completes(EngineObject *self, han_run *run) {
    PyObject *type, *value, *tb;
    enum han_status status;
    PyErr_Fetch(&type, &value, &tb);
    Py_BEGIN_ALLOW_THREADS
    uint64_t until = han_now_ns() + GRACE_NS;
    do {
        sched_yield();
        status = han_progress(&self->engine, run, false);
    } while ((status == HAN_BLOCKED || han_may_go_on(status)) && han_now_ns() < until);
    Py_END_ALLOW_THREADS
    PyErr_Restore(type, value, tb);
    return status == HAN_OK;
}

int han_py_wait(EngineObject *self, han_run *run) {
    if (han_py_refuse_inside_op()) return -1;
    for (;;) {
        enum han_status status;
        Py_BEGIN_ALLOW_THREADS
        status = han_progress(&self->engine, run, true);
        Py_END_ALLOW_THREADS
        if (status == HAN_OK) return 0;
        if (status == HAN_E_INTERRUPT && completes(self, run)) return -1;
        if (status == HAN_E_INTERRUPT) (void)han_fail(&self->engine, status);
        if (han_py_report(self, status)) return -1;
    }
}

/* Never free these objects. */
static void keep_for_ever(PyObject *const *kept, Py_ssize_t n) {
    for (Py_ssize_t k = 0; k < n; k++) Py_XINCREF(kept[k]);
}

int han_py_sizes(const han_plan *p, PyObject *bytes, const uint64_t **out) {
    size_t length = bytes ? (size_t)PyBytes_GET_SIZE(bytes) : 0,
           numbers = p->own ? 2 * (p->n_blocks - 1) : p->n_blocks,
           expected = numbers * sizeof **out;
    *out = NULL;
    if (!expected) return 0;
    if (length != expected)
        return HAN_RAISE(PyExc_ValueError, "sizes of %zu bytes for a plan of %u blocks", length,
                         (unsigned)p->n_blocks);
    *out = (const uint64_t *)(const void *)PyBytes_AS_STRING(bytes);
    return 0;
}

int han_py_run(EngineObject *self, PlanObject *plan, const void *send, void *recv, uint64_t nbytes,
               const uint64_t *sizes, PyObject *const *kept, Py_ssize_t n) {
    han_run run = {.plan = &plan->plan,
                   .send = send,
                   .recv = recv,
                   .nbytes = nbytes,
                   .sizes = sizes,
                   .blocking = true};
    Py_INCREF(plan); /* a signal handler may empty the cache that owns the plan */
    int rc = han_py_enqueue(self, &run);
    if (!rc) (void)han_py_try(self, &run);
    if (!rc && run.status != HAN_OK) rc = han_py_wait(self, &run);
    if (run.left)
        keep_for_ever(kept, n); /* and the plan: MPI or a peer may still write to their memory */
    else
        Py_DECREF(plan);
    return rc;
}

/* Report why a run does not go on: whether it may. Otherwise the lock is kept, with the exception. What
 * Python does then may empty the look-up, so the plan is kept for ever. */
static bool goes_on(EngineObject *self, PlanObject *plan, enum han_status status,
                    PyGILState_STATE *held) {
    *held = PyGILState_Ensure();
    Py_INCREF(plan);
    if (han_py_report(self, status)) return false;
    PyGILState_Release(*held);
    return true;
}

static _Thread_local bool deaf;

bool han_py_deaf(void) { return deaf; }

bool han_py_set_deaf(bool now) {
    const bool before = deaf;
    deaf = now;
    return before;
}

PyThreadState *han_py_without_lock(void) { return PyGILState_Check() ? PyEval_SaveThread() : NULL; }

/* Wait for a queued run; false with an exception, and the lock in `held`. */
static bool waited(EngineObject *self, PlanObject *plan, han_run *run, PyGILState_STATE *held) {
    enum han_status status = HAN_BLOCKED;
    while (status != HAN_OK && run->status != HAN_OK) {
        status = han_progress(&self->engine, run, true);
        if (status > HAN_BLOCKED && !goes_on(self, plan, status, held)) break;
    }
    return run->status == HAN_OK;
}

bool han_py_run_unlocked(EngineObject *self, PlanObject *plan, const void *send, void *recv,
                         uint64_t nbytes, const uint64_t *sizes, PyGILState_STATE *held) {
    han_run run = {.plan = &plan->plan,
                   .send = send,
                   .recv = recv,
                   .nbytes = nbytes,
                   .sizes = sizes,
                   .blocking = true};
    han_engine *e = &self->engine;
    if (e->failed || han_inside_op()) {
        *held = PyGILState_Ensure();
        if (!han_py_refuse_inside_op()) (void)han_py_report(self, HAN_E_FAILED);
        return false;
    }
    const bool queued = han_try_begin(e, &run);
    if (queued && (han_py_try(self, &run) == HAN_OK || run.status == HAN_OK)) return true;
    PyThreadState *caller = han_py_without_lock();
    if (!queued) han_enqueue(e, &run);
    deaf = true;
    const bool finished = waited(self, plan, &run, held);
    deaf = false;
    if (caller && finished) PyEval_RestoreThread(caller);
    if (caller && !finished) *held = PyGILState_LOCKED; /* as the caller had it */
    return finished;
}
