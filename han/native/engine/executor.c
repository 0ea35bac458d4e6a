#include "engine/stepping.h"

#include <string.h>

#include "data/operands.h"
#include "data/operations.h"
#include "data/processor.h"
#include "data/slots.h"
#include "engine/agreement.h"
#include "engine/bell.h"
#include "engine/loops.h"
#include "engine/runs.h"

static inline han_flag *flag_at(uint8_t *p) { return (han_flag *)(void *)p; }

static inline uint64_t flag_value(const han_engine *e, uint64_t k) {
    return (e->epoch << HAN_EPOCH_SHIFT) + k;
}

enum { MOST_AHEAD = 16 * HAN_LINE };

/* Fetch what the next run will write or read where this one has accessed `n` bytes of a small slot, as
 * programs repeat calls. It has the next bank. */
static inline void fetch_ahead(const han_engine *e, const han_instr *i, int ref, uint64_t n,
                               bool to_write) {
    const uint32_t base = i->base[ref] - (uint32_t)HAN_B_CHANNEL;
    const bool small = base % HAN_B_PER_CHANNEL == HAN_B_SMALL;
    if (!small || base >= HAN_MAX_BASES - HAN_B_CHANNEL || !n) return;
    const uint8_t *bank = han_bank(&e->channels[base / HAN_B_PER_CHANNEL], e->epoch + 1);
    const uint8_t *begin = bank + i->off[ref];
    const uint8_t *end = begin + (n < MOST_AHEAD ? n : MOST_AHEAD);
    for (const uint8_t *at = begin; at < end; at += HAN_LINE)
        if (to_write)
            han_fetch_to_write(at);
        else
            __builtin_prefetch(at);
}

static void post(const han_engine *e, const han_instr *i) {
    han_flag *flag = flag_at(han_at(e, i, 0));
    atomic_store_explicit(&flag->calls, e->digest, memory_order_relaxed);
    atomic_store_explicit(&flag->value, flag_value(e, i->n), memory_order_release);
    fetch_ahead(e, i, 0, sizeof *flag, true);
}

/* Wait for a flag of a rank that makes the same calls. */
static enum han_status await_flag(han_engine *e, const han_instr *i) {
    const han_flag *flag = flag_at(han_at(e, i, 0));
    if (atomic_load_explicit(&flag->value, memory_order_acquire) < flag_value(e, i->n)) {
        e->waited = true;
        return HAN_BLOCKED;
    }
    /* A rank that is ahead may have posted the next one; it loses the line early if it has not. */
    if (!e->waited) fetch_ahead(e, i, 0, sizeof *flag, false);
    if (atomic_load_explicit(&flag->calls, memory_order_relaxed) == e->digest) return HAN_OK;
    return han_peer_calls_other(e, i) ? HAN_E_MISMATCH : HAN_OK;
}

/* Ring the bell of the channel of a flag, if a rank may sleep there. */
static void ring(const han_engine *e, const han_instr *i) {
    uint32_t c = (i->base[0] - (uint32_t)HAN_B_CHANNEL) / HAN_B_PER_CHANNEL;
    if (e->bells >> c & 1) han_ring(&e->channels[c]);
}

static int collective(const han_engine *e, han_plan *p, const han_instr *i) {
    bool bytes = (HAN_COLL_KIND(i) & ~HAN_C_BLOCKING) == HAN_C_BCAST;
    han_coll_args args = {
        .send = i->base[1] ? han_at(e, i, 1) : NULL,
        .recv = i->base[0] ? han_at(e, i, 0) : NULL,
        .count = (int)i->n,
        .root = i->peer,
        .dtype = bytes ? e->mpi->byte : p->dtype,
        .op = p->op,
        .comm = p->comms[HAN_COLL_COMM(i)],
    };
    if (args.send && args.send == args.recv) args.send = e->mpi->in_place;
    return han_collective(e->mpi, HAN_COLL_KIND(i), &args, &p->requests[i->slot]);
}

static int tag_of(const han_engine *e, const han_instr *i) {
    uint32_t turn = (uint32_t)(e->epoch % HAN_EPOCH_TAGS) * HAN_MAX_STREAMS;
    return (int)(e->tag_base + turn + i->stream);
}

static bool is_short(uint64_t got, uint64_t expected) {
    return got < expected && !(expected & HAN_AT_MOST);
}

static uint64_t number_at(const han_engine *e, const han_instr *i, int ref) {
    uint64_t number;
    memcpy(&number, han_at(e, i, ref), sizeof number);
    return number;
}

/* Test a request. A message of a rank that makes the same call has the size that this rank
 * expects, or tells its size itself. */
static enum han_status test(han_engine *e, han_plan *p, const han_instr *i) {
    int flag = 0, got = 0;
    uint64_t *request = &p->requests[i->slot];
    if (!*request) return HAN_OK; /* there is no message */
    int rc =
        i->n ? han_test_receive(e->mpi, request, &flag, &got) : han_test(e->mpi, request, &flag);
    if (rc) return han_message_error(e, rc, i->peer);
    if (!flag) return HAN_BLOCKED;
    if (i->n) han_add(&p->counts.received, (uint64_t)got);
    if (i->base[0]) {
        const uint64_t nbytes = (uint64_t)got;
        memcpy(han_at(e, i, 0), &nbytes, sizeof nbytes);
        return HAN_OK;
    }
    if (!is_short((uint64_t)got, i->n)) return HAN_OK;
    e->dead_rank = i->peer;
    return HAN_E_SHORT;
}

/* A block of a rank that makes the same call has the size that this rank expects. Of one that may come
 * shorter, the copy that follows moves what has come. */
static enum han_status expect(han_engine *e, const han_plan *p, const han_instr *i) {
    const uint64_t given = number_at(e, i, 0);
    bool is_long = given > (i->n & ~HAN_AT_MOST);
    if (!is_long && !is_short(given, i->n)) {
        uint32_t next = (uint32_t)(i - p->code) + 1;
        if (i->n & HAN_AT_MOST && next < p->n_code && p->code[next].code == HAN_COPY)
            p->fitted[next].n = given;
        return HAN_OK;
    }
    e->dead_rank = i->peer;
    return is_long ? HAN_E_LONG : HAN_E_SHORT;
}

/* Whether a message depends on a number, which is 0. */
static bool is_no_message(const han_engine *e, const han_instr *i) {
    return i->base[3] && !number_at(e, i, 3);
}

static int start_send(han_engine *e, han_plan *p, const han_instr *i) {
    const uint64_t nbytes = i->base[2] ? number_at(e, i, 2) : i->n;
    p->requests[i->slot] = 0;
    if (is_no_message(e, i)) return 0;
    han_add(&p->counts.sent, nbytes);
    return han_isend(e->mpi, han_at(e, i, 1), (int)nbytes, i->peer, tag_of(e, i), e->messages,
                     &p->requests[i->slot]);
}

static int start_receive(han_engine *e, han_plan *p, const han_instr *i) {
    p->requests[i->slot] = 0;
    if (is_no_message(e, i)) return 0;
    return han_irecv(e->mpi, han_at(e, i, 0), (int)i->n, i->peer, tag_of(e, i), e->messages,
                     &p->requests[i->slot]);
}

/* Execute one instruction. Returns HAN_OK if it was done, HAN_BLOCKED if it cannot be done yet. */
static enum han_status execute(han_engine *e, han_plan *p, const han_instr *i) {
    int rc = 0, flag = 1;
    switch (i->code) {
    case HAN_COPY:
        han_move(e, p, i);
        fetch_ahead(e, i, 0, i->n, true);
        if (!e->waited) fetch_ahead(e, i, 1, i->n, false);
        return HAN_OK;
    case HAN_REDUCE:
    case HAN_ACCUMULATE:
    case HAN_REDUCE2:
        rc = han_reduce(e, p, i);
        for (int ref = 1; ref < 3 && !e->waited; ref++)
            fetch_ahead(e, i, ref, i->n * p->element, false);
        break;
    case HAN_POST:
        post(e, i);
        if (e->bells) ring(e, i);
        return HAN_OK;
    case HAN_WAIT:
        return await_flag(e, i);
    case HAN_ISEND:
        rc = start_send(e, p, i);
        break;
    case HAN_IRECV:
        rc = start_receive(e, p, i);
        break;
    case HAN_TEST:
        return test(e, p, i);
    case HAN_AWAIT:
        flag = han_position_of(e, p, (uint32_t)i->peer) >= i->n;
        break;
    case HAN_COLL:
        rc = collective(e, p, i);
        break;
    case HAN_PULL:
        return han_attach(e, p, i, 1);
    case HAN_PUSH:
        return han_attach(e, p, i, 0);
    case HAN_EXPECT:
        return expect(e, p, i);
    case HAN_PACK:
        han_pack_slots(e, p, i);
        return HAN_OK;
    case HAN_UNPACK:
        return han_unpack_slots(e, p, i);
    case HAN_TALLY:
        han_tally(e, i);
        return HAN_OK;
    default:
        break;
    }
    if (rc) return han_message_error(e, rc, i->peer);
    return flag ? HAN_OK : HAN_BLOCKED;
}

/* Execute a turn of one stream. */
static enum han_status step_stream(han_engine *e, han_plan *p, uint32_t s) {
    enum han_status result = HAN_BLOCKED;
    uint64_t ticks = 0;
    for (int turn = HAN_TURN; e->pc[s] < p->streams[s].stop && turn;) {
        const han_instr *i = &p->code[e->pc[s]];
        if (e->trace) han_trace_before(e, s, i, &ticks);
        enum han_status status = execute(e, p, i);
        if (status > HAN_BLOCKED) return status;
        if (status == HAN_BLOCKED) return result;
        result = HAN_MOVED;
        turn -= han_takes_time(i->code);
        e->pc[s]++;
        if (e->trace) {
            bool last = !han_same_task(e, p, s, i->task);
            han_trace_after(e, s, i, last, &ticks);
        }
        if (han_at_loop(e, p, s)) han_end_loop(e, p, s);
    }
    return e->pc[s] < p->streams[s].stop ? result : (result == HAN_MOVED ? HAN_MOVED : HAN_OK);
}

enum han_status han_step(han_engine *e) {
    if (!han_ready(e)) return e->meets ? han_exchange(e) : HAN_BLOCKED;
    han_plan *p = e->plan;
    bool moved = false, all = true;
    for (uint32_t s = 0; s < p->n_streams; s++) {
        enum han_status status = step_stream(e, p, s);
        if (status > HAN_BLOCKED) return status;
        moved |= status == HAN_MOVED;
        all &= e->pc[s] == p->streams[s].stop;
    }
    if (all) {
        if (han_out_of_step(e)) return HAN_E_NOTICE;
        /* This check reads lines that peers keep writing: brief runs make it only now and then. */
        bool due = !p->brief || e->epoch % HAN_CALLS_KEPT == 0 || han_has_erred(e);
        if (due && han_mismatch(e)) return HAN_E_MISMATCH;
        han_add(&p->counts.runs, 1);
        han_finish(e);
        return HAN_MOVED;
    }
    return moved ? HAN_MOVED : HAN_BLOCKED;
}
