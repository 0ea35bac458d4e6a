#include "python/py_delivery.h"

typedef struct {
    PyObject_HEAD
    PyObject *calls, *memory;
    const han_caller *caller;
    han_call call, copy;
} DeliveryObject;

PyObject *han_py_delivery(PyObject *calls, const han_caller *caller, han_call *c,
                          const han_call *copy, PyObject *memory) {
    DeliveryObject *self = PyObject_GC_New(DeliveryObject, &DeliveryType);
    if (!self) return NULL;
    self->calls = Py_NewRef(calls);
    self->memory = Py_NewRef(memory);
    self->caller = caller;
    self->call = *c;
    self->copy = *copy;
    *c = (han_call){0};
    PyObject_GC_Track(self);
    return (PyObject *)self;
}

static PyObject *delivery_call(DeliveryObject *self, PyObject *args, PyObject *kwargs) {
    (void)args, (void)kwargs;
    if (han_py_deliver(self->caller, &self->call, &self->copy)) return NULL;
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
