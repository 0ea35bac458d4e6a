#include "engine/stepping.h"

bool han_offers_read(han_engine *e) {
    uint64_t n = e->epoch - (HAN_HISTORY - 1); /* runs up to the one whose bit is pushed out */
    for (uint32_t c = 0; c < e->n_channels; c++) {
        han_channel *ch = &e->channels[c];
        if (n > ch->known) ch->known = han_least_done(ch);
        if (n > ch->known) return false;
    }
    return true;
}

enum answer { NONE, NO, YES }; /* NONE: not known yet */

/* Whether a peer offers in the run at the head. NO if the peer is so far ahead that the bit is gone: then
 * its plan had no choice in that run, because its call was a different one. */
static enum answer offer_of(const han_engine *e, const han_control *peer) {
    uint64_t entered = atomic_load_explicit(&peer->entered, memory_order_acquire);
    uint64_t begun = entered >> HAN_EPOCH_SHIFT;
    if (begun <= e->epoch) return NONE;
    uint64_t ahead = begun - (e->epoch + 1);
    return ahead < HAN_HISTORY && entered >> ahead & 1 ? YES : NO;
}

static enum answer offered(const han_engine *e, const han_channel *ch, uint32_t r) {
    if (r == ch->me) return e->offers & 1 ? YES : NO;
    return offer_of(e, &han_records(ch)[r]);
}

/* Whether all ranks offer. NO as soon as one rank does not: that rank itself waits for no peer. */
static enum answer all_offered(const han_engine *e, const han_channel *ch) {
    if (!(e->offers & 1)) return NO;
    enum answer all = YES;
    for (uint32_t r = 0; r < ch->size; r++) {
        enum answer one = offered(e, ch, r);
        if (one == NO) return NO;
        if (one == NONE) all = NONE;
    }
    return all;
}

han_plan *han_decide(han_engine *e) {
    han_plan *p = e->head->plan;
    han_channel *ch = &e->channels[p->whole];
    enum answer other = all_offered(e, ch);
    if (other == YES) {
        if (ch->known < e->epoch) ch->known = e->epoch; /* all ranks have finished earlier runs */
        e->alternatives++;
        return p->alternative;
    }
    if (other == NONE) return NULL;
    return e->takes_rival ? p->rival : p;
}

uint32_t han_missing_offers(const han_engine *e, han_where *rows) {
    const han_channel *ch = &e->channels[e->head->plan->whole];
    if (e->meets) {
        rows[0] = (han_where){HAN_AWAITS_VERDICT, han_sender(e), 0};
        return 1;
    }
    uint32_t n = 0;
    if (all_offered(e, ch) != NONE) return n;
    for (uint32_t r = 0; r < ch->size && n < HAN_MAX_STREAMS; r++)
        if (offered(e, ch, r) == NONE)
            rows[n++] = (han_where){HAN_AWAITS_OFFER, (int)han_records(ch)[r].rank, 0};
    return n;
}
