/* Requests that C programs have completed, each ready for another call of its plan. Threads put and take
 * them without the lock of the interpreter. */
#ifndef HAN_PY_READY_H
#define HAN_PY_READY_H

#include "python/module.h"

#include <stdbool.h>

typedef struct han_ready han_ready;

/* A request while it is ready; part of it. */
typedef struct han_ready_node {
    PyObject *request; /* owned by the others */
    const void *plan;
    struct han_ready_node *next;
} han_ready_node;

/* An empty set; NULL without memory. Its owners are counted. */
han_ready *han_ready_new(void);
han_ready *han_ready_share(han_ready *);
void han_ready_leave(han_ready *);
/* Whether there is room for one more; none once it is closed. */
bool han_ready_has_room(const han_ready *);
void han_ready_put(han_ready *, han_ready_node *);
/* A request of a plan, which the caller owns now; NULL if none is ready. */
PyObject *han_ready_take(han_ready *, const void *plan);
/* Release all, with the lock of the interpreter. */
void han_ready_clear(han_ready *);
/* The same, for ever. */
void han_ready_close(han_ready *);

#endif
