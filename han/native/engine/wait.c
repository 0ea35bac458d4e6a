#define _GNU_SOURCE
#include "engine/stepping.h"

#include <sched.h>

#include "clock.h"
#include "data/processor.h"
#include "engine/bell.h"
#include "engine/queue.h"

enum {
    POKE_SPINNING = 512, /* fruitless rounds between two calls of the MPI library */
    POKE_YIELDING = 8,
    CLOCK_ROUNDS = 64,       /* yields between two readings of the clock */
    LAST_POKES = 16,         /* before a peer without a process is reported */
    LONG_SLEEP_NS = 1000000, /* then it progresses MPI and checks for signals and dead peers */
    SHORT_SLEEP_NS = 50000, /* the same if it also waits for messages, or flags of other channels */
};

static const uint64_t SLOW_NS = 5000000;     /* between two checks of signals and the time limit */
static const uint64_t DEAD_NS = 100000000;   /* between two checks for dead peers */
static const uint64_t SLEEPY_NS = 500000000; /* beyond this, naps are worth a slow reaction */
static const uint64_t ALONE_NS = 2000;       /* a yield takes longer only if another thread ran */
static const uint64_t CROWD_NS = 1000000; /* many threads ran: look around after each such yield */
static const uint32_t SLEEPY_SLEEP_NS = 100000;
static const uint32_t NAP_NS = 50000;      /* where no bell rings for what the run waits for */
static const uint32_t PATIENT_NS = 200000; /* of a sleep: other messages of the program progress */
static const uint32_t MOST_YIELDS = 4096;  /* before a sleep, whatever sleeps took before */
static const uint64_t BRIEF_NS = 250000;   /* a sleep that is not worth the time of waking up */
static const uint64_t LONG_NS = 1000000;   /* a wait in which a sleep is worth it */

/* Progress MPI and other engines: peers may wait for messages or runs of this process. Returns
 * HAN_E_NOTICE if a peer has sent a notice, HAN_E_GONE if one has left. */
static enum han_status poke(han_engine *e) {
    int flag = 0;
    if (e->mpi) {
        bool before = han_set_inside_op(true); /* MPI may call a user's reduction */
        int rc = han_iprobe(e->mpi, e->mpi->any_source, e->mpi->notice_tag, e->comm, &flag);
        (void)han_set_inside_op(before);
        if (rc) {
            e->mpi_error = rc;
            return HAN_E_MPI;
        }
    }
    han_progress_others(e);
    uint64_t held = atomic_load_explicit(&e->held, memory_order_relaxed);
    return flag || (held && atomic_load_explicit(&e->issued, memory_order_relaxed) >= held)
               ? HAN_E_NOTICE
               : han_departed(e);
}

/* At intervals, check for events that no flag tells: signals, the time limit, mismatches, dead
 * peers. */
static enum han_status look_around(han_engine *e, han_idler *w) {
    uint64_t now = han_now_ns();
    if (!w->since) {
        w->since = now;
        w->slow = now + SLOW_NS;
        w->dead = now + DEAD_NS;
        return HAN_BLOCKED;
    }
    if (now < w->slow) return HAN_BLOCKED;
    w->slow = now + SLOW_NS;
    w->sleepy = now - w->since > SLEEPY_NS;
    if (e->interrupted && e->interrupted(e)) return HAN_E_INTERRUPT;
    if (e->wait.timeout > 0 && (double)(now - w->since) > e->wait.timeout * 1e9)
        return HAN_E_TIMEOUT;
    if (han_engine_mismatch(e)) return HAN_E_MISMATCH;
    if (now < w->dead) return HAN_BLOCKED;
    w->dead = now + DEAD_NS;
    if (!han_dead_peer(e)) return HAN_BLOCKED;
    enum han_status status = HAN_BLOCKED;
    for (int k = 0; k < LAST_POKES && status == HAN_BLOCKED; k++)
        status = poke(e); /* it may have ended after an error, of which it told the others */
    return status == HAN_BLOCKED ? HAN_E_DEAD : status;
}

/* Yield, and adjust the number of spins: if another thread ran meanwhile, it may be the one that
 * this rank waits for, and spinning would delay it. Returns whether it took so long that the clock
 * must be read at once. */
static bool yield(han_engine *e) {
    uint64_t before = han_now_ns();
    sched_yield();
    uint64_t took = han_now_ns() - before;
    if (e->wait.least_spins >= e->wait.spins) return took > CROWD_NS;
    if (took > ALONE_NS)
        e->spins = e->spins / 2 > e->wait.least_spins ? e->spins / 2 : e->wait.least_spins;
    else if (e->spins < e->wait.spins)
        e->spins++;
    return took > CROWD_NS;
}

static enum han_status spin(han_engine *e, han_idler *w) {
    han_cpu_relax();
    if (w->rounds % POKE_SPINNING) return HAN_BLOCKED;
    enum han_status status = poke(e);
    bool look = status == HAN_BLOCKED && w->rounds % (POKE_SPINNING * CLOCK_ROUNDS) == 0;
    return look ? look_around(e, w) : status;
}

uint32_t han_next_patience(uint32_t patience, uint64_t waited, uint64_t slept) {
    if (waited > LONG_NS) return patience / 2 > SLEEP_YIELDS ? patience / 2 : SLEEP_YIELDS;
    if (!slept || slept > BRIEF_NS) return patience;
    return patience < MOST_YIELDS / 2 ? 2 * patience : MOST_YIELDS;
}

/* The run has made progress. */
static void progressed(han_engine *e, han_idler *w) {
    if (e->wait.patient && w->since)
        e->patience = han_next_patience(e->patience, han_now_ns() - w->since, w->slept);
    *w = (han_idler){0};
}

/* Step the engine once. If no operation could be done, sleep until a peer posts a flag in the
 * channel that the run waits for, or until a time limit, at most `most_ns`. `slept` stays false if
 * no bell rings for what the run waits for. Returns HAN_BLOCKED or the status of the step. */
static enum han_status sleep_at_bell(han_engine *e, uint32_t most_ns, bool *slept) {
    bool brief;
    int channel = han_engine_awaits(e, &brief);
    *slept = false;
    if (channel < 0 || !(e->bells >> channel & 1)) return HAN_BLOCKED;
    const han_channel *ch = &e->channels[channel];
    uint32_t number = han_bell_enter(ch);
    enum han_status status = han_engine_step(e);
    if (status == HAN_BLOCKED) {
        *slept = true;
        uint32_t ns = brief ? SHORT_SLEEP_NS : LONG_SLEEP_NS;
        han_bell_sleep(ch, number, ns < most_ns ? ns : most_ns);
    }
    han_bell_leave(ch);
    return status;
}

/* Sleep in the kernel, and check for other events between naps. No peer rings the bell for
 * messages, or when room in the rings becomes free. */
static enum han_status sleep_and_look(han_engine *e, han_idler *w) {
    bool slept;
    uint64_t begun = han_now_ns();
    uint32_t most = e->wait.patient && !w->sleepy ? PATIENT_NS : UINT32_MAX;
    enum han_status status = sleep_at_bell(e, most, &slept);
    if (slept)
        w->slept += han_now_ns() - begun;
    else if (status == HAN_BLOCKED && e->wait.patient && !w->sleepy)
        sched_yield();
    else if (status == HAN_BLOCKED)
        han_nap(w->sleepy ? SLEEPY_SLEEP_NS : NAP_NS), slept = true;
    w->yields++;
    if (status == HAN_MOVED) progressed(e, w);
    if (status != HAN_BLOCKED) return status == HAN_MOVED ? HAN_BLOCKED : status;
    if (slept || w->yields % POKE_YIELDING == 0) status = poke(e);
    return status == HAN_BLOCKED ? look_around(e, w) : status;
}

static enum han_status idle(han_engine *e, han_idler *w) {
    if (++w->rounds < e->spins) return spin(e, w);
    if (e->wait.futex && w->yields > e->patience) return sleep_and_look(e, w);
    uint32_t ns = e->wait.sleep_ns ? e->wait.sleep_ns : w->sleepy ? SLEEPY_SLEEP_NS : 0;
    bool at_once = ns;
    if (ns && w->yields > CLOCK_ROUNDS)
        han_nap(ns);
    else
        at_once |= yield(e);
    w->yields++;
    enum han_status status = HAN_BLOCKED;
    if (at_once || w->yields % POKE_YIELDING == 0) status = poke(e);
    if (status == HAN_BLOCKED && (at_once || w->yields % CLOCK_ROUNDS == 0))
        status = look_around(e, w);
    return status;
}

/* A peer has told that it gave up or left. What it did before may have come since the last step:
 * its news count only once this rank cannot move. */
static enum han_status after_all(han_engine *e, han_run *run, enum han_status news) {
    enum han_status status = han_engine_step(e);
    if (status == HAN_MOVED) progressed(e, &run->idle);
    return status == HAN_BLOCKED || status == HAN_E_NOTICE ? news : status;
}

/* One round of waiting for `run`. It counts as fruitless even if the step returns a notice: the
 * notice may concern another engine, and then the step returns it again in each round. */
static enum han_status await(han_engine *e, han_run *run, bool block) {
    enum han_status status = han_engine_step(e);
    if (status == HAN_MOVED) progressed(e, &run->idle);
    if (status != HAN_BLOCKED && status != HAN_E_NOTICE) return status;
    enum han_status other = block ? idle(e, &run->idle) : poke(e);
    if (other == HAN_BLOCKED) return status;
    return other == HAN_E_NOTICE || other == HAN_E_GONE ? after_all(e, run, other) : other;
}

static enum han_status progress(han_engine *e, han_run *run, bool block) {
    while (run->status != HAN_OK) {
        enum han_status status = await(e, run, block);
        if (status == HAN_BLOCKED && !block) break;
        if (status <= HAN_BLOCKED) continue;
        /* The caller decides whether that ends the run. */
        if (han_may_go_on(status))
            han_activate(e);
        else if (status != HAN_E_FAILED)
            han_fail(e, status);
        return status;
    }
    if (run->status != HAN_OK) han_activate(e);
    return run->status;
}

enum han_status han_progress(han_engine *e, han_run *run, bool block) {
    if (!block) return progress(e, run, false);
    atomic_fetch_add_explicit(&e->awaited, 1, memory_order_relaxed);
    enum han_status status = progress(e, run, true);
    atomic_fetch_sub_explicit(&e->awaited, 1, memory_order_relaxed);
    return status;
}

enum han_status han_check_peers(han_engine *e, double waited) {
    if (e->failed) return HAN_E_FAILED;
    if (han_engine_mismatch(e)) return han_fail(e, HAN_E_MISMATCH);
    if (e->wait.timeout > 0 && waited > e->wait.timeout) return han_fail(e, HAN_E_TIMEOUT);
    if (!han_dead_peer(e)) return HAN_BLOCKED;
    return han_fail(e, HAN_E_DEAD);
}
