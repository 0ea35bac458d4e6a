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

/* The bytes of a copy. Behind a result with gaps its data is packed, before it is delivered. */
static uint64_t bytes_of(const han_caller *self, const han_call *c) {
    if (c->use == HAN_PACKED) return c->recv.nbytes;
    if (c->use == HAN_GAPPED) return c->recv.nbytes + c->recv.packed;
    uint64_t total = 0;
    for (int32_t k = 0; k < self->size; k++) total += c->counts[k];
    return total;
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
             : c->use == HAN_GAPPED  ? deliver_data(self, b, copy->recv.data)
                                     : unpack(self->reader, b, copy->recv.data);
    PyObject *code = rc ? PyLong_FromLong(rc) : NULL;
    if (code) PyErr_SetObject(self->reader->error, code);
    Py_XDECREF(code);
    return rc ? -1 : 0;
}
