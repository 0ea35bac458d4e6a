/* An engine runs plans one after the other over the channels (shared memory) and the
 * communicator of one group of ranks. It knows neither Python nor mpi.h. */
#ifndef HAN_ENGINE_H
#define HAN_ENGINE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels.h"
#include "mpi_table.h"
#include "program.h"

#define HAN_LINE 64
#define HAN_EPOCH_SHIFT 24 /* a run may post 2^24 - 1 values to one flag */
#define HAN_EPOCH_TAGS 8   /* runs whose messages cannot be taken for each other's */
#define HAN_MAX_STREAMS 32 /* also: tags a run */
#define HAN_SMALL_BANKS 16
/* The low bits of `calls` count runs, the others are a digest of the signatures of all runs so far:
 * ranks that made the same calls have the same word after as many runs. A power of two are kept. */
#define HAN_CALLS_COUNT UINT64_C(0xffff)
#define HAN_CALLS_KEPT 64
#define HAN_TAKEN 64 /* runs remembered by a ring; a power of two */

#define HAN_TIMED 256 /* of so many of its last runs a rank tells when they were finished */

/* When a rank finished a run of which there are two ways (trial.c): CLOCK_MONOTONIC, nanoseconds.
 * Those of all ranks lie behind their control records. */
typedef struct {
    _Atomic uint64_t run; /* counted from 1; 0: being written */
    _Atomic uint64_t finished;
} han_time;

/* What each rank tells the others on its node, one record of two lines a rank. */
typedef struct {
    _Atomic uint64_t done;    /* runs finished */
    /* Runs begun, and below HAN_EPOCH_SHIFT what was said of the last ones, a bit each: which
     * way a leader goes (trial.c), and from HAN_OFFERS_SHIFT on offers (offer.c). */
    _Atomic uint64_t entered;
    _Atomic uint64_t signature;
    _Atomic uint64_t calls; /* what was called up to the last run begun: HAN_CALLS */
    int64_t pid;
    uint64_t pid_start; /* with the pid: that very process */
    uint64_t pid_namespace;
    uint64_t rank; /* in the communicator */
    _Atomic uint64_t erred; /* 1 + the last call that raised here before anything moved */
    _Atomic uint64_t shown[3]; /* where send, receive buffer and scratch of a run are: HAN_W_SHOWN */
    /* Of the channel, in its first record: who sleeps there, and what they sleep on. */
    _Atomic uint32_t sleepers, bell;
    uint64_t naps; /* whether this rank sleeps in the kernel: others ring the bell for it */
    uint64_t pad[2];
} han_control;

_Static_assert(sizeof(han_control) == 2 * HAN_LINE, "as in han/model/channel_layout.py");
_Static_assert(HAN_TIMED * sizeof(han_time) == 64 * HAN_LINE, "as in han/model/channel_layout.py");

typedef struct {
    uint8_t *memory;
    uint32_t size, me; /* ranks that share it, and which of them this is */
    uint64_t control, flags, small, cells; /* offsets of the areas */
    uint64_t small_bank; /* bytes of one bank of small slots */
    uint64_t ring;       /* bytes of each rank's ring of cells */
    uint64_t known;      /* runs that every rank is known to have finished */
    /* The rings are handed out to runs one part after the other, alike on all ranks. `head`
     * counts the bytes ever taken; `taken` remembers where recent runs began. A run may write
     * its part once `needed` runs are finished: those that have had any of it before. */
    uint64_t head, needed;
    uint32_t oldest, newest;
    struct {
        uint64_t start, epoch;
    } taken[HAN_TAKEN];
} han_channel;

typedef struct {
    uint32_t spins;       /* fruitless rounds before yielding */
    uint32_t least_spins; /* below `spins`: fall to this while others want the processor */
    uint32_t sleep_ns;    /* 0: only yield; else sleep that long when still nothing moves */
    double timeout;       /* seconds without any progress; 0: for ever */
    bool futex;           /* whether to sleep in the kernel then until a flag is posted */
} han_wait_policy;

/* Two ways to write what peers read, and what either costs at present: put.c. */
enum han_way { HAN_WAY_USUAL, HAN_WAY_OTHER };
typedef struct {
    uint32_t cost[2]; /* nanoseconds for 1 MiB; 0: not tried so far */
    uint32_t times;
} han_ways;
#ifndef HAN_WAYS_LEAST
#define HAN_WAYS_LEAST 32768 /* bytes; below, looking at the clock costs too much */
#endif

enum { HAN_SHIFTS = 2 }; /* buffers of a rank's that others may map */

/* HAN_W_SHOWN: its buffers' addresses; HAN_W_GIVEN: they are, too, for peers that push to them. */
enum { HAN_W_SMALL = 1, HAN_W_CELLS = 2, HAN_W_SHOWN = 8, HAN_W_GIVEN = 16 };

/* What a plan's runs have moved on this rank, in bytes; one under way counts as far as it has come.
 * Written by whoever steps the engine, and read by others at any time. */
typedef struct {
    _Atomic uint64_t runs; /* finished */
    _Atomic uint64_t copied, combined, attached; /* combined: of results */
    _Atomic uint64_t mapped; /* of those that were copied or combined: read from peers' arrays */
    _Atomic uint64_t sent, received; /* in messages */
} han_counts;

#define HAN_BURST 8 /* runs of a trial in a row: caches take some to get used to it */
#define HAN_FIRST 2 /* runs before the first trial: those that make plans and meet new pages */
#define HAN_LEAST 32 /* runs from one trial to the next, at first, when much is new */

/* Which of two ways its leader has a plan go: trial.c. */
typedef struct {
    uint32_t runs; /* since it was last decided */
    uint32_t rest; /* runs from then to the next trial; 0: there was none so far */
    bool rival;    /* which was the better one */
    struct {
        uint64_t run;      /* counted from 1; 0: none */
        uint64_t finished; /* by the last rank; 0: not known */
    } tried[2][HAN_BURST]; /* in the trial under way: the way in use, then the other */
} han_trial;

typedef struct han_plan {
    const han_instr *code;
    uint32_t n_streams, n_requests, n_comms;
    han_stream streams[HAN_MAX_STREAMS];
    uint64_t *requests;
    const han_handle *comms;
    uint8_t *scratch;
    uint64_t scratch_size;
    uint64_t footprint[HAN_MAX_CHANNELS]; /* bytes of each rank's ring, alike on all ranks */
    uint8_t writes[HAN_MAX_CHANNELS];     /* what this rank writes: HAN_W_SMALL and so on */
    bool sync;                       /* finishing means that every rank has entered */
    bool blocks;                     /* calls blocking collectives of the MPI library */
    bool shows;     /* peers may read the buffers of this rank */
    han_ways shown; /* results that they read there: stored directly, or as strings */
    bool streaming; /* what is copied to RECV goes past the caches: too large for them */
    bool much;  /* what is copied to RECV leaves second caches meanwhile */
    bool brief; /* a few microseconds' work, no MPI, no callback: may run under Python's lock */
    uint64_t signature;
    uint64_t number; /* which plan this is, in traces */
    han_reduce_fn reduce; /* NULL: MPI_Reduce_local with op and dtype */
    han_reduce2_fn reduce2;
    size_t element;
    han_handle op, dtype;
    bool commutative;
    /* By rank and buffer (send, receive): what to add to its addresses there to find them here.
     * NULL: nothing is mapped. */
    const uint64_t *shifts;
    uint8_t *operand; /* a spare operand for MPI_Reduce_local, plan's own */
    size_t operand_size;
    /* What all ranks run instead where the buffers of all are in their arenas; it takes as much of
     * the rings. Each rank offers it or does not when it begins; the offers of the last runs stay
     * to be seen by those who come later. NULL while this rank never could. */
    struct han_plan *_Atomic alternative;
    uint64_t arena, arena_size; /* where this rank's is; 0 bytes: no rank has an alternative */
    /* Another way for the same, which takes as much of the rings: all go the one that the leader
     * says. There before the second blocking run of such calls. */
    struct han_plan *_Atomic rival;
    bool tried;      /* there is a rival, for blocking calls; alike on all ranks */
    uint32_t leader; /* whose word counts: which of the ranks of the channel `whole` */
    han_trial trial; /* the leader's */
    uint32_t whole;  /* the channel of all ranks, where they see what each says */
    han_counts counts;
} han_plan;

enum han_status {
    HAN_OK,      /* the run has finished */
    HAN_MOVED,   /* not finished, something moved */
    HAN_BLOCKED, /* not finished, nothing moved */
    HAN_E_MPI,
    HAN_E_TIMEOUT,
    HAN_E_DEAD,
    HAN_E_NOTICE,
    HAN_E_INTERRUPT,
    HAN_E_FAILED, /* an earlier run of this engine failed */
    HAN_E_ATTACH, /* the memory of rank `dead_rank` cannot be read, or written */
    HAN_E_MISMATCH, /* rank `dead_rank` has not called what this one has */
};

/* The instruction that a stream is at; `peer` is the rank that it waits for. HAN_CODES: for its
 * offer; HAN_CODES + 1: to hear which way it goes. */
typedef struct {
    int code, peer;
    uint32_t task;
} han_where;

/* How long nothing has moved. */
typedef struct {
    uint32_t rounds, yields;
    uint64_t since, slow, dead; /* when nothing moved first, and next looks, in nanoseconds */
    bool sleepy;
} han_idler;

typedef struct han_run {
    struct han_run *next;
    han_plan *plan;
    const void *send;
    void *recv;
    bool blocking; /* the caller waits for it: it may wait for a leader's word */
    bool left; /* failed, and MPI or a peer may still touch the memory of plan, send and recv */
    han_idler idle;
    /* HAN_BLOCKED while under way. Storing another value is the last thing that is done to a run:
     * its owner may let it go then, whichever thread did it. */
    _Atomic int status;
} han_run;

/* One task of one run, in ticks. It has begun when its stream has come to it, and started with
 * its first operation that is not a wait for flags or other streams. */
typedef struct {
    uint64_t epoch, plan, begin, start, end;
    uint64_t copying, reducing; /* spent in such operations */
    uint32_t stream, task;
} han_event;

/* What the ticks were at a time: an event whose stream is HAN_ANCHOR holds it in begin and end. */
typedef struct {
    uint64_t ticks, ns; /* CLOCK_MONOTONIC */
} han_anchor;
#define HAN_ANCHOR UINT32_MAX

/* The memory that an engine records into belongs to somebody else (han/trace/trace.py knows it). */
typedef struct {
    uint64_t n, max, dropped;
    uint64_t tsc; /* ticks are those of the processor, not nanoseconds */
    han_anchor first, last;
    han_event events[];
} han_trace;

_Static_assert(sizeof(han_event) == HAN_LINE && sizeof(han_trace) == HAN_LINE, "as in han/trace/trace.py");

typedef struct han_engine {
    const han_mpi *mpi;
    han_handle comm;
    uint32_t n_channels, tag_base;
    han_channel channels[HAN_MAX_CHANNELS];
    han_wait_policy wait;
    uint32_t bells; /* a bit for each channel where somebody may sleep */
    han_ways put; /* into cells, without quick strings: with ordinary stores, or past the caches */
    uint32_t spins; /* at present, between the policy's bounds */
    bool (*interrupted)(void *); /* asked now and then while waiting; may be NULL */
    uint64_t epoch, issued; /* runs finished, and runs ever put into the queue */
    uint64_t calls[HAN_CALLS_KEPT]; /* after each of the last runs begun */
    uint64_t agreed; /* runs up to which all ranks that share memory are known to have agreed */
    uint64_t held; /* a notice has come that concerns the run issued as this one, from 1; 0: none */
    /* the run at the head of the queue */
    han_run *head, *tail;
    bool started;
    han_plan *plan; /* its own, the alternative or the rival; NULL until that is decided */
    bool tried;     /* a leader says which way it goes, unless it is the alternative */
    /* A bit a run, the last one's lowest: offered, led along the rival, had an alternative or one. */
    uint64_t offers, ways, choices;
    uint64_t alternatives; /* how often one was run */
    uint32_t pc[HAN_MAX_STREAMS];
    uint8_t *bases[HAN_MAX_BASES];
    /* what went wrong, for the report */
    _Atomic int failed; /* an enum han_status */
    int mpi_error, dead_rank;
    atomic_flag busy; /* a thread is stepping this engine */
    bool left;        /* stopped with messages under way: the channels must stay mapped */
    struct han_engine *next_active;
    bool active;
    uint32_t pins; /* threads that step it from the list of active engines */
    han_trace *trace; /* NULL: off */
    void *trace_owner; /* of that memory */
    uint64_t anchored; /* ticks of the last anchor */
    han_event open[HAN_MAX_STREAMS]; /* begun and not ended, where begin is not 0 */
} han_engine;

static inline void han_cpu_relax(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb" ::: "memory");
#endif
}

/* Put a run at the end of the queue; it starts when those before it have finished. */
void han_enqueue(han_engine *, han_run *);
/* The same, unless another thread is stepping the engine: then false, without waiting. */
bool han_try_enqueue(han_engine *, han_run *);
/* Step the queue until `run` has finished, or an error, or (block false) nothing moves. */
enum han_status han_progress(han_engine *, han_run *, bool block);
/* Step `run`, if it is its turn, for at most `rounds` rounds, without waiting or yielding. */
enum han_status han_try(han_engine *, const han_run *, int rounds);
/* Step once every other engine that has runs under way (their owners may be waiting). */
void han_progress_others(const han_engine *);
/* For who waits elsewhere, `waited` seconds so far: the time limit, and peers that died. */
enum han_status han_look(han_engine *, double waited);
/* Record tasks there from now on (NULL: nowhere), and no longer where they were recorded. */
/* Record there from now on (NULL: nowhere), in memory of this owner; returns the owner before. */
void *han_engine_trace(han_engine *, han_trace *, void *owner);
/* Let whoever waits give this engine a step now and then, until it is stopped. */
void han_activate(han_engine *);
/* Fail the engine and all its runs. Receives are recalled; `left` tells what could not be. */
void han_engine_stop(han_engine *);

/* Has a rank that shares memory called something else than this one, and is no error the reason?
 * Sets `dead_rank`. For who is stepping the engine; the other one for who is not. */
bool han_mismatch(han_engine *);
bool han_engine_mismatch(han_engine *);
enum han_status han_engine_step(han_engine *); /* one round, unless another thread is at it */
/* Where the streams of the run at the head stand, at most HAN_MAX_STREAMS rows, or whose offers it
 * waits for; and the signature of what runs. 0 if there is none, or another thread keeps stepping
 * it. */
uint32_t han_engine_blocked(han_engine *, han_where *rows, uint64_t *signature);
/* The channel whose flags the run at the head waits for, or -1; `brief` says that there is something
 * else to look at too. */
int han_engine_awaits(han_engine *, bool *brief);
/* doze.c: wake who sleeps on a channel, after a flag was posted. */
void han_ring(const han_channel *);
/* Sleep until a flag is posted, or a moment; HAN_BLOCKED, or what the last look brought. */
enum han_status han_doze(han_engine *, bool *slept);
enum han_status han_fail(han_engine *, enum han_status);
enum han_status han_step(han_engine *); /* executor.c: one round over the streams of the head */
/* Whether a buffer is in this rank's arena. One that it does not have keeps nobody from reading. */
static inline bool han_in_arena(const han_plan *p, const void *buffer) {
    return !buffer || (uint64_t)(uintptr_t)buffer - p->arena < p->arena_size;
}

/* data.c: carry out an operation on data; `there` is the operand that is in another process. */
void han_move(han_engine *, han_plan *, const han_instr *);
int han_reduce(const han_engine *, han_plan *, const han_instr *);
enum han_status han_attach(han_engine *, han_plan *, const han_instr *, int there);

/* put.c: copy to memory of a channel. Which way to go next; it took so long for so many bytes (at
 * least HAN_WAYS_LEAST); whether the usual one takes much longer now than the other. */
void han_put(han_engine *, void *dst, const void *src, size_t n);
enum han_way han_next_way(han_ways *);
void han_took(han_ways *, enum han_way, uint64_t ns, uint64_t bytes);
bool han_usual_is_slow(const han_ways *);

#define HAN_HISTORY (HAN_EPOCH_SHIFT / 2) /* runs of which a rank's word tells what it said */
enum { HAN_WAYS_SHIFT = 0, HAN_OFFERS_SHIFT = HAN_HISTORY }; /* where in that word */
/* offer.c: whether the run at the head may begin, where a word would be forgotten: peers may ask. */
bool han_may_forget(han_engine *);
/* What all ranks run, once the others have said enough; NULL before. */
han_plan *han_decide(han_engine *);
/* trial.c: whether the run that begins goes along the rival. For the leader of a plan with one. */
bool han_lead(han_engine *, han_plan *);
/* The run at the head has finished, one way or the other: tell when. */
void han_tell_time(han_engine *, const han_plan *);
/* How many runs every rank in a channel has finished. */
uint64_t han_least_done(const han_channel *);
/* Ranks whose words are still to come: rows of han_engine_blocked. */
uint32_t han_undecided(const han_engine *, han_where *rows);
/* Read, or write, n bytes of another process's memory: 0, or errno. */
int han_pull(int64_t pid, void *dst, uint64_t src, size_t n);
int han_push(int64_t pid, uint64_t dst, const void *src, size_t n);
void han_let_attach(void); /* let the other ranks read this process's memory */
bool han_inside_op(void); /* called from a user's reduction, which runs inside of a step */
bool han_enter(bool);     /* say that a step, or MPI's progress, begins or ends; what was before */
uint64_t han_now_ns(void);

/* trace.c, while tracing is on: an operation is about to be tried; it went through, and is or is
 * not the last of its task. `ticks` is what the clock said last, 0 where that may be long ago. */
void han_trace_before(han_engine *, uint32_t stream, const han_instr *, uint64_t *ticks);
void han_trace_after(han_engine *, uint32_t stream, const han_instr *, bool last, uint64_t *ticks);
han_anchor han_anchor_now(const han_engine *);

#endif
