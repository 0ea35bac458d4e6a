/* Plans of which there is more than one: what all ranks run instead.
 *
 * An alternative is run where the buffers of all are in memory that the others map.
 * Each rank knows that of its own buffers alone. It says so with the word that tells that it has
 * entered the run, and goes its usual way at once if it does not offer. Who offers waits for the
 * words of all. One that is ahead has the offers of its last runs in its word, a bit each; it
 * begins no run with which it would forget one that somebody may still ask for. So all see the same
 * bits, whenever they look, and decide alike.
 *
 * A rival is run where the call's leader says so, in the same word (trial.c). */
#include "engine.h"

static const han_control *first(const han_channel *ch) {
    return (const han_control *)(const void *)(ch->memory + ch->control);
}

uint64_t han_least_done(const han_channel *ch) {
    const han_control *all = first(ch);
    uint64_t least = UINT64_MAX;
    for (uint32_t r = 0; r < ch->size; r++) {
        if (r == ch->me) continue;
        uint64_t done = atomic_load_explicit(&all[r].done, memory_order_acquire);
        if (done < least) least = done;
    }
    return least;
}

bool han_may_forget(han_engine *e) {
    uint64_t n = e->epoch - (HAN_HISTORY - 1); /* runs up to the one that would be forgotten */
    for (uint32_t c = 0; c < e->n_channels; c++) {
        han_channel *ch = &e->channels[c];
        if (n > ch->known) ch->known = han_least_done(ch);
        if (n > ch->known) return false;
    }
    return true;
}

enum word { NONE, NO, YES };

/* What a rank has said of the run at the head. Who is too far ahead to tell had no choice in that
 * run: its call went wrong. */
static enum word said(const han_engine *e, const han_control *peer, int shift) {
    uint64_t word = atomic_load_explicit(&peer->entered, memory_order_acquire);
    uint64_t begun = word >> HAN_EPOCH_SHIFT;
    if (begun <= e->epoch) return NONE;
    uint64_t ahead = begun - (e->epoch + 1);
    return ahead < HAN_HISTORY && word >> (shift + (int)ahead) & 1 ? YES : NO;
}

static enum word offered(const han_engine *e, const han_channel *ch, uint32_t r) {
    if (r == ch->me) return e->offers & 1 ? YES : NO;
    return said(e, &first(ch)[r], HAN_OFFERS_SHIFT);
}

/* Whether all have offered. NO is certain as soon as one has not, so who has not waits for nobody. */
static enum word all_offered(const han_engine *e, const han_channel *ch) {
    if (!(e->offers & 1)) return NO;
    enum word all = YES;
    for (uint32_t r = 0; r < ch->size; r++) {
        enum word word = offered(e, ch, r);
        if (word == NO) return NO;
        if (word == NONE) all = NONE;
    }
    return all;
}

static enum word led(const han_engine *e, const han_channel *ch, const han_plan *p) {
    if (p->leader == ch->me) return e->ways & 1 ? YES : NO;
    return said(e, &first(ch)[p->leader], HAN_WAYS_SHIFT);
}

han_plan *han_decide(han_engine *e) {
    han_plan *p = e->head->plan;
    han_channel *ch = &e->channels[p->whole];
    enum word word = all_offered(e, ch);
    if (word == YES) {
        if (ch->known < e->epoch) ch->known = e->epoch; /* all have finished what came before */
        e->alternatives++;
        return p->alternative;
    }
    if (word == NO && e->tried) {
        word = led(e, ch, p);
        if (word == YES) return p->rival; /* it is there: who leads has run this once more */
    }
    return word == NO ? p : NULL;
}

uint32_t han_undecided(const han_engine *e, han_where *rows) {
    const han_channel *ch = &e->channels[e->head->plan->whole];
    enum word offers = all_offered(e, ch);
    const han_plan *p = e->head->plan;
    bool late = offers == NO && e->tried && led(e, ch, p) == NONE;
    uint32_t n = 0;
    for (uint32_t r = 0; r < ch->size && n < HAN_MAX_STREAMS; r++)
        if (offers == NONE ? offered(e, ch, r) == NONE : late && r == p->leader)
            rows[n++] = (han_where){HAN_CODES + late, (int)first(ch)[r].rank, 0};
    return n;
}
