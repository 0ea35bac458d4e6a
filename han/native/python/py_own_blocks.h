/* Reads the arguments of calls in which a rank knows the sizes of its own blocks only. */
#ifndef HAN_PY_OWN_BLOCKS_H
#define HAN_PY_OWN_BLOCKS_H

#include "python/py_arguments.h"

han_reading han_read_gatherv, han_read_scatterv, han_read_alltoallv, han_read_alltoallw;
han_reading han_read_gather_up_to; /* send, recv, root: blocks that may come shorter */
han_reading han_read_neighbours;   /* the neighbours of this rank, send, recv */

#endif
