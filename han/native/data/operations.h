/* The instructions that move or combine data. */
#ifndef HAN_OPERATIONS_H
#define HAN_OPERATIONS_H

#include "engine.h"

/* HAN_COPY. */
void han_move(han_engine *, han_plan *, const han_instr *);
/* HAN_REDUCE and HAN_REDUCE2: returns MPI's error code. */
int han_reduce(const han_engine *, han_plan *, const han_instr *);
/* HAN_PULL and HAN_PUSH: `there` is the reference that points to the peer's memory. */
enum han_status han_attach(han_engine *, han_plan *, const han_instr *, int there);

#endif
