#include "python/py_door_read.h"

#include "program.h"
#include "python/py_dense.h"

static _Thread_local han_handle missed;

han_handle han_door_missed(void) {
    const han_handle type = missed;
    missed = 0;
    return type;
}

static const han_element *element_of(const han_caller *self, han_handle type) {
    const han_element *e = han_element_find(&self->reader->known, HAN_BY_HANDLE, (uint64_t)type);
    return e ? e : han_dense_find(type);
}

/* Take notice of a type that is not known; of no elements it may be a null handle. */
static bool misses(han_handle type, bool elements) {
    if (elements) missed = type;
    return false;
}

static bool reads(const han_caller *self, const han_door_side *side, han_buffer *b) {
    b->element = element_of(self, side->type);
    if (!b->element) return misses(side->type, side->n > 0);
    if (side->n < 0 || (!side->data && side->n)) return false;
    b->data = (uint8_t *)(uintptr_t)side->data;
    return !__builtin_mul_overflow((uint64_t)side->n, b->element->size, &b->nbytes);
}

/* The same of a block for each rank; `nbytes` is that of one. */
static bool reads_blocks(const han_caller *self, const han_door_side *side, han_buffer *b,
                         uint64_t *nbytes) {
    if (!reads(self, side, b)) return false;
    *nbytes = b->nbytes;
    return !__builtin_mul_overflow(b->nbytes, (uint64_t)self->size, &b->nbytes);
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
    if (!reads(self, &d->recv, &c->recv)) return false;
    if (in_place)
        share(&c->send, &c->recv);
    else if (!reads(self, &d->send, &c->send) || !han_apart(c))
        return false;
    return reduces(c, &c->recv, c->recv.nbytes);
}

static bool collects(const han_caller *self, const han_door_call *d, bool in_place, han_call *c) {
    uint64_t *nbytes = &c->key.nbytes;
    if (!reads_blocks(self, &d->recv, &c->recv, nbytes)) return false;
    if (in_place) {
        c->send.data = c->recv.data + *nbytes * (uint64_t)self->rank;
        return true;
    }
    return reads(self, &d->send, &c->send) && c->send.nbytes == *nbytes && han_apart(c);
}

static bool read_gather(const han_caller *self, const han_door_call *d, bool in_place,
                        han_call *c) {
    if (d->root == self->rank) return collects(self, d, in_place, c);
    if (!reads(self, &d->send, &c->send)) return false;
    c->key.nbytes = c->send.nbytes;
    return true;
}

static bool read_scatter(const han_caller *self, const han_door_call *d, bool in_place,
                         han_call *c) {
    uint64_t *nbytes = &c->key.nbytes;
    if (d->root != self->rank) {
        if (!reads(self, &d->recv, &c->recv)) return false;
        *nbytes = c->recv.nbytes;
        return true;
    }
    if (!reads_blocks(self, &d->send, &c->send, nbytes)) return false;
    if (in_place) {
        c->recv.data = c->send.data + *nbytes * (uint64_t)self->rank;
        return true;
    }
    return reads(self, &d->recv, &c->recv) && c->recv.nbytes == *nbytes && han_apart(c);
}

static bool read_alltoall(const han_caller *self, const han_door_call *d, bool in_place,
                          han_call *c) {
    uint64_t sent;
    if (!reads_blocks(self, &d->recv, &c->recv, &c->key.nbytes)) return false;
    c->key.root = in_place; /* no root here: tells in-place calls from others */
    if (in_place) {
        share(&c->send, &c->recv);
        return true;
    }
    return reads_blocks(self, &d->send, &c->send, &sent) && sent == c->key.nbytes && han_apart(c);
}

static bool read_reduce_scatter_block(const han_caller *self, const han_door_call *d, bool in_place,
                                      han_call *c) {
    uint64_t nbytes;
    c->key.root = in_place; /* as in alltoall */
    if (in_place) {
        if (!reads_blocks(self, &d->recv, &c->recv, &nbytes)) return false;
        share(&c->send, &c->recv);
    } else if (!reads(self, &d->recv, &c->recv) ||
               !reads_blocks(self, &d->send, &c->send, &nbytes) || !han_apart(c)) {
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
        if (!reads(self, &d->recv, &c->recv)) return false;
        share(&c->send, &c->recv);
        c->key.nbytes = c->recv.nbytes;
        return true;
    case HAN_C_REDUCE:
        if (d->root == self->rank) return combines(self, d, in_place, c);
        return !in_place && reads(self, &d->send, &c->send) && reduces(c, &c->send, c->send.nbytes);
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

static int64_t number(const void *numbers, bool large, int32_t k) {
    return large ? ((const int64_t *)numbers)[k] : ((const int *)numbers)[k];
}

static han_handle type_of(const han_caller *self, const void *types, int32_t k) {
    return self->reader->mpi.wide ? ((const intptr_t *)types)[k] : ((const int *)types)[k];
}

/* How one side of a call tells its blocks. */
typedef struct {
    const han_door_side *side;
    const int32_t *ranks; /* of the blocks, negative ones are none; NULL: in rank order */
    int32_t n;
    enum han_door_form form;
    bool large, far; /* of 64 bits: the counts, and the places */
    bool same;       /* each block is the whole buffer */
} told;

static told of_ranks(const han_caller *self, const han_door_call *d, const han_door_side *side) {
    return (told){side, NULL, self->size, d->form, d->large, d->large, false};
}

static bool holds(const told *t) {
    bool any = t->form == HAN_DOOR_EQUAL && t->side->n > 0;
    for (int32_t k = 0; !any && t->form && k < t->n; k++)
        any = number(t->side->counts, t->large, k) > 0;
    return any;
}

/* Read the bytes and the places of blocks by their ranks: whether all are such as C runs. Those of one
 * rank must be contiguous. Without places blocks are in order. */
static bool reads_sizes(const han_caller *self, told t, han_buffer *b, uint64_t *bytes,
                        uint64_t *places) {
    uint64_t at = 0, reach = 0;
    const bool typed = t.form == HAN_DOOR_TYPED;
    if (t.n && t.form != HAN_DOOR_EQUAL && !t.side->counts) return false;
    if (t.n && !typed && !(b->element = element_of(self, t.side->type)))
        return misses(t.side->type, holds(&t));
    for (int32_t k = 0; k < t.n; k++) {
        const int32_t r = t.ranks ? t.ranks[k] : k;
        const int64_t n = t.form ? number(t.side->counts, t.large, k) : t.side->n;
        if (n < 0) return false;
        if (!n) continue;
        if (typed && !(b->element = element_of(self, type_of(self, t.side->types, k))))
            return misses(type_of(self, t.side->types, k), true);
        const uint64_t size = b->element->size;
        int64_t place = t.same           ? 0
                        : t.side->places ? number(t.side->places, t.far, k)
                                         : (int64_t)at;
        at += (uint64_t)n;
        if (place < 0 || (uint64_t)n * size > INT32_MAX) return false;
        if (!typed) place *= (int64_t)size;
        if (r < 0) continue;
        if (!bytes[r]) places[r] = (uint64_t)place;
        if (places[r] + bytes[r] != (uint64_t)place) return false;
        bytes[r] += (uint64_t)n * size;
        if (bytes[r] > INT32_MAX) return false;
        if (places[r] + bytes[r] > reach) reach = places[r] + bytes[r];
    }
    b->data = (uint8_t *)(uintptr_t)t.side->data;
    b->nbytes = reach;
    return t.side->data || !reach;
}

/* The sizes of an allgather, and of a reduce-scatter: all ranks know them. */
static bool knows_sizes(const han_caller *self, han_call *c) {
    uint64_t *bytes = c->counts, *places = bytes + self->size, at = 0;
    for (int32_t r = 0; r < self->size; at += bytes[r++]) {
        if (bytes[r] && places[r] != at) return false; /* blocks are apart */
        if (bytes[r] > c->key.nbytes) c->key.nbytes = bytes[r];
        c->key.uneven |= bytes[r] != bytes[0];
    }
    return true;
}

static bool read_allgatherv(const han_caller *self, const han_door_call *d, bool in_place,
                            han_call *c) {
    uint64_t *bytes = c->counts, *places = bytes + self->size;
    if (!reads_sizes(self, of_ranks(self, d, &d->recv), &c->recv, bytes, places) ||
        !knows_sizes(self, c))
        return false;
    if (in_place) {
        c->send.data = c->recv.data + places[self->rank];
        return true;
    }
    return reads(self, &d->send, &c->send) && c->send.nbytes == bytes[self->rank] && han_apart(c);
}

static bool read_reduce_scatter(const han_caller *self, const han_door_call *d, bool in_place,
                                han_call *c) {
    uint64_t *bytes = c->counts, *places = bytes + self->size, largest;
    if (in_place || !reads_sizes(self, of_ranks(self, d, &d->send), &c->send, bytes, places) ||
        !knows_sizes(self, c))
        return false;
    c->recv = c->send;
    c->recv.data = (uint8_t *)(uintptr_t)d->recv.data;
    c->recv.nbytes = bytes[self->rank];
    largest = c->key.nbytes;
    return (c->recv.data || !c->recv.nbytes) && han_apart(c) && reduces(c, &c->send, largest);
}

static bool reads_own(const han_caller *self, const han_door_side *side, han_buffer *b,
                      uint64_t *bytes) {
    if (!reads(self, side, b) || b->nbytes > INT32_MAX) return false;
    *bytes = b->nbytes;
    return true;
}

static han_own_blocks own_blocks(const han_caller *self, han_call *c) {
    c->key.nbytes = HAN_OWN_NBYTES;
    c->key.uneven = true;
    c->numbers = HAN_OWN_NUMBERS * (uint32_t)self->size;
    return han_own_blocks_of(c->counts, self->size);
}

/* The sizes of blocks that only their sender and their receiver know. */
static bool read_own_sizes(const han_caller *self, const han_door_call *d, const void *in_place,
                           han_call *c) {
    const han_own_blocks b = own_blocks(self, c);
    const int32_t root = d->root, me = self->rank;
    if (d->collective == HAN_C_ALLTOALLV)
        return d->send.data != in_place &&
               reads_sizes(self, of_ranks(self, d, &d->recv), &c->recv, b.takes, b.to) &&
               reads_sizes(self, of_ranks(self, d, &d->send), &c->send, b.sends, b.from) &&
               b.sends[me] == b.takes[me] && han_apart(c);
    c->key.root = root;
    if (root < 0 || root >= self->size) return false;
    if (d->collective == HAN_C_GATHERV) {
        if (me != root) return reads_own(self, &d->send, &c->send, &b.sends[root]);
        if (!reads_sizes(self, of_ranks(self, d, &d->recv), &c->recv, b.takes, b.to)) return false;
        if (d->send.data == in_place) b.takes[root] = 0;
        return d->send.data == in_place || (reads_own(self, &d->send, &c->send, &b.sends[root]) &&
                                            b.sends[root] == b.takes[root] && han_apart(c));
    }
    if (me != root) return reads_own(self, &d->recv, &c->recv, &b.takes[root]);
    if (!reads_sizes(self, of_ranks(self, d, &d->send), &c->send, b.sends, b.from)) return false;
    if (d->recv.data == in_place) b.sends[root] = 0;
    return d->recv.data == in_place || (reads_own(self, &d->recv, &c->recv, &b.takes[root]) &&
                                        b.sends[root] == b.takes[root] && han_apart(c));
}

static bool read_counted(const han_caller *self, const han_door_call *d, const void *in_place,
                         han_call *c) {
    const bool own = d->send.data == in_place;
    if (d->collective == HAN_C_ALLGATHER) return read_allgatherv(self, d, own, c);
    if (d->collective == HAN_C_REDUCE_SCATTER) return read_reduce_scatter(self, d, own, c);
    return read_own_sizes(self, d, in_place, c);
}

/* As han_read_neighbours does. */
static bool read_neighbours(const han_caller *self, const han_door_call *d, const han_edges *e,
                            han_call *c) {
    const han_own_blocks b = own_blocks(self, c);
    const bool same = d->collective == HAN_C_ALLGATHER;
    const bool far = d->large || d->form == HAN_DOOR_TYPED;
    const told to = {&d->send, e->ranks, e->targets, same ? HAN_DOOR_EQUAL : d->form,
                     d->large, far,      same};
    const told from = {&d->recv, e->ranks + e->targets, e->sources, d->form, d->large, far, false};
    c->key.collective = HAN_C_ALLTOALLV;
    c->key.kind = e->kind;
    return reads_sizes(self, to, &c->send, b.sends, b.from) &&
           reads_sizes(self, from, &c->recv, b.takes, b.to) &&
           b.sends[self->rank] == b.takes[self->rank] && han_apart(c);
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
