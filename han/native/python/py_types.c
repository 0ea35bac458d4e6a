#include "python/py_types.h"

#include <stdatomic.h>
#include <stdbool.h>

#include "python/module.h"

enum { MOST = 64 }; /* further ones go to Python */

/* One type. With Python's lock it is taken for a handle; when it is known, this is shown. MPI tells when it
 * frees the type, by whatever name the program calls for that. */
typedef struct {
    _Atomic han_handle shown; /* 0: not known. It is stored last */
    _Atomic bool taken;
    han_handle handle;
    han_known_type known;
} slot;

static slot slots[MOST];
static _Atomic int used; /* all behind were never taken */

const han_known_type *han_type_known(han_handle type) {
    const int n = atomic_load_explicit(&used, memory_order_acquire);
    for (int k = 0; type && k < n; k++)
        if (atomic_load_explicit(&slots[k].shown, memory_order_acquire) == type)
            return slots[k].known.element.size ? &slots[k].known : NULL;
    return NULL;
}

/* A slot for a type, with the lock of the interpreter; NULL: there is none, or another thread learns it. */
static slot *take(han_handle type) {
    slot *found = NULL;
    for (int k = 0; k < MOST; k++) {
        if (slots[k].taken && slots[k].handle == type) return NULL;
        if (!slots[k].taken && !found) found = &slots[k];
    }
    if (!found) return NULL;
    found->handle = type;
    found->taken = true;
    if (found - slots >= used) used = (int)(found - slots) + 1;
    return found;
}

static int forget(intptr_t type, int key, void *value, void *extra) {
    (void)type, (void)key, (void)extra;
    slot *s = value;
    s->shown = 0;
    s->taken = false;
    return 0;
}

/* Let MPI tell when it frees a type; of threads that do this first, each may make a key. */
static bool is_watched(const han_mpi *m, han_handle type, slot *s) {
    static _Atomic bool keyed;
    static _Atomic int key;
    int made;
    if (!keyed) {
        if (han_type_key(m, forget, &made)) return false;
        key = made;
        keyed = true;
    }
    return !han_type_set(m, type, key, s);
}

/* What MPI says of a type. Types that begin before their address are Python's. */
static bool describe(const han_mpi *m, han_handle type, slot *s) {
    han_type_facts f;
    int64_t extent, low, high;
    han_known_type *t = &s->known;
    *t = (han_known_type){.element = {.handle = (uint64_t)type, .kind = -1}};
    if (han_type_facts_of(m, type, &f) || (f.derived && !is_watched(m, type, s))) return false;
    if (f.extent <= 0 || f.extent > INT32_MAX || f.first < 0 || f.behind > INT32_MAX) return true;
    t->element.size = f.size > 0 ? (uint64_t)f.size : 0;
    t->extent = (uint64_t)f.extent;
    t->behind = (uint64_t)f.behind;
    t->grid = han_grid_of_type(m, type, &extent);
    if (t->grid.loops < 0) return true;
    han_grid_bounds(&t->grid, &low, &high);
    han_grid several = t->grid;
    if (low != f.first || high != f.behind || !han_grid_repeat(&several, 2, extent))
        t->grid = han_no_grid(); /* MPI packs it */
    return true;
}

void han_type_learn(const han_mpi *m, han_handle type) {
    slot *s = take(type);
    bool known;
    if (!s) return;
    Py_BEGIN_ALLOW_THREADS /* MPI's own lock may be held by a thread that waits for Python's */
    known = describe(m, type, s);
    Py_END_ALLOW_THREADS
    if (known)
        s->shown = type;
    else
        s->taken = false;
}
