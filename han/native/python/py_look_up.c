#include "python/py_look_up.h"

int han_py_look_up_open(han_py_look_up *self, PyObject *bounds) {
    Py_ssize_t n = PyTuple_GET_SIZE(bounds);
    if (n > UINT16_MAX) {
        PyErr_Format(PyExc_ValueError, "%zd bounds of sizes, at most %d", n, UINT16_MAX);
        return -1;
    }
    han_py_look_up_close(self); /* if it was open */
    self->slots = PyMem_Calloc(HAN_LOOK_UP_LEAST, sizeof *self->slots);
    if (self->slots) self->size = HAN_LOOK_UP_LEAST;
    self->bounds = PyMem_Calloc((size_t)n + 1, sizeof *self->bounds);
    if (!self->bounds || !self->slots) {
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

/* Double the number of slots; false if that is too many or there is no memory. */
static bool grow(han_py_look_up *self) {
    if (self->size == HAN_LOOK_UP_MOST) return false;
    han_py_look_up wider = *self;
    wider.size *= 2;
    wider.slots = PyMem_Calloc(wider.size, sizeof *wider.slots);
    if (!wider.slots) return false;
    for (uint32_t k = 0; k < self->size; k++) {
        if (!self->slots[k].plan) continue;
        const han_entry *s = &self->slots[k];
        uint32_t at = han_py_look_up_hash(s, s->collective, s->nbytes, s->op);
        while (wider.slots[at & (wider.size - 1)].plan) at++;
        wider.slots[at & (wider.size - 1)] = *s;
    }
    PyMem_Free(self->slots);
    *self = wider;
    return true;
}

static han_entry *place(const han_py_look_up *self, const han_entry *e) {
    return han_py_look_up_find(self, e, e->collective, e->nbytes, e->op);
}

void han_py_look_up_add(han_py_look_up *self, const han_entry *entry) {
    if (place(self, entry)->plan) return;
    if (self->used * 2 >= self->size && !grow(self)) han_py_look_up_clear(self);
    Py_XINCREF(entry->op);
    Py_INCREF(entry->plan);
    *place(self, entry) = *entry;
    self->used++;
}

void han_py_look_up_clear(han_py_look_up *self) {
    for (uint32_t k = 0; k < self->size; k++) {
        han_entry old = self->slots[k];
        if (!old.plan) continue;
        self->slots[k] = (han_entry){0};
        self->used--;
        Py_XDECREF(old.op);
        Py_DECREF(old.plan);
    }
}

void han_py_look_up_close(han_py_look_up *self) {
    han_py_look_up_clear(self);
    PyMem_Free(self->slots);
    PyMem_Free(self->bounds);
    self->slots = NULL;
    self->bounds = NULL;
    self->size = 0;
}
