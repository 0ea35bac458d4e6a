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
    const unsigned long long n[] = {c->runs,   c->copied, c->combined, c->attached,
                                    c->mapped, c->sent,   c->received};
    return Py_BuildValue("(KKKKKKK)", n[0], n[1], n[2], n[3], n[4], n[5], n[6]);
}

/* The other plan that runs may take: the rival, or the alternative if `rival` is NULL. */
static PlanObject **other(PlanObject *self, const void *rival) {
    return rival ? &self->rival : &self->alternative;
}

static PyObject *get_other(PlanObject *self, void *rival) {
    return Py_NewRef(han_py_or_none(*other(self, rival)));
}

/* Set the other plan, which is never replaced: a run may use it. 0 or -1. */
static int set_other(PlanObject *self, PyObject *o, void *rival) {
    han_plan *p = &self->plan;
    bool expected = rival ? p->tried != 0 : p->arena_size != 0;
    if (!o || !PyObject_TypeCheck(o, &PlanType) || *other(self, rival) || !expected)
        return HAN_RAISE(PyExc_ValueError, "a plan takes one %s, and only if it was made for one",
                         rival ? "rival" : "alternative");
    PlanObject *taken = *other(self, rival) = (PlanObject *)Py_NewRef(o);
    p->calls_mpi |= taken->plan.calls_mpi;
    *(rival ? &p->rival : &p->alternative) = &taken->plan;
    return 0;
}

static PyGetSetDef plan_getset[] = {
    {"counts", (getter)plan_get_counts, NULL,
     "Runs finished; bytes copied, combined, attached, mapped, sent and received.", NULL},
    {"alternative", (getter)get_other, (setter)set_other,
     "The plan that all ranks run instead if the buffers of all ranks are in their arenas.", NULL},
    {"rival", (getter)get_other, (setter)set_other,
     "The plan that all ranks run instead where trials find it faster.", "rival"},
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
