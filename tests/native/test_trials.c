/* Trials: ranks that count their calls run the same plan in each of them, however far
 * they are apart, and wait for each other only once a trial, to agree on its outcome.
 *
 * One thread steps the engines of all ranks in a random order. They share no memory. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "engine/stepping.h"
#include "engine/queue.h"
#include "engine/trials.h"
#include "group.h"

enum { CALLS = 3000, FIRST = 20, VERDICT = FIRST + HAN_BURST + HAN_PROBE };

static const uint64_t SECOND = 1000000000;

/* A call that waits for no peer; so does its rival. */
typedef struct {
    uint64_t requests[1];
    han_plan plan, rival;
    han_run run;
} call;

/* Classes from MET on run ahead of each other, so ranks meet before and after a burst. */
enum { MET = 1000, MET_BURST = 6 };

static void call_open(call *c, uint64_t class, bool tried) {
    *c = (call){.plan = {.requests = c->requests,
                         .element = 8,
                         .signature = class,
                         .tried = tried ? class << 1 : 0,
                         .first = FIRST,
                         .calls_mpi = true,
                         .burst = class < MET ? 0 : MET_BURST,
                         .rival = &c->rival}};
    c->rival = c->plan;
    c->rival.tried = 0;
    c->rival.rival = NULL;
    c->rival.signature = class + 1000;
    c->run = (han_run){.plan = &c->plan, .blocking = true};
}

/* What trials of a call's class have found on the first rank. */
static const han_trial *found(const group *g, const call *c, bool blocking) {
    const han_class *k = g->engines[0].trials->classes;
    while (k->key != (c->plan.tried ^ blocking)) k++;
    return &k->trial;
}

static uint64_t rivals(const call *c) { return atomic_load(&c->rival.counts.runs); }

static group *among(uint64_t ranks) {
    world w = {.ranks = ranks};
    group *g = group_open(&w, true, (han_wait_policy){.timeout = 20});
    for (uint64_t r = 0; r < ranks; r++)
        require(han_trials_open(&g->engines[r], (uint32_t)r, (uint32_t)ranks), "memory", r);
    return g;
}

static void leave(group *g) {
    for (uint64_t r = 0; r < g->ranks; r++) {
        han_engine_stop(&g->engines[r]);
        require(!g->engines[r].left, "no message is left", r);
        han_trials_close(&g->engines[r]);
    }
    require(mailbox_pending(g->box) == 0, "nor any in the mailbox", mailbox_pending(g->box));
    group_close(g);
}

static uint64_t state, tried, changed, kept_out;

static uint64_t draw(uint64_t below) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (state >> 33) % below;
}

/* ---- all ranks run the same plan ---- */

/* Step an engine; set the end time of a run that counts at random: any plan may win, and some
 * ranks know no times. Returns whether a run has finished. */
static bool finishes(han_engine *e) {
    uint64_t before = e->epoch;
    if (e->head) (void)han_engine_step(e);
    if (e->epoch == before) return false;
    if (e->timed) *e->trials->noted = draw(60) ? e->epoch * 100000 + draw(50000) : 0;
    return true;
}

/* Make random calls of many classes; ranks proceed in a random order, some much slower. */
static void ranks_that_are_apart(uint64_t ranks, uint64_t classes, uint64_t seed) {
    group *g = among(ranks);
    call *all = calloc(ranks * CALLS, sizeof *all);
    uint64_t widest = 0, kind = 0, several = 0;
    if (!all) abort();
    state = seed;
    for (uint64_t k = 0; k < CALLS; k++) {
        if (draw(classes > HAN_CLASSES ? 300 : 3) == 0) kind = draw(classes); /* a spell of one */
        if (draw(40) == 0) several = classes; /* and then all classes in turn */
        uint64_t now = several ? several-- % classes : kind;
        bool without = draw(10) == 0, blocking = draw(20) != 0;
        for (uint64_t r = 0; r < ranks; r++) {
            call *c = &all[r * CALLS + k];
            call_open(c, without ? 99 : now % 3 ? 1 + now : MET + now, !without);
            c->run.blocking = blocking;
            han_enqueue(&g->engines[r], &c->run);
        }
    }
    for (uint64_t left = ranks * CALLS, slow = 0; left;) {
        if (draw(200) == 0) slow = draw(ranks + 1);
        uint64_t r = draw(ranks), least = UINT64_MAX;
        if (r == slow && draw(30)) continue;
        if (!finishes(&g->engines[r])) continue;
        left--;
        for (uint64_t p = 0; p < ranks; p++)
            if (g->engines[p].epoch < least) least = g->engines[p].epoch;
        if (g->engines[r].epoch - least > widest) widest = g->engines[r].epoch - least;
    }
    for (uint64_t k = 0; k < CALLS; k++) {
        for (uint64_t r = 1; r < ranks; r++)
            require(rivals(&all[r * CALLS + k]) == rivals(&all[k]), "all ranks alike", k);
        tried += rivals(&all[k]);
    }
    uint64_t used = 0;
    for (int k = 0; k < HAN_CLASSES; k++) {
        const han_class *one = &g->engines[0].trials->classes[k];
        changed += one->trial.rival;
        used += one->last != 0;
        for (uint64_t r = 1; r < ranks; r++) {
            const han_class *other = &g->engines[r].trials->classes[k];
            require(other->key == one->key && other->last == one->last &&
                        other->trial.rest == one->trial.rest,
                    "the same table", r);
        }
    }
    kept_out += classes > HAN_CLASSES && used == HAN_CLASSES;
    require(widest > 2 * FIRST, "ranks wait for each other only once a trial", widest);
    free(all);
    leave(g);
}

/* ---- when trials take place, and what they cost ---- */

static uint64_t clock_now = 1000;

/* Before a rank tells what two bursts took, replace it. */
static void tell_bursts(han_engine *e, uint64_t usual, uint64_t rival) {
    struct han_trials *c = e->trials;
    if (!e->meets || c->purpose != HAN_VERDICT || c->posted || !e->head->plan->burst) return;
    bool other = c->about->trial.rival;
    c->mine =
        (han_verdict){.median = {other ? rival : usual, other ? usual : rival}, .took = 3 * usual};
}

/* Make `n` blocking or nonblocking calls; `usual` and `rival` are the times of the plans.
 * Returns the runs of the rival. */
static uint64_t make(group *g, call *calls, int n, bool blocking, uint64_t usual, uint64_t rival) {
    uint64_t before = rivals(&calls[0]);
    for (int k = 0; k < n; k++) {
        uint64_t ran = rivals(&calls[0]);
        for (uint64_t r = 0; r < g->ranks; r++) {
            calls[r].run = (han_run){.plan = &calls[r].plan, .blocking = blocking};
            han_enqueue(&g->engines[r], &calls[r].run);
        }
        for (bool busy = true; busy;) {
            busy = false;
            for (uint64_t r = 0; r < g->ranks; r++) {
                if (g->engines[r].head) (void)han_engine_step(&g->engines[r]);
                busy |= g->engines[r].head != NULL;
                tell_bursts(&g->engines[r], usual, rival);
            }
        }
        clock_now += rivals(&calls[0]) > ran ? rival : usual;
        for (uint64_t r = 0; r < g->ranks; r++) /* on rank 0 calls are a little longer */
            if (g->engines[r].timed)
                *g->engines[r].trials->noted = clock_now - r * (g->engines[r].epoch % 2);
    }
    require(rivals(&calls[0]) == rivals(&calls[1]), "as often on both", rivals(&calls[1]));
    return rivals(&calls[0]) - before;
}

static uint64_t play(group *g, call *calls, int n, uint64_t usual, uint64_t rival) {
    return make(g, calls, n, true, usual, rival);
}

static uint64_t played(int n, uint64_t usual, uint64_t rival) {
    group *g = among(3);
    call calls[3];
    for (uint64_t r = 0; r < 3; r++) call_open(&calls[r], 1, true);
    uint64_t ran = play(g, calls, n, usual * SECOND, rival * SECOND);
    leave(g);
    return ran;
}

static void the_faster_plan_is_kept(void) {
    require(played(FIRST + HAN_BURST, 100, 50) == 0, "first the usual plan", 0);
    require(played(VERDICT, 100, 50) == HAN_PROBE, "then a few runs of the other", 0);
    require(played(VERDICT + 20, 100, 50) == HAN_PROBE + 20, "which is kept", 0);
    require(played(VERDICT + 20, 100, 200) == HAN_PROBE, "unless it is slower", 0);
    require(played(VERDICT + 20, 100, 96) == HAN_PROBE, "or only a little faster", 0);
    uint64_t kept = played(1000, 100, 50);
    require(kept > 1000 - VERDICT - 3 * HAN_BURST, "and is tried again now and then", kept);
    uint64_t ran = played(100000, 100, 500) * 4;
    require(ran > 200 && ran < 1000 + 100, "of 100000 calls trials cost 1000", ran);
}

/* The time of agreements is part of the cost. */
static void agreements_cost_a_hundredth(void) {
    group *g = among(2);
    call calls[2];
    for (uint64_t r = 0; r < 2; r++) call_open(&calls[r], 1, true);
    (void)play(g, calls, VERDICT + 1, 100 * SECOND, 100 * SECOND);
    uint32_t rest = g->engines[0].trials->classes[0].trial.rest;
    require(rest == 200, "the first one is taken to last as long as a run of each plan", rest);
    g->engines[1].trials->classes[0].took = 7 * 100 * SECOND;
    (void)play(g, calls, 200 + 2 * HAN_BURST + 1, 100 * SECOND, 100 * SECOND);
    for (int r = 0; r < 2; r++) {
        rest = g->engines[r].trials->classes[0].trial.rest;
        require(rest == 700, "then all know the longest", rest);
    }
    require(g->engines[1].trials->classes[0].took < SECOND, "a rank keeps its least", 1);
    leave(g);
}

static void a_change_of_speed_is_noticed(void) {
    group *g = among(2);
    call calls[2];
    for (uint64_t r = 0; r < 2; r++) call_open(&calls[r], 1, true);
    (void)play(g, calls, 200, 1000 * SECOND, 2000 * SECOND);
    (void)play(g, calls, 3000, 1000 * SECOND, 500 * SECOND);
    require(play(g, calls, 64, 1000 * SECOND, 500 * SECOND) >= 64 - HAN_BURST, "faster now", 0);
    leave(g);
}

/* Make a call on both ranks, to its end. */
static void both(group *g, call *pair, bool blocking) {
    for (uint64_t r = 0; r < 2; r++) {
        pair[r].run = (han_run){.plan = &pair[r].plan, .blocking = blocking};
        han_enqueue(&g->engines[r], &pair[r].run);
    }
    for (int k = 0; g->engines[0].head || g->engines[1].head; k++)
        (void)finishes(&g->engines[k % 2]);
}

static void a_class_stays_while_it_is_used(void) {
    enum { ALL = HAN_CLASSES + 4 };
    group *g = among(2);
    static call calls[ALL][2];
    for (uint64_t k = 0; k < ALL; k++)
        for (uint64_t r = 0; r < 2; r++) call_open(&calls[k][r], 1 + k, true);
    for (int n = 0; n < 1000; n++) /* one class after the other has its trial */
        for (int k = 0; k < ALL; k++) both(g, calls[k], true);
    for (uint64_t k = 0; k < ALL; k++)
        require((rivals(&calls[k][0]) > 0) == (k < HAN_CLASSES), "those that came first", k);
    for (int n = 0; n < HAN_UNUSED + 2 * VERDICT; n++) both(g, calls[ALL - 1], true);
    require(rivals(&calls[ALL - 1][0]) > 0, "others take the places of unused ones", 0);
    leave(g);
}

static void nonblocking_calls_have_trials_of_their_own(void) {
    group *g = among(2);
    call calls[2];
    for (uint64_t r = 0; r < 2; r++) call_open(&calls[r], 1, true);
    for (int n = 0; n < 2 * (FIRST + HAN_BURST); n++) both(g, calls, n % 2);
    require(rivals(&calls[0]) == 0, "both are counted apart", rivals(&calls[0]));
    both(g, calls, false);
    both(g, calls, true);
    require(rivals(&calls[0]) == 1, "the first one tries the rival then", rivals(&calls[0]));
    leave(g);
}

/* A loop makes a call of which the rival takes half as long, and one of which it takes longer. */
static void one_class_is_in_a_trial_at_a_time(void) {
    group *g = among(2);
    call gains[2], loses[2];
    for (uint64_t r = 0; r < 2; r++) {
        call_open(&gains[r], 1, true);
        call_open(&loses[r], 2, true);
    }
    for (int k = 0; k < 400; k++) {
        (void)play(g, gains, 1, 1000 * SECOND, 500 * SECOND);
        (void)play(g, loses, 1, 1000 * SECOND, 1200 * SECOND);
    }
    require(rivals(&gains[0]) > 300, "the one takes the rival", rivals(&gains[0]));
    require(rivals(&loses[0]) <= HAN_PROBE + HAN_BURST, "the other one only tries it",
            rivals(&loses[0]));
    require(found(g, &loses[0], true)->rest > 0, "has had a trial", 0);
    require(!found(g, &loses[0], true)->rival && found(g, &gains[0], true)->rival,
            "each is judged alone", 0);
    leave(g);
}

/* A class that is called no longer, in the middle of its trial, does not keep others from theirs. */
static void a_trial_without_calls_gives_way(void) {
    group *g = among(2);
    call left[2], used[2];
    for (uint64_t r = 0; r < 2; r++) {
        call_open(&left[r], 1, true);
        call_open(&used[r], 2, true);
    }
    (void)play(g, left, FIRST + 3, 1000 * SECOND, 500 * SECOND);
    uint64_t ran = play(g, used, HAN_UNUSED + HAN_BURST, 1000 * SECOND, 500 * SECOND);
    require(ran == 0, "first it has to wait", ran);
    require(play(g, used, 200, 1000 * SECOND, 500 * SECOND) > 100, "then it finds the rival", 0);
    ran = play(g, left, 512 + HAN_BURST, 1000 * SECOND, 500 * SECOND);
    require(ran == 0, "and the other one begins anew, much later", ran);
    ran = play(g, left, HAN_BURST, 1000 * SECOND, 500 * SECOND);
    require(ran == HAN_BURST, "with its rival", ran);
    leave(g);
}

/* A loop has two calls that are so far apart that each lets the other one's trial give way. */
static void classes_that_are_far_apart_have_their_trials(void) {
    enum { GAP = HAN_UNUSED + 6 };
    group *g = among(2);
    call between[2], far[2][2];
    for (uint64_t r = 0; r < 2; r++) {
        call_open(&between[r], 99, false);
        for (uint64_t k = 0; k < 2; k++) call_open(&far[k][r], MET + k, true);
    }
    for (int n = 0; n < 1200; n++)
        for (int k = 0; k < 2; k++) {
            for (int other = 0; other < GAP; other++) both(g, between, true);
            (void)play(g, far[k], 1, 1000 * SECOND, 500 * SECOND);
        }
    for (uint64_t k = 0; k < 2; k++) require(found(g, &far[k][0], true)->rest > 0, "both end", k);
    leave(g);
}

/* The program pauses once, in either of both bursts: they decide nothing. */
static void a_pause_decides_nothing(void) {
    for (int way = 0; way < 2; way++) {
        group *g = among(2);
        call calls[2];
        for (uint64_t r = 0; r < 2; r++) call_open(&calls[r], MET, true);
        for (int n = 0; n <= FIRST + 2 * MET_BURST; n++) {
            if (n == FIRST + way * MET_BURST + 3)
                (void)nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
            both(g, calls, true);
        }
        const han_trial *t = &g->engines[0].trials->classes[0].trial;
        require(!t->rival, "nothing is found", way);
        require(t->rest == 512, "and the next trial is far", t->rest);
        leave(g);
    }
}

/* The greatest median of all ranks counts: a plan that is slow on one rank is slow. */
static void the_slowest_rank_counts(void) {
    group *g = among(5);
    call calls[5];
    for (uint64_t r = 0; r < 5; r++) call_open(&calls[r], 1, true);
    (void)play(g, calls, VERDICT, 1000 * SECOND, 500 * SECOND);
    for (int way = 0; way < 2; way++)
        for (uint64_t k = 0; k < (way ? HAN_PROBE : HAN_BURST); k++)
            g->engines[3].trials->classes[0].trial.finished[way][k] =
                SECOND + k * (way ? 3000 : 1000) * SECOND;
    require(play(g, calls, 10, 1000 * SECOND, 500 * SECOND) == 0, "not taken", 0);
    require(!found(g, &calls[0], true)->rival, "for its slowest rank", 0);
    leave(g);
}

/* ---- ranks that run ahead of each other meet ---- */

static void bursts_between_meetings(void) {
    enum { END = FIRST + 2 * MET_BURST };
    for (uint64_t ranks = 2; ranks < 6; ranks++) {
        group *g = among(ranks);
        call calls[5];
        for (uint64_t r = 0; r < ranks; r++) call_open(&calls[r], MET, true);
        require(play(g, calls, FIRST + MET_BURST, 100 * SECOND, 50 * SECOND) == 0,
                "first the usual plan", ranks);
        require(play(g, calls, MET_BURST, 100 * SECOND, 50 * SECOND) == MET_BURST, "then the other",
                ranks);
        require(play(g, calls, 20, 100 * SECOND, 50 * SECOND) == 20, "which is kept", ranks);
        leave(g);
    }
    group *g = among(3);
    call calls[3];
    for (uint64_t r = 0; r < 3; r++) call_open(&calls[r], MET, true);
    uint64_t ran = play(g, calls, 100000, 100 * SECOND, 200 * SECOND);
    require(ran > 5 * MET_BURST && ran * 100 < 100000 * 100 / 100 + 100 * MET_BURST,
            "what the rival takes more costs a hundredth", ran);
    const han_trial *t = &g->engines[1].trials->classes[0].trial;
    require(t->rest >= 300 + 100 * MET_BURST, "meetings are part of the cost", t->rest);
    leave(g);
}

/* No rank is in a burst before all have come to the meeting before it, or leaves the one behind it
 * before all have come there. */
static void a_rank_waits_at_a_meeting_only(void) {
    group *g = among(2);
    call calls[2][FIRST + 3 * MET_BURST];
    for (uint64_t r = 0; r < 2; r++)
        for (int k = 0; k < FIRST + 3 * MET_BURST; k++) {
            call_open(&calls[r][k], MET, true);
            han_enqueue(&g->engines[r], &calls[r][k].run);
        }
    for (int k = 0; k < 1000; k++) (void)han_engine_step(&g->engines[0]);
    require(g->engines[0].epoch == FIRST, "before the first burst", g->engines[0].epoch);
    for (int k = 0; k < 1000; k++) (void)han_engine_step(&g->engines[1]);
    require(g->engines[1].epoch == FIRST + MET_BURST, "between", g->engines[1].epoch);
    for (int k = 0; k < 1000; k++) (void)han_engine_step(&g->engines[0]);
    require(g->engines[0].epoch == FIRST + 2 * MET_BURST, "behind", g->engines[0].epoch);
    for (int k = 0; k < 1000; k++) (void)han_engine_step(&g->engines[k % 2]);
    require(!g->engines[0].head && !g->engines[1].head, "all is over", 0);
    leave(g);
}

static void nonblocking_calls_do_not_meet(void) {
    group *g = among(2);
    call calls[2];
    for (uint64_t r = 0; r < 2; r++) call_open(&calls[r], MET, true);
    for (int k = 0; k < 4 * FIRST + 4 * MET_BURST; k++) {
        calls[0].run = (han_run){.plan = &calls[0].plan};
        han_enqueue(&g->engines[0], &calls[0].run);
        require(han_engine_step(&g->engines[0]) == HAN_MOVED && !g->engines[0].head, "at once", k);
    }
    require(!rivals(&calls[0]), "their plan stays", rivals(&calls[0]));
    leave(g);
}

/* ---- ranks that wait, and errors ---- */

static void reach_verdict(group *g, call *calls) {
    for (uint64_t r = 0; r < g->ranks; r++) call_open(&calls[r], 1, true);
    (void)play(g, calls, VERDICT, SECOND, SECOND);
    for (uint64_t r = 0; r < g->ranks; r++) {
        calls[r].run = (han_run){.plan = &calls[r].plan, .blocking = true};
        han_enqueue(&g->engines[r], &calls[r].run);
    }
}

static void a_rank_that_waits_says_for_whom(void) {
    group *g = among(3);
    call calls[3];
    reach_verdict(g, calls);
    uint64_t signature, nbytes;
    han_where rows[HAN_MAX_STREAMS];
    for (int k = 0; k < 5; k++)
        require(han_engine_step(&g->engines[0]) == HAN_BLOCKED, "nobody else has come", k);
    uint32_t n = han_engine_blocked(&g->engines[0], rows, &signature, &nbytes);
    require(n == 1 && rows[0].code == HAN_AWAITS_VERDICT && rows[0].peer == 2, "for rank 2", n);
    bool brief;
    require(han_engine_awaits(&g->engines[0], &brief) == -1, "no bell rings for that", 0);
    for (uint64_t k = 0; k < 60; k++) (void)han_engine_step(&g->engines[k % 3]);
    for (uint64_t r = 0; r < 3; r++)
        require(!g->engines[r].head && !g->engines[r].meets, "all have agreed", r);
    leave(g);
}

static void engines_stop_in_the_middle(void) {
    group *g = among(3);
    call calls[3];
    reach_verdict(g, calls);
    (void)han_engine_step(&g->engines[1]);
    require(mailbox_pending(g->box) == 2, "a receive and a message", mailbox_pending(g->box));
    han_engine_stop(&g->engines[1]);
    require(mailbox_pending(g->box) == 1, "the receive is cancelled", mailbox_pending(g->box));
    require(calls[1].run.status == HAN_E_FAILED && !calls[1].run.left, "its run has failed", 0);
    require(!g->engines[1].left && !g->engines[1].meets, "nothing is left", 0);
    for (uint64_t r = 0; r < 3; r++) {
        han_engine_stop(&g->engines[r]);
        han_trials_close(&g->engines[r]);
    }
    group_close(g);
}

static void errors_of_the_library_are_told(void) {
    group *g = among(2);
    call calls[2];
    reach_verdict(g, calls);
    mailbox_break(g->box, 0, 15);
    require(han_engine_step(&g->engines[0]) == HAN_E_LONG, "as of any message", 0);
    require(g->engines[0].dead_rank == 1 && g->engines[0].mpi_error == 15, "with its rank", 0);
    for (uint64_t r = 0; r < 2; r++) {
        han_engine_stop(&g->engines[r]);
        han_trials_close(&g->engines[r]);
    }
    group_close(g);
}

int main(int argc, char **argv) {
    uint64_t rounds = argc > 2 ? strtoull(argv[2], NULL, 10) / 20 : 3;
    for (uint64_t k = 0; k < rounds + 4; k++)
        ranks_that_are_apart(2 + k % 4, k % 4 == 3 ? 20 : 1 + k % 5, 1 + k);
    require(tried > 100 && changed && kept_out, "rivals run and are kept; tables are full",
            changed);
    the_faster_plan_is_kept();
    agreements_cost_a_hundredth();
    a_change_of_speed_is_noticed();
    the_slowest_rank_counts();
    a_class_stays_while_it_is_used();
    nonblocking_calls_have_trials_of_their_own();
    one_class_is_in_a_trial_at_a_time();
    a_trial_without_calls_gives_way();
    classes_that_are_far_apart_have_their_trials();
    a_pause_decides_nothing();
    bursts_between_meetings();
    a_rank_waits_at_a_meeting_only();
    nonblocking_calls_do_not_meet();
    a_rank_that_waits_says_for_whom();
    engines_stop_in_the_middle();
    errors_of_the_library_are_told();
    return 0;
}
