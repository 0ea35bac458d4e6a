#include "python/py_arguments.h"

#include <string.h>

#include "python/py_vectors.h"
#include "python/py_whole.h"

/* As in mpi4py, a root that is no int counts as its __int__ says; NULL: it has none that works. */
static PyObject *as_int(PyObject *o) {
    if (PyLong_Check(o)) return Py_NewRef(o);
    PyNumberMethods *number = Py_TYPE(o)->tp_as_number;
    PyObject *found = number && number->nb_int ? number->nb_int(o) : NULL;
    PyErr_Clear();
    return found;
}

static bool root_of(PyObject *o, han_entry *key) {
    uint64_t root;
    PyObject *number = as_int(o);
    if (!number) return false;
    bool found = han_py_whole(number, &root) && root <= INT32_MAX;
    Py_DECREF(number);
    key->root = found ? (int32_t)root : 0;
    return found;
}

static bool says_in_place(const han_caller *self, const PyObject *o) {
    return han_says_in_place(self->reader, o);
}

/* Use the memory of one buffer for the other too. */
static void share(han_buffer *with, const han_buffer *b) {
    with->data = b->data;
    with->nbytes = b->nbytes;
    with->element = b->element;
}

static bool reads(const han_caller *self, PyObject *o, han_buffer *b) {
    return han_py_read(self->reader, o, 1, b);
}

static bool writes(const han_caller *self, PyObject *o, han_buffer *b) {
    return reads(self, o, b) && !b->readonly;
}

/* Whether a buffer holds a block of `nbytes` for each rank. */
static bool divides_evenly(const han_caller *self, const han_buffer *b, uint64_t *nbytes) {
    uint64_t size = (uint64_t)self->size;
    *nbytes = b->nbytes / size;
    return b->nbytes % (size * b->element->size) == 0 && b->count % size == 0;
}

/* Read a buffer that holds a block of `nbytes` for each rank. */
static bool divides(const han_caller *self, PyObject *o, han_buffer *b, uint64_t *nbytes) {
    return han_py_read(self->reader, o, (uint64_t)self->size, b) && divides_evenly(self, b, nbytes);
}

/* Use this rank's block of a buffer of equal blocks in the place of the other buffer. */
static void uses_own_block(const han_caller *self, const han_buffer *b, uint64_t nbytes,
                           han_sharing sharing, han_call *c) {
    uint64_t rank = (uint64_t)self->rank, count = b->count / (uint64_t)self->size;
    c->sharing = sharing;
    c->part = (han_part){rank * count * b->step, count, rank * nbytes};
}

/* Use the whole receive buffer as the send buffer, too. */
static void uses_all(han_call *c, bool sends) {
    share(&c->send, &c->recv);
    c->sharing = HAN_SEND_IN_RECV;
    c->part.count = sends ? c->recv.count : 0;
}

static const uint8_t *end_of(const han_buffer *b) {
    return b->data + (b->use == HAN_DIRECT ? b->nbytes : b->span);
}

static bool apart(const han_call *c) {
    const han_buffer *a = &c->send, *b = &c->recv;
    return !a->nbytes || !b->nbytes || end_of(a) <= b->data || end_of(b) <= a->data;
}

/* The facts of a reduction of `nbytes` of these elements; false if they are no numbers. */
static bool reduces(han_call *c, uint64_t nbytes, const han_element *element, PyObject *op) {
    c->key.nbytes = nbytes;
    c->key.kind = element->kind;
    c->key.handle = element->handle;
    c->key.op = op;
    return element->kind >= 0;
}

/* Read an operand; a count is that of one of `blocks` blocks. Elements with gaps are combined where
 * they lie. */
static bool reads_operand(const han_caller *self, PyObject *o, uint64_t blocks, han_buffer *b) {
    if (!han_py_read(self->reader, o, blocks, b)) return false;
    if (b->use == HAN_DIRECT) return true;
    if (!han_py_with_gaps(self->reader, b)) return false;
    Py_CLEAR(b->datatype);
    b->use = HAN_DIRECT;
    return true;
}

/* Read the memory for a result. Gaps stay as they are, so such elements are not received there. */
static bool writes_result(const han_caller *self, PyObject *o, uint64_t blocks, han_buffer *b) {
    return han_py_read(self->reader, o, blocks, b) && !b->readonly &&
           (b->use == HAN_DIRECT || han_py_with_gaps(self->reader, b));
}

/* Keep the first `nbytes` of the memory for a result. */
static void shorten(han_buffer *b, uint64_t nbytes) {
    b->nbytes = nbytes;
    b->count = nbytes / b->element->size;
    b->packed = b->count * b->each;
}

static bool same_kind(const han_call *c) { return c->send.element->kind == c->recv.element->kind; }

/* Read an operand, and the memory for the result, which may hold the operand. */
static bool combines(const han_caller *self, PyObject *const *args, han_call *c) {
    if (!writes_result(self, args[1], 1, &c->recv)) return false;
    if (says_in_place(self, args[0])) {
        share(&c->send, &c->recv);
        return true;
    }
    return reads_operand(self, args[0], 1, &c->send) && c->send.nbytes == c->recv.nbytes &&
           same_kind(c) && apart(c);
}

/* Read the arguments of a rank that receives all blocks. Its own block is in `send`, or in place in
 * `recv`. */
static bool collects(const han_caller *self, PyObject *const *args, han_call *c) {
    uint64_t *nbytes = &c->key.nbytes;
    if (!divides(self, args[1], &c->recv, nbytes) || c->recv.readonly) return false;
    if (says_in_place(self, args[0])) {
        c->send.data = c->recv.data + *nbytes * (uint64_t)self->rank;
        uses_own_block(self, &c->recv, *nbytes, HAN_SEND_IN_RECV, c);
        return true;
    }
    return reads(self, args[0], &c->send) && c->send.nbytes == *nbytes && apart(c);
}

/* ---- collectives -------------------------------------------------------------------------- */

bool han_read_barrier(const han_caller *self, PyObject *const *args, han_call *c) {
    (void)self, (void)args;
    c->key.collective = HAN_C_BARRIER;
    return true;
}

/* buf, root */
bool han_read_bcast(const han_caller *self, PyObject *const *args, han_call *c) {
    c->key.collective = HAN_C_BCAST;
    if (!root_of(args[1], &c->key) || !reads(self, args[0], &c->recv)) return false;
    if (c->recv.readonly && c->key.root != self->rank) return false;
    uses_all(c, c->key.root == self->rank);
    c->key.nbytes = c->recv.nbytes;
    return true;
}

/* send, recv, op */
bool han_read_allreduce(const han_caller *self, PyObject *const *args, han_call *c) {
    c->key.collective = HAN_C_ALLREDUCE;
    return combines(self, args, c) && reduces(c, c->recv.nbytes, c->recv.element, args[2]);
}

/* send, recv, op, root */
bool han_read_reduce(const han_caller *self, PyObject *const *args, han_call *c) {
    c->key.collective = HAN_C_REDUCE;
    if (!root_of(args[3], &c->key)) return false;
    bool at_root = c->key.root == self->rank;
    return (at_root ? combines(self, args, c) : reads_operand(self, args[0], 1, &c->send)) &&
           reduces(c, c->send.nbytes, c->send.element, args[2]);
}

/* send, recv, root */
bool han_read_gather(const han_caller *self, PyObject *const *args, han_call *c) {
    c->key.collective = HAN_C_GATHER;
    if (!root_of(args[2], &c->key)) return false;
    if (c->key.root == self->rank) return collects(self, args, c);
    if (!reads(self, args[0], &c->send)) return false;
    c->key.nbytes = c->send.nbytes;
    return true;
}

/* send, recv, root */
bool han_read_scatter(const han_caller *self, PyObject *const *args, han_call *c) {
    uint64_t *nbytes = &c->key.nbytes;
    c->key.collective = HAN_C_SCATTER;
    if (!root_of(args[2], &c->key)) return false;
    if (c->key.root != self->rank) {
        if (!writes(self, args[1], &c->recv)) return false;
        *nbytes = c->recv.nbytes;
        return true;
    }
    if (!divides(self, args[0], &c->send, nbytes)) return false;
    if (says_in_place(self, args[1])) {
        c->recv.data = c->send.data + *nbytes * (uint64_t)self->rank;
        uses_own_block(self, &c->send, *nbytes, HAN_RECV_IN_SEND, c);
        return true;
    }
    return writes(self, args[1], &c->recv) && c->recv.nbytes == *nbytes && apart(c);
}

/* send, recv */
bool han_read_allgather(const han_caller *self, PyObject *const *args, han_call *c) {
    c->key.collective = HAN_C_ALLGATHER;
    return collects(self, args, c);
}

/* send, recv */
bool han_read_alltoall(const han_caller *self, PyObject *const *args, han_call *c) {
    uint64_t sent;
    c->key.collective = HAN_C_ALLTOALL;
    if (!divides(self, args[1], &c->recv, &c->key.nbytes) || c->recv.readonly) return false;
    if (says_in_place(self, args[0])) {
        c->key.root = 1; /* no root here: tells in-place calls from others */
        uses_all(c, true);
        return true;
    }
    return divides(self, args[0], &c->send, &sent) && sent == c->key.nbytes && apart(c);
}

/* Read operands of all blocks, of `nbytes` each, in the memory for the result. */
static bool combines_blocks_in_place(const han_caller *self, PyObject *o, uint64_t *nbytes,
                                     han_call *c) {
    if (!writes_result(self, o, (uint64_t)self->size, &c->recv)) return false;
    share(&c->send, &c->recv);
    c->send.count = c->recv.count;
    if (!divides_evenly(self, &c->send, nbytes)) return false;
    shorten(&c->recv, *nbytes);
    return true;
}

static bool combines_blocks(const han_caller *self, PyObject *const *args, uint64_t *nbytes,
                            han_call *c) {
    return writes_result(self, args[1], 1, &c->recv) &&
           reads_operand(self, args[0], (uint64_t)self->size, &c->send) &&
           divides_evenly(self, &c->send, nbytes) && *nbytes == c->recv.nbytes && same_kind(c) &&
           apart(c);
}

/* send, recv, op */
bool han_read_reduce_scatter_block(const han_caller *self, PyObject *const *args, han_call *c) {
    bool in_place = says_in_place(self, args[0]);
    uint64_t nbytes;
    c->key.collective = HAN_C_REDUCE_SCATTER;
    c->key.root = in_place; /* as in alltoall */
    return (in_place ? combines_blocks_in_place(self, args[1], &nbytes, c)
                     : combines_blocks(self, args, &nbytes, c)) &&
           reduces(c, nbytes, c->recv.element, args[2]);
}

/* ---- blocks that differ in size ----------------------------------------------------------- */

static bool blocks_of(const han_caller *self, han_call *c, han_blocks *b) {
    return han_py_blocks(b, &c->counts, self->rank, self->size);
}

/* Turn the counts into bytes, of elements of `size` bytes. Blocks of one size make a call of equal
 * blocks. */
static void in_bytes(han_call *c, const han_blocks *b, uint64_t size) {
    for (int32_t r = 0; r < b->size; r++) b->counts[r] *= size;
    c->key.uneven = !b->alike;
}

/* send, recv with counts */
bool han_read_allgatherv(const han_caller *self, PyObject *const *args, han_call *c) {
    han_blocks b;
    c->key.collective = HAN_C_ALLGATHER;
    if (!blocks_of(self, c, &b) || !han_py_read_vector(self->reader, args[1], &b, &c->recv) ||
        c->recv.readonly)
        return false;
    bool scattered = c->recv.use == HAN_SCATTERED;
    uint64_t size = scattered ? c->recv.each : c->recv.element->size;
    uint64_t own = b.counts[self->rank], start = b.start * size;
    in_bytes(c, &b, size);
    c->key.nbytes = b.largest * size;
    if (says_in_place(self, args[0])) {
        c->send.data = c->recv.data + start;
        c->sharing = HAN_SEND_IN_RECV;
        c->part = (han_part){b.places[self->rank] * c->recv.step, own, start};
        return true;
    }
    return reads(self, args[0], &c->send) && c->send.nbytes == own * size && apart(c);
}

/* Read operands for all blocks in the place of the result of one. */
static bool reads_in_place(const han_caller *self, PyObject *o, uint64_t own, han_call *c) {
    uint64_t nbytes;
    if (!writes_result(self, o, 1, &c->recv)) return false;
    share(&c->send, &c->recv);
    if (__builtin_mul_overflow(own, c->recv.element->size, &nbytes) || nbytes > c->send.nbytes)
        return false;
    shorten(&c->recv, nbytes);
    if (c->recv.use == HAN_DIRECT) c->recv.use = HAN_BESIDE;
    return true;
}

/* send, recv, recvcounts, op */
bool han_read_reduce_scatter(const han_caller *self, PyObject *const *args, han_call *c) {
    han_blocks b;
    uint64_t whole;
    c->key.collective = HAN_C_REDUCE_SCATTER;
    if (!blocks_of(self, c, &b) || !han_py_read_counts(args[2], &b)) return false;
    bool in_place = says_in_place(self, args[0]);
    if (in_place ? !reads_in_place(self, args[1], b.counts[self->rank], c)
                 : !writes_result(self, args[1], 1, &c->recv) ||
                       !reads_operand(self, args[0], 1, &c->send))
        return false;
    uint64_t size = c->recv.element->size;
    if (__builtin_mul_overflow(b.total, size, &whole)) return false;
    in_bytes(c, &b, size);
    return c->send.nbytes == whole && c->recv.nbytes == b.counts[self->rank] && same_kind(c) &&
           (in_place || apart(c)) && reduces(c, b.largest * size, c->recv.element, args[3]);
}

static bool count_of(const han_caller *self, PyObject *o, int64_t *out) {
    han_buffer b = {0};
    bool found = writes(self, o, &b);
    if (found) *out = (int64_t)(b.use == HAN_DIRECT ? b.nbytes / b.element->size : b.count);
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
    Py_ssize_t n = (Py_ssize_t)((size_t)self->size * sizeof *c->counts);
    *out = PyBytes_FromStringAndSize((const char *)c->counts, n);
    return *out ? 0 : -1;
}

int han_py_open_arguments(void) {
    import_array1(-1);
    return han_py_open_whole();
}
