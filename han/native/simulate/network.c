#include "simulate/world.h"

static double later(double a, double b) { return a > b ? a : b; }

/* Queue bytes at a time; when the first byte passes, and in `last`, when the last one has passed. */
static double take(const sim_node *node, sim_adapter *a, double at, int64_t nbytes, double *last) {
    double start = later(at, a->free), rate = node->injection, n = (double)nbytes;
    if (node->burst > 0) {
        double had = a->tokens + (start - a->counted) * rate;
        a->tokens = had < node->burst ? had : node->burst;
        double wait = later(0.0, n - a->tokens) / rate;
        a->tokens = a->tokens + wait * rate - n;
        a->counted = a->free = start + wait;
    } else {
        a->free = start + n / rate;
    }
    *last = a->free;
    return start;
}

static bool striped(const sim_world *w, int64_t nbytes) {
    return (double)nbytes >= w->node->stripe;
}

/* Queue the bytes of a rank's message at its rail, or equal parts of them at all rails of its node. */
static double pass(const sim_world *w, sim_adapter *adapters, int32_t rank, double at,
                   int64_t nbytes, double *last) {
    sim_adapter *own = &adapters[w->node_of[rank] * w->rails];
    if (!striped(w, nbytes)) return take(w->node, own + w->rail[rank], at, nbytes, last);
    double first = NEVER;
    *last = at;
    for (int32_t r = 0; r < w->rails; r++) {
        int64_t part = nbytes / w->rails + (r < nbytes % w->rails);
        double over, begun = take(w->node, own + r, at, part, &over);
        if (begun < first) first = begun;
        *last = later(*last, over);
    }
    return first;
}

/* The message of a number, at its first or at its second side. */
static int64_t meet(sim_state *s, int32_t src, int32_t dst, int32_t level, int64_t number) {
    if (s->numbers[number]) return s->numbers[number] - 1;
    int64_t place;
    if (s->spare.length) {
        place = s->spare.items[--s->spare.length];
    } else {
        if (!sim_grow(s, (void **)&s->messages, &s->message_room, s->messages_made,
                      sizeof(sim_message)))
            return -1;
        place = (int64_t)s->messages_made++;
    }
    s->messages[place] = (sim_message){src, dst, level, 2, 0, NEVER, NEVER, NEVER, NEVER, NEVER, 0};
    s->numbers[number] = (int32_t)place + 1;
    return place;
}

static void transfer(sim_state *s, int64_t place, bool eager) {
    const sim_world *w = s->world;
    sim_message *m = &s->messages[place];
    const sim_link *link = &w->links[m->level];
    double start = m->sent;
    if (!eager) /* rendezvous: the sender asks, the receiver answers */
        start = later(m->sent + link->latency, m->posted) + link->latency;
    start = later(start, s->line[m->src]);
    bool inside =
        w->node_of[m->src] == w->node_of[m->dst] && m->level == sim_level(w, m->src, m->dst);
    double rate = link->bandwidth * (!inside && striped(w, m->nbytes) ? w->rails : 1);
    double last = s->line[m->src] = start + (double)m->nbytes / rate, through;
    if (inside) {
        m->due = m->arrival = last + link->latency;
    } else {
        double first = pass(w, s->out, m->src, start, m->nbytes, &through);
        last = later(last, through);
        m->due = first + link->latency;
        m->least = last + link->latency;
        sim_push(s, &s->coming, (sim_event){m->due, place, ++s->started});
    }
    if (last < m->gone) m->gone = last;
}

int64_t sim_send(sim_state *s, double now, int32_t src, const sim_name *to, int64_t number,
                 int64_t nbytes) {
    int64_t place = meet(s, src, to->peer, to->level, number);
    if (place < 0) return place;
    sim_message *m = &s->messages[place];
    m->nbytes = nbytes, m->sent = now;
    s->world->level_bytes[m->level] += nbytes;
    s->world->level_messages[m->level]++;
    bool eager = (double)nbytes <= s->world->links[m->level].eager;
    if (eager) m->gone = now;
    if (eager || m->posted < NEVER) transfer(s, place, eager);
    return place;
}

int64_t sim_receive(sim_state *s, double now, const sim_name *from, int32_t dst, int64_t number) {
    int64_t place = meet(s, from->peer, dst, from->level, number);
    if (place < 0) return place;
    sim_message *m = &s->messages[place];
    m->posted = now;
    if (m->sent < NEVER && m->due == NEVER) transfer(s, place, false);
    return place;
}

int64_t sim_deliver(sim_state *s, double now) {
    if (!s->coming.length || s->coming.events[0].time > now) return -1;
    const sim_world *w = s->world;
    int64_t place = sim_pop(&s->coming).what;
    sim_message *m = &s->messages[place];
    double last;
    pass(w, s->in, m->dst, m->due, m->nbytes, &last);
    m->arrival = later(m->least, last);
    return place;
}

double sim_pass(sim_state *s, double now, int32_t src, int32_t dst, int64_t nbytes) {
    const sim_world *w = s->world;
    if (w->node_of[src] == w->node_of[dst]) return now;
    double out, in;
    pass(w, s->out, src, now, nbytes, &out);
    pass(w, s->in, dst, now, nbytes, &in);
    return later(out, in) + w->links[sim_level(w, src, dst)].latency;
}

void sim_leave(sim_state *s, int64_t place) {
    if (!--s->messages[place].ends) sim_append(s, &s->spare, (int32_t)place);
}
