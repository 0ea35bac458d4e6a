#include "python/py_delivery.h"

#include "python/py_types.h"

typedef struct {
    PyObject_HEAD
    PyObject *calls, *memory;
    const han_caller *caller;
    han_call call, copy;
    bool owns_type; /* a copy of the type, as the program may free its own meanwhile */
} DeliveryObject;

/* Keep the type of a C program's call, unless its grid tells all: 0, or -1 with an exception. */
static int keep_type(DeliveryObject *self) {
    const han_mpi *m = &self->caller->reader->mpi;
    han_handle *type = &self->call.recv.type;
    const han_known_type *known = *type ? han_type_known(*type) : NULL;
    int rc;
    if (!*type || (known && known->grid.loops >= 0 && self->call.use != HAN_SCATTERED)) return 0;
    Py_BEGIN_ALLOW_THREADS /* MPI's own lock may be held by a thread that waits for Python's */
    rc = han_type_dup(m, *type, type);
    Py_END_ALLOW_THREADS
    self->owns_type = !rc;
    return rc ? han_py_raise_code(self->caller->reader, rc) : 0;
}

static void drop_type(DeliveryObject *self) {
    if (!self->owns_type) return;
    self->owns_type = false;
    Py_BEGIN_ALLOW_THREADS
    if (!han_mpi_finalized(&self->caller->reader->mpi))
        (void)han_type_free(&self->caller->reader->mpi, self->call.recv.type);
    Py_END_ALLOW_THREADS
}

PyObject *han_py_delivery(PyObject *calls, const han_caller *caller, han_call *c,
                          const han_call *copy, PyObject *memory) {
    DeliveryObject *self = PyObject_GC_New(DeliveryObject, &DeliveryType);
    if (!self) return NULL;
    self->calls = Py_NewRef(calls);
    self->memory = Py_NewRef(memory);
    self->caller = caller;
    self->call = *c;
    self->copy = *copy;
    self->owns_type = false;
    if (keep_type(self)) {
        self->call = (han_call){0};
        Py_DECREF(self);
        return NULL;
    }
    *c = (han_call){0};
    PyObject_GC_Track(self);
    return (PyObject *)self;
}

static PyObject *delivery_call(DeliveryObject *self, PyObject *args, PyObject *kwargs) {
    (void)args, (void)kwargs;
    if (han_py_deliver(self->caller, &self->call, &self->copy)) return NULL;
    drop_type(self);
    Py_RETURN_NONE;
}

/* The request that owns this breaks cycles. */
static int delivery_traverse(DeliveryObject *self, visitproc visit, void *arg) {
    Py_VISIT(self->calls);
    Py_VISIT(self->call.send.owner);
    Py_VISIT(self->call.send.datatype);
    Py_VISIT(self->call.recv.owner);
    Py_VISIT(self->call.recv.datatype);
    return 0;
}

static void delivery_dealloc(DeliveryObject *self) {
    PyObject_GC_UnTrack(self);
    drop_type(self);
    han_py_release(&self->call.send);
    han_py_release(&self->call.recv);
    PyMem_Free(self->call.counts);
    Py_XDECREF(self->memory);
    Py_XDECREF(self->calls);
    PyObject_GC_Del(self);
}

PyTypeObject DeliveryType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "han._native.Delivery",
    .tp_basicsize = sizeof(DeliveryObject),
    .tp_dealloc = (destructor)delivery_dealloc,
    .tp_call = (ternaryfunc)delivery_call,
    .tp_traverse = (traverseproc)delivery_traverse,
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_doc = "Delivers what a call has received in a copy.",
};
