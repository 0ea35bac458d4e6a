/* The table of native plans, and of what makes persistent requests, by the facts of a call. */
#ifndef HAN_PY_LOOK_UP_H
#define HAN_PY_LOOK_UP_H

#include <stdbool.h>

#include "python/objects.h"

enum { HAN_LOOK_UP_LEAST = 32, HAN_LOOK_UP_MOST = 1 << 12, HAN_OCTAVES = 65 }; /* slots */
enum { HAN_LOOK_UP_INIT = 1 << 8 };

typedef struct {
    uint64_t nbytes;      /* of a call; of an entry, the bound of its class of sizes */
    PyObject *op;         /* compared by identity; owned */
    uint64_t handle;      /* of MPI's type, if the library or the user's function reduces; 0: any */
    han_handle operation; /* of an entry: MPI's, which changes when it is freed */
    int32_t collective, root, kind; /* HAN_LOOK_UP_INIT is added to the collective of an `_init` */
    bool uneven;                    /* blocks differ in size */
    PyObject *plan; /* or a function that makes requests; owned; NULL: an empty slot */
} han_entry;

typedef struct {
    uint64_t *bounds;              /* of classes of sizes, ascending; 0 behind the last one */
    uint16_t octaves[HAN_OCTAVES]; /* by the bits of a size: where its bound is sought from */
    uint32_t used, size;           /* entries, at most half of the slots; slots, a power of two */
    han_entry *slots;
} han_py_look_up;

/* The bound of the class of a size; the size itself if it has no class. */
static inline uint64_t han_py_look_up_bound(const han_py_look_up *self, uint64_t nbytes) {
    if (!nbytes) return 0;
    const uint64_t *bound = &self->bounds[self->octaves[64 - __builtin_clzll(nbytes)]];
    while (*bound && *bound < nbytes) bound++;
    return *bound ? *bound : nbytes;
}

/* Where the search for an entry begins. */
static inline uint32_t han_py_look_up_hash(const han_entry *key, int32_t collective,
                                           uint64_t nbytes, const PyObject *op) {
    uint64_t h = nbytes * 0x9e3779b97f4a7c15u ^ (uint64_t)(uintptr_t)op;
    h ^= (uint64_t)(uint32_t)collective << 40 ^ (uint64_t)(uint32_t)key->root << 20 ^
         (uint64_t)(uint32_t)key->kind ^ (uint64_t)key->uneven << 60;
    return (uint32_t)(h * 0xff51afd7ed558ccdu >> 40);
}

/* The entry of a call, or the empty slot where it belongs. The facts are those of `key`, but for
 * the collective, the bound of the class of sizes, and the object of the operation. */
static inline han_entry *han_py_look_up_find(const han_py_look_up *self, const han_entry *key,
                                             int32_t collective, uint64_t nbytes,
                                             const PyObject *op) {
    for (uint32_t k = han_py_look_up_hash(key, collective, nbytes, op);; k++) {
        han_entry *s = &self->slots[k & (self->size - 1)];
        if (!s->plan || (s->nbytes == nbytes && s->op == op && s->root == key->root &&
                         s->collective == collective && s->kind == key->kind &&
                         (!s->handle || s->handle == key->handle) && s->uneven == key->uneven))
            return s;
    }
}

/* Take over the bounds of classes, a tuple: 0, or -1 with an exception. */
int han_py_look_up_open(han_py_look_up *, PyObject *bounds);
/* Whether an entry serves no call any more. */
typedef bool (*han_py_is_over)(const void *about, const han_entry *);

/* Enter a plan, unless there is one. A full table drops the entries that are over, and grows; if it
 * cannot, or if it is as large as it may be, it is emptied. */
void han_py_look_up_add(han_py_look_up *, const han_entry *, han_py_is_over, const void *about);
/* Drop the entries that are over. */
void han_py_look_up_sweep(han_py_look_up *, han_py_is_over, const void *about);
void han_py_look_up_clear(han_py_look_up *);
void han_py_look_up_close(han_py_look_up *);

#endif
