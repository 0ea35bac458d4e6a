#include "python/py_packing.h"

bool han_py_packed(const han_buffer *b, han_buffer *copy) {
    *copy = *b;
    copy->datatype = NULL;
    if (!b->datatype) {
        Py_XINCREF(copy->owner);
        return true;
    }
    copy->owner = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)b->nbytes);
    if (copy->owner) copy->data = (uint8_t *)PyBytes_AS_STRING(copy->owner);
    return copy->owner;
}

int han_py_pack(const ReaderObject *r, const han_buffer *b, void *packed) {
    if (!b->nbytes) return 0;
    int rc;
    han_handle type = han_py_handle(r, b->datatype);
    Py_BEGIN_ALLOW_THREADS /* MPI's own lock may be held by a thread that waits for Python's */
    rc = han_pack(&r->mpi, b->data, (int)b->count, type, packed, (int)b->nbytes, r->self);
    Py_END_ALLOW_THREADS
    return rc;
}

/* ---- the unpacker ------------------------------------------------------------------------- */

typedef struct {
    PyObject_HEAD
    ReaderObject *reader;
    han_buffer buffer;
    PyObject *packed;
} UnpackerObject;

static int unpack(const ReaderObject *r, const han_buffer *b, const void *packed) {
    if (!b->nbytes) return 0;
    int rc;
    han_handle type = han_py_handle(r, b->datatype); /* null if it was freed meanwhile */
    Py_BEGIN_ALLOW_THREADS
    rc = han_unpack(&r->mpi, packed, (int)b->nbytes, b->data, (int)b->count, type, r->self);
    Py_END_ALLOW_THREADS
    return rc;
}

static PyObject *unpacker_call(UnpackerObject *self, PyObject *args, PyObject *kwargs) {
    (void)args, (void)kwargs;
    int rc = unpack(self->reader, &self->buffer, PyBytes_AS_STRING(self->packed));
    if (!rc) Py_RETURN_NONE;
    PyObject *code = PyLong_FromLong(rc);
    if (code) PyErr_SetObject(self->reader->error, code);
    Py_XDECREF(code);
    return NULL;
}

static void unpacker_dealloc(UnpackerObject *self) {
    Py_DECREF(self->reader);
    Py_DECREF(self->packed);
    han_py_release(&self->buffer);
    PyObject_Free(self);
}

static PyTypeObject UnpackerType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "han._native.Unpacker",
    .tp_basicsize = sizeof(UnpackerObject),
    .tp_dealloc = (destructor)unpacker_dealloc,
    .tp_call = (ternaryfunc)unpacker_call,
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .tp_doc = "Copies what a call has received to a buffer of a derived type.",
};

PyObject *han_py_unpacker(ReaderObject *reader, const han_buffer *b, PyObject *packed) {
    UnpackerObject *self = PyObject_New(UnpackerObject, &UnpackerType);
    if (!self) return NULL;
    self->reader = (ReaderObject *)Py_NewRef((PyObject *)reader);
    self->packed = Py_NewRef(packed);
    self->buffer = *b;
    Py_XINCREF(b->owner);
    Py_XINCREF(b->datatype);
    return (PyObject *)self;
}

int han_py_open_packing(void) {
    import_array1(-1); /* py_reader.h needs it */
    return PyType_Ready(&UnpackerType);
}
