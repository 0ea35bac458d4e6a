#include "python/elements.h"

#include <stddef.h>

/* Calls of C read elements while others are learnt, under Python's lock: the size tells that one is there. */
static uint64_t size_of(const han_element *e) {
    return __atomic_load_n(&e->size, __ATOMIC_ACQUIRE);
}

static void put(han_element *at, const han_element *e) {
    at->handle = e->handle;
    at->kind = e->kind;
    __atomic_store_n(&at->size, e->size, __ATOMIC_RELEASE);
}

/* The slot of a key, or the empty slot where it belongs. */
static uint32_t place(const han_elements *t, enum han_element_source source, uint64_t key) {
    uint64_t h = (key ^ (uint64_t)source << 60) * 0xff51afd7ed558ccdu;
    for (uint32_t k = (uint32_t)(h >> 40) % HAN_ELEMENT_SLOTS;; k = (k + 1) % HAN_ELEMENT_SLOTS) {
        const han_element_slot *s = &t->slots[k];
        if (!size_of(&s->element) || (s->key == key && s->source == source)) return k;
    }
}

const han_element *han_element_find(const han_elements *t, enum han_element_source source,
                                    uint64_t key) {
    if (source == HAN_BY_ARRAY)
        return key < HAN_ARRAY_TYPES && size_of(&t->arrays[key]) ? &t->arrays[key] : NULL;
    const han_element_slot *s = &t->slots[place(t, source, key)];
    /* An empty slot may meanwhile have become another key's. */
    return size_of(&s->element) && s->key == key && s->source == source ? &s->element : NULL;
}

void han_element_learn(han_elements *t, enum han_element_source source, uint64_t key,
                       const han_element *element) {
    if (!element->size) return;
    if (source == HAN_BY_ARRAY) {
        if (key < HAN_ARRAY_TYPES) put(&t->arrays[key], element);
        return;
    }
    han_element_slot *s = &t->slots[place(t, source, key)];
    if (s->element.size || t->used == HAN_MOST_ELEMENTS) return;
    s->key = key;
    s->source = source;
    put(&s->element, element);
    t->used++;
}

uint64_t han_text_key(const char *text, int64_t size) {
    uint64_t key = 0;
    if (size < 1 || size > UINT8_MAX) return 0;
    for (int k = 0; k < 8; k++) {
        if (!text[k]) return key ? key << 8 | (uint64_t)size : 0;
        key = key << 8 | (uint8_t)text[k];
    }
    return 0;
}

uint64_t han_tensor_key(uint8_t code, uint8_t bits, uint16_t lanes) {
    return (uint64_t)code | (uint64_t)bits << 8 | (uint64_t)lanes << 16;
}
