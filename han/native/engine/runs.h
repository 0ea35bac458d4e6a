/* How the run at the head of the queue begins and ends. The executor calls this in every round, so
 * that all functions are inline. */
#ifndef HAN_RUNS_H
#define HAN_RUNS_H

#include "engine/agreement.h"
#include "engine/bell.h"
#include "engine/stepping.h"
#include "engine/rings.h"
#include "engine/sizes.h"
#include "engine/trials.h"

/* ---- shared memory ------------------------------------------------------------------------ */

/* Take the next part of the rings for a run; returns its offset in each ring. */
static inline uint64_t han_take_cells(han_channel *ch, uint64_t epoch, uint64_t bytes) {
    if (!bytes) return 0;
    if (!han_ring_fits(ch, bytes)) han_grow_ring(ch, epoch, bytes);
    uint64_t start = ch->head;
    if (start % ch->wrap + bytes > ch->wrap) start += ch->wrap - start % ch->wrap;
    ch->head = start + bytes;
    while (ch->oldest != ch->newest) {
        uint32_t k = ch->oldest % HAN_TAKEN;
        bool room = ch->newest - ch->oldest < HAN_TAKEN;
        if (room && ch->taken[k].start + ch->wrap >= ch->head) break;
        ch->needed = ch->taken[k].epoch + 1;
        ch->oldest++;
    }
    uint32_t k = ch->newest++ % HAN_TAKEN;
    ch->taken[k].start = start;
    ch->taken[k].epoch = epoch;
    return start % ch->wrap;
}

/* The number of runs that every peer must have finished before this one may write its bank. */
static inline uint64_t han_needed_for_bank(const han_engine *e, const han_channel *ch,
                                           uint8_t writes) {
    return writes & HAN_W_SMALL && e->epoch >= ch->banks ? e->epoch + 1 - ch->banks : 0;
}

/* Whether all rings have the memory that a run of a plan needs. */
static inline bool han_rings_there(const han_engine *e, const han_plan *p) {
    for (uint32_t c = 0; c < e->n_channels; c++)
        if (!han_ring_there(&e->channels[c], p->footprint[c])) return false;
    return true;
}

enum { HAN_LOOK_EVERY = 16, HAN_HALF_FOR = 64 }; /* rounds */

/* Whether peers have finished the runs that used the shared memory which this run writes. A rank that keeps
 * reading a line slows the one that writes it. So a rank that is ahead by all banks waits at first until
 * half of them are free, and looks only in some rounds; but peers may be slow, so not for long. */
static inline bool han_room_free(han_engine *e, const han_plan *p) {
    for (uint32_t c = 0; c < e->n_channels; c++) {
        han_channel *ch = &e->channels[c];
        uint64_t bank = han_needed_for_bank(e, ch, p->writes[c]);
        const uint64_t cells = p->writes[c] & HAN_W_CELLS ? ch->needed : 0;
        if (bank <= ch->known && cells <= ch->known) continue;
        if (bank > ch->known && e->head->blocking && e->rounds < HAN_HALF_FOR) {
            if (e->rounds++ % HAN_LOOK_EVERY) return false;
            bank += ch->banks / 2;
        }
        const uint64_t least = han_least_done(ch);
        if (least < bank || least < cells) return false;
        ch->known = least;
    }
    return true;
}

/* ---- the beginning ------------------------------------------------------------------------ */

static inline han_control *han_own_record(const han_channel *ch) {
    return han_records(ch) + ch->me;
}

/* Stands for missing buffers: addresses are also computed for instructions on 0 bytes. */
static uint8_t han_nowhere[3][HAN_LINE];

/* Set up the chosen plan: its scratch, the addresses that peers read, the start of its streams. */
static inline void han_begin_plan(han_engine *e, han_plan *p) {
    if (!han_is_resolved(p, e->head)) han_resolve(p, e->head);
    e->bases[HAN_B_SCRATCH] = p->scratch ? p->scratch : han_nowhere[2];
    e->bases[HAN_B_TABLE] = p->own ? (uint8_t *)(p->table + 1) : NULL;
    for (uint32_t c = 0; c < e->n_channels; c++) {
        han_control *mine = han_own_record(&e->channels[c]);
        for (int k = 0; p->writes[c] & HAN_W_SHOWN && k < 3; k++)
            atomic_store_explicit(&mine->shown[k], (uint64_t)(uintptr_t)e->bases[HAN_B_SEND + k],
                                  memory_order_relaxed);
    }
    for (uint32_t s = 0; s < p->n_streams; s++) e->pc[s] = p->streams[s].start;
    for (uint32_t s = 0; p->strides && s < p->n_streams; s++) e->loops[s] = e->ahead[s] = 0;
    e->plan = p;
}

enum { LAST_RUNS = (1 << HAN_HISTORY) - 1 };

/* Add the bits of this run: whether this rank offers the alternative, if there is one. */
static inline void han_add_offer(han_engine *e, const han_run *run) {
    const han_plan *p = run->plan;
    bool offers =
        p->arena_size && han_in_arena(p, run->send) && han_in_arena(p, run->recv) && p->alternative;
    e->offers = (e->offers << 1 | offers) & LAST_RUNS;
    e->choices = e->choices << 1 | (p->arena_size != 0);
}

static inline void han_begin(han_engine *e, const han_run *run) {
    han_plan *p = run->plan;
    e->timed = e->waited = false;
    e->rounds = 0;
    e->takes_rival = p->tried && han_count(e, run);
    han_add_offer(e, run);
    uint64_t entered = (e->epoch + 1) << HAN_EPOCH_SHIFT | e->offers;
    e->bases[HAN_B_SEND] = run->send ? (uint8_t *)(uintptr_t)run->send : han_nowhere[0];
    e->bases[HAN_B_RECV] = run->recv ? run->recv : han_nowhere[1];
    /* Blocking and nonblocking calls with trials differ. */
    uint64_t calls = han_add_call(e, han_call_of(p, run) ^ (p->tried && run->blocking));
    for (uint32_t c = 0; c < e->n_channels; c++) {
        han_channel *ch = &e->channels[c];
        uint8_t **base = &e->bases[HAN_B_CHANNEL + HAN_B_PER_CHANNEL * c];
        base[HAN_B_SMALL] = han_bank(ch, e->epoch);
        base[HAN_B_FLAGS] = ch->memory + ch->flags;
        han_control *mine = han_own_record(ch);
        atomic_store_explicit(han_calls_of(ch, ch->me, e->epoch + 1), calls, memory_order_release);
        atomic_store_explicit(&mine->signature, p->signature, memory_order_relaxed);
        atomic_store_explicit(&mine->nbytes, run->nbytes, memory_order_relaxed);
        atomic_store_explicit(&mine->entered, entered, memory_order_release);
        atomic_store_explicit(&mine->calls, calls, memory_order_release);
    }
    if (p->arena_size && e->bells >> p->whole & 1) han_ring(&e->channels[p->whole]);
    e->started = true;
}

/* Take the run's part of the rings; false if they have no memory for it yet. */
static inline bool han_place(han_engine *e) {
    const han_plan *p = e->head->plan;
    if (!han_rings_there(e, p)) return false;
    for (uint32_t c = 0; c < e->n_channels; c++) {
        han_channel *ch = &e->channels[c];
        uint64_t part = han_take_cells(ch, e->epoch, p->footprint[c]);
        e->bases[HAN_B_CHANNEL + HAN_B_PER_CHANNEL * c + HAN_B_CELLS] =
            ch->rings ? ch->rings + part : NULL;
    }
    return e->placed = true;
}

/* Whether peers may still need what this rank told them in earlier runs. */
static inline bool han_too_early(han_engine *e) {
    return e->choices >> (HAN_HISTORY - 1) & 1 && !han_offers_read(e);
}

/* Begin the run if it has not begun, and choose its plan if none is chosen. Returns whether its
 * instructions may be executed: the plan is chosen, and peers no longer need the shared memory that
 * it writes. */
static inline bool han_ready(han_engine *e) {
    if (!e->started) {
        if (han_too_early(e)) return false;
        han_begin(e, e->head);
    }
    if (!e->placed && !han_place(e)) return false;
    if (!e->plan) {
        if (e->meets) return false;
        bool choice = e->offers & 1 || e->takes_rival;
        han_plan *p = choice ? han_decide(e) : e->head->plan;
        if (!p) return false;
        han_begin_plan(e, p);
    }
    return han_room_free(e, e->plan);
}

/* ---- the end ------------------------------------------------------------------------------ */

/* The run has finished: tell the peers and the owner of the run. */
static inline void han_finish(han_engine *e) {
    han_run *run = e->head;
    uint64_t epoch = e->epoch;
    if (e->timed) han_note_time(e);
    for (uint32_t c = 0; c < e->n_channels; c++) {
        han_channel *ch = &e->channels[c];
        atomic_store_explicit(&han_own_record(ch)->done, epoch + 1, memory_order_release);
        if (e->plan->sync && ch->known < epoch) ch->known = epoch;
    }
    e->epoch = epoch + 1;
    atomic_store_explicit(&e->finished, epoch + 1, memory_order_relaxed);
    e->started = e->placed = false;
    e->plan = NULL;
    e->head = run->next;
    if (!e->head) e->tail = NULL;
    atomic_store_explicit(&run->status, HAN_OK, memory_order_release);
}

#endif
