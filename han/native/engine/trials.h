/* Trials: which of two plans for the same call is faster on this machine, for this program.
 *
 * A plan and its rival move data differently, for example through cells or by cross-memory attach.
 * Which is faster depends on the processor, on the host of a virtual machine, and on whether the
 * program has just written its data: only a trial tells. The leader of the call (its root, or the
 * first rank) chooses one of them for each run and stores its choice in the `entered` field of its
 * control record; its peers wait for that and follow. So all ranks run the same plan, whatever each
 * of them measures. A trial is a burst of runs of the plan in use, then a burst of the other one.
 * All ranks store the end time of each run. */
#ifndef HAN_TRIALS_H
#define HAN_TRIALS_H

#include "engine.h"

#define HAN_FIRST 2  /* runs before the first trial: they make plans and touch new pages */
#define HAN_LEAST 32 /* runs from the first trial to the next */

/* Whether the run that begins takes the rival. Called by the leader of a plan with a rival. */
bool han_lead(han_engine *, han_plan *);

/* Collect the end times of a trial's runs; return whether all are known. */
bool han_collect(han_trial *, const han_channel *);

/* Choose the plan to keep, and the number of runs until the next trial. */
void han_end_trial(han_trial *);

/* The median times of the plan in use and of the other one, 0 for an unknown one; returns whether
 * enough times are known to compare them. */
bool han_medians(const han_trial *, uint64_t *median);

/* Do as han_end_trial does after `tries` runs of the other plan, for medians on which all ranks have
 * agreed in `took` nanoseconds. NULL: some rank knows too few times. */
void han_judge(han_trial *, const uint64_t *median, uint32_t tries, uint64_t took);

/* Keep what was found in the plan, where blocking or nonblocking calls keep it, unless a class that
 * lost its place knew more. */
void han_keep_learnt(const han_run *, const han_trial *);

/* Store the end time of the run at the head of the queue. */
void han_tell_time(han_engine *, const han_plan *);

#endif
