#include "python/py_packing.h"

#include <string.h>

bool han_py_packed(const han_buffer *b, han_buffer *copy) {
    *copy = *b;
    copy->datatype = NULL;
    copy->use = HAN_DIRECT;
    if (!han_py_is_copied(b)) {
        Py_XINCREF(copy->owner);
        return true;
    }
    uint64_t more = b->use == HAN_GAPPED ? b->packed : 0; /* see copy_data */
    copy->owner = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(b->nbytes + more));
    if (copy->owner) copy->data = (uint8_t *)PyBytes_AS_STRING(copy->owner);
    return copy->owner;
}

int han_py_pack(const ReaderObject *r, const han_buffer *b, han_part part, char *packed) {
    const uint8_t *from = b->data + part.from;
    uint64_t nbytes = part.count * b->each;
    int rc = 0;
    if (!nbytes) return 0;
    if (!b->datatype) {
        memcpy(packed + part.to, from, nbytes);
        return 0;
    }
    han_handle type = han_py_handle(r, b->datatype);
    Py_BEGIN_ALLOW_THREADS /* MPI's own lock may be held by a thread that waits for Python's */
    rc = han_pack(&r->mpi, from, (int)part.count, type, packed + part.to, (int)nbytes, r->self);
    Py_END_ALLOW_THREADS
    return rc;
}

/* ---- packers and unpackers ---------------------------------------------------------------- */

typedef struct {
    PyObject_HEAD
    ReaderObject *reader;
    han_buffer buffer;
    uint64_t *blocks; /* of the buffer, or NULL */
    han_part part;    /* that is packed */
    PyObject *packed;
    bool unpacks;
} PackerObject;

/* Copy packed data to the elements of a buffer. */
static int unpack(const ReaderObject *r, const han_buffer *b, const void *packed) {
    return han_unpack(&r->mpi, packed, (int)b->packed, b->data, (int)b->count,
                      han_py_handle(r, b->datatype), r->self);
}

/* Copy the data of elements that have gaps in both places; it is packed behind `from` meanwhile. */
static int copy_data(const ReaderObject *r, const han_buffer *b, char *from) {
    char *packed = from + b->nbytes;
    int rc = han_pack(&r->mpi, from, (int)b->count, han_py_handle(r, b->datatype), packed,
                      (int)b->packed, r->self);
    return rc ? rc : unpack(r, b, packed);
}

/* Copy blocks that were received one behind the other to their places. */
static int deliver_blocks(const ReaderObject *r, const han_buffer *b, const char *received) {
    int rc = 0;
    for (int32_t k = 0; k < b->n_blocks && !rc; received += b->blocks[k++]) {
        uint64_t nbytes = b->blocks[k];
        uint8_t *place = b->data + b->blocks[b->n_blocks + k] * b->step;
        if (!nbytes) continue;
        if (!b->datatype)
            memcpy(place, received, nbytes);
        else
            rc = han_unpack(&r->mpi, received, (int)nbytes, place, (int)(nbytes / b->each),
                            han_py_handle(r, b->datatype), r->self);
    }
    return rc;
}

/* Copy what was received to a buffer; MPI refuses a type that was freed meanwhile. */
static int deliver(const ReaderObject *r, const han_buffer *b, char *received) {
    int rc = 0;
    if (!b->nbytes) return 0;
    if (b->use == HAN_BESIDE) {
        memcpy(b->data, received, b->nbytes);
        return 0;
    }
    Py_BEGIN_ALLOW_THREADS
    rc = b->use == HAN_SCATTERED ? deliver_blocks(r, b, received)
         : b->use == HAN_GAPPED  ? copy_data(r, b, received)
                                 : unpack(r, b, received);
    Py_END_ALLOW_THREADS
    return rc;
}

static PyObject *packer_call(PackerObject *self, PyObject *args, PyObject *kwargs) {
    (void)args, (void)kwargs;
    char *packed = PyBytes_AS_STRING(self->packed);
    int rc = self->unpacks ? deliver(self->reader, &self->buffer, packed)
                           : han_py_pack(self->reader, &self->buffer, self->part, packed);
    if (!rc) Py_RETURN_NONE;
    PyObject *code = PyLong_FromLong(rc);
    if (code) PyErr_SetObject(self->reader->error, code);
    Py_XDECREF(code);
    return NULL;
}

static void packer_dealloc(PackerObject *self) {
    Py_DECREF(self->reader);
    Py_DECREF(self->packed);
    PyMem_Free(self->blocks);
    han_py_release(&self->buffer);
    PyObject_Free(self);
}

static PyTypeObject PackerType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "han._native.Packer",
    .tp_basicsize = sizeof(PackerObject),
    .tp_dealloc = (destructor)packer_dealloc,
    .tp_call = (ternaryfunc)packer_call,
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .tp_doc = "Copies what a call sends from a buffer of a derived type, or what it has received.",
};

static PackerObject *packer(ReaderObject *reader, const han_buffer *b, PyObject *packed) {
    size_t size = 2 * (size_t)b->n_blocks * sizeof *b->blocks;
    uint64_t *blocks = size ? PyMem_Malloc(size) : NULL;
    if (size && !blocks) return (PackerObject *)PyErr_NoMemory();
    PackerObject *self = PyObject_New(PackerObject, &PackerType);
    if (!self) {
        PyMem_Free(blocks);
        return NULL;
    }
    if (size) memcpy(blocks, b->blocks, size);
    self->reader = (ReaderObject *)Py_NewRef((PyObject *)reader);
    self->packed = Py_NewRef(packed);
    self->buffer = *b;
    self->buffer.blocks = self->blocks = blocks;
    self->part = (han_part){0};
    self->unpacks = true;
    Py_XINCREF(b->owner);
    Py_XINCREF(b->datatype);
    return self;
}

PyObject *han_py_packer(ReaderObject *reader, const han_buffer *b, han_part part,
                        PyObject *packed) {
    PackerObject *self = packer(reader, b, packed);
    if (!self) return NULL;
    self->part = part;
    self->unpacks = false;
    return (PyObject *)self;
}

PyObject *han_py_unpacker(ReaderObject *reader, const han_buffer *b, PyObject *packed) {
    return (PyObject *)packer(reader, b, packed);
}

int han_py_open_packing(void) {
    import_array1(-1); /* py_reader.h needs it */
    return PyType_Ready(&PackerType);
}
