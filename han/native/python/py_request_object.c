#include "python/py_request_object.h"

#include <string.h>

#include "python/py_run.h"

han_request_class_facts han_request_class;

request *han_request_fields(PyObject *o) {
    return (request *)(void *)((char *)o + han_request_class.fields);
}

static void set_handle(PyObject *o, uint64_t handle) {
    memcpy((char *)o + han_request_class.handle, &handle, han_request_class.handle_size);
}

/* ---- MPI's view --------------------------------------------------------------------------- */

/* Give the object a handle of MPI's. Without one, only han's own methods know the request. An
 * inactive request has none: MPI's functions for several requests pass it over. */
static void show(PyObject *o) {
    request *self = han_request_fields(o);
    if (!self->token) self->token = han_token_take(o, self->engine, &self->run);
    set_handle(o, self->token ? han_token_handle(self->token) : han_request_class.null);
}

static void hide(PyObject *o) {
    request *self = han_request_fields(o);
    han_token *token = self->token;
    self->token = NULL;
    set_handle(o, han_request_class.null);
    if (token) han_token_give(token);
}

void han_request_arm(PyObject *o) {
    request *self = han_request_fields(o);
    show(o);
    while (self->token && !han_token_arm(self->token)) { /* MPI has completed it meanwhile */
        hide(o);
        show(o);
    }
}

static void release_buffers(request *self) {
    Py_CLEAR(self->keep);
    Py_CLEAR(self->begin);
    Py_CLEAR(self->end);
}

void han_request_synchronise(PyObject *o) {
    request *self = han_request_fields(o);
    if (!self->token || !han_token_gone(self->token)) return;
    self->active = false;
    hide(o);
    if (!self->persistent) release_buffers(self);
}

void han_request_settle(PyObject *o) {
    request *self = han_request_fields(o);
    self->active = false;
    if (self->persistent && self->token) {
        (void)han_token_rest(self->token, false); /* for the next start */
        set_handle(o, han_request_class.null);
    } else {
        hide(o);
    }
    if (!self->persistent) release_buffers(self);
}

void han_request_return_to(PyObject *o, han_ready *home) {
    request *self = han_request_fields(o);
    PyObject_GC_UnTrack(o); /* others take it without the lock that collections have */
    self->home = han_ready_share(home);
    self->ready = (han_ready_node){.request = o, .plan = self->plan};
}

bool han_request_rest(PyObject *o) {
    request *self = han_request_fields(o);
    const bool again = self->persistent || (self->home && han_ready_has_room(self->home));
    if (!self->token || self->end || !again) return false;
    if (!han_token_rest(self->token, !self->persistent)) return false;
    self->active = false;
    set_handle(o, han_request_class.null);
    if (!self->persistent) han_ready_put(self->home, &self->ready);
    return true;
}

bool han_request_resume(PyObject *o) {
    const request *self = han_request_fields(o);
    if (!han_token_resume(self->token)) return false;
    set_handle(o, han_token_handle(self->token));
    return true;
}

int han_request_unpack(request *self) {
    if (self->ended || !self->end) return 0;
    self->ended = true;
    PyObject *unpack = Py_NewRef(self->end); /* another thread may settle the request meanwhile */
    PyObject *answer = PyObject_CallNoArgs(unpack);
    if (!answer) self->ended = false; /* such as by a signal: the data are still to be had */
    Py_XDECREF(answer);
    Py_DECREF(unpack);
    return answer ? 0 : -1;
}

/* MPI's error code for the current exception. */
static int error_code(PyObject *o) {
    PyObject *type, *value, *tb;
    PyErr_Fetch(&type, &value, &tb);
    PyErr_NormalizeException(&type, &value, &tb);
    PyObject *answer = PyObject_CallMethod(o, "_error_code", "O", value);
    long code = answer ? PyLong_AsLong(answer) : 1;
    Py_XDECREF(answer);
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(tb);
    PyErr_Clear();
    return (int)code;
}

uint64_t han_request_handle(PyObject *o) {
    const request *self = han_request_fields(o);
    return self->token ? han_token_handle(self->token) : han_request_class.null;
}

void han_request_hold(PyObject *o) {
    han_request_fields(o)->held = true;
    Py_INCREF(o);
}

void han_request_let_go(PyObject *o) {
    request *self = han_request_fields(o);
    if (!self->held) return;
    self->held = false;
    Py_DECREF(o);
}

int han_request_ended(PyObject *o) {
    request *self = han_request_fields(o);
    if (!self->active) return 0;
    int rc = self->run.status == HAN_OK ? han_request_unpack(self)
                                        : han_py_report(self->engine, HAN_E_FAILED);
    int code = rc ? error_code(o) : 0;
    han_request_let_go(o);
    return code;
}

/* Part with the token. If the program has not completed the request, a copy of the handle may. */
static void part_with_token(PyObject *o) {
    request *self = han_request_fields(o);
    if (!self->token || !self->active) {
        hide(o);
        return;
    }
    han_token_drop(self->token);
    self->token = NULL;
}

void han_request_release(PyObject *o) {
    request *self = han_request_fields(o);
    part_with_token(o);
    if (self->run.left) { /* MPI or a peer may still access the memory: never free it */
        self->keep = self->sizes = NULL;
        self->plan = NULL;
        self->run.left = false;
    }
    Py_CLEAR(self->sizes);
    release_buffers(self);
    Py_CLEAR(self->plan);
    Py_CLEAR(self->engine);
    han_ready_leave(self->home);
    self->home = NULL;
}

/* Requests that the program started and dropped. Peers wait for them, so engines still step
 * them. Until their runs are over, nothing that they need may be freed. */
static PyObject *orphans;

/* Take finished requests out of the list before they are freed, as freeing may run any code. */
int han_forget_orphans(void) {
    Py_ssize_t n = orphans ? PyList_GET_SIZE(orphans) : 0, left = 0;
    if (!n) return 0;
    PyObject *finished = PyList_New(0);
    if (!finished) return -1;
    for (Py_ssize_t k = 0; k < n; k++) {
        PyObject *o = PyList_GET_ITEM(orphans, k);
        if (han_under_way(han_request_fields(o)) || PyList_Append(finished, o)) {
            PyList_SET_ITEM(orphans, k, PyList_GET_ITEM(orphans, left));
            PyList_SET_ITEM(orphans, left++, o);
        }
    }
    int rc = PyErr_Occurred() || PyList_SetSlice(orphans, left, n, NULL) ? -1 : 0;
    Py_DECREF(finished);
    return rc;
}

PyObject *han_py_orphans(void) {
    if (han_forget_orphans()) return NULL;
    return orphans ? PyList_GetSlice(orphans, 0, PyList_GET_SIZE(orphans)) : PyList_New(0);
}

int han_request_adopt(PyObject *o) {
    if (!orphans) orphans = PyList_New(0);
    return orphans ? PyList_Append(orphans, o) : -1;
}
