/* The helper: a thread of this process that steps what its other threads leave alone.
 *
 * A nonblocking collective must complete while its rank computes, or waits inside MPI. The helper
 * starts with the first run that is left under way. It looks at the engines at intervals, and takes
 * over those that nobody has stepped since its last look. While nothing is under way, it sleeps. */
#ifndef HAN_HELPER_H
#define HAN_HELPER_H

#include <stdbool.h>
#include <stdint.h>

typedef struct {
    uint32_t look_ns;      /* between two looks; 0: take over at once */
    bool off;              /* there is no helper */
    bool mpi;              /* the library lets any thread call it at any time */
    void (*collect)(void); /* tells the library about runs that have finished; or NULL */
} han_helper_way;

void han_helper_set(han_helper_way);
/* A run has begun, and may be left under way (+1); it is over for its owner (-1). */
void han_helper_count(int change);
/* The sum of these changes. */
int han_helper_load(void);
/* Wake the helper up, or start it: a run is left under way. */
void han_helper_wake(void);
/* End the helper, and wait for its end. A later run starts another one, unless `for_ever`. */
void han_helper_stop(bool for_ever);
/* Whether it is running. */
bool han_helper_runs(void);

#endif
