/* One pass over the program, without allocation. */
#include "memory/program_check.h"

#include <limits.h>

#include "channel.h"

enum {
    FLAGS = HAN_RANK_FLAGS * HAN_LINE, /* bytes of the flags of one rank */
    UNDER_WAY = 0x80, /* in a request's state; the low bits are its stream, from 1 */
};

static const uint64_t FLAG_VALUES = (uint64_t)1 << HAN_EPOCH_SHIFT;

/* Whether a range lies within `length` bytes. No sum: it could wrap around. */
static bool within(uint64_t offset, uint64_t nbytes, uint64_t length) {
    return offset <= length && nbytes <= length - offset;
}

static bool inside(const han_bounds *g, const han_instr *i, int ref, uint64_t nbytes) {
    uint32_t base = i->base[ref], channel;
    uint64_t offset = i->off[ref];
    if (base == HAN_B_NONE) return false;
    if (base < HAN_B_CHANNEL) return within(offset, nbytes, g->lengths[base - HAN_B_SEND]);
    channel = (base - HAN_B_CHANNEL) / HAN_B_PER_CHANNEL;
    if (channel >= g->n_channels) return false;
    uint64_t members = g->channels[channel].members, ring = g->channels[channel].ring;
    switch ((base - HAN_B_CHANNEL) % HAN_B_PER_CHANNEL) {
    case HAN_B_SMALL: return within(offset, nbytes, members * HAN_SMALL_SLOT);
    case HAN_B_CELLS:
        return offset / ring < members && within(offset % ring, nbytes, g->channels[channel].part);
    default: return false; /* no data among the flags */
    }
}

static bool writable(const han_bounds *g, const han_instr *i, int ref, uint64_t nbytes) {
    return i->base[ref] != HAN_B_SEND && inside(g, i, ref, nbytes);
}

static const char *flag(const han_bounds *g, const han_instr *i) {
    uint32_t base = i->base[0];
    uint32_t channel = (base - HAN_B_CHANNEL) / HAN_B_PER_CHANNEL;
    if (base < HAN_B_CHANNEL || channel >= g->n_channels) return "its flag is in no channel";
    uint32_t area = (base - HAN_B_CHANNEL) % HAN_B_PER_CHANNEL;
    uint64_t room = g->channels[channel].members * (area == HAN_B_SMALL ? HAN_SMALL_SLOT : FLAGS);
    if (area == HAN_B_CELLS || i->off[0] % HAN_LINE || i->off[0] >= room)
        return "no flag is there";
    return i->n < FLAG_VALUES ? NULL : "the value of its flag belongs to the next run";
}

static const char *reduction(const han_bounds *g, const han_instr *i) {
    uint64_t nbytes = i->n * g->element;
    if (i->n > g->count) return "more elements than the message has";
    if (nbytes > g->operand) return "its operand is larger than the room for it";
    if (!g->native && i->n > INT_MAX) return "more elements than an int holds";
    if (!i->n) return NULL;
    bool reads = inside(g, i, 1, nbytes) && inside(g, i, 2, nbytes);
    bool writes = writable(g, i, 0, nbytes);
    if (i->code == HAN_REDUCE2) writes = writes && writable(g, i, 3, nbytes);
    return reads && writes ? NULL : "it leaves its memory";
}

/* The system refuses access to memory that a peer does not have. Data pushed into a peer's
 * receive buffer must have the same offset in this rank's own receive buffer, so that it stays
 * within the peer's. */
static const char *attached(const han_bounds *g, const han_instr *i) {
    uint32_t base = i->base[i->code == HAN_PULL];
    bool mine = i->code == HAN_PULL || (base == HAN_B_RECV && i->base[1] == HAN_B_RECV &&
                                        i->off[0] == i->off[1]);
    bool there = HAN_ATTACH_CHANNEL(i) < g->n_channels && base >= HAN_B_SEND &&
                 base <= HAN_B_SCRATCH &&
                 HAN_ATTACH_SLOT(i) < g->channels[HAN_ATTACH_CHANNEL(i)].members;
    return there && mine ? NULL : "the peer's memory that it names does not exist";
}

static const char *transfer(const han_bounds *g, const han_instr *i) {
    if (i->n > g->count * g->element) return "more bytes than the message has";
    bool pulls = i->code == HAN_PULL, pushes = i->code == HAN_PUSH;
    if (i->code != HAN_COPY && !pulls && !pushes && i->n > INT_MAX)
        return "more bytes than an int holds";
    if (!i->n) return NULL;
    bool reads = i->code == HAN_IRECV || pulls || inside(g, i, 1, i->n);
    bool writes = i->code == HAN_ISEND || pushes || writable(g, i, 0, i->n);
    if (!reads || !writes) return "it leaves its memory";
    return pulls || pushes ? attached(g, i) : NULL;
}

static const char *collective(const han_bounds *g, const han_instr *i) {
    unsigned kind = HAN_COLL_KIND(i) & ~(unsigned)HAN_C_BLOCKING, comm = HAN_COLL_COMM(i);
    if (i->off[2] > HAN_C_BLOCKING + HAN_C_BARRIER || kind > HAN_C_BARRIER)
        return "no such collective";
    if (i->off[3] >= g->n_comms || (uint64_t)i->peer >= g->comms[comm])
        return "no such communicator or root";
    if (kind == HAN_C_BARRIER || !i->n) return NULL;
    uint64_t most = kind == HAN_C_BCAST ? g->count * g->element : g->count;
    if (i->n > most || i->n > INT_MAX) return "more elements than the message has or an int holds";
    uint64_t nbytes = kind == HAN_C_BCAST ? i->n : i->n * g->element;
    bool gives = i->base[1] == HAN_B_NONE ? kind == HAN_C_BCAST : inside(g, i, 1, nbytes);
    bool gets = i->base[0] == HAN_B_NONE ? kind == HAN_C_REDUCE : writable(g, i, 0, nbytes);
    return gives && gets ? NULL : "it leaves its memory";
}

static const char *operation(const han_bounds *g, const han_instr *i) {
    switch (i->code) {
    case HAN_COPY:
    case HAN_PULL:
    case HAN_PUSH:
    case HAN_ISEND:
    case HAN_IRECV: return transfer(g, i);
    case HAN_REDUCE:
    case HAN_ACCUMULATE:
    case HAN_REDUCE2: return reduction(g, i);
    case HAN_POST:
    case HAN_WAIT: return flag(g, i);
    case HAN_AWAIT: return (uint32_t)i->peer < g->n_streams ? NULL : "no such stream";
    case HAN_COLL: return collective(g, i);
    default: return i->code == HAN_TEST ? NULL : "no such operation";
    }
}

/* The executor also computes addresses for 0 bytes: all bases must exist. */
static const char *frame(const han_bounds *g, const han_instr *i) {
    for (int k = 0; k < 4; k++)
        if (i->base[k] >= HAN_B_CHANNEL + HAN_B_PER_CHANNEL * g->n_channels) return "no such base";
    if (i->stream >= HAN_MAX_STREAMS) return "no such tag";
    if (i->task >= (g->tasks ? g->tasks : 1)) return "no such task";
    bool talks = i->code == HAN_WAIT || i->code == HAN_ISEND || i->code == HAN_IRECV ||
                 i->code == HAN_TEST || i->code == HAN_COLL || i->code >= HAN_PULL;
    if (talks && (i->peer < 0 || (uint64_t)i->peer >= g->ranks)) return "no such rank";
    return NULL;
}

static bool starts(const han_instr *i) {
    if (i->code == HAN_COLL) return !(HAN_COLL_KIND(i) & HAN_C_BLOCKING);
    return i->code == HAN_ISEND || i->code == HAN_IRECV;
}

/* Each request is started and tested alternately by one stream, and tested last. */
static const char *request(const han_bounds *g, const han_instr *i, uint8_t *state, uint32_t s,
                           uint32_t *pending) {
    bool start = starts(i), test = i->code == HAN_TEST;
    if (!start && !test && i->code != HAN_COLL) return NULL;
    if (i->slot >= g->requests) return "no such request";
    if (!start && !test) return NULL;
    uint8_t *now = &state[i->slot], own = (uint8_t)(s + 1);
    if (*now && (*now & ~UNDER_WAY) != own) return "the request of another stream";
    if (start == (bool)(*now & UNDER_WAY))
        return "its request is not started and tested alternately";
    *now = start ? own | UNDER_WAY : own;
    *pending += start ? 1 : (uint32_t)-1;
    return NULL;
}

const char *han_check_program(const han_bounds *g, const han_instr *code, uint8_t *state,
                              uint32_t *where) {
    uint32_t pending = 0;
    for (uint32_t s = 0; s < g->n_streams; s++)
        for (uint32_t k = g->streams[s].start; k < g->streams[s].stop; k++) {
            *where = k;
            const char *problem = frame(g, &code[k]);
            if (!problem) problem = operation(g, &code[k]);
            if (!problem) problem = request(g, &code[k], state, s, &pending);
            if (problem) return problem;
        }
    return pending ? "a request is started and never tested" : NULL;
}
