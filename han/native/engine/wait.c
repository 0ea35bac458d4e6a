/* How an engine waits: spinning, yielding, sleeping; driving MPI and other engines meanwhile, and
 * looking out for signals, time limits, notices and peers that died. */
#define _GNU_SOURCE
#include <ctype.h>
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "engine.h"

enum {
    POKE_SPINNING = 512, /* fruitless rounds between two looks at the MPI library */
    POKE_YIELDING = 8,
    CLOCK_ROUNDS = 64, /* yields between two looks at the clock */
};

#ifndef DOZE_YIELDS
#define DOZE_YIELDS 64 /* before sleeping in the kernel: waking up takes as long */
#endif

static const uint64_t SLOW_NS = 5000000;    /* signals, timeout */
static const uint64_t DEAD_NS = 100000000;  /* dead peers */
static const uint64_t SLEEPY_NS = 500000000; /* a wait this long no longer needs quick reactions */
static const uint64_t ALONE_NS = 2000; /* a yield to nobody returns sooner */
static const uint32_t SLEEPY_SLEEP_NS = 100000;
static const uint32_t NAP_NS = 50000; /* where no bell rings for what is waited for */

uint64_t han_now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Is that process gone? A zombie is: whoever started it may not have reaped it yet. */
static bool process_gone(int64_t pid, uint64_t start) {
    if (kill((pid_t)pid, 0) && errno == ESRCH) return true;
    char path[64], text[512];
    snprintf(path, sizeof path, "/proc/%lld/stat", (long long)pid);
    FILE *f = fopen(path, "r");
    if (!f) return false;
    size_t n = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    text[n] = 0;
    const char *p = strrchr(text, ')'); /* the name before it may hold anything */
    if (!p || p[1] != ' ') return false;
    char state = p[2];
    p += 2;
    for (int field = 3; field < 22 && p; field++) {
        p = strchr(p, ' ');
        if (p) p++;
    }
    bool other = p && isdigit((unsigned char)*p) && strtoull(p, NULL, 10) != start;
    return state == 'Z' || state == 'X' || other;
}

/* The rank of a peer that died before finishing the current run, or -1. */
static int dead_peer(const han_engine *e) {
    for (uint32_t c = 0; c < e->n_channels; c++) {
        const han_channel *ch = &e->channels[c];
        const han_control *all = (const han_control *)(void *)(ch->memory + ch->control);
        for (uint32_t r = 0; r < ch->size; r++) {
            const han_control *p = &all[r];
            if (r == ch->me || p->pid_namespace != all[ch->me].pid_namespace) continue;
            if (atomic_load_explicit(&p->done, memory_order_relaxed) > e->epoch) continue;
            if (process_gone(p->pid, p->pid_start)) return (int)p->rank;
        }
    }
    return -1;
}

/* Waiting drives MPI: an application's pending messages must move while we wait for a flag. */
static enum han_status poke(han_engine *e) {
    int flag = 0;
    if (e->mpi) {
        bool before = han_enter(true); /* a user's reduction may run here */
        int rc = han_iprobe(e->mpi, e->mpi->any_source, e->mpi->notice_tag, e->comm, &flag);
        (void)han_enter(before);
        if (rc) {
            e->mpi_error = rc;
            return HAN_E_MPI;
        }
    }
    han_progress_others(e);
    return flag || (e->held && e->issued >= e->held) ? HAN_E_NOTICE : HAN_BLOCKED;
}

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
    e->dead_rank = dead_peer(e);
    return e->dead_rank >= 0 ? HAN_E_DEAD : HAN_BLOCKED;
}

/* Yield, and learn from how long that takes: when somebody else ran meanwhile, spinning only
 * keeps him from what we wait for. A local matter: it changes no message and no order. */
static void yield(han_engine *e) {
    if (e->wait.least_spins >= e->wait.spins) {
        sched_yield();
        return;
    }
    uint64_t before = han_now_ns();
    sched_yield();
    if (han_now_ns() - before > ALONE_NS)
        e->spins = e->spins / 2 > e->wait.least_spins ? e->spins / 2 : e->wait.least_spins;
    else if (e->spins < e->wait.spins)
        e->spins++;
}

static enum han_status spin(han_engine *e, han_idler *w) {
    han_cpu_relax();
    if (w->rounds % POKE_SPINNING) return HAN_BLOCKED;
    enum han_status status = poke(e);
    bool look = status == HAN_BLOCKED && w->rounds % (POKE_SPINNING * CLOCK_ROUNDS) == 0;
    return look ? look_around(e, w) : status;
}

static void nap(uint32_t ns) {
    struct timespec t = {0, (long)ns};
    nanosleep(&t, NULL);
}

/* Sleep in the kernel; between naps, look after what a posted flag would not tell. For messages, and
 * for room in the rings, nobody rings. */
static enum han_status doze(han_engine *e, han_idler *w) {
    bool slept;
    enum han_status status = han_doze(e, &slept);
    if (!slept && status == HAN_BLOCKED) nap(w->sleepy ? SLEEPY_SLEEP_NS : NAP_NS), slept = true;
    w->yields++;
    if (status == HAN_MOVED) *w = (han_idler){0};
    if (status != HAN_BLOCKED) return status == HAN_MOVED ? HAN_BLOCKED : status;
    if (slept || w->yields % POKE_YIELDING == 0) status = poke(e);
    return status == HAN_BLOCKED ? look_around(e, w) : status;
}

static enum han_status idle(han_engine *e, han_idler *w) {
    if (++w->rounds < e->spins) return spin(e, w);
    if (e->wait.futex && w->yields > DOZE_YIELDS) return doze(e, w);
    uint32_t ns = e->wait.sleep_ns ? e->wait.sleep_ns : w->sleepy ? SLEEPY_SLEEP_NS : 0;
    if (ns && w->yields > CLOCK_ROUNDS)
        nap(ns);
    else
        yield(e);
    w->yields++;
    enum han_status status = HAN_BLOCKED;
    if (ns || w->yields % POKE_YIELDING == 0) status = poke(e);
    if (status == HAN_BLOCKED && (ns || w->yields % CLOCK_ROUNDS == 0)) status = look_around(e, w);
    return status;
}

/* One round of waiting for `run`; a notice is told, but waits count all the same: it may be one
 * that does not concern this engine, and come again and again. */
static enum han_status await(han_engine *e, han_run *run, bool block) {
    enum han_status status = han_engine_step(e);
    if (status == HAN_MOVED) run->idle = (han_idler){0};
    if (status != HAN_BLOCKED && status != HAN_E_NOTICE) return status;
    enum han_status other = block ? idle(e, &run->idle) : poke(e);
    return other == HAN_BLOCKED ? status : other;
}

enum han_status han_progress(han_engine *e, han_run *run, bool block) {
    while (run->status != HAN_OK) {
        enum han_status status = await(e, run, block);
        if (status == HAN_BLOCKED && !block) break;
        if (status <= HAN_BLOCKED) continue;
        /* Whether a notice concerns this engine is not for us to say. */
        if (status != HAN_E_FAILED && status != HAN_E_NOTICE) han_fail(e, status);
        return status;
    }
    if (run->status != HAN_OK) han_activate(e);
    return run->status;
}

enum han_status han_look(han_engine *e, double waited) {
    if (e->failed) return HAN_E_FAILED;
    if (han_engine_mismatch(e)) return han_fail(e, HAN_E_MISMATCH);
    if (e->wait.timeout > 0 && waited > e->wait.timeout) return han_fail(e, HAN_E_TIMEOUT);
    e->dead_rank = dead_peer(e);
    return e->dead_rank >= 0 ? han_fail(e, HAN_E_DEAD) : HAN_BLOCKED;
}
