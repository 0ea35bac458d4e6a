#include "python/look_up.h"

han_entry *han_look_up_find(han_look_up *self, const han_entry *key) {
    uint64_t h = key->nbytes * 0x9e3779b97f4a7c15u ^ (uint64_t)(uintptr_t)key->op;
    h ^= (uint64_t)(uint32_t)key->collective << 40 ^ (uint64_t)(uint32_t)key->root << 20 ^
         (uint64_t)(uint32_t)key->kind;
    h *= 0xff51afd7ed558ccdu;
    for (uint32_t k = (uint32_t)(h >> 40) % HAN_LOOK_UP_SLOTS;; k = (k + 1) % HAN_LOOK_UP_SLOTS) {
        han_entry *s = &self->slots[k];
        if (!s->plan || (s->nbytes == key->nbytes && s->op == key->op && s->root == key->root &&
                         s->collective == key->collective && s->kind == key->kind &&
                         (!s->handle || s->handle == key->handle)))
            return s;
    }
}

void han_look_up_add(han_look_up *self, const han_entry *entry) {
    if (self->used == HAN_LOOK_UP_MOST) han_look_up_clear(self);
    han_entry *slot = han_look_up_find(self, entry);
    if (slot->plan) return;
    Py_XINCREF(entry->op);
    Py_INCREF(entry->plan);
    *slot = *entry;
    self->used++;
}

void han_look_up_clear(han_look_up *self) {
    for (int k = 0; k < HAN_LOOK_UP_SLOTS; k++) {
        han_entry old = self->slots[k];
        self->slots[k] = (han_entry){0};
        Py_XDECREF(old.op);
        Py_XDECREF(old.plan);
    }
    self->used = 0;
}
