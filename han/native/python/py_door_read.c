#include "python/py_door_read.h"

#include "program.h"
#include "python/py_door_sides.h"

static han_door_told of_ranks(const han_caller *self, const han_door_call *d,
                              const han_door_side *side) {
    return (han_door_told){side, NULL, self->size, d->form, d->large, d->large, false};
}

/* Elements of derived types may have to travel packed. */
static bool sees_types(han_call *c) {
    if (c->send.derived || c->recv.derived) c->use = HAN_WHOLE;
    return true;
}

static void share(han_buffer *with, const han_buffer *b) {
    with->data = b->data;
    with->nbytes = b->nbytes;
    with->element = b->element;
}

static bool reduces(han_call *c, const han_buffer *b, uint64_t nbytes) {
    c->key.nbytes = nbytes;
    c->key.kind = b->element->kind;
    c->key.handle = b->element->handle;
    return c->key.op && b->element->kind >= 0;
}

/* A reduction of whole messages on a rank that receives. */
static bool combines(const han_caller *self, const han_door_call *d, bool in_place, han_call *c) {
    if (!han_door_reads(self, &d->recv, &c->recv)) return false;
    if (in_place)
        share(&c->send, &c->recv);
    else if (!han_door_reads(self, &d->send, &c->send) || !han_apart(c))
        return false;
    return reduces(c, &c->recv, c->recv.nbytes);
}

static bool collects(const han_caller *self, const han_door_call *d, bool in_place, han_call *c) {
    uint64_t *nbytes = &c->key.nbytes;
    if (!han_door_reads_blocks(self, &d->recv, &c->recv, nbytes)) return false;
    if (in_place) {
        const uint64_t step = c->recv.derived ? (uint64_t)d->recv.n * c->recv.extent : *nbytes;
        han_send_received(c, step * (uint64_t)self->rank, *nbytes);
        return sees_types(c);
    }
    return han_door_reads(self, &d->send, &c->send) && c->send.nbytes == *nbytes && han_apart(c) &&
           sees_types(c);
}

static bool read_gather(const han_caller *self, const han_door_call *d, bool in_place,
                        han_call *c) {
    if (d->root == self->rank) return collects(self, d, in_place, c);
    if (!han_door_reads(self, &d->send, &c->send)) return false;
    c->key.nbytes = c->send.nbytes;
    return sees_types(c);
}

static bool read_scatter(const han_caller *self, const han_door_call *d, bool in_place,
                         han_call *c) {
    uint64_t *nbytes = &c->key.nbytes;
    if (d->root != self->rank) {
        if (!han_door_reads(self, &d->recv, &c->recv)) return false;
        *nbytes = c->recv.nbytes;
        return sees_types(c);
    }
    if (!han_door_reads_blocks(self, &d->send, &c->send, nbytes)) return false;
    if (in_place) {
        c->recv.data = c->send.data + *nbytes * (uint64_t)self->rank;
        return !c->send.derived;
    }
    return han_door_reads(self, &d->recv, &c->recv) && c->recv.nbytes == *nbytes && han_apart(c) &&
           sees_types(c);
}

static bool read_alltoall(const han_caller *self, const han_door_call *d, bool in_place,
                          han_call *c) {
    uint64_t sent;
    if (!han_door_reads_blocks(self, &d->recv, &c->recv, &c->key.nbytes)) return false;
    c->key.root = in_place; /* no root here: tells in-place calls from others */
    if (in_place) {
        share(&c->send, &c->recv);
        return !c->recv.derived;
    }
    return han_door_reads_blocks(self, &d->send, &c->send, &sent) && sent == c->key.nbytes &&
           han_apart(c) && sees_types(c);
}

static bool read_reduce_scatter_block(const han_caller *self, const han_door_call *d, bool in_place,
                                      han_call *c) {
    uint64_t nbytes;
    c->key.root = in_place; /* as in alltoall */
    if (in_place) {
        if (!han_door_reads_blocks(self, &d->recv, &c->recv, &nbytes)) return false;
        share(&c->send, &c->recv);
    } else if (!han_door_reads(self, &d->recv, &c->recv) ||
               !han_door_reads_blocks(self, &d->send, &c->send, &nbytes) || !han_apart(c)) {
        return false;
    }
    return reduces(c, &c->recv, nbytes);
}

static bool read_equal(const han_caller *self, const han_door_call *d, bool in_place, han_call *c) {
    c->key.root = d->root;
    switch (d->collective) {
    case HAN_C_BARRIER:
        return true;
    case HAN_C_BCAST:
        if (!han_door_reads(self, &d->recv, &c->recv)) return false;
        if (c->recv.derived) c->use = HAN_PACKED;
        share(&c->send, &c->recv);
        c->key.nbytes = c->recv.nbytes;
        return true;
    case HAN_C_REDUCE:
        if (d->root == self->rank) return combines(self, d, in_place, c);
        return !in_place && han_door_reads(self, &d->send, &c->send) &&
               reduces(c, &c->send, c->send.nbytes);
    case HAN_C_ALLREDUCE:
    case HAN_C_SCAN:
    case HAN_C_EXSCAN:
        return combines(self, d, in_place, c);
    case HAN_C_GATHER:
        return read_gather(self, d, in_place, c);
    case HAN_C_SCATTER:
        return read_scatter(self, d, in_place, c);
    case HAN_C_ALLGATHER:
        return collects(self, d, in_place, c);
    case HAN_C_ALLTOALL:
        return read_alltoall(self, d, in_place, c);
    case HAN_C_REDUCE_SCATTER:
        return read_reduce_scatter_block(self, d, in_place, c);
    default:
        return false;
    }
}

/* ---- blocks of their own sizes --------------------------------------------------------------- */

static han_door_sized blocks_of(const han_caller *self, const han_call *c) {
    uint64_t *bytes = c->counts;
    const size_t n = (size_t)self->size;
    return (han_door_sized){bytes, bytes + n, bytes + 2 * n, bytes + 3 * n};
}

/* Take the sizes of an allgather, or of a reduce-scatter: all ranks know them. Whether the blocks lie in
 * order, without gaps. */
static bool are_joined(const han_caller *self, han_call *c) {
    uint64_t *bytes = c->counts, *places = bytes + self->size, at = 0;
    bool joined = true;
    for (int32_t r = 0; r < self->size; at += bytes[r++]) {
        joined = joined && (!bytes[r] || places[r] == at);
        if (bytes[r] > c->key.nbytes) c->key.nbytes = bytes[r];
        c->key.uneven |= bytes[r] != bytes[0];
    }
    return joined;
}

static bool read_allgatherv(const han_caller *self, const han_door_call *d, bool in_place,
                            han_call *c) {
    const han_door_sized b = blocks_of(self, c);
    if (!han_door_reads_sizes(self, of_ranks(self, d, &d->recv), &c->recv, b)) return false;
    const bool direct = are_joined(self, c) && !c->recv.derived;
    if (!direct) c->use = HAN_SCATTERED;
    if (in_place) {
        han_send_received(c, b.places[self->rank], b.bytes[self->rank]);
        return true;
    }
    return han_door_reads(self, &d->send, &c->send) && c->send.nbytes == b.bytes[self->rank] &&
           han_apart(c) && (!direct || sees_types(c));
}

static bool read_reduce_scatter(const han_caller *self, const han_door_call *d, bool in_place,
                                han_call *c) {
    const han_door_sized b = blocks_of(self, c);
    uint64_t largest;
    if (in_place || !han_door_reads_sizes(self, of_ranks(self, d, &d->send), &c->send, b) ||
        !are_joined(self, c))
        return false;
    c->recv = c->send;
    c->recv.data = (uint8_t *)(uintptr_t)d->recv.data;
    c->recv.nbytes = b.bytes[self->rank];
    largest = c->key.nbytes;
    return (c->recv.data || !c->recv.nbytes) && han_apart(c) && reduces(c, &c->send, largest);
}

static bool reads_own(const han_caller *self, const han_door_side *side, han_buffer *b,
                      han_door_sized to, int32_t rank) {
    if (!han_door_reads(self, side, b) || b->nbytes > INT32_MAX) return false;
    to.bytes[rank] = b->nbytes;
    to.elements[rank] = b->count;
    return true;
}

static han_own_blocks own_blocks(const han_caller *self, han_call *c) {
    c->key.nbytes = HAN_OWN_NBYTES;
    c->key.uneven = true;
    c->numbers = HAN_OWN_NUMBERS * (uint32_t)self->size;
    return han_own_blocks_of(c->counts, self->size);
}

static han_door_sized sent_of(const han_own_blocks *b) {
    return (han_door_sized){b->sends, b->from, b->sent, b->sent_types};
}
static han_door_sized taken_of(const han_own_blocks *b) {
    return (han_door_sized){b->takes, b->to, b->taken, b->taken_types};
}

/* Elements of derived types may have to travel packed, here block by block. */
static bool sees_types_of_blocks(han_call *c) {
    if (c->send.derived || c->recv.derived) c->use = HAN_TYPED;
    return true;
}

/* The sizes of blocks that only their sender and their receiver know. */
static bool reads_own_sizes(const han_caller *self, const han_door_call *d, const void *in_place,
                            han_call *c) {
    const han_own_blocks b = own_blocks(self, c);
    const han_door_sized sent = sent_of(&b), taken = taken_of(&b);
    const int32_t root = d->root, me = self->rank;
    if (d->collective == HAN_C_ALLTOALLV)
        return d->send.data != in_place &&
               han_door_reads_sizes(self, of_ranks(self, d, &d->recv), &c->recv, taken) &&
               han_door_reads_sizes(self, of_ranks(self, d, &d->send), &c->send, sent) &&
               b.sends[me] == b.takes[me] && han_may_be_apart(c);
    c->key.root = root;
    if (root < 0 || root >= self->size) return false;
    if (d->collective == HAN_C_GATHERV) {
        if (me != root) return reads_own(self, &d->send, &c->send, sent, root);
        if (!han_door_reads_sizes(self, of_ranks(self, d, &d->recv), &c->recv, taken)) return false;
        if (d->send.data == in_place) b.takes[root] = 0;
        return d->send.data == in_place || (reads_own(self, &d->send, &c->send, sent, root) &&
                                            b.sends[root] == b.takes[root] && han_apart(c));
    }
    if (me != root) return reads_own(self, &d->recv, &c->recv, taken, root);
    if (!han_door_reads_sizes(self, of_ranks(self, d, &d->send), &c->send, sent)) return false;
    if (d->recv.data == in_place) b.sends[root] = 0;
    return d->recv.data == in_place || (reads_own(self, &d->recv, &c->recv, taken, root) &&
                                        b.sends[root] == b.takes[root] && han_apart(c));
}

static bool read_counted(const han_caller *self, const han_door_call *d, const void *in_place,
                         han_call *c) {
    const bool own = d->send.data == in_place;
    if (d->collective == HAN_C_ALLGATHER) return read_allgatherv(self, d, own, c);
    if (d->collective == HAN_C_REDUCE_SCATTER) return read_reduce_scatter(self, d, own, c);
    return reads_own_sizes(self, d, in_place, c) && sees_types_of_blocks(c);
}

/* As han_read_neighbours does. */
static bool read_neighbours(const han_caller *self, const han_door_call *d, const han_edges *e,
                            han_call *c) {
    const han_own_blocks b = own_blocks(self, c);
    const bool same = d->collective == HAN_C_ALLGATHER;
    const bool far = d->large || d->form == HAN_DOOR_TYPED;
    const han_door_told to = {&d->send, e->ranks, e->targets, same ? HAN_DOOR_EQUAL : d->form,
                              d->large, far,      same};
    const han_door_told from = {&d->recv, e->ranks + e->targets, e->sources, d->form, d->large, far,
                                false};
    c->key.collective = HAN_C_ALLTOALLV;
    c->key.kind = e->kind;
    return han_door_reads_sizes(self, to, &c->send, sent_of(&b)) &&
           han_door_reads_sizes(self, from, &c->recv, taken_of(&b)) &&
           b.sends[self->rank] == b.takes[self->rank] && han_may_be_apart(c) &&
           sees_types_of_blocks(c);
}

bool han_door_read(const han_caller *self, const han_door_call *d, const void *in_place,
                   uint64_t *sizes, const han_edges *edges, han_call *c) {
    const han_door_side *said = d->collective == HAN_C_SCATTER ? &d->recv : &d->send;
    c->counts = sizes;
    if (d->neighbours) return edges && read_neighbours(self, d, edges, c);
    if (d->form != HAN_DOOR_EQUAL) return read_counted(self, d, in_place, c);
    c->counts = NULL;
    return read_equal(self, d, said->data == in_place, c);
}
