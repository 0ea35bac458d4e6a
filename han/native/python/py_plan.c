/* han._native.Plan. */
#include "python/module.h"

#include <stdlib.h>
#include <structmember.h>

#include "python/objects.h"

static void plan_dealloc(PlanObject *self) {
    free(self->plan.fitted);
    free(self->plan.terms);
    free((void *)self->plan.strides);
    free((void *)self->plan.comms);
    free(self->plan.table);
    free(self->plan.requests);
    free(self->plan.operand);
    if (self->scratch.obj) PyBuffer_Release(&self->scratch);
    if (self->shifts.obj) PyBuffer_Release(&self->shifts);
    Py_XDECREF(self->keep);
    Py_XDECREF(self->alternative);
    Py_XDECREF(self->rival);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

/* In the order of han_counts. */
static PyObject *plan_get_counts(PlanObject *self, void *Py_UNUSED(closure)) {
    const han_counts *c = &self->plan.counts;
    const _Atomic uint64_t *all[] = {&c->runs,   &c->copied, &c->combined, &c->attached,
                                     &c->mapped, &c->sent,   &c->received};
    enum { N = sizeof all / sizeof *all };
    PyObject *tuple = PyTuple_New(N);
    for (int k = 0; tuple && k < N; k++) {
        PyObject *n =
            PyLong_FromUnsignedLongLong(atomic_load_explicit(all[k], memory_order_relaxed));
        if (n)
            PyTuple_SET_ITEM(tuple, k, n);
        else
            Py_CLEAR(tuple);
    }
    return tuple;
}

/* Set an alternative or a rival, which is never replaced: a run may use it. 0 or -1. */
static int take(PlanObject **slot, PyObject *o, bool expected, const char *what) {
    if (!o || !PyObject_TypeCheck(o, &PlanType) || *slot || !expected)
        return HAN_RAISE(PyExc_ValueError, "a plan takes one %s, and only if it was made for one",
                         what);
    Py_INCREF(o);
    *slot = (PlanObject *)o;
    return 0;
}

static PyObject *get_alternative(PlanObject *self, void *Py_UNUSED(closure)) {
    return Py_NewRef(han_py_or_none(self->alternative));
}

static int set_alternative(PlanObject *self, PyObject *o, void *Py_UNUSED(closure)) {
    if (take(&self->alternative, o, self->plan.arena_size != 0, "alternative")) return -1;
    self->plan.calls_mpi |= self->alternative->plan.calls_mpi;
    self->plan.alternative = &self->alternative->plan;
    return 0;
}

static PyObject *get_rival(PlanObject *self, void *Py_UNUSED(closure)) {
    return Py_NewRef(han_py_or_none(self->rival));
}

static int set_rival(PlanObject *self, PyObject *o, void *Py_UNUSED(closure)) {
    if (take(&self->rival, o, self->plan.tried != 0, "rival")) return -1;
    self->plan.calls_mpi |= self->rival->plan.calls_mpi;
    self->plan.rival = &self->rival->plan;
    return 0;
}

static PyGetSetDef plan_getset[] = {
    {"counts", (getter)plan_get_counts, NULL,
     "Runs finished; bytes copied, combined, attached, mapped, sent and received.", NULL},
    {"alternative", (getter)get_alternative, (setter)set_alternative,
     "The plan that all ranks run instead if the buffers of all ranks are in their arenas.", NULL},
    {"rival", (getter)get_rival, (setter)set_rival,
     "The plan that all ranks run instead where trials find it faster.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMemberDef plan_members[] = {
    {"calls_mpi", T_BOOL, offsetof(PlanObject, plan.calls_mpi), READONLY,
     "Whether its runs call MPI."},
    {NULL, 0, 0, 0, NULL},
};

PyTypeObject PlanType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "han._native.Plan",
    .tp_basicsize = sizeof(PlanObject),
    .tp_dealloc = (destructor)plan_dealloc,
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_members = plan_members,
    .tp_getset = plan_getset,
    .tp_doc = "A native plan: a program with its resources. Made by Engine.plan.",
};
