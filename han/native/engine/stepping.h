/* The parts of an engine's step, and what steps, asks and stops an engine: of executor.c, choice.c,
 * verdict.c, inspect.c, stop.c, departed.c, trace.c and wait.c. */
#ifndef HAN_STEPPING_H
#define HAN_STEPPING_H

#include "engine.h"

/* One turn for each stream of the run at the head of the queue, which is not empty. The caller must
 * hold the engine's lock. */
enum han_status han_step(han_engine *);

/* The choice between a plan and its alternative: all ranks run the same one.
 *
 * The alternative needs the buffers of all ranks in memory that their peers map, and each rank
 * knows only about its own buffers. A rank offers the alternative with a bit of the `entered` field
 * of its control record. A rank that does not offer runs its plan at once. A rank that offers waits
 * for the bits of all peers. `entered` holds the bits of a rank's last HAN_HISTORY runs: a rank
 * does not begin a run if that would push out a bit that a peer may still read. So all ranks read
 * the same bits, whenever they look, and choose alike.
 *
 * The choice between a plan and its rival follows from the number of the run: engine/trials.h. */

/* What a stream waits for: an instruction, and the rank that must act. */
typedef struct {
    int code, peer;
    uint32_t task;
} han_where;

/* Values of han_where.code where no plan is chosen yet. */
enum { HAN_AWAITS_OFFER = HAN_CODES, HAN_AWAITS_VERDICT };

/* Whether the run at the head may begin: no peer can still need the bit that it pushes out. */
bool han_offers_read(han_engine *);

/* The plan that all ranks run; NULL while bits of peers are missing. */
han_plan *han_decide(han_engine *);

/* The ranks whose bits are missing; returns their number, at most HAN_MAX_STREAMS. */
uint32_t han_missing_offers(const han_engine *, han_where *rows);

/* Questions to an engine from a thread that does not step it (inspect.c). */

/* What each stream of the run at the head waits for, or which ranks have not yet told their choice;
 * at most HAN_MAX_STREAMS rows, and the signature and size of the run. Returns the number of rows; 0
 * if nothing runs, or another thread keeps stepping the engine. */
uint32_t han_engine_blocked(han_engine *, han_where *rows, uint64_t *signature, uint64_t *nbytes);

/* The channel whose flags the run at the head waits for, or -1. `brief`: it also waits for messages
 * or another channel, or other engines are active. */
int han_engine_awaits(han_engine *, bool *brief);

/* As han_mismatch; false if another thread is stepping the engine. */
bool han_engine_mismatch(han_engine *);

/* Fail the engine and all its runs, and cancel their receives. Sets `left` if messages or
 * collectives could not be completed. */
void han_engine_stop(han_engine *);

/* Ranks that have left, as their programs ended, or died: they begin no more runs (departed.c). */

/* Tell the peers on this node that this rank begins no more runs of this engine. A run that it has
 * begun and not finished will not be finished either. */
void han_leave(han_engine *);

/* HAN_E_GONE, with the rank in `dead_rank`, if a run is under way that a peer on this node left
 * before finishing; else HAN_BLOCKED. Called in each wait: it reads one word of each channel while
 * all ranks are there. */
enum han_status han_departed(han_engine *);

/* Whether a peer on this node died before it finished the current run. Sets `dead_rank`. */
bool han_dead_peer(han_engine *);

/* How ranks that share no memory agree on a trial: each tells the others in messages.
 *
 * In step k a rank sends what it knows to the rank 2^k places behind it, and receives from the
 * rank 2^k places before it. After log2(size) steps it knows the greatest numbers of all ranks. It
 * does not matter that some numbers count twice. */

/* Go on with the agreement of the run at the head. HAN_MOVED: all ranks agree, and the plan of the
 * run is known unless another exchange follows; HAN_BLOCKED; or an error. */
enum han_status han_exchange(han_engine *);

/* Note that a call of MPI for a message of a peer has failed; the status. */
static inline enum han_status han_message_error(han_engine *e, int rc, int peer) {
    e->mpi_error = rc;
    e->dead_rank = peer;
    return han_truncated(e->mpi, rc) ? HAN_E_LONG : HAN_E_MPI;
}

/* Test a request; returns whether it is over, maybe with an error. Cancel it if it is not, and `cancel`.
 * There may be none: 0. */
static inline bool han_request_over(const han_engine *e, uint64_t *request, bool cancel) {
    int flag = 1;
    if (!*request) return true;
    if (han_test(e->mpi, request, &flag)) flag = 1;
    if (!flag && cancel) (void)han_cancel(e->mpi, request);
    return flag;
}

/* The rank from which the next message must come. */
int han_sender(const han_engine *);

/* Test the messages of an agreement, and cancel receives; returns whether all are over. */
bool han_exchange_over(han_engine *, bool cancel);

/* Recording when tasks run, while tracing is on (trace.c). */

/* The executor calls han_trace_before before it tries an operation, and han_trace_after when the
 * operation is done. `last`: it was the last operation of its task. `ticks`: the last value of
 * the clock; 0: it may be outdated. */
void han_trace_before(han_engine *, uint32_t stream, const han_instr *, uint64_t *ticks);
void han_trace_after(han_engine *, uint32_t stream, const han_instr *, bool last, uint64_t *ticks);

/* Record into `trace` from now on (NULL: stop), whose memory `owner` owns. Returns the owner of
 * the trace used before. */
void *han_trace_into(han_engine *, han_trace *, void *owner);

/* Waiting: a thread steps its engine, MPI and other engines. Meanwhile it spins, yields or
 * sleeps. It also checks for signals, the time limit, notices of peers and peers that died. */

#ifndef SLEEP_YIELDS
#define SLEEP_YIELDS 64 /* before the thread sleeps in the kernel: waking up takes as long */
#endif

/* The number of yields before the next sleep in the kernel, after a wait with `patience` yields
 * took so many nanoseconds, of which the thread slept `slept`. */
uint32_t han_next_patience(uint32_t patience, uint64_t waited, uint64_t slept);

/* Step the queue until `run` has finished or an error occurs. With `block` false, return as soon
 * as no operation can be done. */
enum han_status han_progress(han_engine *, han_run *, bool block);

/* Check the time limit, mismatches and dead peers, for a thread that has waited `waited` seconds
 * elsewhere. */
enum han_status han_check_peers(han_engine *, double waited);

#endif
