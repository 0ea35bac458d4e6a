/* Ranks that have left, as their programs ended, or died: they begin no more runs. */
#ifndef HAN_DEPARTED_H
#define HAN_DEPARTED_H

#include "engine.h"

/* Tell the peers on this node that this rank begins no more runs of this engine. A run that it has
 * begun and not finished will not be finished either. */
void han_leave(han_engine *);

/* HAN_E_GONE, with the rank in `dead_rank`, if a run is under way that a peer on this node left
 * before finishing; else HAN_BLOCKED. Called in each wait: it reads one word of each channel while
 * all ranks are there. */
enum han_status han_departed(han_engine *);

/* The rank of a peer on this node that died before it finished the current run, or -1. */
int han_dead_peer(const han_engine *);

#endif
