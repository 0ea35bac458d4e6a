/* The methods of requests, and their attributes. */
#include "python/module.h"

#include "engine/sizes.h"
#include "engine/helper.h"
#include "engine/queue.h"
#include "engine/stepping.h"
#include "python/py_request_object.h"
#include "python/py_run.h"

/* 0, or -1 with an exception if the request cannot be used. */
static int unusable(PyObject *o) {
    if (han_py_refuse_inside_op()) return -1;
    han_request_synchronise(o);
    if (han_request_fields(o)->plan) return 0;
    return HAN_RAISE(PyExc_ValueError, "the request has been freed");
}

/* 0, or -1 with an exception if the request cannot be started. */
static int unready(const request *self) {
    if (self->active)
        return HAN_RAISE(PyExc_RuntimeError,
                         "Start: the request is active; call Wait (or Test until True) first");
    if (self->started && !self->persistent)
        return HAN_RAISE(PyExc_RuntimeError,
                         "Start: the request is complete; only persistent ones start again");
    return self->engine->engine.failed ? han_py_report(self->engine, HAN_E_FAILED) : 0;
}

/* A brief run was stepped as it was queued. Step others, and any that nobody else would step; what is not
 * over then may be left alone. Wait or Test raise errors of the run, as in MPI. */
static void first_step(request *self) {
    han_engine *e = &self->engine->engine;
    if (self->run.status == HAN_OK) return;
    if (!han_is_brief(&self->run) || !e->active) {
        PyThreadState *caller = han_py_without_lock();
        (void)han_progress(e, &self->run, false);
        if (caller) PyEval_RestoreThread(caller);
    }
    if (self->run.status == HAN_BLOCKED) han_helper_wake();
}

static PyObject *request_start(PyObject *o, PyObject *Py_UNUSED(none)) {
    request *self = han_request_fields(o);
    if (unusable(o) || han_forget_orphans() || unready(self)) return NULL;
    if (self->begin) {
        PyObject *answer = PyObject_CallNoArgs(self->begin);
        if (!answer) return NULL;
        Py_DECREF(answer);
    }
    if (han_py_enqueue(self->engine, &self->run)) return NULL;
    self->active = self->started = true;
    self->ended = false;
    han_request_arm(o);
    first_step(self);
    Py_RETURN_NONE;
}

PyObject *han_py_start(PyObject *o) { return request_start(o, NULL); }

bool han_request_start_again(PyObject *o) {
    request *self = han_request_fields(o);
    han_engine *e = &self->engine->engine;
    if (!self->token || self->begin || self->active || e->failed || han_inside_op() ||
        han_token_gone(self->token) || !han_try_begin(e, &self->run))
        return false;
    self->active = self->started = true;
    self->ended = false;
    if (!han_request_resume(o)) {
        PyGILState_STATE lock = PyGILState_Ensure();
        han_request_arm(o);
        PyGILState_Release(lock);
    }
    first_step(self);
    return true;
}

/* End a run; `status`, if given, becomes an empty status in the sense of MPI. True, or NULL. */
static PyObject *complete(PyObject *o, PyObject *status) {
    request *self = han_request_fields(o);
    int rc = self->active ? han_request_unpack(self) : 0;
    if (self->active) han_request_settle(o);
    if (rc) return NULL;
    if (status) {
        PyObject *answer = PyObject_CallMethod(o, "_empty", "O", status);
        if (!answer) return NULL;
        Py_DECREF(answer);
    }
    Py_RETURN_TRUE;
}

/* After an error: the run is over, or goes on. */
static PyObject *failed(PyObject *o) {
    if (!han_under_way(han_request_fields(o))) han_request_settle(o);
    return NULL;
}

/* The only argument of Wait and Test: NULL if missing or None. 0, or -1 with an exception. */
static int optional_status(PyObject *const *args, Py_ssize_t n, PyObject *names, PyObject **out) {
    Py_ssize_t named = names ? PyTuple_GET_SIZE(names) : 0;
    bool right =
        n + named <= 1 &&
        (!named || !PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(names, 0), "status"));
    *out = n + named == 1 && args[0] != Py_None ? args[0] : NULL;
    if (right) return 0;
    return HAN_RAISE(PyExc_TypeError, "expected no argument, or status");
}

static PyObject *request_wait(PyObject *o, PyObject *const *args, Py_ssize_t n, PyObject *names) {
    PyObject *status;
    request *self = han_request_fields(o);
    if (unusable(o) || optional_status(args, n, names, &status)) return NULL;
    if (self->active && self->run.status != HAN_OK &&
        han_py_try(self->engine, &self->run) != HAN_OK && han_py_wait(self->engine, &self->run))
        return failed(o);
    return complete(o, status); /* as MPI: an inactive request is complete */
}

/* Make progress: 1 when the run is over, 0 when not, -1 with an exception. */
static int progress(PyObject *o) {
    request *self = han_request_fields(o);
    enum han_status status = HAN_OK;
    if (!self->active || self->run.status == HAN_OK) return 1;
    Py_BEGIN_ALLOW_THREADS
    status = han_progress(&self->engine->engine, &self->run, false);
    Py_END_ALLOW_THREADS
    if (status <= HAN_BLOCKED) return status == HAN_OK;
    if (!han_py_report(self->engine, status)) return 0; /* a notice for others */
    (void)failed(o);
    return -1;
}

static PyObject *request_test(PyObject *o, PyObject *const *args, Py_ssize_t n, PyObject *names) {
    PyObject *status;
    if (unusable(o) || optional_status(args, n, names, &status)) return NULL;
    int done = progress(o);
    if (done <= 0) return done ? NULL : PyBool_FromLong(0);
    return complete(o, status);
}

/* Step a run, or wait for its end. After an error it stays as it is: MPI completes the request. */
static enum han_status advance(request *self, bool block) {
    enum han_status status = HAN_OK;
    if (self->run.status == HAN_OK || han_py_try(self->engine, &self->run) == HAN_OK) return HAN_OK;
    if (block) return han_py_wait(self->engine, &self->run) ? HAN_E_FAILED : HAN_OK;
    Py_BEGIN_ALLOW_THREADS
    status = han_progress(&self->engine->engine, &self->run, false);
    Py_END_ALLOW_THREADS
    if (status <= HAN_BLOCKED) return status;
    return han_py_report(self->engine, status) ? HAN_E_FAILED : HAN_BLOCKED;
}

int han_request_finish_at_once(PyObject *o, bool block) {
    request *self = han_request_fields(o);
    enum han_status status = self->run.status;
    if (!self->active || han_inside_op()) return -1;
    if (status != HAN_OK && (status = han_py_try(self->engine, &self->run)) != HAN_OK && !block)
        status = han_progress(&self->engine->engine, &self->run, false);
    if (status == HAN_OK && han_request_rest(o)) return 1;
    return status == HAN_BLOCKED && !block ? 0 : -1;
}

int han_request_finish(PyObject *o, bool block) {
    request *self = han_request_fields(o);
    if (unusable(o) || !self->active) return -1;
    enum han_status status = advance(self, block);
    if (status == HAN_BLOCKED) return 0;
    if (status != HAN_OK || han_request_unpack(self)) return -1;
    if (han_request_rest(o)) return 1;
    han_request_settle(o);
    han_request_let_go(o);
    return 1;
}

static PyObject *request_peek(PyObject *o, PyObject *Py_UNUSED(none)) {
    if (unusable(o)) return NULL;
    int done = progress(o);
    return done < 0 ? NULL : PyBool_FromLong(done);
}

static PyObject *request_free(PyObject *o, PyObject *Py_UNUSED(none)) {
    if (han_py_refuse_inside_op()) return NULL;
    han_request_synchronise(o);
    if (han_request_fields(o)->active) {
        PyObject *done = request_wait(o, NULL, 0, NULL);
        if (!done) return NULL;
        Py_DECREF(done);
    }
    han_request_release(o);
    Py_RETURN_NONE;
}

static PyObject *request_synchronise(PyObject *o, PyObject *Py_UNUSED(none)) {
    han_request_synchronise(o);
    Py_RETURN_NONE;
}

static PyObject *request_get_active(PyObject *o, void *Py_UNUSED(closure)) {
    han_request_synchronise(o);
    return PyBool_FromLong(han_request_fields(o)->active);
}

static PyObject *request_get_persistent(PyObject *o, void *Py_UNUSED(closure)) {
    return PyBool_FromLong(han_request_fields(o)->persistent);
}

static PyObject *request_get_engine(PyObject *o, void *Py_UNUSED(closure)) {
    return Py_NewRef(han_py_or_none(han_request_fields(o)->engine));
}

PyMethodDef han_request_methods[] = {
    HAN_METHOD("Start", request_start, METH_NOARGS, "$self, /",
               "Start the run; it progresses inside Wait and Test."),
    HAN_METHOD("Wait", request_wait, HAN_NAMED, "$self, status=None", "Wait until complete."),
    HAN_METHOD("Test", request_test, HAN_NAMED, "$self, status=None",
               "Make progress; return whether it is complete. A complete request is inactive."),
    HAN_METHOD("_peek", request_peek, METH_NOARGS, "$self, /",
               "Make progress; return whether it is complete. The request stays active."),
    HAN_METHOD("_free", request_free, METH_NOARGS, "$self, /",
               "Complete the run if it is active, and release everything."),
    HAN_METHOD("_synchronise", request_synchronise, METH_NOARGS, "$self, /",
               "Take notice if MPI's own functions have completed the request."),
    {NULL, NULL, 0, NULL},
};

PyGetSetDef han_request_getset[] = {
    {"active", (getter)request_get_active, NULL,
     "Whether it was started and not yet completed by Wait or Test.", NULL},
    {"persistent", (getter)request_get_persistent, NULL, "Whether it can be started again.", NULL},
    {"_engine", (getter)request_get_engine, NULL,
     "The engine that runs it; None once the request has been freed.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};
