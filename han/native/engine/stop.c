#include "engine/stepping.h"

#include "clock.h"
#include "engine/lock.h"
#include "engine/loops.h"
#include "engine/queue.h"

enum { SETTLE_NS = 50000000 }; /* how long a stopping engine waits for its messages */

/* Test every message and collective under way, and cancel receives; returns whether all are
 * over. The plan may be NULL. */
static bool over(han_engine *e, const han_plan *p, bool cancel) {
    bool all = !e->meets || han_exchange_over(e, cancel);
    if (!p) return all;
    for (uint32_t s = 0; s < p->n_streams; s++) {
        uint32_t reached = han_done_until(e, p, s);
        for (uint32_t k = p->streams[s].start; k < reached; k++) {
            const han_instr *i = &p->code[k];
            bool coll = i->code == HAN_COLL && !(HAN_COLL_KIND(i) & HAN_C_BLOCKING);
            if (i->code != HAN_IRECV && i->code != HAN_ISEND && !coll) continue;
            all &= han_request_over(e, &p->requests[i->slot], cancel && i->code == HAN_IRECV);
        }
    }
    return all;
}

/* Wait for a moment until all messages are over. A send, a collective or a message that is arriving
 * cannot be cancelled. */
static bool settle(han_engine *e, const han_plan *p) {
    if (!e->mpi) return true;
    if (han_mpi_finalized(e->mpi)) return false;
    uint64_t until = han_now_ns() + SETTLE_NS;
    for (bool cancel = true; !over(e, p, cancel); cancel = false) {
        if (han_now_ns() > until) return false;
        sched_yield();
    }
    return true;
}

/* Whether peers may still push to the buffers of a plan under way. */
static bool given(const han_plan *p) {
    bool any = false;
    for (int c = 0; c < HAN_MAX_CHANNELS; c++) any |= p->writes[c] & HAN_W_GIVEN;
    return any;
}

void han_engine_stop(han_engine *e) {
    if (han_forked()) return;
    han_deactivate(e);
    han_lock(&e->busy);
    if (e->started && (e->plan || e->meets)) {
        e->left = !settle(e, e->plan);
        e->head->left = e->plan && (e->left || given(e->plan));
    }
    e->started = e->placed = e->meets = false;
    e->plan = NULL;
    if (!e->failed) e->failed = HAN_E_FAILED;
    for (han_run *run = e->head, *next; run; run = next) {
        next = run->next;
        atomic_store_explicit(&run->status, HAN_E_FAILED, memory_order_release);
    }
    e->head = e->tail = NULL;
    han_unlock(&e->busy);
}
