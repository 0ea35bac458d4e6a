/* Reads the arguments of a call that came through the C door, as py_arguments.c does those of Python. */
#ifndef HAN_PY_DOOR_READ_H
#define HAN_PY_DOOR_READ_H

#include "door.h"
#include "python/py_arguments.h"
#include "python/py_own_blocks.h"

/* Read a call; in `c` there are its collective and the object of its operation, and nothing else. `sizes`
 * has room for HAN_OWN_ALL numbers for each rank, all 0; `edges` are the neighbours, if the call has
 * any. False: Python must read it. */
bool han_door_read(const han_caller *, const han_door_call *, const void *in_place, uint64_t *sizes,
                   const han_edges *edges, han_call *c);

#endif
