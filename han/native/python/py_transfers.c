#include "python/py_transfers.h"

#include <stddef.h>
#include <structmember.h>

#include "python/py_methods.h"

static PyTypeObject TransferType;

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

/* ---- the class ---------------------------------------------------------------------------- */

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

int han_py_add_transfers(PyObject *module) {
    return PyType_Ready(&TransferType)
               ? -1
               : PyModule_AddObjectRef(module, "Transfer", (PyObject *)&TransferType);
}
