/* An exchange has some messages for each segment: a call for each would take most of its planning. */
#include "python/py_mail.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <structmember.h>

#include "python/py_emit.h"

/* Messages of `step` bytes each with bytes [start, stop) of the message; the first `done` of their
 * requests are complete. No bytes are one message. */
typedef struct {
    PyObject_VAR_HEAD
    PyObject *place; /* a Ref */
    uint64_t start, stop, step, done;
    uint64_t requests[];
} TransferObject;

typedef struct {
    PyObject_HEAD
    OperationsObject *stream;
    PyObject *ranks;   /* a tuple of int, by member */
    PyObject *request; /* called for a new request */
    uint64_t grain;
    uint64_t *free; /* requests that are complete; the last one is taken first */
    size_t n_free, room;
} MailObject;

static PyTypeObject TransferType, MailType;

/* ---- transfers ------------------------------------------------------------------------------ */

static void transfer_dealloc(TransferObject *self) {
    Py_XDECREF(self->place);
    PyObject_Free(self);
}

static PyObject *overlaps(TransferObject *self, PyObject *const *args, Py_ssize_t given) {
    uint64_t span[2];
    if (han_take("overlaps", args, given, NULL, 0, span, 2)) return NULL;
    return PyBool_FromLong(span[0] < self->stop && self->start < span[1]);
}

/* How many messages begin before a byte. */
static uint64_t begin_before(const TransferObject *t, uint64_t until) {
    uint64_t all = (uint64_t)Py_SIZE(t), number;
    if (until <= t->start) return 0;
    number = (until - t->start - 1) / t->step + 1;
    return number < all ? number : all;
}

/* ---- requests ------------------------------------------------------------------------------- */

static int new_request(MailObject *self, uint64_t *request) {
    PyObject *found = PyObject_CallNoArgs(self->request);
    int failed = !found || han_number_of(found, request) || han_check_request(*request) ? -1 : 0;
    Py_XDECREF(found);
    return failed;
}

static int take_request(MailObject *self, uint64_t *request) {
    if (!self->n_free) return new_request(self, request);
    *request = self->free[--self->n_free];
    return 0;
}

static int give_back(MailObject *self, uint64_t request) {
    if (self->n_free == self->room) {
        size_t room = self->room ? 2 * self->room : 16;
        uint64_t *more = PyMem_Realloc(self->free, room * sizeof *more);
        if (!more) {
            PyErr_NoMemory();
            return -1;
        }
        self->free = more;
        self->room = room;
    }
    self->free[self->n_free++] = request;
    return 0;
}

/* ---- messages ------------------------------------------------------------------------------- */

typedef int start_message(OperationsObject *, const RefObject *, uint64_t, int32_t, uint64_t);

/* The rank of a member; 0 or -1. */
static int rank_of(const MailObject *self, uint64_t member, int32_t *rank) {
    uint64_t number;
    if (member >= (uint64_t)PyTuple_GET_SIZE(self->ranks)) {
        PyErr_Format(PyExc_IndexError, "member %llu of %zd", (unsigned long long)member,
                     PyTuple_GET_SIZE(self->ranks));
        return -1;
    }
    if (han_number_of(PyTuple_GET_ITEM(self->ranks, (Py_ssize_t)member), &number)) return -1;
    *rank = (int32_t)number;
    return 0;
}

/* A transfer of bytes [start, stop) with a request for each message, of which none is started. */
static TransferObject *cut(MailObject *self, PyObject *place, const uint64_t span[2],
                           uint64_t most) {
    uint64_t step = (most < self->grain ? 1 : most / self->grain) * self->grain;
    uint64_t nbytes = span[1] - span[0], number = nbytes ? (nbytes - 1) / step + 1 : 1;
    if (span[1] < span[0] || number > INT32_MAX) {
        PyErr_Format(PyExc_ValueError, "bytes %llu to %llu in messages of %llu",
                     (unsigned long long)span[0], (unsigned long long)span[1],
                     (unsigned long long)step);
        return NULL;
    }
    TransferObject *found = PyObject_NewVar(TransferObject, &TransferType, (Py_ssize_t)number);
    if (!found) return NULL;
    found->place = Py_NewRef(place);
    found->start = span[0];
    found->stop = span[1];
    found->step = step;
    found->done = 0;
    for (uint64_t k = 0; k < number; k++)
        if (take_request(self, &found->requests[k])) {
            Py_DECREF(found);
            return NULL;
        }
    return found;
}

/* Start the messages of a transfer (place, start, stop, member, most); `start` emits one. */
static PyObject *start_all(MailObject *self, const char *name, PyObject *const *args,
                           Py_ssize_t given, start_message *start) {
    const RefObject *place;
    uint64_t number[4]; /* start, stop, member, most */
    int32_t rank;
    if (!self->stream) {
        PyErr_SetString(PyExc_ValueError, "a Mail without a stream");
        return NULL;
    }
    if (han_take(name, args, given, &place, 1, number, 4) || rank_of(self, number[2], &rank))
        return NULL;
    TransferObject *found = cut(self, args[0], number, number[3]);
    for (Py_ssize_t k = 0; found && k < Py_SIZE(found); k++) {
        uint64_t at = found->start + (uint64_t)k * found->step, left = found->stop - at;
        RefObject here = *place;
        here.at = at;
        if (start(self->stream, &here, left < found->step ? left : found->step, rank,
                  found->requests[k]))
            Py_CLEAR(found);
    }
    return (PyObject *)found;
}

static PyObject *mail_receive(MailObject *self, PyObject *const *args, Py_ssize_t given) {
    return start_all(self, "receive", args, given, han_emit_irecv);
}

static PyObject *mail_send(MailObject *self, PyObject *const *args, Py_ssize_t given) {
    return start_all(self, "send", args, given, han_emit_isend);
}

static PyObject *mail_complete(MailObject *self, PyObject *const *args, Py_ssize_t given) {
    if (given != 2 && han_expect("complete", given, 1)) return NULL;
    if (!self->stream || !Py_IS_TYPE(args[0], &TransferType)) {
        PyErr_Format(PyExc_TypeError, "complete: a Transfer expected, not %.100s",
                     Py_TYPE(args[0])->tp_name);
        return NULL;
    }
    TransferObject *transfer = (TransferObject *)args[0];
    uint64_t number = (uint64_t)Py_SIZE(transfer), until;
    if (given == 2 && args[1] != Py_None) {
        if (han_number_of(args[1], &until)) return NULL;
        number = begin_before(transfer, until);
    }
    for (; transfer->done < number; transfer->done++) {
        uint64_t request = transfer->requests[transfer->done];
        if (han_emit_test(self->stream, request) || give_back(self, request)) return NULL;
    }
    Py_RETURN_NONE;
}

/* ---- the classes ---------------------------------------------------------------------------- */

static int mail_init(MailObject *self, PyObject *args, PyObject *kwargs) {
    PyObject *stream, *ranks, *request;
    unsigned long long grain;
    if (kwargs && PyDict_Size(kwargs)) {
        PyErr_SetString(PyExc_TypeError, "Mail takes no keyword arguments");
        return -1;
    }
    if (!PyArg_ParseTuple(args, "OO!KO:Mail", &stream, &PyTuple_Type, &ranks, &grain, &request))
        return -1;
    if (!han_is_operations(stream) || !grain || self->stream) {
        PyErr_SetString(PyExc_ValueError, "Mail takes a stream, ranks and a grain of bytes, once");
        return -1;
    }
    self->stream = (OperationsObject *)Py_NewRef(stream);
    self->ranks = Py_NewRef(ranks);
    self->request = Py_NewRef(request);
    self->grain = grain;
    return 0;
}

static void mail_dealloc(MailObject *self) {
    Py_XDECREF(self->stream);
    Py_XDECREF(self->ranks);
    Py_XDECREF(self->request);
    PyMem_Free(self->free);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

#define FAST(name, function, text) \
    {name, (PyCFunction)(void (*)(void))function, METH_FASTCALL, text}

static PyMethodDef transfer_methods[] = {
    FAST("overlaps", overlaps,
         "overlaps($self, start, stop, /)\n--\n\n"
         "Return whether it carries some of the bytes [start, stop)."),
    {NULL, NULL, 0, NULL},
};

static PyMemberDef transfer_members[] = {
    {"place", T_OBJECT, offsetof(TransferObject, place), READONLY, "Where the message is."},
    {"start", T_ULONGLONG, offsetof(TransferObject, start), READONLY, "Where the part starts."},
    {"stop", T_ULONGLONG, offsetof(TransferObject, stop), READONLY, "Where it stops."},
    {NULL, 0, 0, 0, NULL},
};

static PyTypeObject TransferType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "han._native.Transfer",
    .tp_basicsize = sizeof(TransferObject),
    .tp_itemsize = sizeof(uint64_t),
    .tp_dealloc = (destructor)transfer_dealloc,
    .tp_methods = transfer_methods,
    .tp_members = transfer_members,
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .tp_doc = "Messages that carry a part of the message.",
};

static PyMethodDef mail_methods[] = {
    FAST("receive", mail_receive,
         "receive($self, place, start, stop, member, most, /)\n--\n\n"
         "Start receiving bytes [start, stop) of the message from a member."),
    FAST("send", mail_send,
         "send($self, place, start, stop, member, most, /)\n--\n\n"
         "Start sending bytes [start, stop) of the message to a member."),
    FAST("complete", mail_complete,
         "complete($self, transfer, until=None, /)\n--\n\n"
         "Wait for the messages that begin before byte `until`, or for all."),
    {NULL, NULL, 0, NULL},
};

static PyTypeObject MailType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "han._native.Mail",
    .tp_basicsize = sizeof(MailObject),
    .tp_new = PyType_GenericNew,
    .tp_init = (initproc)mail_init,
    .tp_dealloc = (destructor)mail_dealloc,
    .tp_methods = mail_methods,
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_doc = "Mail(stream, ranks, grain, request)\n--\n\n"
              "Sends and receives of one stream, in messages of whole grains.",
};

int han_py_add_mail(PyObject *module) {
    return PyType_Ready(&TransferType) || PyType_Ready(&MailType) ||
                   PyModule_AddObjectRef(module, "Transfer", (PyObject *)&TransferType)
               ? -1
               : PyModule_AddObjectRef(module, "Mail", (PyObject *)&MailType);
}
