/* The cost of a run is the time between two moments: when the last rank finished the run before,
 * and when the last rank finished this one. All ranks of a node share the clock. This time
 * includes what the program computes between the calls, which is the same for both plans. The
 * median of a burst decides, so that one pause of the program does not matter. The leader then
 * keeps the faster plan. The more the slower plan costs, the longer the leader waits until the
 * next trial. */
#include "engine/trials.h"

#include <string.h>

#include "clock.h"

enum {
    MOST = 512,          /* runs between two trials, if trials cost little */
    NEVER = 1 << 20,     /* runs between two trials at most */
    MARGIN = 16,         /* the plan in use is replaced if the other one is faster by a sixteenth */
    SHARE = 100,         /* trials may cost a hundredth of the time of all runs */
    ENOUGH = 3,          /* known times of a burst that suffice for a decision */
    HOPELESS_HALVES = 3, /* ENOUGH times end a trial if all exceed so many halves of the usual */
    FAR_TOO_LONG = 8,    /* two times end a trial if both exceed so many times the usual */
};

/* The end time of a run, counted from 1, on one rank. The times follow the control records. */
static han_time *time_of(const han_channel *ch, uint32_t r, uint64_t run) {
    han_time *times = (han_time *)(void *)(han_records(ch) + ch->size);
    return times + (size_t)r * HAN_TIMED + (run - 1) % HAN_TIMED;
}

void han_tell_time(han_engine *e, const han_plan *p) {
    han_channel *ch = &e->channels[p->whole];
    han_time *t = time_of(ch, ch->me, e->epoch + 1);
    atomic_store_explicit(&t->run, 0, memory_order_relaxed);
    atomic_store_explicit(&t->finished, han_now_ns(), memory_order_release);
    atomic_store_explicit(&t->run, e->epoch + 1, memory_order_release);
}

/* When the last rank finished a run; 0 if a rank has not stored its time yet, or overwrote it. */
static uint64_t finished(const han_channel *ch, uint64_t run) {
    uint64_t last = 0;
    for (uint32_t r = 0; r < ch->size; r++) {
        const han_time *t = time_of(ch, r, run);
        if (atomic_load_explicit(&t->run, memory_order_acquire) != run) return 0;
        uint64_t ns = atomic_load_explicit(&t->finished, memory_order_acquire);
        if (atomic_load_explicit(&t->run, memory_order_acquire) != run) return 0;
        if (ns > last) last = ns;
    }
    return last;
}

bool han_collect(han_trial *t, const han_channel *ch) {
    bool all = true;
    for (int way = 0; way < 2; way++)
        for (int k = 0; k < HAN_BURST; k++) {
            if (t->tried[way][k].run && !t->tried[way][k].finished)
                t->tried[way][k].finished = finished(ch, t->tried[way][k].run);
            all = all && t->tried[way][k].finished;
        }
    return all;
}

/* The times from run to run of one burst, sorted; returns how many are known. */
static int periods(const han_trial *t, int way, uint64_t *sorted) {
    int n = 0;
    for (int k = 1; k < HAN_BURST; k++) {
        uint64_t before = t->tried[way][k - 1].finished, after = t->tried[way][k].finished;
        if (!before || after <= before) continue;
        int at = n++;
        for (; at && sorted[at - 1] > after - before; at--) sorted[at] = sorted[at - 1];
        sorted[at] = after - before;
    }
    return n;
}

static uint64_t median(const uint64_t *sorted, int n) { return sorted[(n - 1) / 2]; }

/* Whether the other plan is so slow that the rest of its burst is not worth running. */
static bool hopeless(const han_trial *t) {
    uint64_t used[HAN_BURST], other[HAN_BURST];
    int n = periods(t, 0, used), m = periods(t, 1, other);
    if (!n || m < 2) return false;
    uint64_t usual = median(used, n);
    return other[0] / FAR_TOO_LONG > usual ||
           (m >= ENOUGH && other[0] / HOPELESS_HALVES > usual / 2);
}

static void learn(han_learnt *l, uint64_t ns) {
    l->median = ns;
    if (!l->trials || ns < l->low) l->low = ns;
    if (ns > l->high) l->high = ns;
    l->trials++;
}

bool han_medians(const han_trial *t, uint64_t *found) {
    uint64_t sorted[HAN_BURST];
    int least = ENOUGH;
    for (int way = 0; way < 2; way++) {
        int n = periods(t, way, sorted);
        found[way] = n ? median(sorted, n) : 0;
        if (n < least) least = n;
    }
    return least == ENOUGH;
}

/* Begin to count the runs until the next trial; `change`: keep the other plan. */
static void restart(han_trial *t, bool change, uint64_t rest) {
    t->rival = t->rival != change;
    t->rest = rest < NEVER ? (uint32_t)rest : NEVER;
    t->runs = 0;
    memset(t->tried, 0, sizeof t->tried);
}

/* Compare the medians. `tries`: runs of the other plan; `besides`: other nanoseconds that the
 * trial took. */
static void compare(han_trial *t, const uint64_t *medians, bool enough, uint64_t tries,
                    uint64_t besides) {
    uint64_t usual = medians[0], tried = medians[1];
    uint64_t rest = !t->rest ? HAN_LEAST : t->rest < MOST ? 2 * t->rest : MOST;
    if (enough) learn(&t->learnt[t->rival], usual), learn(&t->learnt[!t->rival], tried);
    bool change = enough && tried < usual - usual / MARGIN;
    uint64_t lost = (tried > usual ? (tried - usual) * tries : 0) + besides;
    uint64_t kept = change ? tried : usual;
    if (lost * SHARE / kept > rest) rest = lost * SHARE / kept;
    restart(t, change, rest);
}

/* Some times are not known: this program's calls may yield none. */
static void give_up(han_trial *t) { restart(t, false, t->rest ? 4 * (uint64_t)t->rest : MOST); }

void han_end_trial(han_trial *t) {
    uint64_t medians[2], other[HAN_BURST];
    bool enough = han_medians(t, medians);
    int m = periods(t, 1, other);
    if (medians[0] && medians[1])
        compare(t, medians, enough, (uint64_t)(m + 1), 0);
    else
        give_up(t);
}

void han_judge(han_trial *t, const uint64_t *medians, uint32_t tries, uint64_t took) {
    if (medians)
        compare(t, medians, true, tries, took);
    else
        give_up(t);
}

void han_keep_learnt(const han_run *run, const han_trial *found) {
    han_plan *p = run->plan;
    han_learnt *kept = run->led ? p->trial.learnt : p->foreseen.learnt;
    if (kept[0].trials > found->learnt[0].trials) return;
    *(run->led ? &p->trial.rival : &p->foreseen.rival) = found->rival;
    memcpy(kept, found->learnt, sizeof found->learnt);
}

bool han_lead(han_engine *e, han_plan *p) {
    han_trial *t = &p->trial;
    uint32_t k = t->runs++, rest = t->rest ? t->rest : HAN_FIRST;
    if (k < rest) return t->rival;
    k -= rest;
    /* HAN_HISTORY runs after a trial every rank has finished it: a time not known now never will
     * be. */
    if (han_collect(t, &e->channels[p->whole]) || hopeless(t) || k > 2 * HAN_BURST + HAN_HISTORY) {
        han_end_trial(t);
    } else if (k < 2 * HAN_BURST) {
        bool other = k >= HAN_BURST;
        t->tried[other][k % HAN_BURST].run = e->epoch + 1;
        return t->rival != other;
    }
    return t->rival;
}
