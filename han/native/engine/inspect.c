#include "engine/stepping.h"

#include "data/processor.h"
#include "engine/agreement.h"
#include "engine/lock.h"
#include "engine/loops.h"
#include "engine/queue.h"

enum { LOOKS = 10000 }; /* attempts to lock an engine that another thread is stepping */

/* Find the other rank of a request's message, if one of these instructions starts it. */
static void find_peer(const han_plan *p, uint32_t start, uint32_t stop, uint32_t slot,
                      han_where *row) {
    for (uint32_t k = start; k < stop; k++) {
        const han_instr *m = &p->code[k];
        if ((m->code == HAN_ISEND || m->code == HAN_IRECV) && m->slot == slot) row->peer = m->peer;
    }
}

/* What a stream waits for. For HAN_TEST `peer` is the other rank of the message, which may have
 * been started the last time that a loop was carried out. */
static han_where where(const han_engine *e, const han_plan *p, uint32_t s) {
    const han_instr *i = &p->code[e->pc[s]];
    han_where row = {i->code, i->peer, i->task};
    if (i->code != HAN_TEST) return row;
    uint32_t pc = e->pc[s], reached = han_done_until(e, p, s);
    uint32_t first = reached > pc ? reached - (uint32_t)p->code[reached].n : pc; /* of the loop */
    find_peer(p, p->streams[s].start, first, i->slot, &row);
    find_peer(p, pc, reached, i->slot, &row);
    find_peer(p, first, pc, i->slot, &row);
    return row;
}

uint32_t han_engine_blocked(han_engine *e, han_where *rows, uint64_t *signature, uint64_t *nbytes) {
    uint32_t n = 0;
    for (int k = 0; !han_try_lock(&e->busy); k++) {
        if (k == LOOKS) return 0;
        han_cpu_relax();
    }
    if (e->started && e->head) {
        const han_plan *p = e->plan ? e->plan : e->head->plan;
        *signature = p->signature;
        *nbytes = e->head->nbytes;
        if (!e->plan) n = han_missing_offers(e, rows);
        for (uint32_t s = 0; e->plan && s < p->n_streams; s++)
            if (e->pc[s] < p->streams[s].stop) rows[n++] = where(e, p, s);
    }
    han_unlock(&e->busy);
    return n;
}

int han_engine_awaits(han_engine *e, bool *brief) {
    int channel = -1;
    *brief = han_others_active(e);
    if (!han_try_lock(&e->busy)) return -1;
    const han_plan *p = e->started && e->head ? e->plan : NULL;
    if (e->started && e->head && !p && !e->meets) channel = (int)e->head->plan->whole;
    for (uint32_t s = 0; p && s < p->n_streams; s++) {
        if (e->pc[s] == p->streams[s].stop) continue;
        const han_instr *i = &p->code[e->pc[s]];
        if (i->code == HAN_AWAIT) continue; /* that stream is in this loop too */
        int here = i->code == HAN_WAIT ? (i->base[0] - HAN_B_CHANNEL) / HAN_B_PER_CHANNEL : -1;
        if (here >= 0 && channel < 0) channel = here;
        if (here < 0 || here != channel) *brief = true;
    }
    han_unlock(&e->busy);
    return channel;
}

bool han_engine_mismatch(han_engine *e) {
    if (!han_try_lock(&e->busy)) return false;
    bool found = han_mismatch(e);
    han_unlock(&e->busy);
    return found;
}
