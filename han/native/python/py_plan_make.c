/* How native plans are made. */
#include "python/module.h"

#include <stdlib.h>
#include <string.h>

#include "data/kernels.h"
#include "engine/facts.h"
#include "engine/sizes.h"
#include "engine/trials.h"
#include "python/objects.h"

/* The arguments of Engine.plan. */
typedef struct {
    Py_buffer code, writes, terms, strides;                          /* the last two may be empty */
    PyObject *streams, *footprint, *comms, *scratch, *keep, *shifts; /* borrowed */
    unsigned long long signature, number, arena, arena_size, grains, grain;
    unsigned long long mpi_op, mpi_dtype; /* handles */
    unsigned whole, blocks;
    Py_ssize_t requests, element, operand;
    int sync, brief, op, dtype, unpacks, own;
    unsigned long long tried;
    unsigned first, rank, size, burst; /* if `tried` */
} arguments;

static void *copy_of(const void *data, size_t bytes) {
    void *p = NULL;
    if (posix_memalign(&p, HAN_LINE, bytes ? bytes : HAN_LINE)) return NULL;
    if (bytes) memcpy(p, data, bytes);
    return p;
}

static int fill_streams(han_plan *p, PyObject *streams) {
    Py_ssize_t n = PyTuple_GET_SIZE(streams);
    if (n > HAN_MAX_STREAMS)
        return HAN_RAISE(PyExc_ValueError, "a program of %zd streams, at most %d", n,
                         HAN_MAX_STREAMS);
    p->n_streams = (uint32_t)n;
    for (Py_ssize_t s = 0; s < n; s++)
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(streams, s), "II", &p->streams[s].start,
                              &p->streams[s].stop))
            return -1;
    return 0;
}

static int fill_comms(han_plan *p, PyObject *comms) {
    Py_ssize_t n = PyTuple_GET_SIZE(comms);
    han_handle *handles = calloc((size_t)n + 1, sizeof *handles);
    p->comms = handles;
    if (!handles) return HAN_NO_MEMORY;
    for (Py_ssize_t k = 0; k < n; k++)
        handles[k] = (han_handle)PyLong_AsUnsignedLongLongMask(PyTuple_GET_ITEM(comms, k));
    p->n_comms = (uint32_t)n;
    return PyErr_Occurred() ? -1 : 0;
}

/* Make the table of blocks that differ in size, of which the terms must speak; 0 or -1. */
static int fill_table(han_plan *p, uint32_t n_blocks) {
    if (!n_blocks) return 0;
    bool fits = p->terms;
    for (uint32_t k = 0; fits && k < p->n_code; k++) {
        const han_term *t = &p->terms[k];
        fits = t->block + t->count <= n_blocks - !t->count;
        for (int ref = 0; ref < 4; ref++) fits &= t->blocks[ref] < n_blocks;
    }
    if (!fits) return HAN_RAISE(PyExc_ValueError, "the terms are not those of the blocks");
    p->n_blocks = n_blocks;
    p->table = calloc(n_blocks + 1, sizeof *p->table);
    return p->table ? 0 : HAN_NO_MEMORY;
}

/* Copy the terms of a plan for many sizes; 0 or -1. */
static int fill_terms(han_plan *p, const arguments *a) {
    const Py_buffer *terms = &a->terms;
    if (!terms->buf) return 0;
    if ((size_t)terms->len != p->n_code * sizeof(han_term) || !a->grains || !a->grain)
        return HAN_RAISE(PyExc_ValueError, "the terms are not those of the operations");
    p->terms = copy_of(terms->buf, (size_t)terms->len);
    p->grains = a->grains;
    p->grain = a->grain;
    p->own = a->own;
    p->nbytes = a->own ? 0 : a->grains * a->grain; /* 0: not fitted yet */
    p->message = han_block_of(p, p->nbytes, 0);
    return p->terms ? 0 : HAN_NO_MEMORY;
}

/* Whether a block and its strides stay among the plan's blocks, the last of `times` times too. */
static bool within_blocks(const han_plan *p, int64_t block, int64_t stride, uint64_t times) {
    int64_t last = block + stride * (int64_t)(times - 1);
    return !p->n_blocks || (last >= 0 && last < (int64_t)p->n_blocks);
}

/* Whether the mark at the end of a loop fits the records and strides before it. */
static bool loop_fits(const han_plan *p, uint32_t stream, uint32_t end, size_t n_strides) {
    const han_instr *mark = &p->fitted[end];
    uint64_t times = mark->off[0];
    if (times < 2 || times > UINT32_MAX || !mark->n || mark->n > end - p->streams[stream].start ||
        mark->off[1] > n_strides || mark->n > n_strides - mark->off[1])
        return false;
    for (uint32_t k = 0; k < mark->n; k++) {
        const uint32_t at = end - (uint32_t)mark->n + k;
        const han_stride *stride = &p->strides[mark->off[1] + k];
        if (p->fitted[at].code == HAN_LOOP) return false;
        if (!p->terms) continue;
        const han_term *t = &p->terms[at];
        const int64_t last = t->block + t->count - (t->count > 0);
        bool fits = within_blocks(p, t->block, (int32_t)stride->block, times) &&
                    within_blocks(p, last, (int32_t)stride->block, times);
        for (int ref = 0; ref < 4; ref++)
            fits &= within_blocks(p, t->blocks[ref], (int16_t)stride->blocks[ref], times);
        if (!fits) return false;
    }
    return true;
}

/* Copy the strides of loops, which must fit; 0 or -1. */
static int fill_strides(han_plan *p, const Py_buffer *strides) {
    size_t n = strides->buf ? (size_t)strides->len / sizeof(han_stride) : 0;
    if (strides->buf) p->strides = copy_of(strides->buf, (size_t)strides->len);
    if (strides->buf && !p->strides) return HAN_NO_MEMORY;
    if (strides->buf && p->own)
        return HAN_RAISE(PyExc_ValueError, "loops in a program for own sizes");
    for (uint32_t s = 0; s < p->n_streams; s++) {
        if (p->streams[s].stop > p->n_code)
            return HAN_RAISE(PyExc_ValueError, "stream %u of %u records", s, p->n_code);
        for (uint32_t k = p->streams[s].start; k < p->streams[s].stop; k++)
            if (p->fitted[k].code == HAN_LOOP && !loop_fits(p, s, k, n))
                return HAN_RAISE(PyExc_ValueError, "the loop that ends at record %u does not fit",
                                 k);
    }
    return 0;
}

/* Copy the records, the terms and the strides of a program; 0 or -1. */
static int fill_program(han_plan *p, const arguments *a) {
    p->fitted = copy_of(a->code.buf, (size_t)a->code.len);
    if (!p->fitted) return HAN_NO_MEMORY;
    p->code = p->fitted;
    p->n_code = (uint32_t)((size_t)a->code.len / sizeof(han_instr));
    return fill_terms(p, a) || fill_table(p, a->blocks) || fill_streams(p, a->streams) ||
                   fill_strides(p, &a->strides)
               ? -1
               : 0;
}

/* Note what the program takes of its channels; 0 or -1. */
static int fill_channels(han_plan *p, const arguments *a) {
    size_t written = (size_t)a->writes.len;
    memcpy(p->writes, a->writes.buf, written < sizeof p->writes ? written : sizeof p->writes);
    Py_ssize_t n = PyTuple_GET_SIZE(a->footprint);
    for (Py_ssize_t c = 0; c < n && c < HAN_MAX_CHANNELS; c++)
        p->footprint[c] = PyLong_AsUnsignedLongLong(PyTuple_GET_ITEM(a->footprint, c));
    return PyErr_Occurred() ? -1 : 0;
}

static void fill_call(han_plan *p, const arguments *a) {
    p->sync = a->sync;
    p->brief = a->brief;
    p->signature = a->signature;
    p->number = a->number;
    p->arena = a->arena;
    p->arena_size = a->arena_size;
    p->whole = a->whole;
    p->tried = a->tried;
    p->first = a->first;
    p->burst = a->burst;
    p->calls_mpi |= a->tried != 0; /* ranks agree in messages */
}

static void fill_reduction(han_plan *p, const arguments *a) {
    p->unpacks = a->unpacks;
    p->element = (size_t)a->element;
    p->op = (han_handle)a->mpi_op;
    p->dtype = (han_handle)a->mpi_dtype;
    if (a->op < 0) return;
    p->reduce = han_reduce_kernel((enum han_op)a->op, (enum han_dtype)a->dtype);
    p->reduce2 = han_reduce2_kernel((enum han_op)a->op, (enum han_dtype)a->dtype);
}

/* Make the memory that runs use, and take the memory that the caller gives; 0 or -1. */
static int fill_memory(PlanObject *self, const arguments *a) {
    han_plan *p = &self->plan;
    p->n_requests = (uint32_t)a->requests;
    p->requests = calloc((size_t)a->requests + 1, sizeof *p->requests);
    p->operand_size = (size_t)a->operand;
    p->operand = malloc((size_t)a->operand + HAN_LINE);
    if (!p->requests || !p->operand) return HAN_NO_MEMORY;
    if (a->scratch != Py_None) {
        if (PyObject_GetBuffer(a->scratch, &self->scratch, PyBUF_WRITABLE)) return -1;
        p->scratch = self->scratch.buf;
        p->scratch_size = (uint64_t)self->scratch.len;
    }
    if (a->shifts != Py_None) {
        if (PyObject_GetBuffer(a->shifts, &self->shifts, PyBUF_SIMPLE)) return -1;
        p->shifts = self->shifts.buf;
    }
    return 0;
}

/* Let the engine count the runs of the plan, if it has trials; 0 or -1. */
static int let_count(han_engine *e, const arguments *a) {
    return a->tried && !han_trials_open(e, a->rank, a->size) ? HAN_NO_MEMORY : 0;
}

static int fill_plan(PlanObject *self, const arguments *a, unsigned ranks) {
    han_plan *p = &self->plan;
    if (fill_program(p, a) || fill_channels(p, a)) return -1;
    fill_call(p, a);
    fill_reduction(p, a);
    han_plan_facts(p, a->op >= 0, ranks);
    self->keep = Py_NewRef(a->keep);
    return fill_memory(self, a) || fill_comms(p, a->comms) ? -1 : 0;
}

/* Read the arguments, of which `release` gives back the buffers; 0 or -1. */
static int parse(PyObject *args, PyObject *kwargs, arguments *a) {
    static char *names[] = {"code",    "streams",   "requests", "footprint", "writes", "sync",
                            "brief",   "signature", "kernel",   "element",   "op",     "dtype",
                            "operand", "comms",     "scratch",  "keep",      "number", "shifts",
                            "arena",   "whole",     "terms",    "grains",    "grain",  "blocks",
                            "strides", "tried",     "unpacks",  "own",       NULL};
    *a = (arguments){.shifts = Py_None};
    return PyArg_ParseTupleAndKeywords(
               args, kwargs, "y*O!nO!y*ppK(ii)nKKnO!OO|KO(KK)Iz*KKIz*(KIIII)pp", names, &a->code,
               &PyTuple_Type, &a->streams, &a->requests, &PyTuple_Type, &a->footprint, &a->writes,
               &a->sync, &a->brief, &a->signature, &a->op, &a->dtype, &a->element, &a->mpi_op,
               &a->mpi_dtype, &a->operand, &PyTuple_Type, &a->comms, &a->scratch, &a->keep,
               &a->number, &a->shifts, &a->arena, &a->arena_size, &a->whole, &a->terms, &a->grains,
               &a->grain, &a->blocks, &a->strides, &a->tried, &a->first, &a->rank, &a->size,
               &a->burst, &a->unpacks, &a->own)
               ? 0
               : -1;
}

static void release(arguments *a) {
    PyBuffer_Release(&a->code);
    PyBuffer_Release(&a->writes);
    PyBuffer_Release(&a->terms);
    PyBuffer_Release(&a->strides);
}

/* How many ranks share this machine's caches: those of the largest channel. */
static unsigned sharing(const han_engine *e) {
    unsigned ranks = 1;
    for (uint32_t c = 0; c < e->n_channels; c++)
        if (e->channels[c].size > ranks) ranks = e->channels[c].size;
    return ranks;
}

PyObject *han_py_plan(EngineObject *engine, PyObject *args, PyObject *kwargs) {
    arguments a;
    if (parse(args, kwargs, &a)) return NULL;
    PlanObject *self = (PlanObject *)PlanType.tp_alloc(&PlanType, 0);
    if (self && (let_count(&engine->engine, &a) || fill_plan(self, &a, sharing(&engine->engine))))
        Py_CLEAR(self);
    release(&a);
    return (PyObject *)self;
}
