#include "engine/facts.h"

#include "data/processor.h"

enum { MUCH = 2 << 20 }; /* bytes: more than a second-level cache holds beside other data */

static uint64_t delivers(const han_instr *i) {
    return i->code == HAN_COPY && i->base[0] == HAN_B_RECV ? i->n : 0;
}

/* Bytes that are copied to the user's buffer. */
static uint64_t delivered(const han_plan *p) {
    uint64_t nbytes = 0;
    for (uint32_t k = 0; k < p->n_code; k++) {
        const han_instr *i = &p->code[k];
        nbytes += delivers(i);
        if (i->code != HAN_LOOP) continue;
        for (uint64_t j = 1; j <= i->n; j++) nbytes += delivers(i - j) * (HAN_LOOP_TIMES(i) - 1);
    }
    return nbytes;
}

/* Whether copies to the receive buffer should bypass the caches: no cache would hold the data until
 * the user reads it, and neither this rank nor its peers read it before. Peers read it only if this
 * rank is a leader that passes it on to another level, so that it posts flags on two levels. This
 * changes only how bytes are copied: ranks may differ. */
static bool streams_out(const han_plan *p, unsigned ranks) {
    uint32_t levels = 0; /* a bit for each channel in which this rank posts flags */
    for (uint32_t k = 0; k < p->n_code; k++) {
        const han_instr *i = &p->code[k];
        if (i->code == HAN_POST) levels |= 1u << (i->base[0] - HAN_B_CHANNEL) / HAN_B_PER_CHANNEL;
        bool flags = i->code == HAN_POST || i->code == HAN_WAIT || i->code == HAN_AWAIT;
        for (int ref = 1; ref < 3 && !flags; ref++)
            if (i->base[ref] == HAN_B_RECV) return false;
    }
    return delivered(p) >= han_cache_share(ranks) && !(p->shows && levels & (levels - 1));
}

/* Note whether an instruction calls MPI; `kernel`: reductions have one of han's own. */
static void note_mpi(han_plan *p, const han_instr *i, bool kernel) {
    bool collective = i->code == HAN_COLL;
    p->blocks |= collective && HAN_COLL_KIND(i) & HAN_C_BLOCKING;
    p->calls_mpi |= collective || i->code == HAN_ISEND || i->code == HAN_IRECV;
    p->calls_mpi |= han_reduces(i->code) && !kernel;
}

void han_plan_facts(han_plan *p, bool kernel, unsigned ranks) {
    for (uint32_t k = 0; k < p->n_code; k++) note_mpi(p, &p->code[k], kernel);
    for (int c = 0; c < HAN_MAX_CHANNELS; c++) p->shows |= (p->writes[c] & HAN_W_SHOWN) != 0;
    p->share = han_cache_share(ranks);
    p->streaming = !p->own && streams_out(p, ranks);
    p->much = delivered(p) >= MUCH;
}
