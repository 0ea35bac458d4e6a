/* How many blocks a call has. */
#ifndef HAN_DOOR_BLOCKS_H
#define HAN_DOOR_BLOCKS_H

#include <stdbool.h>
#include <stdint.h>

/* The blocks that a call sends and receives: one for each rank, which are the remote ones of an
 * inter-communicator, or for each neighbour. */
typedef struct {
    int out, in;
} han_blocks;
han_blocks han_blocks_of(intptr_t comm, bool neighbours);

#endif
