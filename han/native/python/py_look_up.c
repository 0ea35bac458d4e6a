#include "python/py_look_up.h"

int han_py_look_up_open(han_py_look_up *self, PyObject *bounds) {
    Py_ssize_t n = PyTuple_GET_SIZE(bounds);
    if (n > UINT16_MAX) {
        PyErr_Format(PyExc_ValueError, "%zd bounds of sizes, at most %d", n, UINT16_MAX);
        return -1;
    }
    self->bounds = PyMem_Calloc((size_t)n + 1, sizeof *self->bounds);
    if (!self->bounds) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t k = 0; k < n; k++)
        self->bounds[k] = PyLong_AsUnsignedLongLong(PyTuple_GET_ITEM(bounds, k));
    uint16_t first = 0;
    for (int bits = 1; bits < HAN_OCTAVES; bits++) {
        while (self->bounds[first] && self->bounds[first] < UINT64_C(1) << (bits - 1)) first++;
        self->octaves[bits] = first;
    }
    return PyErr_Occurred() ? -1 : 0;
}

void han_py_look_up_add(han_py_look_up *self, const han_entry *entry) {
    if (self->used == HAN_LOOK_UP_MOST) han_py_look_up_clear(self);
    han_entry *slot = han_py_look_up_find(self, entry);
    if (slot->plan) return;
    Py_XINCREF(entry->op);
    Py_INCREF(entry->plan);
    *slot = *entry;
    self->used++;
}

void han_py_look_up_clear(han_py_look_up *self) {
    for (int k = 0; k < HAN_LOOK_UP_SLOTS; k++) {
        han_entry old = self->slots[k];
        self->slots[k] = (han_entry){0};
        Py_XDECREF(old.op);
        Py_XDECREF(old.plan);
    }
    self->used = 0;
}
