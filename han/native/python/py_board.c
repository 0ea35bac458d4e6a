/* The Python type of a board. */
#include "python/module.h"

#include "data/processor.h"
#include "engine/board.h"

enum { MOST_SPINS = 500 }; /* looks for a choice that is not published yet */

typedef struct {
    PyObject_HEAD
    han_board board;
    Py_buffer memory;
    unsigned spins;
} BoardObject;

static int board_init(BoardObject *self, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"memory", "stride", "size", "me", "spins", NULL};
    han_board *b = &self->board;
    PyObject *memory;
    unsigned long long stride;
    if (self->memory.obj) return HAN_RAISE(PyExc_RuntimeError, "the board exists already");
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OKIII", names, &memory, &stride, &b->size,
                                     &b->me, &self->spins))
        return -1;
    if (PyObject_GetBuffer(memory, &self->memory, PyBUF_WRITABLE)) return -1;
    if (stride < sizeof(han_notes) || stride % HAN_LINE || b->me >= b->size ||
        (uint64_t)self->memory.len / stride < b->size)
        return HAN_RAISE(PyExc_ValueError, "the memory does not hold the notes of all ranks");
    if (self->spins > MOST_SPINS) self->spins = MOST_SPINS;
    b->memory = self->memory.buf;
    b->stride = stride;
    b->heard = PyMem_Calloc(b->size, sizeof *b->heard);
    b->leavers = PyMem_Calloc(HAN_BOARD_SLOTS, sizeof *b->leavers);
    return b->heard && b->leavers ? 0 : HAN_NO_MEMORY;
}

static void board_dealloc(BoardObject *self) {
    PyMem_Free(self->board.heard);
    PyMem_Free(self->board.leavers);
    if (self->memory.obj) PyBuffer_Release(&self->memory);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyObject *board_publish(BoardObject *self, PyObject *args) {
    unsigned long long slot, call;
    if (!PyArg_ParseTuple(args, "KK", &slot, &call)) return NULL;
    return PyBool_FromLong(han_board_publish(&self->board, slot, call));
}

static PyObject *board_read(BoardObject *self, PyObject *Py_UNUSED(none)) {
    uint64_t slot, call;
    for (unsigned k = 0; !han_board_read(&self->board, &slot, &call); k++) {
        if (k >= self->spins) Py_RETURN_NONE;
        han_cpu_relax();
    }
    return Py_BuildValue("(KK)", (unsigned long long)slot, (unsigned long long)call);
}

static PyObject *board_gathered(BoardObject *self, PyObject *Py_UNUSED(none)) {
    return PyBool_FromLong(han_board_gathered(&self->board));
}

static PyObject *board_leave(BoardObject *self, PyObject *arg) {
    unsigned long slot = PyLong_AsUnsignedLong(arg);
    if (PyErr_Occurred()) return NULL;
    if (slot >= HAN_BOARD_SLOTS)
        return PyErr_Format(PyExc_ValueError, "slot %lu, at most %d", slot, HAN_BOARD_SLOTS - 1);
    han_board_leave(&self->board, (uint32_t)slot);
    Py_RETURN_NONE;
}

static PyObject *board_reclaim(BoardObject *self, PyObject *Py_UNUSED(none)) {
    return PyLong_FromLongLong(han_board_reclaim(&self->board));
}

static PyMethodDef board_methods[] = {
    HAN_METHOD(
        "publish", board_publish, METH_VARARGS, "$self, slot, call, /",
        "Publish the choice for the next request; return False if a rank is too far behind."),
    HAN_METHOD("read", board_read, METH_NOARGS, "$self, /",
               "Return the choice for the next request and the leader's call, or None."),
    HAN_METHOD("gathered", board_gathered, METH_NOARGS, "$self, /",
               "Return whether all ranks have come to the next request."),
    HAN_METHOD("leave", board_leave, METH_O, "$self, slot, /", "Log that this rank leaves a slot."),
    HAN_METHOD("reclaim", board_reclaim, METH_NOARGS, "$self, /",
               "Return a slot that all ranks have left, each once; -1 if there is none."),
    {NULL, NULL, 0, NULL},
};

PyTypeObject BoardType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "han._native.Board",
    .tp_basicsize = sizeof(BoardObject),
    .tp_dealloc = (destructor)board_dealloc,
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_doc = "Board(memory, stride, size, me, spins)\n--\n\n"
              "Where ranks agree on the slots of persistent requests. The rank at place 0 leads.",
    .tp_methods = board_methods,
    .tp_init = (initproc)board_init,
    .tp_new = PyType_GenericNew,
};
