/* Two ways for the same call, such as through cells or by attach, of which only a trial tells the
 * better one: it depends on the processor, on where the host of a virtual machine runs it, and on
 * whether the program has just written its data.
 *
 * A leader (the root, or the first rank) goes one of them in each run and says so in the word that
 * tells that it has entered it; the others wait for that word, and follow. So all go the same way,
 * whatever each of them has measured. The leader first goes the usual way, then tries: a burst of
 * runs either way. All ranks note when they began and finished each run, by the clock that those of
 * a machine share. A run has taken from when the first rank began it, or the last one finished the
 * run before it, if that was later, until the last one finished. The shortest of a burst counts,
 * since whatever disturbs a run makes it longer, and not the first one, which finds the caches as the
 * other way left them. The leader stays with the better way then, and tries again now and then. */
#include "engine.h"

enum {
    FIRST = 2,   /* runs before the first trial: those that make plans and meet new pages */
    LEAST = 32,  /* runs between trials, at first, when much is new, and later: what the worse way */
    MOST = 512,  /* costs is spread over so many */
    ENOUGH = 3,  /* runs of the other way after which it is given up, if all took HOPELESS halves */
    HOPELESS = 3, /* of what the way in use takes */
    MARGIN = 16, /* who is in use stays, unless the other takes less by a part of so many */
};

static const han_control *member(const han_channel *ch, uint32_t r) {
    return (const han_control *)(const void *)(ch->memory + ch->control) + r;
}

void han_tell_times(han_engine *e, const han_plan *p) {
    han_channel *ch = &e->channels[p->whole];
    han_control *mine = (han_control *)(void *)(ch->memory + ch->control) + ch->me;
    han_times *t = &mine->times[e->epoch % HAN_TIMED];
    atomic_store_explicit(&t->run, 0, memory_order_relaxed);
    atomic_store_explicit(&t->begun, e->begun, memory_order_release);
    atomic_store_explicit(&t->finished, han_now_ns(), memory_order_release);
    atomic_store_explicit(&t->run, e->epoch + 1, memory_order_release);
}

/* When the first rank began a run and the last one finished it; false while one has not told, or
 * where it no longer does. */
static bool times_of(const han_channel *ch, uint64_t run, uint64_t *first, uint64_t *last) {
    *first = UINT64_MAX, *last = 0;
    for (uint32_t r = 0; r < ch->size; r++) {
        const han_times *t = &member(ch, r)->times[(run - 1) % HAN_TIMED];
        if (atomic_load_explicit(&t->run, memory_order_acquire) != run) return false;
        uint64_t begun = atomic_load_explicit(&t->begun, memory_order_acquire);
        uint64_t finished = atomic_load_explicit(&t->finished, memory_order_acquire);
        if (atomic_load_explicit(&t->run, memory_order_acquire) != run) return false;
        if (begun < *first) *first = begun;
        if (finished > *last) *last = finished;
    }
    return true;
}

static void collect(han_trial *t, const han_channel *ch) {
    uint64_t first, last;
    for (int way = 0; way < 2; way++)
        for (int k = 0; k < HAN_BURST; k++)
            if (t->tried[way][k].run && !t->tried[way][k].last &&
                times_of(ch, t->tried[way][k].run, &first, &last))
                t->tried[way][k].first = first, t->tried[way][k].last = last;
}

/* The shortest run of a burst but the first: UINT64_MAX if none is known. */
static uint64_t shortest(const han_trial *t, int way) {
    uint64_t least = UINT64_MAX;
    for (int k = 1; k < HAN_BURST; k++) {
        uint64_t before = t->tried[way][k - 1].last, last = t->tried[way][k].last;
        uint64_t from = t->tried[way][k].first > before ? t->tried[way][k].first : before;
        if (before && last > from && last - from < least) least = last - from;
    }
    return least;
}

static void decide(han_trial *t) {
    uint64_t used = shortest(t, 0), other = shortest(t, 1);
    bool change = used != UINT64_MAX && other < used - used / MARGIN;
    uint32_t rest = !t->rest ? LEAST : t->rest < MOST ? 2 * t->rest : MOST;
    *t = (han_trial){.rival = t->rival != change, .rest = rest};
}

static bool all_known(const han_trial *t) {
    for (int way = 0; way < 2; way++)
        for (int k = 0; k < HAN_BURST; k++)
            if (!t->tried[way][k].last) return false;
    return true;
}

/* Whether so much is known of the other way that the rest of its burst is not worth it. */
static bool hopeless(const han_trial *t) {
    uint64_t used = shortest(t, 0), other = shortest(t, 1);
    return t->tried[1][ENOUGH].last && used != UINT64_MAX && other / HOPELESS > used / 2;
}

bool han_lead(han_engine *e, han_plan *p) {
    han_trial *t = &p->trial;
    uint32_t k = t->runs++, rest = t->rest ? t->rest : FIRST;
    if (k < rest || !p->rival) return t->rival;
    collect(t, &e->channels[p->whole]);
    k -= rest;
    /* After HAN_TIMED more the others have finished all of them, and what is not known never will be. */
    if (hopeless(t) || all_known(t) || k >= 2 * HAN_BURST + HAN_TIMED) {
        decide(t);
    } else if (k < 2 * HAN_BURST) {
        bool other = k >= HAN_BURST;
        t->tried[other][k % HAN_BURST].run = e->epoch + 1;
        return t->rival != other;
    }
    return t->rival;
}
