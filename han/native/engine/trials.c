#include "engine/trials.h"

#include <stdlib.h>
#include <string.h>

#include "clock.h"

bool han_trials_open(han_engine *e, uint32_t rank, uint32_t size) {
    if (e->trials) return true;
    struct han_trials *c = calloc(1, sizeof *c);
    if (!c) return false;
    c->rank = rank;
    c->size = size;
    e->trials = c;
    return true;
}

void han_trials_close(han_engine *e) {
    if (e->left) return;
    free(e->trials);
    e->trials = NULL;
}

static bool is_unused(const han_class *k, uint64_t epoch) { return k->last + HAN_UNUSED <= epoch; }

/* The class of a call, entered if it is new: at a free place, or at that of the class that was
 * used least recently. NULL if all classes are in use. */
static han_class *class_of(struct han_trials *c, const han_run *run, uint64_t epoch) {
    uint64_t key = run->plan->tried ^ run->blocking;
    han_class *oldest = c->classes;
    for (han_class *k = c->classes; k < c->classes + HAN_CLASSES; k++) {
        if (k->last && k->key == key) return k;
        if (k->last < oldest->last) oldest = k;
    }
    if (oldest->last && !is_unused(oldest, epoch)) return NULL;
    if (c->trying == oldest) c->trying = NULL;
    *oldest = (han_class){.key = key, .first = run->plan->first};
    return oldest;
}

/* The runs from the last decision to the trial. */
static uint32_t rest_of(const han_class *k) { return k->trial.rest ? k->trial.rest : k->first; }

/* Give up a trial whose class is no longer called. It begins anew much later: two classes that are
 * far apart would otherwise take the turn from each other for ever. */
static void give_way(han_class *k) {
    han_judge(&k->trial, NULL, 0, 0);
    k->waited = 0;
}

/* Whether a class may be in a trial: no other one is. One that is no longer called gives way. */
static bool may_try(struct han_trials *c, han_class *k, uint64_t epoch) {
    if (c->trying == k) return true;
    if (c->trying && !is_unused(c->trying, epoch)) return false;
    if (c->trying) give_way(c->trying);
    c->trying = k;
    return true;
}

/* Begin to exchange messages about a class. */
static void meet(han_engine *e, han_class *k, enum han_purpose purpose) {
    struct han_trials *c = e->trials;
    c->about = k;
    c->purpose = purpose;
    c->begun = han_now_ns();
    c->distance = 1;
    c->posted = false;
    memset(&c->mine, 0, sizeof c->mine);
    e->meets = true;
}

/* Begin the agreement on the trial of a class. */
static void agree(han_engine *e, han_class *k, uint32_t burst) {
    han_verdict *mine = &e->trials->mine;
    meet(e, k, HAN_VERDICT);
    if (burst)
        for (int way = 0; way < 2; way++) {
            uint64_t took = k->met[way + 1] - k->met[way];
            mine->median[way] = took / burst + 1;
            if (k->longest[way] > took / 2) mine->lacking = 1; /* the program has paused */
        }
    else
        mine->lacking = !han_medians(&k->trial, mine->median);
    mine->took = k->waited + (k->took ? k->took : mine->median[0] + mine->median[1]);
    k->waited = 0;
}

/* A run of a burst begins, or the meeting behind it: tell how far it is from the one before. */
static void space_out(han_class *k, uint32_t way) {
    uint64_t now = han_now_ns();
    if (now - k->since > k->longest[way]) k->longest[way] = now - k->since;
    k->since = now;
}

bool han_count(han_engine *e, const han_run *run) {
    struct han_trials *c = e->trials;
    uint32_t burst = run->plan->burst;
    e->timed = false;
    if (burst && !run->blocking) return false;
    han_class *k = class_of(c, run, e->epoch);
    if (!k) return false;
    k->last = e->epoch + 1;
    han_trial *t = &k->trial;
    uint32_t others = t->rest ? HAN_BURST : HAN_PROBE; /* runs of the other plan */
    if (t->runs >= rest_of(k) && !may_try(c, k, e->epoch)) return t->rival;
    if (t->runs++ < rest_of(k)) return t->rival;
    uint32_t n = t->runs - 1 - rest_of(k);
    if (burst) {
        if (n) space_out(k, (n - 1) / burst);
        if (n % burst == 0) meet(e, k, (enum han_purpose)(HAN_BEFORE + n / burst));
        return t->rival != (n >= burst); /* unless it is chosen after a meeting */
    }
    if (n == HAN_BURST + others) {
        agree(e, k, 0);
        return false;
    }
    bool other = n >= HAN_BURST;
    c->noted = &t->finished[other][other ? n - HAN_BURST : n];
    e->timed = true;
    return t->rival != other;
}

void han_note_time(han_engine *e) { *e->trials->noted = han_now_ns(); }

/* The ranks have met: begin a burst, or agree on the outcome of both. */
static void conclude_meeting(han_engine *e, han_class *k) {
    struct han_trials *c = e->trials;
    uint64_t now = han_now_ns();
    k->waited += now - c->begun;
    k->met[c->purpose - HAN_BEFORE] = k->since = now;
    if (c->purpose != HAN_BEHIND) k->longest[c->purpose - HAN_BEFORE] = 0;
    e->meets = false;
    if (c->purpose == HAN_BEHIND) agree(e, k, e->head->plan->burst);
}

void han_end_exchange(han_engine *e) {
    struct han_trials *c = e->trials;
    han_class *k = c->about;
    if (c->purpose != HAN_VERDICT) {
        conclude_meeting(e, k);
        return;
    }
    uint64_t took = han_now_ns() - c->begun;
    if (!k->took || took < k->took) k->took = took;
    const uint64_t *medians = c->mine.lacking ? NULL : c->mine.median;
    uint32_t burst = e->head->plan->burst;
    uint32_t tries = burst ? burst : k->trial.rest ? HAN_BURST : HAN_PROBE;
    han_judge(&k->trial, medians, tries, c->mine.took);
    e->meets = false;
    e->takes_rival = k->trial.rival;
    c->trying = NULL;
}
