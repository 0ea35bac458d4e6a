/* One round over the streams of the run at the head of an engine's queue. */
#include "operands.h"

/* Data operations a stream may do before the others get their turn: none starves the network. */
enum { TURN = 4 };

static inline han_control *control_of(const han_channel *ch) {
    return (han_control *)(void *)(ch->memory + ch->control) + ch->me;
}

static inline _Atomic uint64_t *flag_at(uint8_t *p) { return (_Atomic uint64_t *)(void *)p; }

static inline uint64_t flag_value(const han_engine *e, uint64_t k) {
    return (e->epoch << HAN_EPOCH_SHIFT) + k;
}

/* Where somebody may sleep until this flag is posted. */
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

/* Carry out one instruction: HAN_OK when done, HAN_BLOCKED when it cannot be yet. */
static enum han_status execute(han_engine *e, han_plan *p, const han_instr *i) {
    int rc = 0, flag = 1;
    switch (i->code) {
    case HAN_COPY: han_move(e, p, i); return HAN_OK;
    case HAN_REDUCE:
    case HAN_REDUCE2: rc = han_reduce(e, p, i); break;
    case HAN_POST:
        atomic_store_explicit(flag_at(han_at(e, i, 0)), flag_value(e, i->n), memory_order_release);
        if (e->bells) ring(e, i);
        return HAN_OK;
    case HAN_WAIT:
        return atomic_load_explicit(flag_at(han_at(e, i, 0)), memory_order_acquire) >=
                       flag_value(e, i->n)
                   ? HAN_OK
                   : HAN_BLOCKED;
    case HAN_ISEND:
        rc = han_isend(e->mpi, han_at(e, i, 1), (int)i->n, i->peer, tag_of(e, i), e->comm,
                       &p->requests[i->slot]);
        han_add(&p->counts.sent, i->n);
        break;
    case HAN_IRECV:
        rc = han_irecv(e->mpi, han_at(e, i, 0), (int)i->n, i->peer, tag_of(e, i), e->comm,
                       &p->requests[i->slot]);
        han_add(&p->counts.received, i->n);
        break;
    case HAN_TEST: rc = han_test(e->mpi, &p->requests[i->slot], &flag); break;
    case HAN_AWAIT: flag = e->pc[i->peer] >= i->n; break;
    case HAN_COLL: rc = collective(e, p, i); break;
    case HAN_PULL: return han_attach(e, p, i, 1);
    case HAN_PUSH: return han_attach(e, p, i, 0);
    default: break;
    }
    if (rc) {
        e->mpi_error = rc;
        return HAN_E_MPI;
    }
    return flag ? HAN_OK : HAN_BLOCKED;
}

static enum han_status step_stream(han_engine *e, han_plan *p, uint32_t s) {
    enum han_status result = HAN_BLOCKED;
    uint64_t ticks = 0;
    for (int turn = TURN; e->pc[s] < p->streams[s].stop && turn;) {
        const han_instr *i = &p->code[e->pc[s]];
        if (e->trace) han_trace_before(e, s, i, &ticks);
        enum han_status status = execute(e, p, i);
        if (status > HAN_BLOCKED) return status;
        if (status == HAN_BLOCKED) return result;
        result = HAN_MOVED;
        turn -= i->code <= HAN_REDUCE2 || i->code >= HAN_PULL;
        e->pc[s]++;
        if (e->trace) {
            bool last = e->pc[s] == p->streams[s].stop || p->code[e->pc[s]].task != i->task;
            han_trace_after(e, s, i, last, &ticks);
        }
    }
    return e->pc[s] < p->streams[s].stop ? result : (result == HAN_MOVED ? HAN_MOVED : HAN_OK);
}

/* Take the next part of the rings for a run; where it begins in each of them. */
static uint64_t take(han_channel *ch, uint64_t epoch, uint64_t bytes) {
    if (!bytes) return 0;
    uint64_t start = ch->head;
    if (start % ch->ring + bytes > ch->ring) start += ch->ring - start % ch->ring;
    ch->head = start + bytes;
    while (ch->oldest != ch->newest) {
        uint32_t k = ch->oldest % HAN_TAKEN;
        bool room = ch->newest - ch->oldest < HAN_TAKEN;
        if (room && ch->taken[k].start + ch->ring >= ch->head) break;
        ch->needed = ch->taken[k].epoch + 1;
        ch->oldest++;
    }
    uint32_t k = ch->newest++ % HAN_TAKEN;
    ch->taken[k].start = start;
    ch->taken[k].epoch = epoch;
    return start % ch->ring;
}

/* How many runs must be finished everywhere before this one may write. */
static uint64_t needed(const han_engine *e, const han_channel *ch, uint8_t writes) {
    uint64_t n = 0;
    if (writes & HAN_W_SMALL && e->epoch >= HAN_SMALL_BANKS) n = e->epoch + 1 - HAN_SMALL_BANKS;
    if (writes & HAN_W_CELLS && ch->needed > n) n = ch->needed;
    return n;
}

/* Shared memory is written again only once the readers of what was there are done with it. */
static bool room_free(han_engine *e, const han_plan *p) {
    for (uint32_t c = 0; c < e->n_channels; c++) {
        han_channel *ch = &e->channels[c];
        uint64_t n = needed(e, ch, p->writes[c]);
        if (n <= ch->known) continue;
        ch->known = han_least_done(ch);
        if (n > ch->known) return false;
    }
    return true;
}

/* What operations on no bytes point to where there is no buffer: addresses are added to. */
static uint8_t nowhere[3][HAN_LINE];

/* Add a call to what was called before it. */
static uint64_t called(han_engine *e, uint64_t signature) {
    uint64_t digest = (e->calls[e->epoch % HAN_CALLS_KEPT] & ~HAN_CALLS_COUNT) ^ signature;
    digest = (digest ^ digest >> 32) * UINT64_C(0x9e3779b97f4a7c15);
    uint64_t word = (digest & ~HAN_CALLS_COUNT) | ((e->epoch + 1) & HAN_CALLS_COUNT);
    e->calls[(e->epoch + 1) % HAN_CALLS_KEPT] = word;
    return word;
}

/* Run this plan: its scratch, what its peers read, and where its streams begin. */
static void take_up(han_engine *e, han_plan *p) {
    e->bases[HAN_B_SCRATCH] = p->scratch ? p->scratch : nowhere[2];
    for (uint32_t c = 0; c < e->n_channels; c++) {
        han_control *mine = control_of(&e->channels[c]);
        for (int k = 0; p->writes[c] & HAN_W_SHOWN && k < 3; k++)
            atomic_store_explicit(&mine->shown[k], (uint64_t)(uintptr_t)e->bases[HAN_B_SEND + k],
                                  memory_order_relaxed);
    }
    for (uint32_t s = 0; s < p->n_streams; s++) e->pc[s] = p->streams[s].start;
    e->plan = p;
}

enum { LAST_RUNS = (1 << HAN_HISTORY) - 1 };

/* Whether this rank offers the alternative, if there is one: noted for the word that tells it. */
static bool offer(han_engine *e, const han_run *run) {
    const han_plan *p = run->plan;
    bool offers = p->arena_size && han_in_arena(p, run->send) && han_in_arena(p, run->recv) &&
                  p->alternative;
    e->offers = (e->offers << 1 | offers) & LAST_RUNS;
    e->choices = e->choices << 1 | (p->arena_size || e->tried);
    return offers;
}

static bool leads(const han_engine *e, const han_plan *p) {
    return e->tried && e->channels[p->whole].me == p->leader;
}

/* Which way the leader of a call goes: for the same word. */
static void lead(han_engine *e, const han_run *run) {
    bool rival = leads(e, run->plan) && han_lead(e, run->plan);
    e->ways = (e->ways << 1 | rival) & LAST_RUNS;
}

static void begin(han_engine *e, const han_run *run) {
    han_plan *p = run->plan;
    e->tried = p->tried && run->blocking;
    bool offers = offer(e, run);
    lead(e, run);
    uint64_t entered = (e->epoch + 1) << HAN_EPOCH_SHIFT | e->offers << HAN_OFFERS_SHIFT |
                       e->ways << HAN_WAYS_SHIFT;
    e->bases[HAN_B_SEND] = run->send ? (uint8_t *)(uintptr_t)run->send : nowhere[0];
    e->bases[HAN_B_RECV] = run->recv ? run->recv : nowhere[1];
    /* Where the others wait for a leader's word, who does not is told apart. */
    uint64_t calls = called(e, p->signature ^ e->tried);
    for (uint32_t c = 0; c < e->n_channels; c++) {
        han_channel *ch = &e->channels[c];
        uint8_t **base = &e->bases[HAN_B_CHANNEL + HAN_B_PER_CHANNEL * c];
        base[HAN_B_SMALL] = ch->memory + ch->small + e->epoch % HAN_SMALL_BANKS * ch->small_bank;
        base[HAN_B_CELLS] = ch->memory + ch->cells + take(ch, e->epoch, p->footprint[c]);
        base[HAN_B_FLAGS] = ch->memory + ch->flags;
        han_control *mine = control_of(ch);
        atomic_store_explicit(&mine->signature, p->signature, memory_order_relaxed);
        atomic_store_explicit(&mine->entered, entered, memory_order_release);
        atomic_store_explicit(&mine->calls, calls, memory_order_release);
    }
    if ((p->arena_size || leads(e, p)) && e->bells >> p->whole & 1)
        han_ring(&e->channels[p->whole]);
    if (!offers && !e->tried) take_up(e, p); /* it waits for nobody's word */
    e->started = true;
}

static void finish(han_engine *e) {
    han_run *run = e->head;
    if (e->tried && e->plan != run->plan->alternative) han_tell_time(e, run->plan);
    for (uint32_t c = 0; c < e->n_channels; c++) {
        han_channel *ch = &e->channels[c];
        atomic_store_explicit(&control_of(ch)->done, e->epoch + 1, memory_order_release);
        if (e->plan->sync && ch->known < e->epoch) ch->known = e->epoch;
    }
    e->epoch++;
    e->started = false;
    e->plan = NULL;
    e->head = run->next;
    if (!e->head) e->tail = NULL;
    atomic_store_explicit(&run->status, HAN_OK, memory_order_release);
}

/* Has a peer raised in a later call than any that raised here, and not in the current one? Its ring
 * is out of step then, and what came from it since cannot be trusted. Its mark is older than
 * anything it posted later. */
static bool out_of_step(const han_engine *e) {
    for (uint32_t c = 0; c < e->n_channels; c++) {
        const han_channel *ch = &e->channels[c];
        const han_control *all = (const han_control *)(void *)(ch->memory + ch->control);
        uint64_t mine = atomic_load_explicit(&all[ch->me].erred, memory_order_relaxed);
        for (uint32_t r = 0; r < ch->size; r++) {
            uint64_t erred = atomic_load_explicit(&all[r].erred, memory_order_relaxed);
            if (erred > mine && erred <= e->epoch) return true;
        }
    }
    return false;
}

/* Whether only one of two ranks has raised, since they were last known to have called the same. */
static bool erred_alone(const han_control *a, const han_control *b, uint64_t agreed) {
    uint64_t x = atomic_load_explicit(&a->erred, memory_order_relaxed);
    uint64_t y = atomic_load_explicit(&b->erred, memory_order_relaxed);
    return x != y && (x > agreed || y > agreed);
}

bool han_mismatch(han_engine *e) {
    uint64_t now = e->epoch + e->started, agreed = now;
    for (uint32_t c = 0; c < e->n_channels; c++) {
        const han_channel *ch = &e->channels[c];
        const han_control *all = (const han_control *)(void *)(ch->memory + ch->control);
        for (uint32_t r = 0; r < ch->size; r++) {
            uint64_t said = atomic_load_explicit(&all[r].calls, memory_order_acquire);
            uint64_t runs = atomic_load_explicit(&all[r].entered, memory_order_acquire) >>
                            HAN_EPOCH_SHIFT; /* `said` counts them too, and comes round */
            uint64_t behind = (now - said) & HAN_CALLS_COUNT;
            if (r == ch->me) continue;
            if (runs > now || now - runs >= HAN_CALLS_KEPT || behind >= HAN_CALLS_KEPT ||
                behind > now) { /* it is ahead and will look at ours, or far behind */
                agreed = e->agreed;
            } else if (said == e->calls[said % HAN_CALLS_KEPT]) {
                if (now - behind < agreed) agreed = now - behind;
            } else if (erred_alone(&all[r], &all[ch->me], e->agreed)) {
                agreed = e->agreed; /* who raised did nothing in that call: a notice tells */
            } else {
                e->dead_rank = (int)all[r].rank;
                return true;
            }
        }
    }
    if (agreed > e->agreed) e->agreed = agreed;
    return false;
}

/* Has the run at the head begun, is it decided what runs, and may that write? */
static bool ready(han_engine *e) {
    if (!e->started) {
        if (e->choices >> (HAN_HISTORY - 1) & 1 && !han_may_forget(e)) return false;
        begin(e, e->head);
    }
    if (!e->plan) {
        han_plan *p = han_decide(e);
        if (!p) return false;
        take_up(e, p);
    }
    return room_free(e, e->plan);
}

enum han_status han_step(han_engine *e) {
    if (!ready(e)) return HAN_BLOCKED;
    han_plan *p = e->plan;
    bool moved = false, all = true;
    for (uint32_t s = 0; s < p->n_streams; s++) {
        enum han_status status = step_stream(e, p, s);
        if (status > HAN_BLOCKED) return status;
        moved |= status == HAN_MOVED;
        all &= e->pc[s] == p->streams[s].stop;
    }
    if (all) {
        if (out_of_step(e)) return HAN_E_NOTICE;
        /* What peers say lies in lines that they keep writing: not looked at in every brief run. */
        if ((!p->brief || e->epoch % HAN_CALLS_KEPT == 0) && han_mismatch(e))
            return HAN_E_MISMATCH;
        han_add(&p->counts.runs, 1);
        finish(e);
        return HAN_MOVED;
    }
    return moved ? HAN_MOVED : HAN_BLOCKED;
}
