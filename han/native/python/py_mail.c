/* An exchange has some messages for each segment: a call for each would take most of its planning. */
#include "python/py_mail.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <structmember.h>

#include "python/py_emit.h"
#include "python/py_operations.h"

/* Messages of `step` bytes each with bytes [start, stop) of the message; the first `done` of their
 * requests are complete. No bytes are one message. */
typedef struct {
    PyObject_VAR_HEAD
    PyObject *mail;  /* the Mail that has started it */
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
    Py_XDECREF(self->mail);
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
    return han_rank_of(number, rank);
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
    found->mail = Py_NewRef((PyObject *)self);
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

/* An argument that must be a transfer of this mail, borrowed; NULL with an error. */
static TransferObject *transfer_of(const MailObject *self, PyObject *argument) {
    if (!Py_IS_TYPE(argument, &TransferType)) {
        PyErr_Format(PyExc_TypeError, "a Transfer expected, not %.100s",
                     Py_TYPE(argument)->tp_name);
        return NULL;
    }
    TransferObject *found = (TransferObject *)argument;
    if (found->mail == (const PyObject *)self) return found;
    PyErr_SetString(PyExc_ValueError, "a Transfer of another Mail");
    return NULL;
}

/* Wait for the first `number` messages of a transfer. */
static int complete_first(MailObject *self, TransferObject *transfer, uint64_t number) {
    for (; transfer->done < number; transfer->done++) {
        uint64_t request = transfer->requests[transfer->done];
        if (han_emit_test(self->stream, request) || give_back(self, request)) return -1;
    }
    return 0;
}

static PyObject *mail_complete(MailObject *self, PyObject *const *args, Py_ssize_t given) {
    if (given != 2 && han_expect("complete", given, 1)) return NULL;
    TransferObject *transfer = transfer_of(self, args[0]);
    if (!transfer) return NULL;
    uint64_t number = (uint64_t)Py_SIZE(transfer), until;
    if (given == 2 && args[1] != Py_None) {
        if (han_number_of(args[1], &until)) return NULL;
        number = begin_before(transfer, until);
    }
    if (complete_first(self, transfer, number)) return NULL;
    Py_RETURN_NONE;
}

/* ---- operands that arrive ------------------------------------------------------------------- */

/* Bytes [start, stop) of operands, which are combined in parts of `step` bytes. */
typedef struct {
    const RefObject *work, *own;
    PyObject *before, *after, *sends; /* tuples of transfers; borrowed */
    uint64_t start, stop, step;
} combination;

static RefObject at(const RefObject *ref, uint64_t byte) {
    RefObject found = *ref;
    found.at = byte;
    return found;
}

/* Wait for the part [first, last) of an operand, and find it. */
static int arrived(MailObject *self, PyObject *of, Py_ssize_t k, uint64_t first, uint64_t last,
                   RefObject *operand) {
    TransferObject *transfer = transfer_of(self, PyTuple_GET_ITEM(of, k));
    if (!transfer) return -1;
    *operand = at((const RefObject *)transfer->place, first);
    return complete_first(self, transfer, begin_before(transfer, last > first ? last : first + 1));
}

/* Wait for sends of the part [first, last), which the result overwrites. */
static int end_sends(MailObject *self, PyObject *sends, uint64_t first, uint64_t last) {
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(sends); k++) {
        TransferObject *transfer = transfer_of(self, PyTuple_GET_ITEM(sends, k));
        if (!transfer) return -1;
        if (first < transfer->stop && transfer->start < last &&
            complete_first(self, transfer, begin_before(transfer, last)))
            return -1;
    }
    return 0;
}

static int reduce(MailObject *self, const RefObject *dst, const RefObject *a, const RefObject *b,
                  uint64_t nbytes) {
    return han_emit_reduce(self->stream, (const RefObject *[4]){dst, a, b}, nbytes, HAN_NO_BLOCK);
}

/* Combine the operands before this rank's own where the first of them has arrived. */
static int combine_before(MailObject *self, const combination *c, uint64_t first, uint64_t last,
                          RefObject *total) {
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(c->before); k++) {
        RefObject operand;
        if (arrived(self, c->before, k, first, last, &operand) ||
            (k && reduce(self, total, total, &operand, last - first)))
            return -1;
        if (!k) *total = operand;
    }
    return 0;
}

static int combine_part(MailObject *self, const combination *c, uint64_t first, uint64_t last) {
    RefObject left, right, total = at(c->own, first);
    const RefObject result = at(c->work, first);
    if (combine_before(self, c, first, last, &left) || end_sends(self, c->sends, first, last))
        return -1;
    if (PyTuple_GET_SIZE(c->before)) {
        if (reduce(self, &result, &left, &total, last - first)) return -1;
        total = result;
    }
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(c->after); k++) {
        if (arrived(self, c->after, k, first, last, &right) ||
            reduce(self, &result, &total, &right, last - first))
            return -1;
        total = result;
    }
    return han_emit_copy(self->stream, &result, &total, last - first, HAN_NO_BLOCK);
}

/* combine(work, own, start, stop, step, before, after, sends) */
static PyObject *mail_combine(MailObject *self, PyObject *const *args, Py_ssize_t given) {
    const RefObject *ref[2];
    uint64_t number[3];
    if (han_expect("combine", given, 8) || han_take("combine", args, 5, ref, 2, number, 3))
        return NULL;
    const combination c = {ref[0], ref[1], args[5], args[6], args[7],
                           number[0], number[1], number[2]};
    bool tuples = PyTuple_Check(c.before) && PyTuple_Check(c.after) && PyTuple_Check(c.sends);
    if (!self->stream || !tuples || !c.step || c.stop < c.start) {
        PyErr_SetString(PyExc_ValueError, "combine: parts of some bytes and tuples expected");
        return NULL;
    }
    uint64_t first = c.start;
    do {
        uint64_t last = c.stop - first < c.step ? c.stop : first + c.step;
        if (combine_part(self, &c, first, last)) return NULL;
        first = last;
    } while (first < c.stop);
    Py_RETURN_NONE;
}

/* ---- the classes ---------------------------------------------------------------------------- */

static int mail_init(MailObject *self, PyObject *args, PyObject *kwargs) {
    PyObject *stream, *ranks, *request;
    PyObject *size;
    uint64_t grain;
    if (kwargs && PyDict_Size(kwargs)) {
        PyErr_SetString(PyExc_TypeError, "Mail takes no keyword arguments");
        return -1;
    }
    if (!PyArg_ParseTuple(args, "OO!OO:Mail", &stream, &PyTuple_Type, &ranks, &size, &request) ||
        han_number_of(size, &grain))
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
    FAST("combine", mail_combine,
         "combine($self, work, own, start, stop, step, before, after, sends, /)\n--\n\n"
         "Combine bytes [start, stop) of operands from left to right as they arrive."),
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
    .tp_doc = "Sends and receives of one stream, in messages of whole grains.",
};

int han_py_add_mail(PyObject *module) {
    return PyType_Ready(&TransferType) || PyType_Ready(&MailType) ||
                   PyModule_AddObjectRef(module, "Transfer", (PyObject *)&TransferType)
               ? -1
               : PyModule_AddObjectRef(module, "Mail", (PyObject *)&MailType);
}
