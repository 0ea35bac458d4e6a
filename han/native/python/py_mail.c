/* An exchange has some messages for each segment: a call for each would take most of its planning. */
#include "python/py_mail.h"

#include <stdbool.h>
#include <stddef.h>
#include <structmember.h>

#include "python/py_methods.h"
#include "python/py_operations.h"
#include "python/py_stages.h"

static PyTypeObject TransferType, MailType;

/* ---- transfers ------------------------------------------------------------------------------ */

static int transfer_traverse(TransferObject *self, visitproc visit, void *arg) {
    Py_VISIT(self->mail);
    return 0;
}

static void transfer_dealloc(TransferObject *self) {
    PyObject_GC_UnTrack(self);
    Py_XDECREF(self->mail);
    PyObject_GC_Del(self);
}

static PyObject *transfer_place(TransferObject *self, void *unused) {
    (void)unused;
    return han_ref_new(&self->place);
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

/* A transfer with a request for each message of a letter, of which none is started. */
static TransferObject *cut(MailObject *self, const RefObject *place, const letter *what) {
    uint64_t step = (what->most < self->grain ? 1 : what->most / self->grain) * self->grain;
    uint64_t nbytes = what->stop - what->start, number = nbytes ? (nbytes - 1) / step + 1 : 1;
    if (what->stop < what->start || number > INT32_MAX) {
        PyErr_Format(PyExc_ValueError, "bytes %llu to %llu in messages of %llu",
                     (unsigned long long)what->start, (unsigned long long)what->stop,
                     (unsigned long long)step);
        return NULL;
    }
    TransferObject *found = PyObject_GC_NewVar(TransferObject, &TransferType, (Py_ssize_t)number);
    if (!found) return NULL;
    found->mail = Py_NewRef((PyObject *)self);
    found->place = *place;
    found->start = what->start;
    found->stop = what->stop;
    found->step = step;
    found->done = 0;
    for (uint64_t k = 0; k < number; k++)
        if (take_request(self, &found->requests[k])) {
            Py_DECREF(found);
            return NULL;
        }
    return found;
}

int han_mail_ready(const MailObject *self) {
    if (self->stream) return 0;
    PyErr_SetString(PyExc_ValueError, "a Mail without a stream");
    return -1;
}

PyObject *han_mail_start(MailObject *self, const RefObject *place, const letter *what,
                         start_message *start) {
    int32_t rank;
    if (rank_of(self, what->member, &rank)) return NULL;
    TransferObject *found = cut(self, place, what);
    for (Py_ssize_t k = 0; found && k < Py_SIZE(found); k++) {
        uint64_t at = found->start + (uint64_t)k * found->step, left = found->stop - at;
        const RefObject here = han_ref_at(place, at);
        if (start(self->stream, &here, left < found->step ? left : found->step, rank,
                  found->requests[k]))
            Py_CLEAR(found);
    }
    return (PyObject *)found;
}

/* Start the messages of a transfer (place, start, stop, member, most). */
static PyObject *start_one(MailObject *self, const char *name, PyObject *const *args,
                           Py_ssize_t given, start_message *start) {
    const RefObject *place;
    uint64_t number[4];
    if (han_mail_ready(self) || han_take(name, args, given, &place, 1, number, 4)) return NULL;
    const letter what = {number[0], number[1], number[2], number[3]};
    PyObject *found = han_mail_start(self, place, &what, start);
    if (found) PyObject_GC_Track(found);
    return found;
}

static PyObject *mail_receive(MailObject *self, PyObject *const *args, Py_ssize_t given) {
    return start_one(self, "receive", args, given, han_emit_irecv);
}

static PyObject *mail_send(MailObject *self, PyObject *const *args, Py_ssize_t given) {
    return start_one(self, "send", args, given, han_emit_isend);
}

TransferObject *han_transfer_of(const MailObject *self, PyObject *argument) {
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

int han_complete_until(MailObject *self, TransferObject *transfer, uint64_t until) {
    return complete_first(self, transfer, begin_before(transfer, until));
}

int han_complete_all(MailObject *self, TransferObject *transfer) {
    return complete_first(self, transfer, (uint64_t)Py_SIZE(transfer));
}

static PyObject *mail_complete(MailObject *self, PyObject *const *args, Py_ssize_t given) {
    if (given != 2 && han_expect("complete", given, 1)) return NULL;
    TransferObject *transfer = han_transfer_of(self, args[0]);
    if (!transfer || han_mail_ready(self)) return NULL;
    uint64_t until;
    bool some = given == 2 && args[1] != Py_None;
    if (some && han_number_of(args[1], &until)) return NULL;
    if (some ? han_complete_until(self, transfer, until) : han_complete_all(self, transfer))
        return NULL;
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

static int mail_traverse(MailObject *self, visitproc visit, void *arg) {
    Py_VISIT(self->stream);
    Py_VISIT(self->ranks);
    Py_VISIT(self->request);
    return 0;
}

static int mail_clear(MailObject *self) {
    Py_CLEAR(self->stream);
    Py_CLEAR(self->ranks);
    Py_CLEAR(self->request);
    return 0;
}

static void mail_dealloc(MailObject *self) {
    PyObject_GC_UnTrack(self);
    (void)mail_clear(self);
    PyMem_Free(self->free);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyMethodDef transfer_methods[] = {
    {"overlaps", HAN_FAST(overlaps),
     "overlaps($self, start, stop, /)\n--\n\n"
     "Return whether it carries some of the bytes [start, stop)."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef transfer_members[] = {
    {"start", T_ULONGLONG, offsetof(TransferObject, start), READONLY, "Where the part starts."},
    {"stop", T_ULONGLONG, offsetof(TransferObject, stop), READONLY, "Where it stops."},
    {NULL, 0, 0, 0, NULL},
};

static PyGetSetDef transfer_getset[] = {
    {"place", (getter)transfer_place, NULL, "Where the message is.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyTypeObject TransferType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "han._native.Transfer",
    .tp_basicsize = sizeof(TransferObject),
    .tp_itemsize = sizeof(uint64_t),
    .tp_dealloc = (destructor)transfer_dealloc,
    .tp_methods = transfer_methods,
    .tp_members = transfer_members,
    .tp_getset = transfer_getset,
    .tp_traverse = (traverseproc)transfer_traverse,
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .tp_doc = "Messages that carry a part of the message.",
};

static PyMethodDef mail_methods[] = {
    {"receive", HAN_FAST(mail_receive),
     "receive($self, place, start, stop, member, most, /)\n--\n\n"
     "Start receiving bytes [start, stop) of the message from a member."},
    {"send", HAN_FAST(mail_send),
     "send($self, place, start, stop, member, most, /)\n--\n\n"
     "Start sending bytes [start, stop) of the message to a member."},
    {"combine", HAN_FAST(han_mail_combine),
     "combine($self, work, own, start, stop, step, before, after, sends, /)\n--\n\n"
     "Combine bytes [start, stop) of operands from left to right as they arrive."},
    {"stage", HAN_FAST(han_mail_stage),
     "stage($self, room, mine, own, work, start, most, step, arriving, leaving, folds, /)\n--\n\n"
     "Exchange operands, and combine them from left to right as they arrive."},
    {"exchange", HAN_FAST(han_mail_exchange),
     "exchange($self, room, own, work, most, step, turns, tasks, /)\n--\n\n"
     "Carry out whole tasks: all stages and gathering steps of each."},
    {"gather", HAN_FAST(han_mail_gather),
     "gather($self, work, start, most, steps, /)\n--\n\n"
     "Receive and send finished parts step by step."},
    {"complete", HAN_FAST(mail_complete),
     "complete($self, transfer, until=None, /)\n--\n\n"
     "Wait for the messages that begin before byte `until`, or for all."},
    {NULL, NULL, 0, NULL},
};

static PyTypeObject MailType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "han._native.Mail",
    .tp_basicsize = sizeof(MailObject),
    .tp_new = PyType_GenericNew,
    .tp_init = (initproc)mail_init,
    .tp_dealloc = (destructor)mail_dealloc,
    .tp_methods = mail_methods,
    .tp_traverse = (traverseproc)mail_traverse,
    .tp_clear = (inquiry)mail_clear,
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_doc = "Sends and receives of one stream, in messages of whole grains.",
};

int han_py_add_mail(PyObject *module) {
    return PyType_Ready(&TransferType) || PyType_Ready(&MailType) ||
                   PyModule_AddObjectRef(module, "Transfer", (PyObject *)&TransferType)
               ? -1
               : PyModule_AddObjectRef(module, "Mail", (PyObject *)&MailType);
}
