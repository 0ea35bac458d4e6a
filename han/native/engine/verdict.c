#include "engine/stepping.h"

#include "engine/trials.h"

/* Behind the tags of all streams. All ranks have begun the next agreement before any of them
 * begins the one after it, so messages of a pair of ranks keep their order with one tag. */
static int tag_of(const han_engine *e) {
    return (int)(e->tag_base + HAN_MAX_STREAMS * HAN_EPOCH_TAGS);
}

int han_sender(const han_engine *e) {
    const struct han_trials *c = e->trials;
    return (int)((c->rank + c->size - c->distance % c->size) % c->size);
}

static void take_greatest(han_verdict *mine, const han_verdict *theirs) {
    for (int k = 0; k < 2; k++)
        if (theirs->median[k] > mine->median[k]) mine->median[k] = theirs->median[k];
    if (theirs->lacking > mine->lacking) mine->lacking = theirs->lacking;
    if (theirs->took > mine->took) mine->took = theirs->took;
}

static int post(han_engine *e, struct han_trials *c, int from) {
    int to = (int)((c->rank + c->distance) % c->size), n = (int)sizeof c->sent;
    c->sent = c->mine;
    c->posted = true;
    int rc = han_irecv(e->mpi, &c->theirs, n, from, tag_of(e), e->messages, &c->requests[0]);
    c->receiving = !rc;
    if (!rc) rc = han_isend(e->mpi, &c->sent, n, to, tag_of(e), e->messages, &c->requests[1]);
    c->sending = !rc;
    return rc;
}

/* Test both messages of a step; HAN_OK if they are over. */
static enum han_status exchange(han_engine *e, struct han_trials *c, int from) {
    int rc, flag = 0, got = 0;
    if (!c->posted && (rc = post(e, c, from))) return han_message_error(e, rc, from);
    if (c->receiving) {
        if ((rc = han_test_receive(e->mpi, &c->requests[0], &flag, &got)))
            return han_message_error(e, rc, from);
        if (!flag) return HAN_BLOCKED;
        c->receiving = false;
        if (got != (int)sizeof c->theirs) {
            e->dead_rank = from;
            return HAN_E_SHORT;
        }
    }
    if (c->sending && (rc = han_test(e->mpi, &c->requests[1], &flag)))
        return han_message_error(e, rc, from);
    if (!flag && c->sending) return HAN_BLOCKED;
    c->sending = false;
    return HAN_OK;
}

enum han_status han_exchange(han_engine *e) {
    struct han_trials *c = e->trials;
    for (; c->distance < c->size; c->distance *= 2, c->posted = false) {
        enum han_status status = exchange(e, c, han_sender(e));
        if (status != HAN_OK) return status;
        take_greatest(&c->mine, &c->theirs);
    }
    han_end_exchange(e);
    return HAN_MOVED;
}

bool han_exchange_over(han_engine *e, bool cancel) {
    struct han_trials *c = e->trials;
    c->receiving = c->receiving && !han_request_over(e, &c->requests[0], cancel);
    c->sending = c->sending && !han_request_over(e, &c->requests[1], false);
    return !c->receiving && !c->sending;
}
