/* An exchange has some messages for each segment: a call for each would take most of its planning. */
#include "python/py_mail.h"

#include <stdbool.h>

#include "python/py_methods.h"
#include "python/py_operations.h"
#include "python/py_stages.h"
#include "python/py_transfers.h"

/* ---- methods -------------------------------------------------------------------------------- */

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

/* ---- the class ------------------------------------------------------------------------------ */

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
    return han_py_add_transfers(module) || PyType_Ready(&MailType)
               ? -1
               : PyModule_AddObjectRef(module, "Mail", (PyObject *)&MailType);
}
