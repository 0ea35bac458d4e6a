#include "python/py_look_up.h"

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
