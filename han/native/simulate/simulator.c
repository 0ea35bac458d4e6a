#include "simulate/world.h"

#include <stdlib.h>
#include <string.h>

#include "program.h"

/* ---- memory --------------------------------------------------------------------------------- */

/* Take the next part of a block; NULL as long as the block's size is being counted. */
static void *part(char *block, size_t *at, size_t count, size_t each) {
    size_t start = *at;
    *at += (count * each + 15) / 16 * 16;
    return block ? block + start : NULL;
}

/* Lay out all arrays of fixed size in a block; the bytes that they take. */
static size_t lay_out(sim_state *s, char *block) {
    const sim_world *w = s->world;
    size_t at = 0, size = (size_t)w->size, runs = (size_t)w->runs, nodes = 1, hosts = 1,
           memories = 1;
    for (size_t r = 0; r < size; r++) {
        if ((size_t)w->node_of[r] >= nodes) nodes = (size_t)w->node_of[r] + 1;
        if ((size_t)w->memory_of[r] >= memories) memories = (size_t)w->memory_of[r] + 1;
        if ((size_t)w->host_of[r] >= hosts) hosts = (size_t)w->host_of[r] + 1;
    }
    s->ranks = part(block, &at, size, sizeof *s->ranks);
    s->flags = part(block, &at, (size_t)w->flags, sizeof *s->flags);
    s->meetings = part(block, &at, runs * (size_t)w->meetings, sizeof *s->meetings);
    s->out = part(block, &at, nodes * (size_t)w->rails, sizeof *s->out);
    s->in = part(block, &at, nodes * (size_t)w->rails, sizeof *s->in);
    s->line = part(block, &at, size, sizeof *s->line);
    s->computing = part(block, &at, hosts, sizeof *s->computing);
    s->moving = part(block, &at, memories, sizeof *s->moving);
    s->numbers = part(block, &at, runs * (size_t)w->messages, sizeof *s->numbers);
    s->gates = part(block, &at, runs, sizeof *s->gates);
    for (size_t r = 0; r < size; r++) {
        size_t streams = (size_t)sim_stream_count(w, (int32_t)r);
        size_t slots = (size_t)sim_requests(w, (int32_t)r);
        int64_t *pcs = part(block, &at, streams, sizeof *pcs);
        sim_open *open = part(block, &at, streams, sizeof *open);
        int64_t *requests = part(block, &at, slots, sizeof *requests);
        if (block) s->ranks[r].pcs = pcs, s->ranks[r].open = open, s->ranks[r].requests = requests;
    }
    return at;
}

bool sim_open_state(sim_state *s, const sim_world *world) {
    *s = (sim_state){.world = world};
    s->memory = calloc(1, lay_out(s, NULL) + 1);
    if (!s->memory) return false;
    lay_out(s, s->memory);
    int64_t meetings = (int64_t)world->runs * world->meetings;
    for (int64_t k = 0; k < meetings; k++) s->meetings[k].over = NEVER;
    for (int32_t rank = 0; rank < world->size; rank++) {
        s->ranks[rank].run = -1;
        s->ranks[rank].due = NEVER;
        sim_next_run(s, rank);
        sim_at(s, 0.0, rank);
    }
    return !s->failed;
}

void sim_close(sim_state *s) {
    for (int32_t k = 0; s->memory && k < s->world->flags; k++) {
        free(s->flags[k].posts);
        free(s->flags[k].waiting.items);
    }
    for (int32_t k = 0; s->memory && k < s->world->runs; k++) free(s->gates[k].items);
    free(s->messages);
    free(s->spare.items);
    free(s->heap.events);
    free(s->coming.events);
    free(s->spans);
    free(s->memory);
}

/* ---- steps ---------------------------------------------------------------------------------- */

static bool waits(uint8_t code) { return code == HAN_WAIT || code == HAN_AWAIT; }

/* An adapter serves messages in the order of time: whether others go first. */
static bool too_early(const sim_state *s, uint8_t code, double now) {
    bool message = code == HAN_ISEND || code == HAN_IRECV || code == HAN_COLL;
    return message && s->heap.length && s->heap.events[0].time < now;
}

typedef struct {
    double now, retry; /* the time, and when to try again */
    bool moved;
} progress;

/* Advance the rank's stream until it has to wait, has begun a data operation or ends its turn. */
static progress advance(sim_state *s, int32_t rank, double now) {
    const sim_world *w = s->world;
    sim_rank *r = &s->ranks[rank];
    int64_t stop = sim_streams(w, rank)[2 * r->stream + 1];
    int64_t *pc = &r->pcs[r->stream], first = *pc;
    double retry = NEVER;
    while (*pc < stop && !s->failed) {
        const sim_op *op = &w->ops[*pc];
        if (too_early(s, op->code, now)) {
            retry = now;
            break;
        }
        if (w->keep) sim_enter_task(s, rank, op->task, now);
        double end = sim_operate(s, rank, op, now);
        if (end < 0) {
            retry = -end;
            break;
        }
        sim_open *here = &r->open[r->stream];
        if (here->open && !waits(op->code) && now < here->start) here->start = now;
        ++*pc;
        now = end;
        r->turn -= han_takes_time(op->code);
        if (r->working || !r->turn) break;
    }
    bool moved = *pc > first;
    *w->operations += *pc - first;
    if (w->keep && *pc == stop && moved) sim_leave_task(s, rank, now);
    if (r->working && !r->turn) {
        r->stream = (r->stream + 1) % sim_stream_count(w, rank);
        r->turn = HAN_TURN;
    }
    return (progress){now, retry, moved};
}

static bool at_end(const sim_state *s, int32_t rank) {
    const sim_world *w = s->world;
    int32_t count = sim_stream_count(w, rank);
    for (int32_t k = 0; k < count; k++)
        if (s->ranks[rank].pcs[k] != sim_streams(w, rank)[2 * k + 1]) return false;
    return true;
}

/* Let a rank go on until a data operation has begun or it must wait. Whether it finished a run. */
static bool step(sim_state *s, int32_t rank, double now) {
    const sim_world *w = s->world;
    sim_rank *r = &s->ranks[rank];
    if (!sim_begin(s, rank, now)) return false;
    if (r->free > now) now = r->free;
    int32_t count = sim_stream_count(w, rank), idle = 0;
    double wake = NEVER;
    while (idle < count && !s->failed) {
        progress p = advance(s, rank, now);
        r->free = now = p.now;
        if (r->working || p.retry == now) {
            sim_at(s, now, rank);
            return false;
        }
        idle = p.moved ? 0 : idle + 1;
        wake = p.moved ? NEVER : p.retry < wake ? p.retry : wake;
        r->stream = (r->stream + 1) % count, r->turn = HAN_TURN;
    }
    if (at_end(s, rank)) {
        sim_finish(s, rank, now);
        return true;
    }
    sim_wake(s, wake, rank);
    return false;
}

bool sim_go(sim_state *s, int64_t most, bool *finished) {
    for (*finished = false; most-- && !*finished && s->heap.length && !s->failed;) {
        sim_event event = sim_pop(&s->heap);
        if (event.what == NETWORK) {
            sim_deliver_all(s, event.time);
            continue;
        }
        sim_rank *r = &s->ranks[event.what];
        if (event.time != r->due) continue;
        r->due = NEVER;
        if (r->working) sim_release(s, (int32_t)event.what);
        *finished = step(s, (int32_t)event.what, event.time);
    }
    return s->heap.length && !s->failed;
}
