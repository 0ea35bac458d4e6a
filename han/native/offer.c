/* Plans with an alternative: all ranks run it where the buffers of all are in memory that the others
 * map, and none does otherwise.
 *
 * Each rank knows that of its own buffers alone. It says so with the word that tells that it has
 * entered the run, and goes its usual way at once if it does not offer. Who offers waits for the
 * words of all. One that is ahead has the offers of its last runs in its word, a bit each; it
 * begins no run with which it would forget one that somebody may still ask for. So all see the same
 * bits, whenever they look, and decide alike. */
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

/* What a rank has said of the run at the head. Who is too far ahead to tell had no alternative in
 * that run: its call went wrong. */
static enum word said(const han_engine *e, const han_control *peer) {
    uint64_t word = atomic_load_explicit(&peer->entered, memory_order_acquire);
    uint64_t begun = word >> HAN_EPOCH_SHIFT;
    if (begun <= e->epoch) return NONE;
    uint64_t ahead = begun - (e->epoch + 1);
    return ahead < HAN_HISTORY && word >> ahead & 1 ? YES : NO;
}

han_plan *han_decide(han_engine *e) {
    han_plan *p = e->head->plan;
    han_channel *ch = &e->channels[p->whole];
    bool all = true;
    for (uint32_t r = 0; r < ch->size; r++) {
        enum word word = r == ch->me ? YES : said(e, &first(ch)[r]);
        if (word == NO) return p;
        all &= word == YES;
    }
    if (!all) return NULL;
    if (ch->known < e->epoch) ch->known = e->epoch; /* all have finished what came before */
    e->alternatives++;
    return p->alternative;
}

uint32_t han_undecided(const han_engine *e, han_where *rows) {
    const han_channel *ch = &e->channels[e->head->plan->whole];
    uint32_t n = 0;
    for (uint32_t r = 0; r < ch->size && n < HAN_MAX_STREAMS; r++)
        if (r != ch->me && said(e, &first(ch)[r]) == NONE)
            rows[n++] = (han_where){HAN_CODES, (int)first(ch)[r].rank, 0};
    return n;
}
