/* The class of requests, which nonblocking and persistent calls return. It extends mpi4py's. */
#include "python/module.h"

#include <string.h>

#include "python/py_request_object.h"
#include "python/py_run.h"

static PyObject *request_new(PyTypeObject *type, PyObject *Py_UNUSED(args),
                             PyObject *Py_UNUSED(kwargs)) {
    PyObject *o = han_request_class.base->tp_new(type, han_request_class.no_arguments, NULL);
    if (o) memset(han_request_fields(o), 0, sizeof(request));
    return o;
}

static void fill(PyObject *o, EngineObject *engine, PlanObject *plan, const void *send, void *recv,
                 uint64_t nbytes, PyObject *sizes, const uint64_t *table) {
    request *self = han_request_fields(o);
    self->engine = (EngineObject *)Py_NewRef((PyObject *)engine);
    self->plan = (PlanObject *)Py_NewRef((PyObject *)plan);
    self->run = (han_run){
        .plan = &plan->plan, .send = send, .recv = recv, .nbytes = nbytes, .sizes = table};
    self->sizes = Py_XNewRef(sizes);
}

static int request_init(PyObject *o, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"engine", "plan",       "send",   "recv",  "keep", "begin",
                            "end",    "persistent", "nbytes", "sizes", NULL};
    PyObject *engine, *plan, *keep = Py_None, *begin = Py_None, *end = Py_None, *sizes = NULL;
    const uint64_t *table;
    unsigned long long send, recv; /* addresses */
    unsigned long long nbytes = 0;
    int persistent = false;
    request *self = han_request_fields(o);
    if (self->plan) return HAN_RAISE(PyExc_RuntimeError, "the request exists already");
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!O!KK|OOOpKS", names, &EngineType, &engine,
                                     &PlanType, &plan, &send, &recv, &keep, &begin, &end,
                                     &persistent, &nbytes, &sizes) ||
        han_py_sizes(&((PlanObject *)plan)->plan, sizes, &table))
        return -1;
    fill(o, (EngineObject *)engine, (PlanObject *)plan, (const void *)(uintptr_t)send,
         (void *)(uintptr_t)recv, nbytes, sizes, table);
    self->persistent = self->run.blocking = persistent;
    self->keep = han_py_given(keep);
    self->begin = han_py_given(begin);
    self->end = han_py_given(end);
    return 0;
}

PyObject *han_py_request(PyTypeObject *type, EngineObject *engine, PlanObject *plan,
                         const void *send, void *recv, uint64_t nbytes, PyObject *sizes,
                         PyObject *kept) {
    const uint64_t *table;
    PyObject *o = han_py_sizes(&plan->plan, sizes, &table) ? NULL : request_new(type, NULL, NULL);
    if (o) {
        fill(o, engine, plan, send, recv, nbytes, sizes, table);
        han_request_fields(o)->keep = kept;
    } else {
        Py_DECREF(kept);
    }
    return o;
}

static int request_traverse(PyObject *o, visitproc visit, void *arg) {
    request *self = han_request_fields(o);
    Py_VISIT(Py_TYPE(o));
    Py_VISIT(self->engine);
    Py_VISIT(self->keep);
    Py_VISIT(self->begin);
    Py_VISIT(self->end);
    return han_request_class.base->tp_traverse ? han_request_class.base->tp_traverse(o, visit, arg)
                                               : 0;
}

static int request_clear(PyObject *o) {
    han_request_release(o);
    return han_request_class.base->tp_clear ? han_request_class.base->tp_clear(o) : 0;
}

static void request_dealloc(PyObject *o) {
    PyTypeObject *type = Py_TYPE(o);
    if (PyObject_CallFinalizerFromDealloc(o) < 0) return; /* still referenced */
    PyObject_GC_UnTrack(o);
    han_request_release(o);
    han_request_class.base->tp_dealloc(o);
    if (!(han_request_class.base->tp_flags & Py_TPFLAGS_HEAPTYPE)) Py_DECREF(type);
}

static void request_finalize(PyObject *o) {
    request *self = han_request_fields(o);
    if (!self->engine || !han_under_way(self)) return;
    PyObject *type, *value, *tb;
    PyErr_Fetch(&type, &value, &tb);
    if (han_request_adopt(o)) {
        Py_INCREF(o); /* no memory for the list: never free it */
        PyErr_Clear();
    }
    PyErr_Restore(type, value, tb);
}

static PyType_Slot slots[] = {
    {Py_tp_dealloc, request_dealloc},
    {Py_tp_traverse, request_traverse},
    {Py_tp_clear, request_clear},
    {Py_tp_finalize, request_finalize},
    {Py_tp_methods, han_request_methods},
    {Py_tp_getset, han_request_getset},
    {Py_tp_init, request_init},
    {Py_tp_new, request_new},
    {Py_tp_doc,
     "Request(engine, plan, send, recv, keep=None, begin=None, end=None, "
     "persistent=False, nbytes=0, sizes=b'')\n--\n\n"
     "A plan bound to buffers; it is started, waited for and tested like an MPI request."},
    {0, NULL},
};

PyObject *han_py_request_class(PyObject *Py_UNUSED(none), PyObject *args) {
    PyObject *base, *library;
    unsigned long long null;
    han_status_fields status;
    if (han_request_class.type) return Py_NewRef((PyObject *)han_request_class.type);
    if (!PyArg_ParseTuple(args, "O!nKO!(iiiii)", &PyType_Type, &base, &han_request_class.handle,
                          &null, &PyTuple_Type, &library, &status.source, &status.tag,
                          &status.error, &status.any_source, &status.any_tag))
        return NULL;
    if (han_py_load_mpi(&han_request_class.mpi, library)) return NULL;
    han_request_class.base = (PyTypeObject *)base;
    han_request_class.fields = han_request_class.base->tp_basicsize;
    han_request_class.handle_size = han_request_class.mpi.wide ? sizeof(void *) : sizeof(int);
    han_request_class.null = null;
    han_request_class.no_arguments = PyTuple_New(0);
    PyType_Spec spec = {
        .name = "han._native.Request",
        .basicsize = (int)(han_request_class.fields + (Py_ssize_t)sizeof(request)),
        .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE,
        .slots = slots,
    };
    PyObject *bases = PyTuple_Pack(1, base);
    if (!bases || !han_request_class.no_arguments) return NULL;
    han_request_class.type = (PyTypeObject *)PyType_FromSpecWithBases(&spec, bases);
    Py_DECREF(bases);
    if (han_request_class.type) han_tokens_open(&han_request_class.mpi, status, han_request_ended);
    return (PyObject *)Py_XNewRef((PyObject *)han_request_class.type);
}
