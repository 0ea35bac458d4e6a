/* What han_strangers goes by. */
#ifndef HAN_CROWD_H
#define HAN_CROWD_H

#include "engine.h"

/* Is half a processor's time missing, or half of less than one, where ranks had `cpu` of `wall`
 * nanoseconds on so many processors? */
bool han_time_is_missing(uint64_t wall, uint64_t cpu, double processors);
/* The processors' time that a process has had, in nanoseconds; 0 if that cannot be told. */
uint64_t han_cpu_time(int64_t pid);

#endif
