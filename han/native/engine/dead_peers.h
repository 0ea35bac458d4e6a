/* Peers that died. */
#ifndef HAN_DEAD_PEERS_H
#define HAN_DEAD_PEERS_H

#include "engine.h"

/* The rank of a peer on this node that died before it finished the current run, or -1. */
int han_dead_peer(const han_engine *);

#endif
