/* Which of two plans a trial found faster, and when the next trial takes place.
 *
 * A trial is a burst of runs of the plan in use, then a burst of its rival or, if the rival is in
 * use, of the usual plan. What counts is the median time from run to run. It includes what the
 * program computes between the calls, which is the same for both plans. */
#ifndef HAN_JUDGE_H
#define HAN_JUDGE_H

#include <stdbool.h>
#include <stdint.h>

#define HAN_BURST 8 /* runs in a row that a trial takes of one plan */
#define HAN_PROBE 4 /* the same of the other plan, in the first trial */

typedef struct {
    uint32_t runs; /* since the last decision */
    uint32_t rest; /* runs from that decision to the next trial; 0: no trial so far */
    bool rival;    /* the rival is in use */
    /* Nanoseconds, of the runs of the current trial: of the plan in use, then of the other one; 0: not
     * known. */
    uint64_t finished[2][HAN_BURST];
} han_trial;

/* The median times of the plan in use and of the other one; returns whether enough are known to
 * compare them. */
bool han_medians(const han_trial *, uint64_t *median);

/* Choose the plan to keep, and the number of runs until the next trial. The ranks have agreed on the
 * medians, after `tries` runs of the other plan, in `took` nanoseconds. NULL: some rank knows too few
 * times. */
void han_judge(han_trial *, const uint64_t *median, uint32_t tries, uint64_t took);

#endif
