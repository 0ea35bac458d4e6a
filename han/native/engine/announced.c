#include "engine/announced.h"

#include <string.h>

#include "engine/trials.h"

static _Atomic uint64_t *place_of(const han_channel *ch, uint32_t rank, uint32_t k) {
    return &han_records(ch)[rank].announced[k];
}

/* The place of a class in the table, or where it may enter it: a free place, or that of the class
 * that was used least recently. Returns HAN_ANNOUNCED if all classes are in use. */
static uint32_t find(const han_engine *e, uint64_t signature) {
    uint32_t oldest = 0;
    for (uint32_t k = 0; k < HAN_ANNOUNCED; k++) {
        if (e->announced[k].signature == signature && e->announced[k].last) return k;
        if (e->announced[k].last < e->announced[oldest].last) oldest = k;
    }
    uint64_t last = e->announced[oldest].last;
    return !last || last + HAN_UNUSED <= e->epoch ? oldest : HAN_ANNOUNCED;
}

/* Enter a class. The own announcement becomes that of a leader that has none yet. */
static void enter(han_engine *e, han_channel *ch, uint32_t k, uint64_t signature) {
    han_class *c = &e->announced[k];
    c->signature = signature;
    c->runs = 0;
    c->generation++;
    memset(&e->foreseen[k], 0, sizeof e->foreseen[k]);
    atomic_store_explicit(place_of(ch, ch->me, k), han_announcement(c->generation, 0, 0, false),
                          memory_order_relaxed);
}

static void announce(const han_channel *ch, uint32_t k, uint16_t generation, uint64_t from,
                     unsigned length, bool rival) {
    uint64_t word = han_announcement(generation, from, length, rival);
    atomic_store_explicit(place_of(ch, ch->me, k), word, memory_order_release);
}

/* As the leader, note the run if it belongs to the trial. */
static void note(han_foreseen *f, uint64_t k, uint64_t run) {
    if (k + HAN_BURST < f->from) return;
    if (k < f->from)
        f->trial.tried[0][k + HAN_BURST - f->from].run = run;
    else if (k - f->from < f->length)
        f->trial.tried[1][k - f->from].run = run;
}

/* As the leader, begin a trial in due time, and keep the faster plan at its end. */
static void lead(han_engine *e, const han_run *run, uint32_t place) {
    const han_channel *ch = &e->channels[run->plan->whole];
    han_foreseen *f = &e->foreseen[place];
    han_trial *t = &f->trial;
    uint64_t k = e->announced[place].runs;
    uint16_t generation = e->announced[place].generation;
    if (!f->length) {
        if (t->runs++ < (t->rest ? t->rest : HAN_FIRST)) return;
        f->from = k + HAN_HISTORY;
        f->length = t->rest ? HAN_BURST : HAN_PROBE;
        announce(ch, place, generation, f->from, f->length, t->rival);
        return;
    }
    note(f, k, e->epoch + 1);
    (void)han_collect(t, ch); /* before later runs overwrite the times */
    if (k < f->from + f->length + HAN_HISTORY) return;
    bool before = t->rival;
    han_end_trial(t);
    if (t->rival != before) announce(ch, place, generation, k + HAN_HISTORY, HAN_FOR_EVER, before);
    f->length = 0;
    han_keep_learnt(run, t);
}

bool han_follow(han_engine *e, const han_run *run) {
    const han_plan *p = run->plan;
    han_channel *ch = &e->channels[p->whole];
    uint64_t signature = p->signature ^ run->led;
    uint32_t k = find(e, signature);
    if (k == HAN_ANNOUNCED) return false;
    han_class *c = &e->announced[k];
    if (c->signature != signature || !c->last) enter(e, ch, k, signature);
    c->last = e->epoch + 1;
    if (ch->me == p->leader) lead(e, run, k);
    uint64_t word = atomic_load_explicit(place_of(ch, p->leader, k), memory_order_acquire);
    return han_takes_rival(word, c->generation, c->runs++);
}
