/* Plans with a rival: all ranks run the plan that the leader chooses, and the leader chooses by the
 * times of runs.
 *
 * One thread steps the engines of two ranks, and the test sets the clock: it overwrites the end
 * times that the ranks store. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/inspect.h"
#include "engine/queue.h"
#include "engine/trials.h"
#include "engine/wait.h"
#include "group.h"

enum { FIRST = HAN_FIRST, BURST = HAN_BURST, LEAST = HAN_LEAST, AHEAD = 60, THREADED = 3000 };

/* A call in which one rank posts and the other waits; with `meets` both do. The rival does the
 * same. */
typedef struct {
    han_instr code[2];
    uint64_t requests[1];
    han_plan plan, rival;
    han_run run;
} call;

static void call_open(call *c, uint64_t rank, bool meets)
{
    *c = (call){.code = {at_flag(HAN_POST, rank, 1), at_flag(HAN_WAIT, 1 - rank, 1)}};
    c->plan = (han_plan){.code = c->code, .n_streams = 1, .requests = c->requests, .element = 8,
                         .signature = 1, .tried = true, .rival = &c->rival};
    c->plan.streams[0] = (han_stream){meets ? 0 : (uint32_t)rank, meets ? 2 : 1 + (uint32_t)rank};
    c->rival = c->plan;
    c->rival.tried = false;
    c->rival.rival = NULL;
    c->rival.signature = 2;
}

static enum han_status start(han_engine *e, call *c)
{
    c->run = (han_run){.plan = &c->plan, .led = true};
    han_enqueue(e, &c->run);
    return han_engine_step(e);
}

static group *pair(call *calls, bool meets)
{
    world w = group_of(2);
    for (uint64_t r = 0; r < 2; r++)
        call_open(&calls[r], r, meets);
    return group_open(&w, false, (han_wait_policy){.timeout = 20});
}

static uint64_t rivals(const call *c) { return atomic_load(&c->rival.counts.runs); }

/* Set the end time of the last run on both ranks. */
static void note(group *g, uint64_t finished)
{
    uint64_t run = g->engines[0].epoch;
    for (uint64_t r = 0; r < 2; r++) {
        han_time *t = group_time(g, r, run);
        require(t->run == run, "each rank notes when it ran", t->run);
        t->finished = finished - r;
    }
}

/* Make `n` calls; `usual` and `rival` are the times of the two plans. Returns the number of runs
 * of the rival. */
static uint64_t play(group *g, call *calls, int n, uint64_t usual, uint64_t rival)
{
    static uint64_t clock = 1000;
    uint64_t before = rivals(&calls[0]);
    for (int k = 0; k < n; k++) {
        uint64_t ran = rivals(&calls[0]);
        (void)start(&g->engines[1], &calls[1]);
        (void)start(&g->engines[0], &calls[0]);
        require(han_engine_step(&g->engines[1]) == HAN_MOVED, "rank 1 follows", k);
        (void)han_engine_step(&g->engines[0]);
        require(g->engines[0].epoch == g->engines[1].epoch && !g->engines[0].head, "to its end", k);
        uint64_t took = rivals(&calls[0]) > ran ? rival : usual;
        clock += took;
        note(g, clock);
    }
    require(rivals(&calls[0]) == rivals(&calls[1]), "as often on both", rivals(&calls[1]));
    return rivals(&calls[0]) - before;
}

static void a_follower_waits_for_the_leader(void)
{
    call calls[2];
    group *g = pair(calls, false);
    han_engine *b = &g->engines[1];
    han_where rows[HAN_MAX_STREAMS];
    uint64_t signature, nbytes;
    bool brief;
    require(start(b, &calls[1]) == HAN_BLOCKED, "rank 1 waits", b->epoch);
    uint32_t n = han_engine_blocked(b, rows, &signature, &nbytes);
    require(n == 1 && rows[0].code == HAN_CODES + 1 && rows[0].peer == 0, "for the leader", n);
    require(signature == 1 && han_engine_awaits(b, &brief) == 0, "where words ring the bell", 0);
    require(start(&g->engines[0], &calls[0]) == HAN_MOVED, "who waits for nobody", 0);
    require(han_engine_step(b) == HAN_MOVED && b->epoch == 1, "and goes on", b->epoch);
    group_close(g);
}

static void the_faster_plan_is_kept(void)
{
    call calls[2];
    group *g = pair(calls, true);
    require(play(g, calls, FIRST + BURST, 1000, 500) == 0, "first the usual way", 0);
    require(play(g, calls, BURST, 1000, 500) == BURST, "then a burst of the other", 0);
    require(play(g, calls, 1 + LEAST, 1000, 500) == 1 + LEAST, "which is kept", 0);
    require(play(g, calls, BURST, 1000, 500) == BURST, "until the next trial", 0);
    require(play(g, calls, 4, 1000, 500) == 0, "of the usual way again", 0);
    uint64_t kept = play(g, calls, 400, 1000, 500);
    require(kept == 400, "which is given up early, and for long", kept);
    kept = play(g, calls, 100, 1000, 500);
    require(kept == 100 - 4, "and tried again", kept);
    group_close(g);
    g = pair(calls, true);
    require(play(g, calls, 100, 1000, 960) == 2 * BURST, "a little quicker is not enough", 0);
    group_close(g);
    g = pair(calls, true);
    uint64_t tried = play(g, calls, 100, 1000, 1600);
    require(tried == 4, "what is hopeless is not tried to the end", tried);
    group_close(g);
}

static void trials_cost_a_hundredth(void)
{
    call calls[2];
    group *g = pair(calls, true);
    uint64_t tried = play(g, calls, 100, 1000, 9000);
    require(tried == 3, "what takes far too long is tried twice more, to be sure", tried);
    tried = play(g, calls, 650, 1000, 9000);
    require(tried == 0, "and then for long not at all", tried);
    tried = play(g, calls, 100000, 1000, 5000) * 4;
    require(tried > 500 && tried < 1000 + 100, "of 100000 calls trials cost 1000", tried);
    group_close(g);
}

/* A long pause of the program in a trial does not delay the next trial. */
static void one_pause_decides_nothing(void)
{
    call calls[2];
    for (uint64_t at = 0; at < BURST; at++) {
        group *g = pair(calls, true);
        uint64_t tried = play(g, calls, FIRST + BURST + at, 1000, 1000);
        require(tried == at, "in a burst of the other way", tried);
        (void)play(g, calls, 1, 1000, 1000000000);
        tried = play(g, calls, BURST - at + LEAST + 2 * BURST, 1000, 1000);
        require(tried == BURST - 1 - at + BURST, "the next one comes as soon as it would", tried);
        group_close(g);
    }
}

/* The program takes most of the time between runs: the plan in use is kept. */
static void the_plan_in_use_is_kept_if_both_are_alike(void)
{
    call calls[2];
    group *g = pair(calls, true);
    require(play(g, calls, 55, 1000000, 999000) == BURST, "not for a thousandth", 0);
    group_close(g);
}

static void a_change_of_speed_is_noticed(void)
{
    call calls[2];
    group *g = pair(calls, true);
    (void)play(g, calls, 200, 1000, 2000);
    (void)play(g, calls, 600, 1000, 500);
    require(play(g, calls, 64, 1000, 500) >= 64 - BURST, "it is the quicker one now", 0);
    group_close(g);
}

/* The leader waits for no peer and runs ahead as far as its control record allows. */
static void the_leader_runs_ahead(void)
{
    call its, *mine = calloc(AHEAD, sizeof *mine), none[2];
    if (!mine)
        abort();
    group *g = pair(none, false);
    han_engine *a = &g->engines[0], *b = &g->engines[1];
    uint64_t led = 0;
    for (uint64_t k = 0; k < AHEAD; k++) {
        call_open(&mine[k], 0, false);
        mine[k].plan.trial.rival = k * k % 3 == 1;
        mine[k].run = (han_run){.plan = &mine[k].plan, .led = true};
        han_enqueue(a, &mine[k].run);
    }
    while (han_engine_step(a) == HAN_MOVED)
        ;
    require(a->epoch == HAN_HISTORY, "so many runs are told", a->epoch);
    call_open(&its, 1, false);
    for (uint64_t k = 0; k < AHEAD; k++) {
        led += k * k % 3 == 1;
        its.run = (han_run){.plan = &its.plan, .led = true};
        han_enqueue(b, &its.run);
        for (int turn = 0; its.run.status != HAN_OK; turn++) {
            require(turn < 2 * AHEAD, "rank 1 gets through", k);
            (void)han_engine_step(b);
            (void)han_engine_step(a);
        }
        require(rivals(&its) == led && rivals(&mine[k]) == (k * k % 3 == 1), "as rank 0 said", k);
    }
    free(mine);
    group_close(g);
}

/* Make calls of other plans between those of a plan. Returns the number of runs of its rival. */
static uint64_t play_among(int others, int n)
{
    call calls[2], other[2];
    group *g = pair(calls, true);
    uint64_t ran = 0;
    for (uint64_t r = 0; r < 2; r++)
        call_open(&other[r], r, true);
    for (int k = 0; k < n; k++) {
        ran += play(g, calls, 1, 1000, 500);
        for (int j = 0; j < others; j++) {
            other[0].plan.trial.runs = 0;
            (void)play(g, other, 1, 100, 100);
        }
    }
    group_close(g);
    return ran;
}

/* Calls between those of a plan add to the time from run to run. They prevent a decision only if
 * they are so many that end times are overwritten before the leader reads them. */
static void calls_in_between(void)
{
    uint64_t ran = play_among(4, 50);
    require(ran == 50 - FIRST - BURST, "the quicker way is found among others", ran);
    ran = play_among(HAN_TIMED, 400);
    require(ran == BURST, "what is not known is not changed to, and not soon tried again", ran);
}

/* ---- two threads ---- */

typedef struct {
    group *g;
    call *c;
    uint64_t rank;
} runner;

static void *run_rank(void *argument)
{
    runner *r = argument;
    han_engine *e = &r->g->engines[r->rank];
    for (int k = 0; k < THREADED; k++) {
        r->c->run = (han_run){.plan = &r->c->plan, .led = true};
        han_enqueue(e, &r->c->run);
        if (han_progress(e, &r->c->run, true) != HAN_OK)
            abort();
        r->c->plan.trial.rest %= HAN_LEAST + 1; /* a second trial, soon */
    }
    return NULL;
}

static void ranks_at_the_same_time(void)
{
    for (int meets = 0; meets < 2; meets++) {
        call calls[2];
        group *g = pair(calls, meets);
        runner runners[2] = {{g, &calls[0], 0}, {g, &calls[1], 1}};
        pthread_t other;
        if (pthread_create(&other, NULL, run_rank, &runners[1]))
            abort();
        run_rank(&runners[0]);
        pthread_join(other, NULL);
        uint64_t ran = rivals(&calls[0]);
        require(ran == rivals(&calls[1]), "both go as one of them says", rivals(&calls[1]));
        require(ran >= 2, "and try the other way", ran);
        group_close(g);
    }
}

int main(void)
{
    a_follower_waits_for_the_leader();
    the_faster_plan_is_kept();
    a_change_of_speed_is_noticed();
    the_leader_runs_ahead();
    calls_in_between();
    trials_cost_a_hundredth();
    one_pause_decides_nothing();
    the_plan_in_use_is_kept_if_both_are_alike();
    ranks_at_the_same_time();
    return 0;
}
