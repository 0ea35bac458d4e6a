#include "python/py_arguments.h"

#include <string.h>

#include "python/py_vectors.h"

/* Use the memory of one buffer for the other too. */
static void share(han_buffer *with, const han_buffer *b) {
    with->data = b->data;
    with->nbytes = b->nbytes;
    with->element = b->element;
}

/* Read a buffer that holds a block of `nbytes` for each rank. */
static bool divides(const han_caller *self, PyObject *o, han_buffer *b, uint64_t *nbytes) {
    const uint64_t size = (uint64_t)self->size;
    if (!han_py_read(self->reader, o, size, b)) return false;
    *nbytes = b->nbytes / size;
    return b->derived ? b->count % size == 0 : b->nbytes % (size * b->element->size) == 0;
}

/* Read a buffer that is a block, maybe of a derived type. */
static bool reads_block(const han_caller *self, PyObject *o, han_buffer *b) {
    return han_py_read(self->reader, o, 1, b);
}

/* Elements of derived types may have to travel packed. */
static bool sees_types(han_call *c) {
    if (c->send.derived || c->recv.derived) c->use = HAN_WHOLE;
    return true;
}

/* The facts of a reduction of `nbytes` of these elements; false if they are no numbers. */
static bool reduces(han_call *c, uint64_t nbytes, const han_element *element, PyObject *op) {
    c->key.nbytes = nbytes;
    c->key.kind = element->kind;
    c->key.handle = element->handle;
    c->key.op = op;
    return element->kind >= 0;
}

/* Read a buffer of a reduction. Elements with gaps are combined where they lie. */
static bool reads_operand(const han_caller *self, PyObject *o, han_buffer *b) {
    return han_py_read(self->reader, o, 1, b) && (!b->derived || han_py_with_gaps(self->reader, b));
}

static bool same_kind(const han_call *c) { return c->send.element->kind == c->recv.element->kind; }

/* Read an operand, and the memory for the result, which may hold the operand. Gaps there stay as they
 * are, so elements with gaps are not received there. */
static bool combines(const han_caller *self, PyObject *const *args, han_call *c) {
    if (!reads_operand(self, args[1], &c->recv) || c->recv.readonly) return false;
    if (c->recv.derived) c->use = HAN_GAPPED;
    if (han_says_in_place(self, args[0])) {
        share(&c->send, &c->recv);
        return true;
    }
    return reads_operand(self, args[0], &c->send) && c->send.nbytes == c->recv.nbytes &&
           same_kind(c) && han_apart(c);
}

/* Read the arguments of a rank that receives all blocks. Its own block is in `send`, or in place in
 * `recv`. */
static bool collects(const han_caller *self, PyObject *const *args, han_call *c) {
    uint64_t *nbytes = &c->key.nbytes;
    if (!divides(self, args[1], &c->recv, nbytes) || c->recv.readonly) return false;
    if (han_says_in_place(self, args[0])) {
        const uint64_t elements = c->recv.count / (uint64_t)self->size;
        const uint64_t step = c->recv.derived ? elements * c->recv.extent : *nbytes;
        han_send_received(c, step * (uint64_t)self->rank, *nbytes);
        return sees_types(c);
    }
    return reads_block(self, args[0], &c->send) && c->send.nbytes == *nbytes && han_apart(c) &&
           sees_types(c);
}

/* ---- collectives -------------------------------------------------------------------------- */

bool han_read_barrier(const han_caller *Py_UNUSED(self), PyObject *const *Py_UNUSED(args),
                      han_call *Py_UNUSED(c)) {
    return true;
}

/* buf, root */
bool han_read_bcast(const han_caller *self, PyObject *const *args, han_call *c) {
    if (!han_root_of(args[1], &c->key) || !han_py_read(self->reader, args[0], 1, &c->recv))
        return false;
    if (c->recv.readonly && c->key.root != self->rank) return false;
    if (c->recv.derived) c->use = HAN_PACKED;
    share(&c->send, &c->recv);
    c->key.nbytes = c->recv.nbytes;
    return true;
}

/* send, recv, op; scans too */
bool han_read_allreduce(const han_caller *self, PyObject *const *args, han_call *c) {
    return combines(self, args, c) && reduces(c, c->recv.nbytes, c->recv.element, args[2]);
}

/* send, recv, op; rank 0 receives nothing, so no copy must be delivered there */
bool han_read_exscan(const han_caller *self, PyObject *const *args, han_call *c) {
    return combines(self, args, c) && c->use != HAN_GAPPED &&
           reduces(c, c->recv.nbytes, c->recv.element, args[2]);
}

/* send, recv, op, root */
bool han_read_reduce(const han_caller *self, PyObject *const *args, han_call *c) {
    if (!han_root_of(args[3], &c->key)) return false;
    bool at_root = c->key.root == self->rank;
    return (at_root ? combines(self, args, c) : reads_operand(self, args[0], &c->send)) &&
           reduces(c, c->send.nbytes, c->send.element, args[2]);
}

/* send, recv, root */
bool han_read_gather(const han_caller *self, PyObject *const *args, han_call *c) {
    if (!han_root_of(args[2], &c->key)) return false;
    if (c->key.root == self->rank) return collects(self, args, c);
    if (!reads_block(self, args[0], &c->send)) return false;
    c->key.nbytes = c->send.nbytes;
    return sees_types(c);
}

/* send, recv, root */
bool han_read_scatter(const han_caller *self, PyObject *const *args, han_call *c) {
    uint64_t *nbytes = &c->key.nbytes;
    if (!han_root_of(args[2], &c->key)) return false;
    if (c->key.root != self->rank) {
        if (!reads_block(self, args[1], &c->recv) || c->recv.readonly) return false;
        *nbytes = c->recv.nbytes;
        return sees_types(c);
    }
    if (!divides(self, args[0], &c->send, nbytes)) return false;
    if (han_says_in_place(self, args[1])) {
        c->recv.data = c->send.data + *nbytes * (uint64_t)self->rank;
        return !c->send.derived;
    }
    return reads_block(self, args[1], &c->recv) && !c->recv.readonly && c->recv.nbytes == *nbytes &&
           han_apart(c) && sees_types(c);
}

/* send, recv */
bool han_read_allgather(const han_caller *self, PyObject *const *args, han_call *c) {
    return collects(self, args, c);
}

/* send, recv */
bool han_read_alltoall(const han_caller *self, PyObject *const *args, han_call *c) {
    uint64_t sent;
    if (!divides(self, args[1], &c->recv, &c->key.nbytes) || c->recv.readonly) return false;
    if (han_says_in_place(self, args[0])) {
        c->key.root = 1; /* no root here: tells in-place calls from others */
        share(&c->send, &c->recv);
        return !c->recv.derived;
    }
    return divides(self, args[0], &c->send, &sent) && sent == c->key.nbytes && han_apart(c) &&
           sees_types(c);
}

/* send, recv, op */
bool han_read_reduce_scatter_block(const han_caller *self, PyObject *const *args, han_call *c) {
    uint64_t nbytes;
    if (han_says_in_place(self, args[0])) {
        c->key.root = 1; /* as in alltoall */
        if (!divides(self, args[1], &c->recv, &nbytes) || c->recv.readonly) return false;
        share(&c->send, &c->recv);
    } else if (!han_writes(self, args[1], &c->recv) || !divides(self, args[0], &c->send, &nbytes) ||
               nbytes != c->recv.nbytes || !same_kind(c) || !han_apart(c)) {
        return false;
    }
    return reduces(c, nbytes, c->recv.element, args[2]);
}

/* ---- blocks that differ in size ----------------------------------------------------------- */

/* Turn the counts and places into bytes, of elements of `size` bytes that begin `extent` bytes apart. Blocks
 * of one size make a call of equal blocks. */
static void in_bytes(han_call *c, const han_blocks *b, uint64_t size, uint64_t extent) {
    for (int32_t r = 0; r < b->size; r++) {
        b->counts[r] *= size;
        b->places[r] *= extent;
    }
    c->key.uneven = !b->alike;
}

/* send, recv with counts */
bool han_read_allgatherv(const han_caller *self, PyObject *const *args, han_call *c) {
    han_blocks b;
    if (!han_py_blocks(&b, &c->counts, self->size) ||
        !han_py_read_vector(self->reader, args[1], &b, &c->recv) || c->recv.readonly)
        return false;
    const bool derived = c->recv.derived;
    const uint64_t size = derived ? c->recv.size : c->recv.element->size;
    in_bytes(c, &b, size, derived ? c->recv.extent : size);
    c->key.nbytes = b.largest * size;
    const bool direct = b.joined && !derived;
    if (!direct) c->use = HAN_SCATTERED;
    if (han_says_in_place(self, args[0])) {
        han_send_received(c, b.places[self->rank], b.counts[self->rank]);
        return true;
    }
    return reads_block(self, args[0], &c->send) && c->send.nbytes == b.counts[self->rank] &&
           han_apart(c) && (!direct || sees_types(c));
}

/* send, recv, recvcounts, op */
bool han_read_reduce_scatter(const han_caller *self, PyObject *const *args, han_call *c) {
    han_blocks b;
    uint64_t whole;
    if (han_says_in_place(self, args[0]) || !han_py_blocks(&b, &c->counts, self->size) ||
        !han_py_read_counts(args[2], &b) || !han_writes(self, args[1], &c->recv) ||
        !han_reads(self, args[0], &c->send))
        return false;
    uint64_t size = c->recv.element->size;
    if (__builtin_mul_overflow(b.total, size, &whole)) return false;
    in_bytes(c, &b, size, size);
    return c->send.nbytes == whole && c->recv.nbytes == b.counts[self->rank] && same_kind(c) &&
           han_apart(c) && reduces(c, b.largest * size, c->recv.element, args[3]);
}

static bool count_of(const han_caller *self, PyObject *o, int64_t *out) {
    han_buffer b = {0};
    bool found = han_writes(self, o, &b);
    if (found) *out = (int64_t)(b.nbytes / b.element->size);
    han_py_release(&b);
    return found;
}

/* recv, counts: an allgather in place */
bool han_read_recvcounts(const han_caller *self, PyObject *const *args, han_call *c) {
    PyObject *const in_place[] = {self->reader->in_place, args[1]};
    int64_t own;
    if (!count_of(self, args[0], &own) || !han_read_allgather(self, in_place, c) ||
        c->key.nbytes != sizeof own)
        return false;
    memcpy(c->send.data, &own, sizeof own);
    return true;
}

int han_py_sizes_of(const han_caller *self, const han_call *c, PyObject **out) {
    *out = NULL;
    if (!c->key.uneven) return 0;
    size_t numbers = c->numbers ? c->numbers : (size_t)self->size;
    Py_ssize_t n = (Py_ssize_t)(numbers * sizeof *c->counts);
    *out = PyBytes_FromStringAndSize((const char *)c->counts, n);
    return *out ? 0 : -1;
}
