/* What follows from the operations of a plan, once it has them. */
#ifndef HAN_FACTS_H
#define HAN_FACTS_H

#include "plan.h"

/* Note whether a plan calls MPI, shows buffers, and how its copies to the receive buffer are made.
 * `kernel`: reductions have one of han's own; `ranks` share this machine's caches. */
void han_plan_facts(han_plan *, bool kernel, unsigned ranks);

#endif
