/* How ranks that share no memory agree on a trial: each tells the others in messages.
 *
 * In step k a rank sends what it knows to the rank 2^k places behind it, and receives from the
 * rank 2^k places before it. After log2(size) steps it knows the greatest numbers of all ranks. It
 * does not matter that some numbers count twice. */
#ifndef HAN_VERDICT_H
#define HAN_VERDICT_H

#include "engine.h"

/* Go on with the agreement of the run at the head. HAN_MOVED: all ranks agree, and the plan of the
 * run is known unless another exchange follows; HAN_BLOCKED; or an error. */
enum han_status han_exchange(han_engine *);

/* The rank from which the next message must come. */
int han_sender(const han_engine *);

/* Test the messages of an agreement, and cancel receives; returns whether all are over. */
bool han_exchange_over(han_engine *, bool cancel);

#endif
