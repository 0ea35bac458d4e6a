/* Trials: which of two plans for the same call is faster for this program, on this network.
 *
 * All ranks run the same plan, because which runs take the rival follows from their number. All ranks
 * make the same calls in the same order. Each rank counts the runs of a class of calls in a table,
 * which is the same on all ranks at the same run. A trial takes place in the same runs on all ranks:
 * a burst of runs of the plan in use, then a burst of the other one. Each rank stores when it
 * finished them, by its own clock. Before the next run of the class chooses its
 * plan, the ranks agree on the greatest median of each plan (engine/stepping.h). All ranks then keep
 * the same plan, and know in which run the next trial begins. No other run waits for a peer because
 * of trials.
 *
 * A median is that of the time from run to run, which holds all calls in between. So one class at a
 * time is in a trial: otherwise classes of one loop would be judged by each other's plans. */
#ifndef HAN_TRIALS_H
#define HAN_TRIALS_H

#include "engine.h"
#include "engine/judge.h"

enum {
    HAN_CLASSES = 16, /* of calls that have trials at a time, on one engine */
    HAN_UNUSED = 64,  /* runs without a call of a class until another one may take its place */
};

/* In some calls ranks run ahead of each other: broadcasts and reductions to a root. There the time
 * from run to run says little, and the last messages of a burst may still be under way. So the ranks
 * meet before and after each burst, by the same messages. A rank comes to a meeting when it has
 * received all that was sent to it in the burst. What lies between two meetings is the time of the
 * burst, on all ranks. A burst decides nothing if half of it lies between two runs of a rank: this
 * was a pause of the program. Nonblocking calls of this kind have no trials: their start must not make
 * other ranks wait. */

/* What the ranks exchange messages for. */
enum han_purpose { HAN_VERDICT, HAN_BEFORE, HAN_BETWEEN, HAN_BEHIND };

/* A class of calls: blocking and nonblocking ones of one signature are two classes. */
typedef struct {
    uint64_t key;
    uint64_t last;   /* the last of its runs, counted from 1 among all runs; 0: the place is free */
    uint32_t first;  /* runs before the first trial */
    uint64_t took;   /* the least nanoseconds of its agreements on this rank; 0: none so far */
    uint64_t waited; /* nanoseconds in the meetings of the present trial */
    uint64_t met[3]; /* when these were over: before, between and behind its bursts */
    uint64_t since;  /* when the last run of a burst began, or the meeting before it was over */
    uint64_t longest[2]; /* the most nanoseconds from run to run, in each burst */
    han_trial trial;     /* its times are by the clock of this rank */
} han_class;

/* What the ranks agree on: the greatest of each number. */
typedef struct {
    uint64_t median[2]; /* nanoseconds from run to run: of the plan in use, and of the other one */
    uint64_t lacking;   /* 1: this rank knows too few times */
    uint64_t took;      /* nanoseconds that an agreement takes */
} han_verdict;

/* What an engine keeps for trials. */
struct han_trials {
    uint32_t rank, size;
    han_class classes[HAN_CLASSES]; /* the same on all ranks at the same run, but for times */
    han_class *trying;              /* the class that is in a trial, or NULL */
    uint64_t *noted;                /* where the end time of the run at the head is stored */
    /* of the agreement under way, if han_engine.meets: */
    han_class *about;
    enum han_purpose purpose;
    uint64_t begun;    /* nanoseconds */
    uint32_t distance; /* to the ranks of the present exchange; `size` or more: it is over */
    bool posted, sending, receiving;
    uint64_t requests[2];
    han_verdict mine, sent, theirs;
};

/* Give an engine what trials need, unless it has it; false if there is no memory. */
bool han_trials_open(han_engine *, uint32_t rank, uint32_t size);
/* Free it, unless MPI may still access it. */
void han_trials_close(han_engine *);

/* Count the run that begins; returns whether it takes the rival. Sets `timed` if its end time
 * counts, and `meets` if the ranks must agree before it chooses its plan. */
bool han_count(han_engine *, const han_run *);

/* Store the end time of the run at the head of the queue. */
void han_note_time(han_engine *);

/* The ranks have met or agreed: choose the plan of the run. After the last burst another exchange
 * follows, to agree on its outcome. */
void han_end_exchange(han_engine *);

#endif
