#include "python/py_ready.h"

#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>

#include "engine/lock.h"

enum { CHAINS = 64, MOST = 256 };

struct han_ready {
    atomic_flag lock;
    _Atomic int owners;
    _Atomic int n;
    _Atomic bool closed;
    han_ready_node *chains[CHAINS]; /* by plans */
};

han_ready *han_ready_new(void) {
    han_ready *r = calloc(1, sizeof *r);
    if (!r) return NULL;
    atomic_flag_clear(&r->lock);
    r->owners = 1;
    return r;
}

han_ready *han_ready_share(han_ready *r) {
    r->owners++;
    return r;
}

void han_ready_leave(han_ready *r) {
    if (r && !--r->owners) free(r);
}

bool han_ready_has_room(const han_ready *r) { return r->n < MOST && !r->closed; }

static han_ready_node **chain_of(han_ready *r, const void *plan) {
    return &r->chains[(uintptr_t)plan * 0x9e3779b97f4a7c15u >> 58];
}

void han_ready_put(han_ready *r, han_ready_node *node) {
    han_ready_node **chain = chain_of(r, node->plan);
    han_lock(&r->lock);
    node->next = *chain;
    *chain = node;
    r->n++;
    han_unlock(&r->lock);
}

PyObject *han_ready_take(han_ready *r, const void *plan) {
    han_ready_node **at = chain_of(r, plan), *node = NULL;
    han_lock(&r->lock);
    while (*at && (*at)->plan != plan) at = &(*at)->next;
    if ((node = *at)) {
        *at = node->next;
        r->n--;
    }
    han_unlock(&r->lock);
    return node ? node->request : NULL;
}

void han_ready_clear(han_ready *r) {
    for (int k = 0; r && k < CHAINS; k++) {
        han_lock(&r->lock);
        han_ready_node *node = r->chains[k];
        r->chains[k] = NULL;
        for (han_ready_node *one = node; one; one = one->next) r->n--;
        han_unlock(&r->lock);
        while (node) {
            han_ready_node *next = node->next;
            Py_DECREF(node->request); /* which frees the node */
            node = next;
        }
    }
}

void han_ready_close(han_ready *r) {
    if (r) r->closed = true;
    han_ready_clear(r);
}
