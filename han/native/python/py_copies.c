#include "python/py_copies.h"

#include <string.h>

static bool is_root_of_bcast(const han_caller *self, const han_call *c) {
    return c->use == HAN_PACKED && c->key.root == self->rank;
}

/* Pack elements. MPI's own lock may be held by a thread that waits for Python's. */
static int pack(const ReaderObject *r, const han_buffer *b, const void *from, void *packed) {
    han_handle type = han_py_handle(r, b->datatype);
    int rc;
    Py_BEGIN_ALLOW_THREADS
    rc = han_pack(&r->mpi, from, (int)b->count, type, packed, (int)b->packed, r->self);
    Py_END_ALLOW_THREADS
    return rc;
}

static int unpack(const ReaderObject *r, const han_buffer *b, const void *packed) {
    han_handle type = han_py_handle(r, b->datatype);
    int rc;
    Py_BEGIN_ALLOW_THREADS
    rc = han_unpack(&r->mpi, packed, (int)b->packed, b->data, (int)b->count, type, r->self);
    Py_END_ALLOW_THREADS
    return rc;
}

int han_py_pack_blocks(const ReaderObject *r, const han_buffer *b, int32_t blocks,
                       const uint64_t *sizes, uint64_t *places, uint8_t *packed) {
    han_handle type = han_py_handle(r, b->datatype);
    uint64_t at = 0;
    int rc = 0;
    Py_BEGIN_ALLOW_THREADS
    for (int32_t k = 0; k < blocks && !rc; at += sizes[k++]) {
        if (sizes[k])
            rc = han_pack(&r->mpi, b->data + places[k], (int)(sizes[k] / b->size), type,
                          packed + at, (int)sizes[k], r->self);
        places[k] = at;
    }
    Py_END_ALLOW_THREADS
    return rc;
}

static int unpack_blocks(const ReaderObject *r, const han_buffer *b, int32_t blocks,
                         const uint64_t *sizes, const uint64_t *places, const uint8_t *packed) {
    han_handle type = han_py_handle(r, b->datatype);
    int rc = 0;
    Py_BEGIN_ALLOW_THREADS
    for (int32_t k = 0; k < blocks && !rc; packed += sizes[k++])
        if (sizes[k])
            rc = han_unpack(&r->mpi, packed, (int)sizes[k], b->data + places[k],
                            (int)(sizes[k] / b->size), type, r->self);
    Py_END_ALLOW_THREADS
    return rc;
}

/* The sizes of the blocks that a call receives, where two ranks know them. */
static const uint64_t *takes_of(const han_caller *self, const han_call *c) {
    return c->counts + self->size;
}

/* The bytes of a copy. Behind a result with gaps its data is packed, before it is delivered. */
static uint64_t bytes_of(const han_caller *self, const han_call *c) {
    if (c->use == HAN_PACKED) return c->recv.nbytes;
    if (c->use == HAN_GAPPED) return c->recv.nbytes + c->recv.packed;
    const bool typed = c->use == HAN_TYPED;
    const uint64_t *nbytes = typed ? takes_of(self, c) : c->counts;
    uint64_t total = typed ? c->numbers * sizeof *c->counts : 0;
    for (int32_t k = 0; k < self->size; k++) total += nbytes[k];
    return total;
}

/* Let blocks be received one after the other in a copy, behind the numbers that say so. */
static void place_in_copy(const han_caller *self, const han_call *c, han_call *copy) {
    const uint64_t *nbytes = takes_of(self, c);
    copy->counts = (uint64_t *)copy->recv.data;
    copy->recv.data += c->numbers * sizeof *c->counts;
    memcpy(copy->counts, c->counts, c->numbers * sizeof *c->counts);
    uint64_t *to = copy->counts + 3 * self->size, at = 0;
    for (int32_t k = 0; k < self->size; at += nbytes[k++]) to[k] = at;
}

PyObject *han_py_copy(const han_caller *self, const han_call *c, han_call *copy) {
    PyObject *memory = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)bytes_of(self, c));
    if (!memory) {
        PyErr_Clear();
        return NULL;
    }
    *copy = *c;
    copy->recv.data = (uint8_t *)PyBytes_AS_STRING(memory);
    copy->recv.owner = memory;
    if (c->use == HAN_PACKED) copy->send.data = copy->recv.data;
    if (c->use == HAN_TYPED) place_in_copy(self, c, copy);
    bool packs = is_root_of_bcast(self, c) && c->recv.packed;
    if (packs && pack(self->reader, &c->recv, c->recv.data, copy->recv.data)) Py_CLEAR(memory);
    return memory;
}

static int deliver_blocks(const han_caller *self, const han_call *c, const uint8_t *received) {
    const uint64_t *nbytes = c->counts, *places = c->counts + self->size;
    for (int32_t k = 0; k < self->size; received += nbytes[k++])
        if (nbytes[k]) memcpy(c->recv.data + places[k], received, nbytes[k]);
    return 0;
}

/* Copy the data of elements that have gaps in both places. */
static int deliver_data(const han_caller *self, const han_buffer *b, uint8_t *received) {
    uint8_t *packed = received + b->nbytes;
    int rc = pack(self->reader, b, received, packed);
    return rc ? rc : unpack(self->reader, b, packed);
}

int han_py_deliver(const han_caller *self, const han_call *c, const han_call *copy) {
    const han_buffer *b = &c->recv;
    if (!b->nbytes || is_root_of_bcast(self, c)) return 0;
    int rc = c->use == HAN_SCATTERED ? deliver_blocks(self, c, copy->recv.data)
             : c->use == HAN_TYPED   ? unpack_blocks(self->reader, b, self->size, takes_of(self, c),
                                                     c->counts + 3 * self->size, copy->recv.data)
             : c->use == HAN_GAPPED  ? deliver_data(self, b, copy->recv.data)
                                     : unpack(self->reader, b, copy->recv.data);
    PyObject *code = rc ? PyLong_FromLong(rc) : NULL;
    if (code) PyErr_SetObject(self->reader->error, code);
    Py_XDECREF(code);
    return rc ? -1 : 0;
}
