#include "python/py_types.h"

#include <stdatomic.h>

#include "python/module.h"

enum { MOST = 64 }; /* further ones go to Python */

static struct {
    _Atomic han_handle type; /* 0: free. It is stored last */
    han_known_type known;
} looked[MOST];
static _Atomic int used; /* all behind are free */

static int place_of(han_handle type) {
    const int n = atomic_load_explicit(&used, memory_order_acquire);
    int k = 0;
    while (k < n && atomic_load_explicit(&looked[k].type, memory_order_acquire) != type) k++;
    return k;
}

const han_known_type *han_type_known(han_handle type) {
    const int k = type ? place_of(type) : MOST;
    return k < used && looked[k].known.element.size ? &looked[k].known : NULL;
}

/* What MPI says of a type. Types that begin before their address, or overlap in a row, are Python's. */
static han_known_type described(const han_mpi *m, han_handle type) {
    han_type_facts f;
    int64_t extent;
    han_known_type t = {.element = {.handle = (uint64_t)type, .kind = -1}};
    if (han_type_facts_of(m, type, &f) || f.extent <= 0 || f.extent > INT32_MAX || f.first < 0 ||
        f.behind > INT32_MAX)
        return t;
    t.element.size = f.size > 0 ? (uint64_t)f.size : 0;
    t.extent = (uint64_t)f.extent;
    t.behind = (uint64_t)f.behind;
    t.grid = han_grid_of_type(m, type, &extent);
    han_grid several = t.grid;
    if (t.grid.loops >= 0 && !han_grid_repeat(&several, 2, extent)) t.grid = han_no_grid();
    return t;
}

void han_type_learn(const han_mpi *m, han_handle type) {
    han_known_type found;
    if (place_of(type) < used || (place_of(0) == used && used == MOST)) return;
    Py_BEGIN_ALLOW_THREADS /* MPI's own lock may be held by a thread that waits for Python's */
    found = described(m, type);
    Py_END_ALLOW_THREADS
    const int k = place_of(0);
    if (place_of(type) < used || k == MOST) return; /* other threads have learnt meanwhile */
    looked[k].known = found;
    looked[k].type = type;
    if (k == used) used = k + 1;
}

void han_type_forget(han_handle type) {
    const int k = type ? place_of(type) : MOST;
    if (k < used) looked[k].type = 0;
}
