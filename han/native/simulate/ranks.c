#include "simulate/world.h"

#include <string.h>

#include "program.h"

void sim_at(sim_state *s, double time, int32_t rank) {
    sim_rank *r = &s->ranks[rank];
    if (time < r->free) time = r->free;
    if (!(time < r->due)) return;
    r->due = time;
    sim_push(s, &s->heap, (sim_event){time, rank, rank});
}

void sim_wake(sim_state *s, double time, int32_t rank) {
    if (!(time < NEVER)) return;
    const sim_world *w = s->world;
    sim_at(s, w->crowded[w->host_of[rank]] ? time + w->node->late : time, rank);
}

/* ---- what ranks share ----------------------------------------------------------------------- */

double sim_compute(sim_state *s, int32_t rank, double seconds) {
    const sim_world *w = s->world;
    int32_t host = w->host_of[rank];
    s->computing[host]++;
    s->moving[w->memory_of[rank]]++;
    s->ranks[rank].working = true;
    double share = s->computing[host] / w->cores[host];
    return seconds * (share > 1.0 ? share : 1.0);
}

double sim_move(sim_state *s, int32_t rank, int64_t nbytes, double rate, bool memory) {
    double most = s->world->node->memory / (s->moving[s->world->memory_of[rank]] + 1);
    if (!memory) most = rate;
    return sim_compute(s, rank, (double)nbytes / (rate < most ? rate : most));
}

void sim_release(sim_state *s, int32_t rank) {
    s->ranks[rank].working = false;
    s->computing[s->world->host_of[rank]]--;
    s->moving[s->world->memory_of[rank]]--;
}

/* ---- runs ----------------------------------------------------------------------------------- */

void sim_next_run(sim_state *s, int32_t rank) {
    const sim_world *w = s->world;
    sim_rank *r = &s->ranks[rank];
    int64_t count = sim_stream_count(w, rank), slots = sim_requests(w, rank);
    r->run++;
    r->begun = false;
    r->stream = 0, r->turn = HAN_TURN;
    for (int64_t k = 0; k < count; k++) r->pcs[k] = sim_streams(w, rank)[2 * k];
    memset(r->open, 0, (size_t)count * sizeof *r->open);
    memset(r->requests, 0, (size_t)slots * sizeof *r->requests);
}

/* The runs that must end before a rank's run may write to a channel. */
static int32_t needed(const sim_world *w, int32_t rank, int32_t run, int32_t channel) {
    uint8_t writes = w->writes[(int64_t)rank * w->channels + channel];
    int32_t most = writes & 1 ? run + 1 - w->banks : 0;
    int32_t cells = writes & 2 ? w->needed[(int64_t)run * w->channels + channel] : 0;
    return cells > most ? cells : most;
}

/* When a rank may begin its run; NEVER if that is not known yet. */
static double gate(sim_state *s, int32_t rank, double now) {
    const sim_world *w = s->world;
    int32_t run = s->ranks[rank].run;
    double begin = now;
    for (int32_t c = 0; c < w->channels; c++) {
        int32_t runs = needed(w, rank, run, c), home = w->home[(int64_t)c * w->size + rank];
        if (runs <= 0) continue;
        for (int32_t k = w->first_home[home]; k < w->first_home[home + 1]; k++) {
            double end = w->finish[(int64_t)(runs - 1) * w->size + w->home_ranks[k]];
            if (end > begin) begin = end;
        }
        if (begin < NEVER) continue;
        sim_append(s, &s->gates[runs - 1], rank);
        return NEVER;
    }
    return begin;
}

bool sim_begin(sim_state *s, int32_t rank, double now) {
    sim_rank *r = &s->ranks[rank];
    if (r->begun || r->run == s->world->runs) return r->begun;
    double begin = gate(s, rank, now);
    if (begin > now) {
        sim_wake(s, begin, rank);
        return false;
    }
    r->begun = true;
    r->free = now + s->world->node->call;
    return true;
}

void sim_finish(sim_state *s, int32_t rank, double now) {
    sim_rank *r = &s->ranks[rank];
    int32_t run = r->run;
    s->world->finish[(int64_t)run * s->world->size + rank] = now;
    sim_next_run(s, rank);
    if (r->run < s->world->runs) sim_at(s, now, rank);
    sim_list *waiting = &s->gates[run];
    size_t count = waiting->length;
    waiting->length = 0;
    for (size_t k = 0; k < count; k++) sim_wake(s, now, waiting->items[k]);
}

/* ---- spans ---------------------------------------------------------------------------------- */

void sim_enter_task(sim_state *s, int32_t rank, uint32_t task, double now) {
    sim_open *here = &s->ranks[rank].open[s->ranks[rank].stream];
    if (here->open && here->task == task) return;
    if (here->open) sim_leave_task(s, rank, now);
    *here = (sim_open){now, NEVER, 0.0, 0.0, task, true};
}

void sim_leave_task(sim_state *s, int32_t rank, double now) {
    sim_rank *r = &s->ranks[rank];
    sim_open *here = &r->open[r->stream];
    if (!here->open) return;
    here->open = false;
    if (!sim_grow(s, (void **)&s->spans, &s->span_room, s->span_count, sizeof(sim_span))) return;
    s->spans[s->span_count++] =
        (sim_span){rank,          r->run,         r->stream,
                   here->task,    here->begin,    now,
                   here->copying, here->reducing, here->start < now ? here->start : now};
}
