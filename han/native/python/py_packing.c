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

int han_py_unpack(const ReaderObject *r, const han_buffer *b, const void *packed) {
    if (!b->nbytes) return 0;
    int rc;
    han_handle type = han_py_handle(r, b->datatype); /* null if it was freed meanwhile */
    Py_BEGIN_ALLOW_THREADS
    rc = han_unpack(&r->mpi, packed, (int)b->nbytes, b->data, (int)b->count, type, r->self);
    Py_END_ALLOW_THREADS
    return rc;
}

void han_py_raise(const ReaderObject *r, int code) {
    PyObject *number = PyLong_FromLong(code);
    if (number) PyErr_SetObject(r->error, number);
    Py_XDECREF(number);
}
