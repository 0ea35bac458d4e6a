/* Trials that are announced, of nonblocking calls and of blocking ones to a root: all ranks run the plan that the leader has announced, however far
 * they are apart, and no rank waits for another one's choice.
 *
 * One thread steps the engines of all ranks in a random order. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/announced.h"
#include "engine/queue.h"
#include "engine/trials.h"
#include "group.h"

enum { CALLS = 4000, AHEAD = HAN_HISTORY, SWITCH = HAN_FIRST + HAN_HISTORY };

/* A call that waits for no peer; so does its rival. */
typedef struct {
    uint64_t requests[1];
    han_plan plan, rival;
    han_run run;
} call;

static void call_open(call *c, uint64_t signature, uint32_t leader, bool tried, bool blocking)
{
    *c = (call){.plan = {.requests = c->requests, .element = 8, .signature = signature,
                         .tried = tried, .ahead = blocking, .leader = leader, .rival = &c->rival}};
    c->rival = c->plan;
    c->rival.tried = false;
    c->rival.rival = NULL;
    c->rival.signature = signature + 1000;
    c->run = (han_run){.plan = &c->plan, .led = blocking};
}

static uint64_t rivals(const call *c) { return atomic_load(&c->rival.counts.runs); }

static group *among(uint64_t ranks)
{
    world w = group_of(ranks);
    return group_open(&w, false, (han_wait_policy){.timeout = 20});
}

static uint64_t state, tried, changed, replaced;

static uint64_t draw(uint64_t below)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (state >> 33) % below;
}

/* ---- what an announcement says ---- */

static void what_an_announcement_says(void)
{
    for (int rival = 0; rival < 2; rival++) {
        uint64_t word = han_announcement(7, 100, 8, rival);
        for (uint64_t k = 90; k < 120; k++)
            require(han_takes_rival(word, 7, k) == (rival != (k >= 100 && k < 108)), "a trial", k);
        word = han_announcement(7, 100, HAN_FOR_EVER, rival);
        require(han_takes_rival(word, 7, 99) == rival, "the plan before a change", 99);
        require(han_takes_rival(word, 7, (uint64_t)1 << 39) != rival, "and after it", 0);
        require(!han_takes_rival(word, 8, 99) && !han_takes_rival(word, 8, 100), "another generation", 0);
    }
}

/* ---- all ranks run the same plan ---- */

/* Set the end times of a run at random on all ranks that have finished it: any plan may win. */
static void disturb(group *g, uint64_t rank, uint64_t scale)
{
    han_time *t = group_time(g, rank, g->engines[rank].epoch);
    if (t->run) t->finished = t->run * 100000 + draw(scale);
}

/* Make random calls of many classes; ranks proceed in a random order, some much slower. */
static void ranks_that_are_apart(uint64_t ranks, uint64_t classes, uint64_t seed)
{
    group *g = among(ranks);
    call *all = calloc(ranks * CALLS, sizeof *all);
    uint64_t widest = 0;
    if (!all)
        abort();
    state = seed;
    uint64_t kind = 0, several = 0;
    for (uint64_t k = 0; k < CALLS; k++) {
        if (draw(classes > HAN_ANNOUNCED ? 300 : 3) == 0) kind = draw(classes); /* a spell of one */
        if (draw(40) == 0) several = 2 * AHEAD;                /* and then all classes in turn */
        uint64_t now = several ? several-- % classes : kind;
        bool without = draw(10) == 0; /* a call without trials limits no rank */
        bool blocking = draw(several ? 2 : 20) == 0;
        for (uint64_t r = 0; r < ranks; r++) {
            call *c = &all[r * CALLS + k];
            call_open(c, without ? 99 : 2 + 2 * now, (uint32_t)(now % ranks), !without, blocking);
            han_enqueue(&g->engines[r], &c->run);
        }
    }
    for (uint64_t left = ranks * CALLS, slow = 0; left;) {
        if (draw(200) == 0) slow = draw(ranks + 1);
        uint64_t r = draw(ranks);
        if (r == slow && draw(30)) continue;
        han_engine *e = &g->engines[r];
        uint64_t before = e->epoch;
        if (e->head) (void)han_engine_step(e);
        left -= e->epoch - before;
        if (e->epoch == before) continue;
        if (all[r * CALLS + before].plan.tried) disturb(g, r, 50000);
        uint64_t least = e->epoch;
        for (uint64_t p = 0; p < ranks; p++)
            if (g->engines[p].epoch < least) least = g->engines[p].epoch;
        if (e->epoch - least > widest) widest = e->epoch - least;
    }
    for (uint64_t k = 0; k < CALLS; k++) {
        for (uint64_t r = 1; r < ranks; r++)
            require(rivals(&all[r * CALLS + k]) == rivals(&all[k]), "all ranks alike", k);
        tried += rivals(&all[k]);
    }
    for (uint64_t r = 0; r < ranks; r++)
        for (int k = 0; k < HAN_ANNOUNCED; k++) changed += g->engines[r].foreseen[k].trial.rival;
    for (int k = 0; k < HAN_ANNOUNCED; k++) replaced += g->engines[0].announced[k].generation > 1;
    require(widest >= AHEAD, "ranks are as far apart as they may be", widest);
    free(all);
    group_close(g);
}

static void no_rank_waits_for_a_choice(bool blocking)
{
    group *g = among(2);
    call calls[2][2 * AHEAD];
    for (uint64_t k = 0; k < 2 * AHEAD; k++)
        for (uint64_t r = 0; r < 2; r++) {
            call_open(&calls[r][k], 2, 0, true, blocking);
            han_enqueue(&g->engines[r], &calls[r][k].run);
        }
    for (int r = 1; r >= 0; r--) { /* the leader is the last to begin */
        while (han_engine_step(&g->engines[r]) == HAN_MOVED)
            ;
        require(g->engines[r].epoch == (r ? AHEAD : 2 * AHEAD), "as far as runs are told", r);
    }
    group_close(g);
}

/* ---- the faster plan is kept, at a bounded cost ---- */

/* Make `n` calls; `usual` and `rival` are the times of the plans. Returns the runs of the rival. */
static uint64_t play(group *g, call *calls, int n, uint64_t usual, uint64_t rival)
{
    static uint64_t clock = 1000;
    uint64_t before = rivals(&calls[0]);
    for (int k = 0; k < n; k++) {
        uint64_t ran = rivals(&calls[0]);
        for (uint64_t r = 0; r < 2; r++) {
            calls[r].run.status = HAN_BLOCKED;
            han_enqueue(&g->engines[r], &calls[r].run);
            require(han_engine_step(&g->engines[r]) == HAN_MOVED, "at once", k);
        }
        clock += rivals(&calls[0]) > ran ? rival : usual;
        for (uint64_t r = 0; r < 2; r++)
            group_time(g, r, g->engines[r].epoch)->finished = clock - r;
    }
    require(rivals(&calls[0]) == rivals(&calls[1]), "as often on both", rivals(&calls[1]));
    return rivals(&calls[0]) - before;
}

static bool blocks; /* the calls are blocking ones */

static uint64_t played(int n, uint64_t usual, uint64_t rival)
{
    group *g = among(2);
    call calls[2];
    for (uint64_t r = 0; r < 2; r++)
        call_open(&calls[r], 2, 0, true, blocks);
    uint64_t ran = play(g, calls, n, usual, rival);
    group_close(g);
    return ran;
}

static void the_faster_plan_is_kept(void)
{
    enum { DECIDED = SWITCH + HAN_PROBE + AHEAD, BEFORE = HAN_PROBE };
    require(played(SWITCH, 1000, 500) == 0, "first the usual plan", 0);
    require(played(SWITCH + HAN_PROBE, 1000, 500) == HAN_PROBE, "then a few runs of the other", 0);
    require(played(DECIDED + AHEAD, 1000, 500) == BEFORE, "the usual one until the change", 0);
    require(played(DECIDED + AHEAD + 20, 1000, 500) == BEFORE + 20, "which holds", 0);
    uint64_t kept = played(1000, 1000, 500);
    require(kept > 1000 - DECIDED - AHEAD - 3 * HAN_BURST, "and is tried again now and then", kept);
    uint64_t tried = played(200, 1000, 960);
    require(tried <= HAN_PROBE + 2 * HAN_BURST, "a little faster is not enough", tried);
    tried = played(100000, 1000, 5000) * 4;
    require(tried > 200 && tried < 1000 + 100, "of 100000 calls trials cost 1000", tried);
}

static void a_change_of_speed_is_noticed(void)
{
    group *g = among(2);
    call calls[2];
    for (uint64_t r = 0; r < 2; r++)
        call_open(&calls[r], 2, 0, true, blocks);
    (void)play(g, calls, 200, 1000, 2000);
    (void)play(g, calls, 1200, 1000, 500);
    require(play(g, calls, 64, 1000, 500) >= 64 - HAN_BURST, "it is the faster one now", 0);
    const han_plan *p = &calls[0].plan, *other = &calls[1].plan;
    const han_learnt *kept = blocks ? p->trial.learnt : p->foreseen.learnt;
    require(blocks ? p->trial.rival : p->foreseen.rival, "it is known", 0);
    require(kept[1].median == 500, "and this can be learnt", kept[1].median);
    require(!other->foreseen.learnt[0].trials && !other->trial.learnt[0].trials, "on the leader only", 0);
    group_close(g);
}

int main(int argc, char **argv)
{
    uint64_t rounds = argc > 2 ? strtoull(argv[2], NULL, 10) / 20 : 3;
    for (uint64_t k = 0; k < rounds + 3; k++)
        ranks_that_are_apart(2 + k % 3, k % 4 == 3 ? 12 : 1 + k % 5, 1 + k);
    require(tried > 100 && changed > 3 && replaced, "rivals run and are kept; classes change", changed);
    what_an_announcement_says();
    for (int k = 0; k < 2; k++) {
        blocks = k;
        no_rank_waits_for_a_choice(blocks);
        the_faster_plan_is_kept();
        a_change_of_speed_is_noticed();
    }
    return 0;
}
