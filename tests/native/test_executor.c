/* Threads act as ranks and run programs of the planner back to back, in random order, with random
 * delays, some of them nonblocking, some of them left to the helper. Every result is checked.
 *
 * test_executor FILE ROUNDS SHARE SHARES runs every SHARES-th machine, from number SHARE on. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "engine/helper.h"
#include "engine/queue.h"
#include "engine/stepping.h"
#include "group.h"

enum { IN_FLIGHT = 3, GUARD = 8, LARGEST = 20011 + 2 * GUARD };

static const int64_t UNTOUCHED = 0x5a5a5a5a5a5a5a5a;

/* The resources of a rank for one call. */
typedef struct {
    const test_case *call, *other; /* `other`: another program for the same call, or NULL */
    han_plan plan, alternative;
    han_run run;
    uint64_t step;
    bool in_place;
    uint64_t sizes[MAX_RANKS];            /* bytes of each block */
    int64_t send[LARGEST], recv[LARGEST]; /* doubles if the type is float64 */
} slot;

typedef struct {
    const world *world;
    group *group;
    uint64_t rank, rounds, seed, luck;
    bool helped;     /* there is a helper */
    uint64_t agreed; /* calls whose alternative all ranks offered */
} runner;

/* ---- random numbers and data ---- */

static uint64_t mix(uint64_t x) {
    x = (x ^ x >> 31) * 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 29) * 0xbf58476d1ce4e5b9u;
    return x ^ x >> 32;
}

/* The same number on all ranks. */
static uint64_t common(const runner *r, uint64_t step, uint64_t what) {
    return mix(r->seed + step * 64 + what);
}

static uint64_t chance(runner *r) { return r->luck = mix(r->luck + 1); }

static void dawdle(runner *r) {
    uint64_t dice = chance(r) % 32;
    if (dice == 0) {
        struct timespec t = {0, (long)(chance(r) % 300000)};
        nanosleep(&t, NULL);
    } else if (dice < 8) {
        sched_yield();
    }
}

static int64_t value(uint64_t step, uint64_t rank, uint64_t i) {
    return (int64_t)((step * 7 + rank * 1001 + i * 3) % 4093) - 2000;
}

static bool is_double(const test_case *c) { return c->dtype == HAN_F64; }

static int64_t encode(const test_case *c, int64_t v) {
    double d = (double)v;
    if (is_double(c)) memcpy(&v, &d, sizeof v);
    return v;
}

/* ---- operands and results, in elements ---- */

/* Elements before a rank's block; for the number of ranks, of all blocks. */
static uint64_t start_of(const slot *s, uint64_t rank) {
    uint64_t n = 0;
    for (uint64_t k = 0; k < rank; k++) n += s->sizes[k] / 8;
    return n;
}

static uint64_t block_with(const runner *r, const slot *s, uint64_t i) {
    uint64_t block = 0;
    while (block + 1 < r->world->ranks && start_of(s, block + 1) <= i) block++;
    return block;
}

static uint64_t sends(const runner *r, const slot *s) {
    const test_case *c = s->call;
    uint64_t n = c->nbytes / 8, all = start_of(s, r->world->ranks);
    switch (c->collective) {
    case HAN_C_BCAST:
        return c->root == r->rank ? n : 0;
    case HAN_C_SCATTER:
        return c->root == r->rank ? all : 0;
    case HAN_C_ALLTOALL:
    case HAN_C_REDUCE_SCATTER:
        return all;
    case HAN_C_ALLGATHER:
        return s->sizes[r->rank] / 8;
    default:
        return n;
    }
}

static uint64_t gets(const runner *r, const slot *s) {
    const test_case *c = s->call;
    uint64_t n = c->nbytes / 8, all = start_of(s, r->world->ranks);
    switch (c->collective) {
    case HAN_C_BARRIER:
        return 0;
    case HAN_C_REDUCE:
        return c->root == r->rank ? n : 0;
    case HAN_C_GATHER:
        return c->root == r->rank ? all : 0;
    case HAN_C_ALLGATHER:
    case HAN_C_ALLTOALL:
        return all;
    case HAN_C_REDUCE_SCATTER:
        return s->sizes[r->rank] / 8;
    default:
        return n;
    }
}

static int64_t expected(const runner *r, const slot *s, uint64_t i) {
    const test_case *c = s->call;
    uint64_t n = c->nbytes / 8, mine = start_of(s, r->rank), block = block_with(r, s, i);
    switch (c->collective) {
    case HAN_C_BCAST:
        return value(s->step, c->root, i);
    case HAN_C_SCATTER:
        return value(s->step, c->root, mine + i);
    case HAN_C_GATHER:
    case HAN_C_ALLGATHER:
        return value(s->step, block, i - start_of(s, block));
    case HAN_C_ALLTOALL:
        return value(s->step, i / n, mine + i % n);
    case HAN_C_REDUCE_SCATTER:
        i += mine;
    }
    int64_t total = value(s->step, 0, i);
    for (uint64_t k = 1; k < r->world->ranks; k++) {
        int64_t v = value(s->step, k, i);
        total = c->op == HAN_SUM ? total + v : total > v ? total : v;
    }
    return encode(c, total);
}

/* ---- one call ---- */

static bool in_place(const runner *r, const slot *s) {
    if (s->call->collective == HAN_C_BCAST) return true;
    bool reduces = s->call->collective == HAN_C_REDUCE || s->call->collective == HAN_C_ALLREDUCE;
    return s->in_place && reduces && gets(r, s);
}

/* Another case for the same call, the same one on all ranks; NULL if there is none. */
static const test_case *another(const runner *r, const slot *s) {
    const test_case *found = NULL, *c = s->call;
    for (uint64_t k = 0, n = 1; k < r->world->n_cases; k++) {
        const test_case *o = &r->world->cases[k];
        bool same = o != c && o->collective == c->collective && o->op == c->op &&
                    o->dtype == c->dtype && o->nbytes == c->nbytes && o->root == c->root &&
                    o->programs[0].blocks == c->programs[0].blocks;
        if (same && common(r, s->step, 20 + n) % n == 0) found = o;
        n += same;
    }
    return common(r, s->step, 3) % 4 ? found : NULL;
}

/* Whether a rank offers the alternative: mostly, as it runs only if all ranks offer it. */
static bool willing(const runner *r, const slot *s, uint64_t rank) {
    return common(r, s->step, 4 + rank) % 8 < 7;
}

/* Give the plan its alternative, and an arena that contains the buffers or does not. */
static void open_alternative(runner *r, slot *s) {
    s->other = another(r, s);
    if (!s->other) return;
    bool all = true;
    for (uint64_t rank = 0; rank < r->world->ranks; rank++) all = all && willing(r, s, rank);
    r->agreed += all;
    plan_open(&s->alternative, s->other, r->rank);
    for (int c = 0; c < HAN_MAX_CHANNELS; c++)
        if (s->plan.footprint[c] < s->alternative.footprint[c])
            s->plan.footprint[c] = s->alternative.footprint[c];
    bool mine = willing(r, s, r->rank), made = mine || chance(r) % 2;
    s->plan.alternative = made ? &s->alternative : NULL;
    s->plan.arena = mine ? (uint64_t)(uintptr_t)s : 1;
    s->plan.arena_size = mine ? sizeof *s : 1;
    s->plan.whole = (uint32_t)r->world->n_channels - 1;
}

/* Blocks of one size, or of any sizes up to that, the same on all ranks. */
static void size_blocks(const runner *r, slot *s) {
    uint64_t n = s->call->nbytes, largest = common(r, s->step, 30) % r->world->ranks;
    for (uint64_t rank = 0; rank < r->world->ranks; rank++) {
        bool whole = !s->call->programs[0].blocks || rank == largest;
        uint64_t some = common(r, s->step, 31 + rank);
        s->sizes[rank] = whole ? n : some % 4 ? some / 4 % (n / 8 + 1) * 8 : 0;
    }
}

static void prepare(runner *r, slot *s) {
    const test_case *c = s->call;
    size_blocks(r, s);
    for (uint64_t i = 0; i < LARGEST; i++) s->send[i] = s->recv[i] = UNTOUCHED;
    int64_t *operand = in_place(r, s) ? s->recv : s->send;
    for (uint64_t i = 0; i < sends(r, s); i++)
        operand[GUARD + i] = encode(c, value(s->step, r->rank, i));
    plan_open(&s->plan, c, r->rank);
    s->plan.brief = chance(r) % 2;
    bool none = c->collective == HAN_C_BARRIER || (c->nbytes && !gets(r, s));
    void *recv = none ? NULL : s->recv + GUARD;
    s->run = (han_run){.plan = &s->plan,
                       .send = operand + GUARD,
                       .recv = recv,
                       .nbytes = c->nbytes,
                       .sizes = s->sizes};
    s->other = NULL;
    if (!strstr(r->world->name, "nodes")) /* all ranks share the outermost channel */
        open_alternative(r, s);
}

static void complain(const runner *r, const slot *s, const char *what, uint64_t i) {
    printf("FAILED: %s: rank %llu, step %llu, '%s', %s, element %llu of %llu\n", r->world->name,
           (unsigned long long)r->rank, (unsigned long long)s->step, s->call->name, what,
           (unsigned long long)i, (unsigned long long)s->call->nbytes / 8);
    exit(1);
}

static void check(runner *r, slot *s) {
    uint64_t got = gets(r, s), sent = in_place(r, s) ? 0 : sends(r, s);
    for (uint64_t i = 0; i < got; i++)
        if (s->recv[GUARD + i] != expected(r, s, i)) complain(r, s, "wrong result", i);
    for (uint64_t i = 0; i < sent; i++)
        if (s->send[GUARD + i] != encode(s->call, value(s->step, r->rank, i)))
            complain(r, s, "the send buffer was written to", i);
    for (uint64_t i = 0; i < LARGEST; i++)
        if ((i < GUARD || i >= GUARD + got) && s->recv[i] != UNTOUCHED)
            complain(r, s, "written outside of the receive buffer", i);
    plan_close(&s->plan);
    if (s->other) plan_close(&s->alternative);
}

/* Leave a run to the helper. */
static void sit_by(han_engine *e, slot *s) {
    struct timespec t = {0, 100000};
    if (han_progress(e, &s->run, false) == HAN_OK) return;
    han_helper_count(1);
    han_helper_wake();
    while (atomic_load_explicit(&s->run.status, memory_order_acquire) == HAN_BLOCKED)
        nanosleep(&t, NULL);
    han_helper_count(-1);
}

static void finish(runner *r, slot *s) {
    han_engine *e = &r->group->engines[r->rank];
    enum han_status status = HAN_BLOCKED;
    if (r->helped && chance(r) % 16 == 0) sit_by(e, s);
    for (uint64_t k = chance(r) % 4; k; k--) {
        status = chance(r) % 2 ? han_progress(e, &s->run, false) : han_try(e, &s->run, 50);
        dawdle(r);
    }
    status = han_progress(e, &s->run, true);
    if (status != HAN_OK) {
        printf("status %d, blocked at", (int)status);
        for (uint32_t k = 0; e->plan && k < e->plan->n_streams; k++)
            printf(" %u/%u", e->pc[k] - e->plan->streams[k].start,
                   e->plan->streams[k].stop - e->plan->streams[k].start);
        complain(r, s, " of its streams", 0);
    }
    check(r, s);
}

/* ---- many calls ---- */

static void *run_rank(void *argument) {
    runner *r = argument;
    slot *slots = calloc(IN_FLIGHT, sizeof *slots);
    if (!slots) abort();
    for (uint64_t step = 0; step < r->rounds;) {
        uint64_t flying = 1 + common(r, step, 0) % IN_FLIGHT;
        for (uint64_t k = 0; k < flying; k++, step++) {
            slots[k].call = &r->world->cases[common(r, step, 1) % r->world->n_cases];
            slots[k].step = step;
            slots[k].in_place = common(r, step, 2 + r->rank) % 2;
            prepare(r, &slots[k]);
            dawdle(r);
            han_engine *e = &r->group->engines[r->rank];
            if (chance(r) % 2 || !han_try_begin(e, &slots[k].run)) han_enqueue(e, &slots[k].run);
        }
        for (uint64_t k = 0; k < flying; k++) finish(r, &slots[k]);
    }
    uint64_t ran = r->group->engines[r->rank].alternatives;
    if (ran != r->agreed) {
        printf("FAILED: %s: rank %llu ran %llu alternatives, all offered %llu\n", r->world->name,
               (unsigned long long)r->rank, (unsigned long long)ran, (unsigned long long)r->agreed);
        exit(1);
    }
    free(slots);
    return NULL;
}

static void run_world(const world *w, uint64_t rounds, han_wait_policy wait, bool helped) {
    bool messages = strstr(w->name, "nodes") != NULL;
    group *g = group_open(w, messages, wait);
    runner runners[MAX_RANKS];
    pthread_t threads[MAX_RANKS];
    for (uint64_t r = 1; r < w->ranks; r += 2) { /* as if the caches were far apart */
        static const han_ways far = {.cost = {[HAN_WAY_USUAL] = 1u << 28, [HAN_WAY_OTHER] = 1}};
        g->engines[r].put = far;
    }
    for (uint64_t r = 0; r < w->ranks; r++) {
        runners[r] = (runner){.world = w,
                              .group = g,
                              .rank = r,
                              .rounds = rounds,
                              .seed = 4711 + wait.spins,
                              .luck = r,
                              .helped = helped};
        if (pthread_create(&threads[r], NULL, run_rank, &runners[r])) abort();
    }
    for (uint64_t r = 0; r < w->ranks; r++) pthread_join(threads[r], NULL);
    if (messages && mailbox_pending(g->box)) {
        printf("FAILED: %s: messages are left over\n", w->name);
        exit(1);
    }
    printf("%s: %llu calls of %llu kinds, %llu alternatives, %s\n", w->name,
           (unsigned long long)rounds, (unsigned long long)w->n_cases,
           (unsigned long long)runners[0].agreed,
           helped       ? "helped"
           : wait.futex ? "sleeping"
           : wait.spins ? "spinning"
                        : "yielding");
    group_close(g);
}

int main(int argc, char **argv) {
    if (argc != 5) return 2;
    uint64_t n, rounds = strtoull(argv[2], NULL, 10);
    uint64_t share = strtoull(argv[3], NULL, 10), shares = strtoull(argv[4], NULL, 10);
    world *worlds = programs_read(argv[1], &n);
    const han_wait_policy yields = {.timeout = 30},
                          sleeps = {.spins = 1, .timeout = 30, .futex = true};
    const han_wait_policy patient = {.spins = 1, .timeout = 30, .futex = true, .patient = true};
    for (uint64_t w = share; w < n; w += shares) {
        run_world(&worlds[w], rounds, yields, false);
        run_world(&worlds[w], rounds, (han_wait_policy){.spins = 200, .timeout = 30}, false);
        run_world(&worlds[w], rounds, sleeps, false);
        for (uint32_t look = 0; look <= 20000; look += 20000) {
            han_helper_set((han_helper_way){.look_ns = look, .mpi = true});
            run_world(&worlds[w], rounds / 8, look ? patient : yields, true);
            han_helper_stop(false);
        }
    }
    programs_free(worlds, n);
    return 0;
}
