#include "python/py_own_blocks.h"

#include <string.h>

#include "python/py_vectors.h"

/* In place of a kind of elements: blocks travel by themselves, so other plans serve the call. Calls with
 * neighbours that all ranks know have kinds of their own (han/message/own_sizes.py). */
enum { SINGLY = -1 };

static bool open_own_blocks(const han_caller *self, han_call *c, han_own_blocks *b) {
    size_t n = (size_t)self->size;
    c->key.nbytes = HAN_OWN_NBYTES;
    c->key.uneven = true;
    c->numbers = (uint32_t)(HAN_OWN_NUMBERS * n);
    c->counts = PyMem_Calloc(HAN_OWN_ALL * n, sizeof *c->counts);
    *b = han_own_blocks_of(c->counts, self->size);
    return c->counts;
}

static han_blocks blocks_sent(const han_own_blocks *b, int32_t size) {
    return (han_blocks){.counts = b->sends, .places = b->from, .elements = b->sent, .size = size};
}

static han_blocks blocks_taken(const han_own_blocks *b, int32_t size) {
    return (han_blocks){.counts = b->takes, .places = b->to, .elements = b->taken, .size = size};
}

/* Turn counts and places from elements into bytes; false if a block is too large for a message. */
static bool in_bytes(const han_buffer *buffer, const han_blocks *b) {
    const uint64_t size = buffer->derived ? buffer->size : buffer->element->size;
    const uint64_t extent = buffer->derived ? buffer->extent : buffer->element->size;
    bool found = true;
    for (int32_t k = 0; k < b->size; k++) {
        b->elements[k] = b->counts[k];
        b->counts[k] *= size;
        b->places[k] *= extent;
        found = found && b->counts[k] <= INT32_MAX;
    }
    return found;
}

/* Read a buffer of blocks. */
static bool reads_blocks(const han_caller *self, PyObject *o, bool only_read, han_buffer *out,
                         han_blocks b) {
    return han_py_read_any_vector(self->reader, o, only_read, &b, out) && in_bytes(out, &b);
}

/* Read a buffer that is the block of one rank. */
static bool reads_block(const han_caller *self, PyObject *o, han_buffer *out, han_blocks b,
                        int32_t rank) {
    if (!han_py_read(self->reader, o, 1, out)) return false;
    b.counts[rank] = out->nbytes;
    b.elements[rank] = out->count;
    return out->nbytes <= INT32_MAX;
}

/* Elements of derived types may have to travel packed, in a copy. */
static bool sees_types(han_call *c) {
    if (c->send.derived || c->recv.derived) c->use = HAN_TYPED;
    return true;
}

/* send, recv, root */
bool han_read_gatherv(const han_caller *self, PyObject *const *args, han_call *c) {
    han_own_blocks b;
    if (!han_root_of(args[2], &c->key) || !open_own_blocks(self, c, &b)) return false;
    int32_t root = c->key.root;
    if (root >= self->size) return false;
    bool at_root = root == self->rank, there = at_root && han_says_in_place(self, args[0]);
    if (at_root && (!reads_blocks(self, args[1], false, &c->recv, blocks_taken(&b, self->size)) ||
                    c->recv.readonly))
        return false;
    if (there) {
        b.takes[root] = 0;
        return sees_types(c);
    }
    return reads_block(self, args[0], &c->send, blocks_sent(&b, self->size), root) &&
           (!at_root || (b.sends[root] == b.takes[root] && han_apart(c))) && sees_types(c);
}

/* Take as many bytes at most of each other rank; false if there are too many for messages. */
static bool takes_at_most(const han_caller *self, const han_call *c, const han_own_blocks *b) {
    const uint64_t most = c->recv.nbytes / (uint64_t)self->size;
    for (int32_t r = 0; r < self->size; r++) {
        b->to[r] = (uint64_t)r * most;
        b->takes[r] = r == self->rank ? b->sends[r] : most | HAN_AT_MOST;
    }
    return most <= INT32_MAX && b->sends[self->rank] <= most;
}

/* send, recv, root */
bool han_read_gather_up_to(const han_caller *self, PyObject *const *args, han_call *c) {
    han_own_blocks b;
    if (!han_root_of(args[2], &c->key) || !open_own_blocks(self, c, &b)) return false;
    c->key.kind = SINGLY;
    int32_t root = c->key.root;
    if (root >= self->size ||
        !reads_block(self, args[0], &c->send, blocks_sent(&b, self->size), root))
        return false;
    if (root != self->rank) return sees_types(c);
    return han_py_read(self->reader, args[1], (uint64_t)self->size, &c->recv) &&
           !c->recv.readonly && !c->recv.derived && takes_at_most(self, c, &b) && han_apart(c) &&
           sees_types(c);
}

/* send, recv, root */
bool han_read_scatterv(const han_caller *self, PyObject *const *args, han_call *c) {
    han_own_blocks b;
    if (!han_root_of(args[2], &c->key) || !open_own_blocks(self, c, &b)) return false;
    int32_t root = c->key.root;
    if (root >= self->size) return false;
    bool at_root = root == self->rank, there = at_root && han_says_in_place(self, args[1]);
    if (at_root && !reads_blocks(self, args[0], true, &c->send, blocks_sent(&b, self->size)))
        return false;
    if (there) {
        b.sends[root] = 0;
        return sees_types(c);
    }
    return reads_block(self, args[1], &c->recv, blocks_taken(&b, self->size), root) &&
           !c->recv.readonly && (!at_root || (b.sends[root] == b.takes[root] && han_apart(c))) &&
           sees_types(c);
}

/* Send a copy of the blocks that are in the receive buffer. */
static bool copies_own_blocks(const han_caller *self, han_call *c, const han_own_blocks *b) {
    size_t n = (size_t)self->size * sizeof *b->sends;
    if (c->recv.derived) return false;
    c->send.owner =
        PyBytes_FromStringAndSize((const char *)c->recv.data, (Py_ssize_t)c->recv.nbytes);
    if (!c->send.owner) {
        PyErr_Clear();
        return false;
    }
    c->send.data = (uint8_t *)PyBytes_AS_STRING(c->send.owner);
    c->copied = true;
    memcpy(b->sends, b->takes, n);
    memcpy(b->from, b->to, n);
    return true;
}

/* send, recv */
bool han_read_alltoallv(const han_caller *self, PyObject *const *args, han_call *c) {
    han_own_blocks b;
    if (!open_own_blocks(self, c, &b) ||
        !reads_blocks(self, args[1], false, &c->recv, blocks_taken(&b, self->size)) ||
        c->recv.readonly)
        return false;
    if (han_says_in_place(self, args[0])) return copies_own_blocks(self, c, &b);
    return reads_blocks(self, args[0], true, &c->send, blocks_sent(&b, self->size)) &&
           b.sends[self->rank] == b.takes[self->rank] && han_apart(c) && sees_types(c);
}

/* send, recv */
bool han_read_alltoallw(const han_caller *self, PyObject *const *args, han_call *c) {
    han_own_blocks b;
    if (!open_own_blocks(self, c, &b)) return false;
    han_blocks to = blocks_sent(&b, self->size), from = blocks_taken(&b, self->size);
    if (!han_py_read_typed(self->reader, args[1], &from, &c->recv) || c->recv.readonly)
        return false;
    if (han_says_in_place(self, args[0])) return copies_own_blocks(self, c, &b);
    return han_py_read_typed(self->reader, args[0], &to, &c->send) &&
           b.sends[self->rank] == b.takes[self->rank] && han_may_be_apart(c) && sees_types(c);
}

/* ---- neighbours ---------------------------------------------------------------------------- */

const han_edges *han_edges_of(const han_caller *self, PyObject *o) {
    if (!PyBytes_Check(o) || PyBytes_GET_SIZE(o) < (Py_ssize_t)sizeof(han_edges)) return NULL;
    const han_edges *e = (const han_edges *)PyBytes_AS_STRING(o);
    Py_ssize_t ranks = (PyBytes_GET_SIZE(o) - (Py_ssize_t)sizeof *e) / (Py_ssize_t)sizeof *e->ranks;
    if (e->targets < 0 || e->sources < 0 || (Py_ssize_t)e->targets + e->sources != ranks)
        return NULL;
    for (Py_ssize_t k = 0; k < ranks; k++)
        if (e->ranks[k] >= self->size) return NULL;
    return e;
}

static uint64_t elements_of(const han_buffer *b) {
    return b->derived ? b->count : b->nbytes / b->element->size;
}

/* Divide a buffer into `b->size` equal blocks. */
static bool divides(const han_caller *self, PyObject *o, const han_blocks *b, han_buffer *out) {
    const uint64_t size = (uint64_t)b->size;
    if (!han_py_read(self->reader, o, size, out)) return false;
    const uint64_t elements = elements_of(out);
    for (uint64_t k = 0; k < size; k++) {
        b->counts[k] = elements / size;
        b->places[k] = k * (elements / size);
    }
    return elements % size == 0;
}

/* Take the whole buffer for each of `b->size` blocks. */
static bool repeats(const han_caller *self, PyObject *o, const han_blocks *b, han_buffer *out) {
    if (!han_py_read(self->reader, o, 1, out)) return false;
    for (int32_t k = 0; k < b->size; k++) b->counts[k] = elements_of(out);
    return true;
}

/* Put the types of blocks in the places of their ranks. */
static bool types_by_rank(const han_caller *self, const han_blocks *b, han_buffer *out) {
    if (!out->derived) return true;
    PyObject *types = PyTuple_New(self->size);
    for (int32_t k = 0; types && k < b->size; k++)
        if (b->counts[k]) {
            PyObject *type = Py_NewRef(PyTuple_GET_ITEM(out->datatype, k));
            Py_XSETREF(((PyTupleObject *)types)->ob_item[b->ranks[k]], type);
        }
    for (int32_t r = 0; types && r < self->size; r++)
        if (!PyTuple_GET_ITEM(types, r)) PyTuple_SET_ITEM(types, r, Py_NewRef(Py_None));
    Py_SETREF(out->datatype, types);
    PyErr_Clear();
    return types;
}

/* Read a buffer with a block for each neighbour, and count in bytes. */
static bool reads_edges(const han_caller *self, PyObject *o, const han_edges *e, bool sent,
                        han_blocks *b, han_buffer *out) {
    if (!b->size) { /* read all the same: it may be wrong, or on a device */
        bool listed = e->form == HAN_DOOR_TYPED &&
                      (PyList_CheckExact(o) || PyTuple_CheckExact(o)) &&
                      PySequence_Fast_GET_SIZE(o);
        PyObject *data = Py_NewRef(listed ? PySequence_Fast_GET_ITEM(o, 0) : o);
        bool host = han_py_read(self->reader, data, 0, out) && !out->derived;
        Py_DECREF(data);
        out->nbytes = 0;
        return host;
    }
    if (e->form == HAN_DOOR_TYPED)
        return han_py_read_typed(self->reader, o, b, out) && types_by_rank(self, b, out);
    bool found = sent && e->same ? repeats(self, o, b, out)
                 : e->form == HAN_DOOR_COUNTED
                     ? han_py_read_any_vector(self->reader, o, sent, b, out)
                     : divides(self, o, b, out);
    return found && in_bytes(out, b);
}

/* Tell the blocks of edges by rank. Those of one rank must be contiguous, and of no derived type,
 * else false. */
static bool joins(const han_buffer *buffer, const han_blocks *edges, han_blocks to) {
    bool found = true;
    for (int32_t k = 0; k < edges->size; k++) {
        const int32_t r = edges->ranks[k];
        if (r < 0 || !edges->counts[k]) continue;
        uint64_t *size = &to.counts[r], *place = &to.places[r];
        if (!*size) *place = edges->places[k];
        found = found && *place + *size == edges->places[k] && !(*size && buffer->derived);
        *size += edges->counts[k];
        to.elements[r] += edges->elements[k];
        found = found && *size <= INT32_MAX;
    }
    return found;
}

/* The neighbours of this rank, send, recv: an alltoall of blocks that are empty but for those of
 * neighbours. */
bool han_read_neighbours(const han_caller *self, PyObject *const *args, han_call *c) {
    han_own_blocks own;
    const han_edges *e = han_edges_of(self, args[0]);
    if (!e || !open_own_blocks(self, c, &own)) return false;
    c->key.kind = e->kind;
    uint64_t *sent = NULL, *taken = NULL;
    han_blocks to, from;
    bool found = han_py_blocks(&to, &sent, e->targets) && han_py_blocks(&from, &taken, e->sources);
    if (found) {
        to.ranks = e->ranks;
        from.ranks = e->ranks + e->targets;
    }
    found = found && reads_edges(self, args[1], e, true, &to, &c->send) &&
            reads_edges(self, args[2], e, false, &from, &c->recv) && !c->recv.readonly &&
            han_may_be_apart(c) && joins(&c->send, &to, blocks_sent(&own, self->size)) &&
            joins(&c->recv, &from, blocks_taken(&own, self->size)) &&
            own.sends[self->rank] == own.takes[self->rank] && sees_types(c);
    PyMem_Free(sent);
    PyMem_Free(taken);
    return found;
}
