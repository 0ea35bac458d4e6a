/* How many blocks a call has. */
#ifndef HAN_DOOR_BLOCKS_H
#define HAN_DOOR_BLOCKS_H

#include <stdint.h>

/* Of which ranks: of all that a call is made with, which are the remote ones of an inter-communicator, of
 * the neighbours, or of this rank's own group. */
enum han_partners { HAN_ALL_RANKS, HAN_NEIGHBOURS, HAN_OWN_GROUP };

/* The blocks that a call sends and receives. */
typedef struct {
    int out, in;
} han_blocks;
han_blocks han_blocks_of(intptr_t comm, enum han_partners);

#endif
