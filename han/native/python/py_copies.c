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

/* The type of the elements of a block. */
static han_handle type_of(const ReaderObject *r, const han_buffer *b, int32_t block) {
    bool own = PyTuple_Check(b->datatype);
    return han_py_handle(r, own ? PyTuple_GET_ITEM(b->datatype, block) : b->datatype);
}

/* The elements of a type in some bytes of a buffer. */
static int elements_in(const ReaderObject *r, const han_buffer *b, han_handle type,
                       uint64_t bytes) {
    han_type_facts f = {.size = (int64_t)b->size};
    if (PyTuple_Check(b->datatype) && han_type_facts_of(&r->mpi, type, &f)) return -1;
    return f.size ? (int)(bytes / (uint64_t)f.size) : -1;
}

/* Pack blocks of `sizes` bytes of data one after the other; `places`, where they begin in the buffer,
 * become those in the packed data. One that is sent to several ranks in turn is packed once. */
static int pack_blocks(const ReaderObject *r, const han_buffer *b, int32_t blocks,
                       const uint64_t *sizes, uint64_t *places, uint8_t *packed) {
    han_handle type = 0;
    uint64_t at = 0, last = 0, nbytes = 0; /* where the last block was, and its size */
    int rc = 0;
    Py_BEGIN_ALLOW_THREADS
    for (int32_t k = 0; k < blocks && !rc; k++) {
        if (!sizes[k]) continue;
        if (sizes[k] != nbytes || places[k] != last || type_of(r, b, k) != type) {
            at += nbytes;
            last = places[k];
            nbytes = sizes[k];
            type = type_of(r, b, k);
            rc = han_pack(&r->mpi, b->data + last, elements_in(r, b, type, nbytes), type,
                          packed + at, (int)nbytes, r->self);
        }
        places[k] = at;
    }
    Py_END_ALLOW_THREADS
    return rc;
}

static int unpack_blocks(const ReaderObject *r, const han_buffer *b, int32_t blocks,
                         const uint64_t *sizes, const uint64_t *places, const uint8_t *packed) {
    int rc = 0;
    Py_BEGIN_ALLOW_THREADS
    for (int32_t k = 0; k < blocks && !rc; packed += sizes[k++])
        if (sizes[k]) {
            han_handle type = type_of(r, b, k);
            rc = han_unpack(&r->mpi, packed, (int)sizes[k], b->data + places[k],
                            elements_in(r, b, type, sizes[k]), type, r->self);
        }
    Py_END_ALLOW_THREADS
    return rc;
}

static int unpack(const ReaderObject *r, const han_buffer *b, const uint8_t *packed) {
    const uint64_t place = 0;
    return unpack_blocks(r, b, 1, &b->packed, &place, packed);
}

static uint64_t sum_of(const uint64_t *numbers, int32_t n) {
    uint64_t sum = 0;
    for (int32_t k = 0; k < n; k++) sum += numbers[k];
    return sum;
}

/* The bytes of a copy. One of blocks of derived types has, one after the other, numbers of its own, what
 * is sent packed, and what is received packed. Behind a result with gaps its data is packed, before it is delivered. */
static uint64_t bytes_of(const han_caller *self, const han_call *c) {
    if (c->use == HAN_PACKED) return c->recv.nbytes;
    if (c->use == HAN_GAPPED) return c->recv.nbytes + c->recv.packed;
    if (c->use == HAN_SCATTERED) return sum_of(c->counts, self->size);
    const han_own_blocks own = han_own_blocks_of(c->counts, self->size);
    return c->numbers * sizeof *c->counts + (c->send.datatype ? sum_of(own.sends, self->size) : 0) +
           (c->recv.datatype ? sum_of(own.takes, self->size) : 0);
}

/* Lay out a copy of blocks of derived types, and pack what is sent; what MPI says. */
static int lay_out_types(const han_caller *self, const han_call *c, han_call *copy) {
    uint8_t *at = copy->recv.data;
    const han_own_blocks own = han_own_blocks_of((uint64_t *)at, self->size);
    memcpy(at, c->counts, c->numbers * sizeof *c->counts);
    copy->counts = own.sends;
    at += c->numbers * sizeof *c->counts;
    if (c->send.datatype) {
        copy->send.data = at;
        copy->send.owner = copy->recv.owner;
        at += sum_of(own.sends, self->size);
    }
    if (c->recv.datatype) {
        copy->recv.data = at;
        uint64_t to = 0;
        for (int32_t r = 0; r < self->size; to += own.takes[r++]) own.to[r] = to;
    } else {
        copy->recv.data = c->recv.data;
        copy->recv.owner = c->recv.owner;
    }
    if (!c->send.datatype) return 0;
    return pack_blocks(self->reader, &c->send, self->size, own.sends, own.from, copy->send.data);
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
    int rc = 0;
    if (c->use == HAN_TYPED)
        rc = lay_out_types(self, c, copy);
    else if (is_root_of_bcast(self, c) && c->recv.packed)
        rc = pack(self->reader, &c->recv, c->recv.data, copy->recv.data);
    if (rc) Py_CLEAR(memory);
    return memory;
}

/* Unpack what is received of derived types. */
static int deliver_types(const han_caller *self, const han_call *c, const uint8_t *received) {
    if (!c->recv.datatype) return 0;
    const han_own_blocks own = han_own_blocks_of(c->counts, self->size);
    return unpack_blocks(self->reader, &c->recv, self->size, own.takes, own.to, received);
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
             : c->use == HAN_TYPED   ? deliver_types(self, c, copy->recv.data)
             : c->use == HAN_GAPPED  ? deliver_data(self, b, copy->recv.data)
                                     : unpack(self->reader, b, copy->recv.data);
    PyObject *code = rc ? PyLong_FromLong(rc) : NULL;
    if (code) PyErr_SetObject(self->reader->error, code);
    Py_XDECREF(code);
    return rc ? -1 : 0;
}
