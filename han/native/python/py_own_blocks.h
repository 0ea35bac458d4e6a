/* Reads the arguments of calls in which a rank knows the sizes of its own blocks only. */
#ifndef HAN_PY_OWN_BLOCKS_H
#define HAN_PY_OWN_BLOCKS_H

#include "door.h"
#include "python/py_arguments.h"

han_reading han_read_gatherv, han_read_scatterv, han_read_alltoallv, han_read_alltoallw;
han_reading han_read_gather_up_to; /* send, recv, root: blocks that may come shorter */
han_reading han_read_neighbours;   /* the neighbours of this rank, send, recv */

/* The neighbours of a rank, as they lie in a bytes object: the ranks that it sends to, then those that
 * it receives from. A negative one is no process: its block is in the buffer, and stays there. */
typedef struct {
    int32_t kind; /* in place of a kind of elements: one of SINGLY, SHARED, ONE_FOR_ALL */
    int32_t same; /* each gets the whole send buffer */
    int32_t form; /* an enum han_door_form */
    int32_t targets, sources;
    int32_t ranks[];
} han_edges;
/* Those in an object of Python; NULL if it is none, or for other communicators. */
const han_edges *han_edges_of(const han_caller *, PyObject *);

#endif
