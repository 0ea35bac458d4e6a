/* Plans with an alternative: all ranks run the same plan, whenever each of them reads the bits.
 *
 * One thread steps the engines of two ranks, so that the test decides which rank is ahead. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/stepping.h"
#include "engine/queue.h"
#include "group.h"

enum { AHEAD = 60 };

static uint8_t arena[64], elsewhere[64];

/* A call that waits for no peer; its alternative is a barrier of two ranks. */
typedef struct {
    han_instr code[2];
    uint64_t requests[1];
    han_plan plan, alternative;
    han_run run;
} call;

static void call_open(call *c, uint64_t rank, const void *buffer) {
    *c = (call){.code = {at_flag(HAN_POST, rank, 1), at_flag(HAN_WAIT, 1 - rank, 1)}};
    c->alternative = (han_plan){.code = c->code,
                                .n_streams = 1,
                                .streams = {{0, 2}},
                                .requests = c->requests,
                                .element = 8,
                                .signature = 2};
    c->plan = (han_plan){.requests = c->requests,
                         .element = 8,
                         .signature = 1,
                         .alternative = &c->alternative,
                         .arena = (uint64_t)(uintptr_t)arena,
                         .arena_size = sizeof arena};
    c->run = (han_run){.plan = &c->plan, .send = buffer};
}

static enum han_status start(han_engine *e, call *c, uint64_t rank, const void *buffer) {
    call_open(c, rank, buffer);
    han_enqueue(e, &c->run);
    return han_engine_step(e);
}

static group *pair(void) {
    world w = group_of(2);
    return group_open(&w, false, (han_wait_policy){.timeout = 20});
}

static void a_rank_that_offers_waits_for_the_other(void) {
    group *g = pair();
    han_engine *a = &g->engines[0], *b = &g->engines[1];
    call mine, its;
    han_where rows[HAN_MAX_STREAMS];
    uint64_t signature, nbytes;
    bool brief;
    require(start(a, &mine, 0, arena) == HAN_BLOCKED, "an offer waits", a->epoch);
    uint32_t n = han_engine_blocked(a, rows, &signature, &nbytes);
    require(n == 1 && rows[0].code == HAN_CODES && rows[0].peer == 1, "for the other rank", n);
    require(signature == 1, "in the call's own plan", signature);
    require(han_engine_awaits(a, &brief) == 0, "where posted flags ring the bell", 0);
    (void)start(b, &its, 1, arena);
    n = han_engine_blocked(b, rows, &signature, &nbytes);
    require(n == 1 && rows[0].code == HAN_WAIT && signature == 2, "the alternative runs",
            signature);
    require(han_engine_step(a) == HAN_MOVED && han_engine_step(b) == HAN_MOVED, "to its end", 0);
    require(a->alternatives == 1 && b->alternatives == 1 && a->epoch == 1, "on both", a->epoch);
    require(start(a, &mine, 0, arena + sizeof arena) == HAN_MOVED, "no offer waits for nobody", 0);
    require(start(b, &its, 1, arena) == HAN_MOVED, "an offer that is not met goes on", 0);
    require(a->alternatives == 1 && b->alternatives == 1 && b->epoch == 2, "as usual", b->epoch);
    require(start(b, &its, 1, NULL) == HAN_BLOCKED, "no buffer is as good as one in the arena", 0);
    require(start(a, &mine, 0, arena) == HAN_MOVED && han_engine_step(b) == HAN_MOVED &&
                a->alternatives == 2,
            "and offered", a->alternatives);
    group_close(g);
}

/* Rank 0 offers only in the calls of the bits `offers`, and runs ahead as far as it may. */
static void run_ahead(uint64_t choices, uint64_t offers, uint64_t expected) {
    group *g = pair();
    han_engine *a = &g->engines[0], *b = &g->engines[1];
    call *mine = calloc(AHEAD, sizeof *mine), *its = calloc(AHEAD, sizeof *its);
    if (!mine || !its) abort();
    for (uint64_t k = 0; k < AHEAD; k++) {
        call_open(&mine[k], 0, offers >> k & 1 ? arena : elsewhere);
        call_open(&its[k], 1, arena);
        if (!(choices >> k & 1)) mine[k].plan.arena_size = its[k].plan.arena_size = 0;
        han_enqueue(a, &mine[k].run);
    }
    while (han_engine_step(a) == HAN_MOVED);
    require(a->epoch == expected, "rank 0 runs ahead as far as its word tells", a->epoch);
    uint64_t met = choices & offers & (((uint64_t)1 << AHEAD) - 1);
    for (uint64_t k = 0; k < AHEAD; k++) {
        han_enqueue(b, &its[k].run);
        for (int turn = 0; its[k].run.status != HAN_OK; turn++) {
            require(turn < 2 * AHEAD, "rank 1 gets through", k);
            (void)han_engine_step(b);
            (void)han_engine_step(a);
        }
        require(b->alternatives == (uint64_t)__builtin_popcountll(met & (((uint64_t)2 << k) - 1)),
                "the alternative runs where both offer it", k);
    }
    while (a->epoch < AHEAD)
        require(han_engine_step(a) == HAN_MOVED, "rank 0 gets to the end", a->epoch);
    require(a->alternatives == b->alternatives, "as often as on rank 1", a->alternatives);
    free(mine);
    free(its);
    group_close(g);
}

int main(void) {
    a_rank_that_offers_waits_for_the_other();
    run_ahead(~(uint64_t)0, 0, HAN_HISTORY);
    run_ahead(0, 0, AHEAD);
    run_ahead((uint64_t)1 << 10, 0, 10 + HAN_HISTORY);
    run_ahead(~(uint64_t)0, (uint64_t)1 << 7 | (uint64_t)1 << 40, 7);
    run_ahead((uint64_t)0x5555 << 20, (uint64_t)0xff << 28, 28);
    return 0;
}
