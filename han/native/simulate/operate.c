#include "simulate/world.h"

#include "channel.h"
#include "program.h"

static int64_t *slot_of(sim_state *s, int32_t rank, const sim_op *op) {
    return &s->ranks[rank].requests[op->slot];
}

/* ---- data ----------------------------------------------------------------------------------- */

/* Copy or combine. Rows of rates after those of memory are those of caches, which take nothing of the
 * memory's rate. */
static double work(sim_state *s, int32_t rank, const sim_op *op, double now, bool copies) {
    const sim_world *w = s->world;
    double rate = (copies ? w->copy : w->reduce)[op->row];
    double took = sim_move(s, rank, op->n, rate, op->row <= w->levels);
    (copies ? w->copying : w->reducing)[rank] += took;
    sim_open *task = &s->ranks[rank].open[s->ranks[rank].stream];
    if (task->open) *(copies ? &task->copying : &task->reducing) += took;
    return now + took + w->node->operation;
}

/* ---- flags ---------------------------------------------------------------------------------- */

static double flag_time(const sim_world *w, int32_t a, int32_t b) {
    return w->links[sim_level(w, a, b)].flag;
}

static double post(sim_state *s, int32_t rank, const sim_op *op, double now) {
    sim_flag *flag = &s->flags[sim_name_of(s->world, rank, op)->what];
    if (!sim_grow(s, (void **)&flag->posts, &flag->room, flag->length, sizeof *flag->posts))
        return now;
    now += s->world->node->operation;
    flag->rank = rank;
    flag->before = flag->length ? flag->last.value : -1;
    flag->last = (sim_post){((int64_t)s->ranks[rank].run << HAN_EPOCH_SHIFT) + op->n, now};
    flag->posts[flag->length++] = flag->last;
    for (size_t k = 0; k < flag->waiting.length; k++) {
        int32_t waiting = flag->waiting.items[k];
        sim_wake(s, now + flag_time(s->world, rank, waiting), waiting);
    }
    flag->waiting.length = 0;
    return now;
}

/* The first post of a value or more, of which there is one; it is among the last ones mostly. */
static double time_of(const sim_flag *flag, int64_t wanted) {
    if (flag->before < wanted) return flag->last.time;
    const sim_post *posts = flag->posts;
    size_t step = 1, high = flag->length - 1;
    while (step <= high && posts[high - step].value >= wanted) high -= step, step *= 2;
    size_t low = step <= high ? high - step + 1 : 0;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (posts[middle].value < wanted)
            low = middle + 1;
        else
            high = middle;
    }
    return posts[high].time;
}

static double await_flag(sim_state *s, int32_t rank, const sim_op *op, double now) {
    sim_flag *flag = &s->flags[sim_name_of(s->world, rank, op)->what];
    int64_t wanted = ((int64_t)s->ranks[rank].run << HAN_EPOCH_SHIFT) + op->n;
    if (!flag->length || flag->last.value < wanted) {
        sim_append(s, &flag->waiting, rank);
        return -NEVER;
    }
    double seen = time_of(flag, wanted) + flag_time(s->world, flag->rank, rank);
    return seen <= now ? now + s->world->node->operation : -seen;
}

static double await_stream(sim_state *s, int32_t rank, const sim_op *op, double now) {
    return s->ranks[rank].pcs[op->name] >= op->n ? now : -NEVER;
}

/* ---- messages ------------------------------------------------------------------------------- */

/* Occupy the processor for one side of a message; the time that it takes. */
static double handle(sim_state *s, int32_t rank, int32_t level, int64_t nbytes) {
    const sim_link *link = &s->world->links[level];
    double took = link->overhead;
    if (link->memory > 0)
        took += sim_move(s, rank, nbytes, link->copying, true);
    else if (link->copying > 0)
        took = sim_compute(s, rank, link->overhead + (double)nbytes / link->copying);
    s->world->messaging[rank] += took;
    return took + s->world->node->operation;
}

/* Wake the receiver when a message arrives, or see to it when the message is due. */
static void expect(sim_state *s, const sim_message *m) {
    if (m->arrival < NEVER)
        sim_wake(s, m->arrival, m->dst);
    else if (m->due < NEVER)
        sim_push(s, &s->heap, (sim_event){m->due, NETWORK, NETWORK});
}

static int64_t number_of(const sim_state *s, int32_t rank, const sim_name *name, const sim_op *op) {
    return (int64_t)s->ranks[rank].run * s->world->messages + name->what + op->number;
}

static double isend(sim_state *s, int32_t rank, const sim_op *op, double now) {
    const sim_world *w = s->world;
    const sim_name *name = sim_name_of(w, rank, op);
    double start = now + w->node->operation + w->links[name->level].overhead;
    int64_t place = sim_send(s, start, rank, name, number_of(s, rank, name, op), op->n);
    if (place < 0) return now;
    *slot_of(s, rank, op) = place + 1;
    expect(s, &s->messages[place]);
    return now + handle(s, rank, name->level, op->n);
}

static double irecv(sim_state *s, int32_t rank, const sim_op *op, double now) {
    const sim_name *name = sim_name_of(s->world, rank, op);
    int64_t place = sim_receive(s, now, name, rank, number_of(s, rank, name, op));
    if (place < 0) return now;
    *slot_of(s, rank, op) = place + 1;
    const sim_message *m = &s->messages[place];
    sim_wake(s, m->gone, name->peer);
    if (m->arrival > now) expect(s, m);
    return now + s->world->node->operation;
}

static double test(sim_state *s, int32_t rank, const sim_op *op, double now) {
    int64_t *slot = slot_of(s, rank, op);
    if (*slot < 0) {
        double over = s->meetings[-*slot - 1].over;
        return over <= now ? now : -over;
    }
    if (!*slot) return now;
    const sim_message *m = &s->messages[*slot - 1];
    bool receives = m->dst == rank;
    double ready = receives ? m->arrival : m->gone;
    if (receives && ready == NEVER && m->due < now) return -now; /* adapters are not there yet */
    if (ready > now) return -ready;
    int32_t level = m->level;
    int64_t nbytes = m->nbytes;
    sim_leave(s, *slot - 1);
    *slot = 0;
    return now + (receives ? handle(s, rank, level, nbytes) : 0.0);
}

void sim_deliver_all(sim_state *s, double now) {
    for (int64_t place; (place = sim_deliver(s, now)) >= 0;)
        sim_wake(s, s->messages[place].arrival, s->messages[place].dst);
}

/* ---- MPI collectives ------------------------------------------------------------------------ */

/* Queue the messages of a collective, those of a binomial tree, at the adapters. When all have arrived. */
static double pass_tree(sim_state *s, const sim_collective *one, const int32_t *members,
                        int32_t count, double now) {
    double over = now;
    for (int32_t k = 1; k < count; k++) {
        int32_t parent = members[k & (k - 1)];
        if (one->up >= 0) over = fmax(over, sim_pass(s, now, members[k], parent, one->up));
        if (one->down >= 0) over = fmax(over, sim_pass(s, now, parent, members[k], one->down));
    }
    return over;
}

/* Enter a collective; the last member ends it. Its number. */
static int64_t enter(sim_state *s, int32_t rank, const sim_op *op, double now) {
    const sim_world *w = s->world;
    int32_t meeting = sim_name_of(w, rank, op)->what;
    int64_t number = (int64_t)s->ranks[rank].run * w->meetings + meeting;
    sim_meeting *m = &s->meetings[number];
    int32_t first = w->first_member[meeting], stop = w->first_member[meeting + 1];
    if (now > m->latest) m->latest = now;
    if (++m->entered < stop - first) return number;
    const sim_collective *one = &w->collectives[meeting];
    double passed = pass_tree(s, one, w->members + first, stop - first, m->latest);
    m->over = fmax(m->latest + one->seconds, passed);
    for (int32_t k = first; k < stop; k++) sim_wake(s, m->over, w->members[k]);
    return number;
}

static double coll(sim_state *s, int32_t rank, const sim_op *op, double now) {
    int64_t *slot = slot_of(s, rank, op);
    if (!op->blocking || *slot >= 0) *slot = -enter(s, rank, op, now) - 1;
    if (!op->blocking) return now + s->world->node->operation;
    double over = s->meetings[-*slot - 1].over;
    if (over > now) return -over;
    *slot = 0;
    return now;
}

double sim_operate(sim_state *s, int32_t rank, const sim_op *op, double now) {
    switch (op->code) {
    case HAN_COPY:
    case HAN_PULL:
    case HAN_PUSH:
    case HAN_PACK:
    case HAN_UNPACK:
        return work(s, rank, op, now, true);
    case HAN_REDUCE:
    case HAN_ACCUMULATE:
    case HAN_REDUCE2:
        return work(s, rank, op, now, false);
    case HAN_POST:
        return post(s, rank, op, now);
    case HAN_WAIT:
        return await_flag(s, rank, op, now);
    case HAN_AWAIT:
        return await_stream(s, rank, op, now);
    case HAN_ISEND:
        return isend(s, rank, op, now);
    case HAN_IRECV:
        return irecv(s, rank, op, now);
    case HAN_TEST:
        return test(s, rank, op, now);
    default:
        return coll(s, rank, op, now);
    }
}
