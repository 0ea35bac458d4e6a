/* The state of an engine. An engine runs plans one after the other over the channels and the
 * communicator of one group of ranks. It uses neither Python nor mpi.h. */
#ifndef HAN_ENGINE_H
#define HAN_ENGINE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "channel.h"
#include "events.h"
#include "mpi_table.h"
#include "plan.h"

#define HAN_EPOCH_TAGS 8 /* runs in a row whose messages have different tags */

enum han_status {
    HAN_OK,      /* the run has finished */
    HAN_MOVED,   /* the run has not finished, some operation was done */
    HAN_BLOCKED, /* the run has not finished, no operation could be done */
    HAN_E_MPI,   /* this and what follows are errors: greater than HAN_BLOCKED */
    HAN_E_TIMEOUT,
    HAN_E_DEAD,
    HAN_E_NOTICE,
    HAN_E_INTERRUPT,
    HAN_E_FAILED,   /* an earlier run of this engine failed */
    HAN_E_ATTACH,   /* the memory of rank `dead_rank` cannot be read or written */
    HAN_E_MISMATCH, /* rank `dead_rank` made a different call */
    HAN_E_GONE,     /* rank `dead_rank` left before it finished the run */
    HAN_E_SHORT,    /* a message of rank `dead_rank` has fewer bytes than this rank expects */
    HAN_E_LONG,     /* it has more */
};

/* Whether a run may go on after this: a notice may concern another one, a peer that left may make
 * calls in functions that run at exit, and peers may come soon after an interrupt. */
static inline bool han_may_go_on(enum han_status status) {
    return status == HAN_E_NOTICE || status == HAN_E_GONE || status == HAN_E_INTERRUPT;
}

/* How an engine waits: han/runtime/waiting.py. */
typedef struct {
    uint32_t spins;       /* fruitless rounds before the thread yields */
    uint32_t least_spins; /* at most `spins`: used while other threads want the processor */
    uint32_t sleep_ns;    /* 0: yield only; else sleep so long after some yields */
    double timeout;       /* seconds without progress; 0: wait for ever */
    bool futex;           /* after some yields, sleep in the kernel until a peer rings the bell */
    bool patient;         /* how many yields depends on how long earlier waits took */
} han_wait_policy;

/* How long a run has made no progress. */
typedef struct {
    uint32_t rounds, yields;
    uint64_t since, slow, dead; /* nanoseconds: first fruitless check; times of the next checks */
    uint64_t slept;             /* nanoseconds in the kernel */
    bool sleepy;
} han_idler;

typedef struct han_run {
    struct han_run *next;
    han_plan *plan;
    const void *send;
    void *recv;
    uint64_t nbytes; /* of the message or of the largest block, if the plan is for many sizes */
    const uint64_t *sizes; /* of all blocks, in bytes, if the plan is for blocks that differ; behind
                              them where each begins, if the plan is for own sizes */
    bool blocking; /* of a blocking call or a persistent request: its start may wait for peers */
    bool left;     /* it failed; MPI or a peer may still access the memory of plan, send and recv */
    han_idler idle;
    /* HAN_BLOCKED until the run is over. Storing another value is an engine's last access to a run:
     * the owner may free it afterwards, whichever thread stored the value. */
    _Atomic int status;
} han_run;

typedef struct han_engine {
    const han_mpi *mpi;
    han_handle comm;     /* on which notices arrive */
    han_handle messages; /* of runs; the same, or a communicator of its own */
    uint32_t n_channels, tag_base;
    han_channel channels[HAN_MAX_CHANNELS];
    han_wait_policy wait;
    uint32_t bells;         /* a bit for each channel in which some rank may sleep */
    han_ways put;           /* how data is stored into cells: ordinary stores, or past the caches */
    _Atomic uint32_t spins; /* at present, within the bounds of `wait` */
    uint32_t patience;      /* yields before the thread sleeps in the kernel */
    bool (*interrupted)(void *);       /* asked now and then while waiting; may be NULL */
    uint64_t epoch;                    /* runs finished, for the thread that holds `busy` */
    _Atomic uint64_t finished, issued; /* for all threads: the same, and runs ever queued */
    uint64_t calls[HAN_CALLS_KEPT]; /* the digest of all calls after each of the last runs begun */
    uint64_t agreed;       /* runs up to which all ranks are known to have made the same calls */
    _Atomic uint64_t held; /* the run of which a notice arrived early, counted from 1; 0: none */
    /* of the run at the head of the queue: */
    han_run *head, *tail;
    bool started;
    bool waited;      /* a flag was not posted yet at the first look */
    uint32_t rounds;  /* in which no bank of small slots was free */
    bool placed;      /* the started run has its part of the rings */
    uint64_t digest;  /* of all calls up to this one */
    han_plan *plan;   /* the head's plan, its alternative or its rival; NULL until decided */
    bool timed;       /* the end time of the run is stored */
    bool takes_rival; /* as follows from the number of the run */
    bool meets; /* all ranks agree on a trial before the run chooses its plan: engine/stepping.h */
    /* One bit for each run, that of the last run lowest. `offers`: this rank offered the
     * alternative. `choices`: the run had an alternative. */
    uint64_t offers, choices;
    uint64_t alternatives;     /* runs of an alternative */
    struct han_trials *trials; /* engine/trials.h; NULL: no plan has any */
    uint32_t pc[HAN_MAX_STREAMS];
    uint8_t *bases[HAN_MAX_BASES];
    /* what error reports need: */
    _Atomic int failed; /* an enum han_status */
    int mpi_error, dead_rank;
    atomic_flag busy; /* a thread is stepping this engine */
    /* What the helper (engine/helper.h) needs: steps of other threads, their number when it last
     * looked, and threads that wait for a run and therefore step it. */
    uint64_t steps, seen;
    _Atomic uint64_t moves; /* steps that did something */
    _Atomic int awaited;
    bool left; /* stopped while messages were under way: the channels must stay mapped */
    struct han_engine *next_active;
    _Atomic bool active;
    uint32_t pins;                   /* threads that step it from the list of active engines */
    han_trace *trace;                /* NULL: tracing is off */
    void *trace_owner;               /* owner of the memory of `trace` */
    uint64_t anchored;               /* ticks of the last anchor */
    han_event open[HAN_MAX_STREAMS]; /* by stream: its task; `begin` is 0 if there is none */
    /* By stream of a plan with loops: how often its loop was carried out, and what to add to `pc` to
     * count each instruction as often as it was done. */
    uint32_t loops[HAN_MAX_STREAMS], ahead[HAN_MAX_STREAMS];
} han_engine;

#endif
