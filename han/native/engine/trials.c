/* Two ways for the same call, such as through cells or by attach, of which only a trial tells the
 * better one: it depends on the processor, on where the host of a virtual machine runs it, and on
 * whether the program has just written its data.
 *
 * A leader (the root, or the first rank) goes one of them in each run and says so in the word that
 * tells that it has entered it; the others wait for that word, and follow. So all go the same way,
 * whatever each of them has measured. The leader first goes the usual way, then tries: a burst of
 * runs the way in use, and one the other. All ranks note when they finished each run, by the clock
 * that those of a machine share. What counts is the time from when the last rank finished a run
 * until the last one finished the next: what the program computes in between is part of it either
 * way, and so is what a rank does ahead of the others. The median of a burst decides, and a pause
 * of the program's in it does not. The leader stays with the better way then, and tries again now
 * and then: the more the worse way costs, the more seldom. */
#include "engine.h"

enum {
    MOST = 512,          /* runs from one trial to the next, later */
    NEVER = 1 << 20,     /* and at most */
    MARGIN = 16,         /* who is in use stays, unless the other takes less by a part of so many */
    SHARE = 100,         /* what trials may cost: a part of so many */
    ENOUGH = 3,          /* times of the other way after which it is given up, if all of them are */
    HOPELESS_HALVES = 3, /* more than so many halves of what the way in use takes */
    FAR_TOO_LONG = 8,    /* two are enough that take so many times as long */
};

/* Where a rank tells when it finished a run, counted from 1. */
static han_time *told(const han_channel *ch, uint32_t r, uint64_t run) {
    uint8_t *times = ch->memory + ch->control + ch->size * sizeof(han_control);
    return (han_time *)(void *)times + (size_t)r * HAN_TIMED + (run - 1) % HAN_TIMED;
}

void han_tell_time(han_engine *e, const han_plan *p) {
    han_channel *ch = &e->channels[p->whole];
    han_time *t = told(ch, ch->me, e->epoch + 1);
    atomic_store_explicit(&t->run, 0, memory_order_relaxed);
    atomic_store_explicit(&t->finished, han_now_ns(), memory_order_release);
    atomic_store_explicit(&t->run, e->epoch + 1, memory_order_release);
}

/* When the last rank finished a run: 0 while one has not told, or where it no longer does. */
static uint64_t finished(const han_channel *ch, uint64_t run) {
    uint64_t last = 0;
    for (uint32_t r = 0; r < ch->size; r++) {
        const han_time *t = told(ch, r, run);
        if (atomic_load_explicit(&t->run, memory_order_acquire) != run) return 0;
        uint64_t ns = atomic_load_explicit(&t->finished, memory_order_acquire);
        if (atomic_load_explicit(&t->run, memory_order_acquire) != run) return 0;
        if (ns > last) last = ns;
    }
    return last;
}

/* Look for the times of a trial's runs; whether all are known. */
static bool collect(han_trial *t, const han_channel *ch) {
    bool all = true;
    for (int way = 0; way < 2; way++)
        for (int k = 0; k < HAN_BURST; k++) {
            if (t->tried[way][k].run && !t->tried[way][k].finished)
                t->tried[way][k].finished = finished(ch, t->tried[way][k].run);
            all = all && t->tried[way][k].finished;
        }
    return all;
}

/* From run to run of a burst, in ascending order: how many such times are known. */
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

/* Whether so much is known of the other way that the rest of its burst is not worth it. */
static bool hopeless(const han_trial *t) {
    uint64_t used[HAN_BURST], other[HAN_BURST];
    int n = periods(t, 0, used), m = periods(t, 1, other);
    if (!n || m < 2) return false;
    uint64_t usual = median(used, n);
    return other[0] / FAR_TOO_LONG > usual ||
           (m >= ENOUGH && other[0] / HOPELESS_HALVES > usual / 2);
}

/* Keep one way, and say when to try again. */
static void decide(han_trial *t) {
    uint64_t used[HAN_BURST], other[HAN_BURST], lost;
    int n = periods(t, 0, used), m = periods(t, 1, other);
    uint64_t rest = !t->rest ? HAN_LEAST : t->rest < MOST ? 2 * t->rest : MOST;
    bool change = false;
    if (n && m) {
        uint64_t usual = median(used, n), tried = median(other, m);
        change = n >= ENOUGH && m >= ENOUGH && tried < usual - usual / MARGIN;
        lost = tried > usual ? (tried - usual) * (uint64_t)(m + 1) : 0;
        if (lost * SHARE / usual > rest) rest = lost * SHARE / usual;
    } else {
        rest = t->rest ? 4 * (uint64_t)t->rest : MOST; /* this program hides what it could learn */
    }
    *t = (han_trial){.rival = t->rival != change, .rest = rest < NEVER ? (uint32_t)rest : NEVER};
}

bool han_lead(han_engine *e, han_plan *p) {
    han_trial *t = &p->trial;
    uint32_t k = t->runs++, rest = t->rest ? t->rest : HAN_FIRST;
    if (k < rest) return t->rival;
    k -= rest;
    /* HAN_HISTORY runs later a trial is over everywhere: what is not known never will be. */
    if (collect(t, &e->channels[p->whole]) || hopeless(t) || k > 2 * HAN_BURST + HAN_HISTORY) {
        decide(t);
    } else if (k < 2 * HAN_BURST) {
        bool other = k >= HAN_BURST;
        t->tried[other][k % HAN_BURST].run = e->epoch + 1;
        return t->rival != other;
    }
    return t->rival;
}
