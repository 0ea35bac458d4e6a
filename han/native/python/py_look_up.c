#include "python/py_look_up.h"

int han_py_look_up_open(han_py_look_up *self, PyObject *bounds) {
    Py_ssize_t n = PyTuple_GET_SIZE(bounds);
    if (n > UINT16_MAX)
        return HAN_RAISE(PyExc_ValueError, "%zd bounds of sizes, at most %d", n, UINT16_MAX);
    han_py_look_up_close(self); /* if it was open */
    self->slots = PyMem_Calloc(HAN_LOOK_UP_LEAST, sizeof *self->slots);
    if (self->slots) self->size = HAN_LOOK_UP_LEAST;
    self->bounds = PyMem_Calloc((size_t)n + 1, sizeof *self->bounds);
    if (!self->bounds || !self->slots) return HAN_NO_MEMORY;
    for (Py_ssize_t k = 0; k < n; k++)
        self->bounds[k] = PyLong_AsUnsignedLongLong(PyTuple_GET_ITEM(bounds, k));
    uint16_t first = 0;
    for (int bits = 1; bits < HAN_OCTAVES; bits++) {
        while (self->bounds[first] && self->bounds[first] < UINT64_C(1) << (bits - 1)) first++;
        self->octaves[bits] = first;
    }
    return PyErr_Occurred() ? -1 : 0;
}

static han_entry *place(const han_py_look_up *self, const han_entry *e) {
    return han_py_look_up_find(self, e, e->collective, e->nbytes, e->op);
}

/* Move all entries but those that are over to `size` new slots; false if there is no memory for
 * them. Objects are released last, when the table is whole: their destructors may use it. */
static bool move(han_py_look_up *self, uint32_t size, han_py_is_over is_over, const void *about) {
    han_py_look_up before = *self;
    han_entry *slots = PyMem_Calloc(size, sizeof *slots);
    if (!slots) return false;
    self->slots = slots;
    self->size = size;
    self->used = 0;
    for (uint32_t k = 0; k < before.size; k++) {
        if (!before.slots[k].plan || is_over(about, &before.slots[k])) continue;
        *place(self, &before.slots[k]) = before.slots[k];
        before.slots[k] = (han_entry){0};
        self->used++;
    }
    han_py_look_up_close(&(han_py_look_up){.slots = before.slots, .size = before.size});
    return true;
}

void han_py_look_up_sweep(han_py_look_up *self, han_py_is_over is_over, const void *about) {
    (void)move(self, self->size, is_over, about);
}

/* Make room for an entry in a full table. One that stays nearly full grows, so that it is not swept
 * for each entry. */
static bool make_room(han_py_look_up *self, han_py_is_over is_over, const void *about) {
    if (!move(self, self->size, is_over, about)) return false;
    if (self->used * 8 < self->size * 3) return true;
    return self->size < HAN_LOOK_UP_MOST && move(self, self->size * 2, is_over, about);
}

void han_py_look_up_add(han_py_look_up *self, const han_entry *entry, han_py_is_over is_over,
                        const void *about) {
    if (place(self, entry)->plan) return;
    if (self->used * 2 >= self->size && !make_room(self, is_over, about))
        han_py_look_up_clear(self);
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
