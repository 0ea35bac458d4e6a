#include "engine/agreement.h"

enum verdict { SAME, DIFFERENT, UNKNOWN };

/* Whether one of two ranks raised, and the other did not, after the last call that all agreed
 * on. */
static bool erred_alone(const han_control *a, const han_control *b, uint64_t agreed) {
    uint64_t x = atomic_load_explicit(&a->erred, memory_order_relaxed);
    uint64_t y = atomic_load_explicit(&b->erred, memory_order_relaxed);
    return x != y && (x > agreed || y > agreed);
}

static uint64_t entered(const han_channel *ch, uint32_t r) {
    return atomic_load_explicit(&han_records(ch)[r].entered, memory_order_acquire) >>
           HAN_EPOCH_SHIFT;
}

/* Compare the calls of a peer with this rank's, up to a run that this rank has begun. UNKNOWN: the
 * peer has not begun it, or it is so far ahead that its digest is gone. The digest counts runs
 * modulo 2^16 only, so that `entered` confirms a difference. */
static enum verdict compare(const han_engine *e, const han_channel *ch, uint32_t r, uint64_t run) {
    uint64_t theirs = atomic_load_explicit(han_calls_of(ch, r, run), memory_order_acquire);
    if ((theirs ^ run) & HAN_CALLS_COUNT) return UNKNOWN;
    if (theirs == e->calls[run % HAN_CALLS_KEPT]) return SAME;
    return entered(ch, r) - run < HAN_CALLS_KEPT ? DIFFERENT : UNKNOWN;
}

/* The last run up to which a peer is known to agree with this rank, of `now` that this rank has
 * begun; UINT64_MAX: it does not agree. */
static uint64_t agreed_with(const han_engine *e, const han_channel *ch, uint32_t r, uint64_t now) {
    enum verdict verdict = compare(e, ch, r, now);
    uint64_t run = now, theirs = entered(ch, r);
    if (verdict == UNKNOWN && theirs < now && now - theirs < HAN_CALLS_KEPT)
        verdict = compare(e, ch, r, run = theirs); /* the peer is behind */
    if (verdict == UNKNOWN) return e->agreed;
    return verdict == SAME ? run : UINT64_MAX;
}

/* Whether the run under way takes parts of rings, which are out of step if this rank raised alone. */
static bool needs_step(const han_engine *e, const han_control *mine) {
    uint64_t taken = 0;
    for (uint32_t c = 0; e->started && e->plan && c < e->n_channels; c++)
        taken |= e->plan->footprint[c];
    return taken && atomic_load_explicit(&mine->erred, memory_order_relaxed) > e->agreed;
}

/* Whether a difference from a peer is an error of its own. If one of both ranks raised, it ran no
 * call, and its notice says so; but it cannot trust what it gets through rings any more. */
static bool different(han_engine *e, const han_channel *ch, uint32_t r) {
    const han_control *all = han_records(ch), *mine = &all[ch->me];
    if (erred_alone(&all[r], mine, e->agreed) && !needs_step(e, mine)) return false;
    e->dead_rank = (int)all[r].rank;
    return true;
}

bool han_mismatch(han_engine *e) {
    uint64_t now = e->epoch + e->started, agreed = now;
    for (uint32_t c = 0; c < e->n_channels; c++) {
        const han_channel *ch = &e->channels[c];
        for (uint32_t r = 0; r < ch->size; r++) {
            if (r == ch->me) continue;
            uint64_t run = agreed_with(e, ch, r, now);
            if (run == UINT64_MAX && different(e, ch, r)) return true;
            if (run == UINT64_MAX) run = e->agreed;
            if (run < agreed) agreed = run;
        }
    }
    if (agreed > e->agreed) e->agreed = agreed;
    return false;
}

/* The place in a channel of a rank of the communicator; the number of places if it has none. */
static uint32_t place_of(const han_channel *ch, int rank) {
    uint32_t r = 0;
    while (r < ch->size && (int)han_records(ch)[r].rank != rank) r++;
    return r;
}

bool han_peer_calls_other(han_engine *e, const han_instr *wait) {
    uint32_t area = wait->base[0] - (uint32_t)HAN_B_CHANNEL;
    const han_channel *ch = &e->channels[area / HAN_B_PER_CHANNEL];
    /* Mostly a flag is posted by the rank that it belongs to. Where that rank agrees, no line needs
     * to be read that it writes in every run. */
    uint64_t owner = wait->off[0] / (HAN_RANK_FLAGS * HAN_LINE);
    bool flags = area % HAN_B_PER_CHANNEL == HAN_B_FLAGS && owner < ch->size && owner != ch->me;
    if (flags && compare(e, ch, (uint32_t)owner, e->epoch + 1) == SAME) return false;
    uint32_t r = place_of(ch, wait->peer);
    return r < ch->size && compare(e, ch, r, e->epoch + 1) == DIFFERENT && different(e, ch, r);
}
