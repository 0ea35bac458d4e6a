#include "python/py_plan.h"

#include <stdlib.h>
#include <string.h>

#include "data/kernels.h"
#include "data/processor.h"
#include "engine/sizes.h"

static void plan_dealloc(PlanObject *self) {
    free(self->code);
    free(self->terms);
    free(self->strides);
    free(self->comms);
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
static PyObject *plan_get_counts(PlanObject *self, void *unused) {
    (void)unused;
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

static PyObject *or_none(PlanObject *other) {
    PyObject *o = other ? (PyObject *)other : Py_None;
    Py_INCREF(o);
    return o;
}

/* Set an alternative or a rival, which is never replaced: a run may use it. 0 or -1. */
static int take(PlanObject **slot, PyObject *o, bool expected, const char *what) {
    if (!o || !PyObject_TypeCheck(o, &PlanType) || *slot || !expected) {
        PyErr_Format(PyExc_ValueError, "a plan takes one %s, and only if it was made for one",
                     what);
        return -1;
    }
    Py_INCREF(o);
    *slot = (PlanObject *)o;
    return 0;
}

static PyObject *get_alternative(PlanObject *self, void *unused) {
    (void)unused;
    return or_none(self->alternative);
}

static int set_alternative(PlanObject *self, PyObject *o, void *unused) {
    (void)unused;
    if (take(&self->alternative, o, self->plan.arena_size != 0, "alternative")) return -1;
    self->plan.calls_mpi |= self->alternative->plan.calls_mpi;
    self->plan.alternative = &self->alternative->plan;
    return 0;
}

static PyObject *get_rival(PlanObject *self, void *unused) {
    (void)unused;
    return or_none(self->rival);
}

static int set_rival(PlanObject *self, PyObject *o, void *unused) {
    (void)unused;
    if (take(&self->rival, o, self->plan.tried, "rival")) return -1;
    self->plan.calls_mpi |= self->rival->plan.calls_mpi;
    self->plan.rival = &self->rival->plan;
    return 0;
}

static PyObject *get_learnt(PlanObject *self, void *unused) {
    (void)unused;
    const han_plan *p = &self->plan;
    bool ahead = p->foreseen.learnt[0].trials > p->trial.learnt[0].trials;
    const han_learnt *a = ahead ? p->foreseen.learnt : p->trial.learnt, *b = a + 1;
    if (!a->trials) Py_RETURN_NONE;
    bool rival = ahead ? p->foreseen.rival : p->trial.rival;
    return Py_BuildValue("iI(KKK)(KKK)", rival, a->trials, (unsigned long long)a->median,
                         (unsigned long long)a->low, (unsigned long long)a->high,
                         (unsigned long long)b->median, (unsigned long long)b->low,
                         (unsigned long long)b->high);
}

static PyObject *get_calls_mpi(PlanObject *self, void *unused) {
    (void)unused;
    return PyBool_FromLong(self->plan.calls_mpi);
}

static PyGetSetDef plan_getset[] = {
    {"calls_mpi", (getter)get_calls_mpi, NULL, "Whether its runs call MPI.", NULL},
    {"counts", (getter)plan_get_counts, NULL,
     "Runs finished; bytes copied, combined, attached, mapped, sent and received.",
     NULL},
    {"alternative", (getter)get_alternative, (setter)set_alternative,
     "The plan that all ranks run instead if the buffers of all ranks are in their arenas.", NULL},
    {"learnt", (getter)get_learnt, NULL,
     "What trials found on this rank: whether the rival is in use, the number of trials, and the "
     "last, least and greatest nanoseconds of the plan and of the rival. None: nothing.",
     NULL},
    {"rival", (getter)get_rival, (setter)set_rival,
     "The plan that all ranks run instead if the leader finds it faster.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

PyTypeObject PlanType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "han._native.Plan",
    .tp_basicsize = sizeof(PlanObject),
    .tp_dealloc = (destructor)plan_dealloc,
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_getset = plan_getset,
    .tp_doc = "A native plan: a program with its resources. Made by Engine.plan.",
};

static void *copy_of(const void *data, size_t bytes) {
    void *p = NULL;
    if (posix_memalign(&p, HAN_LINE, bytes ? bytes : HAN_LINE)) return NULL;
    if (bytes) memcpy(p, data, bytes);
    return p;
}

static int fill_streams(han_plan *p, PyObject *streams) {
    Py_ssize_t n = PyTuple_GET_SIZE(streams);
    if (n > HAN_MAX_STREAMS) {
        PyErr_Format(PyExc_ValueError, "a program of %zd streams, at most %d", n, HAN_MAX_STREAMS);
        return -1;
    }
    p->n_streams = (uint32_t)n;
    for (Py_ssize_t s = 0; s < n; s++)
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(streams, s), "II", &p->streams[s].start,
                              &p->streams[s].stop))
            return -1;
    return 0;
}

static int fill_comms(PlanObject *self, PyObject *comms) {
    Py_ssize_t n = PyTuple_GET_SIZE(comms);
    self->comms = calloc((size_t)n + 1, sizeof *self->comms);
    if (!self->comms) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t k = 0; k < n; k++)
        self->comms[k] = (han_handle)PyLong_AsUnsignedLongLongMask(PyTuple_GET_ITEM(comms, k));
    self->plan.comms = self->comms;
    self->plan.n_comms = (uint32_t)n;
    return PyErr_Occurred() ? -1 : 0;
}

enum { MUCH = 2 << 20 }; /* bytes: more than a second-level cache holds beside other data */

static uint64_t delivers(const han_instr *i) {
    return i->code == HAN_COPY && i->base[0] == HAN_B_RECV ? i->n : 0;
}

/* Bytes that are copied to the user's buffer. */
static uint64_t delivered(const han_plan *p, size_t instructions) {
    uint64_t nbytes = 0;
    for (size_t k = 0; k < instructions; k++) {
        const han_instr *i = &p->code[k];
        nbytes += delivers(i);
        if (i->code != HAN_LOOP) continue;
        for (uint64_t j = 1; j <= i->n; j++)
            nbytes += delivers(i - j) * (HAN_LOOP_TIMES(i) - 1);
    }
    return nbytes;
}

/* Whether copies to the receive buffer should bypass the caches: no cache would hold the data until
 * the user reads it, and neither this rank nor its peers read it before. Peers read it only if this
 * rank is a leader that passes it on to another level, so that it posts flags on two levels. This
 * changes only how bytes are copied: ranks may differ. */
static bool streams_out(const han_plan *p, size_t instructions, unsigned ranks) {
    uint32_t levels = 0; /* a bit for each channel in which this rank posts flags */
    for (size_t k = 0; k < instructions; k++) {
        const han_instr *i = &p->code[k];
        if (i->code == HAN_POST) levels |= 1u << (i->base[0] - HAN_B_CHANNEL) / HAN_B_PER_CHANNEL;
        bool flags = i->code == HAN_POST || i->code == HAN_WAIT || i->code == HAN_AWAIT;
        for (int ref = 1; ref < 3 && !flags; ref++)
            if (i->base[ref] == HAN_B_RECV) return false;
    }
    return delivered(p, instructions) >= han_cache_share(ranks) &&
           !(p->shows && levels & (levels - 1));
}

/* Note whether an instruction calls MPI; `kernel`: reductions have one of han's own. */
static void note_mpi(han_plan *p, const han_instr *i, bool kernel) {
    bool reduces = i->code >= HAN_REDUCE && i->code <= HAN_REDUCE2;
    bool collective = i->code == HAN_COLL;
    p->blocks |= collective && HAN_COLL_KIND(i) & HAN_C_BLOCKING;
    p->calls_mpi |= collective || i->code == HAN_ISEND || i->code == HAN_IRECV;
    p->calls_mpi |= reduces && !kernel;
}

/* Make the table of blocks that differ in size, of which the terms must speak; 0 or -1. */
static int fill_table(PlanObject *self, uint32_t n_blocks) {
    han_plan *p = &self->plan;
    if (!n_blocks) return 0;
    bool fits = self->terms;
    for (uint32_t k = 0; fits && k < p->n_code; k++) {
        const han_term *t = &self->terms[k];
        fits = t->block < n_blocks;
        for (int ref = 0; ref < 4; ref++) fits &= t->blocks[ref] < n_blocks;
    }
    if (!fits) {
        PyErr_SetString(PyExc_ValueError, "the terms are not those of the blocks");
        return -1;
    }
    p->n_blocks = n_blocks;
    p->table = calloc(n_blocks, sizeof *p->table);
    if (p->table) return 0;
    PyErr_NoMemory();
    return -1;
}

/* Take over the terms of a plan for many sizes, and release their buffer; 0 or -1. */
static int fill_terms(PlanObject *self, Py_buffer *terms, uint64_t grains, uint64_t grain) {
    han_plan *p = &self->plan;
    if (!terms->buf) return 0;
    bool fits = (size_t)terms->len == p->n_code * sizeof(han_term) && grains && grain;
    self->terms = fits ? copy_of(terms->buf, (size_t)terms->len) : NULL;
    PyBuffer_Release(terms);
    p->terms = self->terms;
    p->grains = grains;
    p->grain = grain;
    p->nbytes = grains * grain;
    if (fits) p->message = han_block_of(p, p->nbytes, 0);
    if (fits && !self->terms) PyErr_NoMemory();
    if (!fits) PyErr_SetString(PyExc_ValueError, "the terms are not those of the operations");
    return self->terms ? 0 : -1;
}

/* Whether a block and its strides stay among the plan's blocks, the last of `times` times too. */
static bool within_blocks(const han_plan *p, int64_t block, int64_t stride, uint64_t times) {
    int64_t last = block + stride * (int64_t)(times - 1);
    return !p->n_blocks || (last >= 0 && last < (int64_t)p->n_blocks);
}

/* Whether the mark at the end of a loop fits the records and strides before it. */
static bool loop_fits(const PlanObject *self, uint32_t stream, uint32_t end, size_t n_strides) {
    const han_plan *p = &self->plan;
    const han_instr *mark = &self->code[end];
    uint64_t times = mark->off[0];
    if (times < 2 || times > UINT32_MAX || !mark->n || mark->n > end - p->streams[stream].start ||
        mark->off[1] > n_strides || mark->n > n_strides - mark->off[1])
        return false;
    for (uint32_t k = 0; k < mark->n; k++) {
        const uint32_t at = end - (uint32_t)mark->n + k;
        const han_stride *stride = &self->strides[mark->off[1] + k];
        if (self->code[at].code == HAN_LOOP) return false;
        if (!self->terms) continue;
        const han_term *t = &self->terms[at];
        bool fits = within_blocks(p, t->block, (int32_t)stride->block, times);
        for (int ref = 0; ref < 4; ref++)
            fits &= within_blocks(p, t->blocks[ref], (int16_t)stride->blocks[ref], times);
        if (!fits) return false;
    }
    return true;
}

/* Take over the strides of loops, which must fit; 0 or -1. */
static int fill_strides(PlanObject *self, const Py_buffer *strides) {
    han_plan *p = &self->plan;
    size_t n = strides->buf ? (size_t)strides->len / sizeof(han_stride) : 0;
    if (strides->buf) self->strides = copy_of(strides->buf, (size_t)strides->len);
    if (!self->code || (strides->buf && !self->strides)) {
        PyErr_NoMemory();
        return -1;
    }
    p->strides = self->strides;
    for (uint32_t s = 0; s < p->n_streams; s++) {
        if (p->streams[s].stop > p->n_code) {
            PyErr_Format(PyExc_ValueError, "stream %u of %u records", s, p->n_code);
            return -1;
        }
        for (uint32_t k = p->streams[s].start; k < p->streams[s].stop; k++)
            if (self->code[k].code == HAN_LOOP && !loop_fits(self, s, k, n)) {
                PyErr_Format(PyExc_ValueError, "the loop that ends at record %u does not fit", k);
                return -1;
            }
    }
    return 0;
}

static int fill_plan(PlanObject *self, PyObject *args, PyObject *kwargs, unsigned ranks) {
    static char *names[] = {"code",   "streams", "requests",    "footprint", "writes", "sync",
                            "brief",  "signature", "kernel",  "element", "op",
                            "dtype",  "commutative", "operand", "comms",   "scratch",
                            "keep",   "number",  "shifts", "arena",  "whole", "leader",
                            "terms",  "grains",  "grain",  "blocks", "strides", NULL};
    han_plan *p = &self->plan;
    Py_buffer code, writes, terms = {0}, strides = {0};
    PyObject *streams, *footprint, *comms, *scratch, *keep, *shifts = Py_None;
    unsigned long long signature, mpi_op, mpi_dtype; /* handles: no overflow check */
    unsigned long long number = 0, arena = 0, arena_size = 0, grains = 0, grain = 0;
    int sync, brief, commutative, op, dtype, leader = -1;
    unsigned blocks = 0;
    Py_ssize_t requests, element, operand;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "y*O!nO!y*ppK(ii)nKKpnO!OO|KO(KK)Iiz*KKIz*", names,
                                     &code, &PyTuple_Type, &streams, &requests, &PyTuple_Type,
                                     &footprint, &writes, &sync, &brief,
                                     &signature, &op, &dtype, &element, &mpi_op, &mpi_dtype,
                                     &commutative, &operand, &PyTuple_Type, &comms, &scratch,
                                     &keep, &number, &shifts, &arena, &arena_size, &p->whole,
                                     &leader, &terms, &grains, &grain, &blocks, &strides))
        return -1;
    self->code = copy_of(code.buf, (size_t)code.len);
    memcpy(p->writes, writes.buf,
           (size_t)writes.len < sizeof p->writes ? (size_t)writes.len : sizeof p->writes);
    for (Py_ssize_t c = 0; c < PyTuple_GET_SIZE(footprint) && c < HAN_MAX_CHANNELS; c++)
        p->footprint[c] = PyLong_AsUnsignedLongLong(PyTuple_GET_ITEM(footprint, c));
    Py_ssize_t code_len = code.len;
    p->n_code = (uint32_t)((size_t)code_len / sizeof(han_instr));
    p->fitted = self->code;
    int bad = fill_terms(self, &terms, grains, grain) || fill_table(self, blocks);
    bad = bad || fill_streams(p, streams) || fill_strides(self, &strides);
    PyBuffer_Release(&code);
    PyBuffer_Release(&writes);
    PyBuffer_Release(&strides);
    if (bad || PyErr_Occurred()) return -1;
    p->code = self->code;
    p->n_requests = (uint32_t)requests;
    p->requests = calloc((size_t)requests + 1, sizeof *p->requests);
    p->operand_size = (size_t)operand;
    p->operand = malloc((size_t)operand + HAN_LINE);
    if (!self->code || !p->requests || !p->operand) {
        PyErr_NoMemory();
        return -1;
    }
    for (size_t k = 0; k < (size_t)code_len / sizeof(han_instr); k++)
        note_mpi(p, &self->code[k], op >= 0);
    for (int c = 0; c < HAN_MAX_CHANNELS; c++)
        p->shows |= (p->writes[c] & HAN_W_SHOWN) != 0;
    p->streaming = streams_out(p, (size_t)code_len / sizeof(han_instr), ranks);
    p->much = delivered(p, (size_t)code_len / sizeof(han_instr)) >= MUCH;
    p->sync = sync;
    p->brief = brief;
    p->commutative = commutative;
    p->signature = signature;
    p->number = number;
    p->arena = arena;
    p->arena_size = arena_size;
    p->tried = leader >= 0;
    p->leader = leader >= 0 ? (uint32_t)leader : 0;
    p->element = (size_t)element;
    p->op = (han_handle)mpi_op;
    p->dtype = (han_handle)mpi_dtype;
    if (op >= 0) {
        p->reduce = han_reduce_kernel((enum han_op)op, (enum han_dtype)dtype);
        p->reduce2 = han_reduce2_kernel((enum han_op)op, (enum han_dtype)dtype);
    }
    if (scratch != Py_None) {
        if (PyObject_GetBuffer(scratch, &self->scratch, PyBUF_WRITABLE)) return -1;
        p->scratch = self->scratch.buf;
        p->scratch_size = (uint64_t)self->scratch.len;
    }
    if (shifts != Py_None) {
        if (PyObject_GetBuffer(shifts, &self->shifts, PyBUF_SIMPLE)) return -1;
        p->shifts = self->shifts.buf;
    }
    Py_INCREF(keep);
    self->keep = keep;
    return fill_comms(self, comms);
}

PyObject *han_py_plan(EngineObject *engine, PyObject *args, PyObject *kwargs) {
    unsigned ranks = 1; /* ranks that share this machine's caches: those of the largest channel */
    for (uint32_t c = 0; c < engine->engine.n_channels; c++)
        if (engine->engine.channels[c].size > ranks) ranks = engine->engine.channels[c].size;
    PlanObject *self = PyObject_New(PlanObject, &PlanType);
    if (!self) return NULL;
    memset((char *)self + sizeof(PyObject), 0, sizeof *self - sizeof(PyObject));
    if (fill_plan(self, args, kwargs, ranks)) {
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}
