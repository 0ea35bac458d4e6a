#include "python/py_dense.h"

#include <stdatomic.h>

#include "datatypes.h"

enum { MOST = 32 }; /* further ones go to Python */

static struct {
    _Atomic han_handle type; /* 0: free. It is stored last */
    han_element element;
} dense[MOST];
static _Atomic int used; /* all behind are free */

const han_element *han_dense_find(han_handle type) {
    const int n = atomic_load_explicit(&used, memory_order_acquire);
    for (int k = 0; k < n; k++)
        if (atomic_load_explicit(&dense[k].type, memory_order_acquire) == type)
            return &dense[k].element;
    return NULL;
}

void han_dense_learn(const han_mpi *m, han_handle type) {
    int64_t extent;
    int k = 0;
    while (k < MOST && dense[k].type) k++;
    if (k == MOST || han_dense_find(type)) return;
    const han_grid g = han_grid_of_type(m, type, &extent);
    if (!han_is_run(&g) || !g.run || g.first || extent != (int64_t)g.run) return;
    dense[k].element = (han_element){.size = g.run, .handle = (uint64_t)type, .kind = -1};
    dense[k].type = type;
    if (k == used) used = k + 1;
}

void han_dense_forget(han_handle type) {
    for (int k = 0; k < used; k++)
        if (dense[k].type == type) dense[k].type = 0;
}
