/* The loops of programs. */
#include "python/module.h"

#include "memory/repeat.h"
#include "memory/roll.h"
#include "python/objects.h"

/* Read the streams, which must divide the code; 0 or -1. */
static int take_streams(PyObject *streams, han_records_of *program) {
    Py_ssize_t n = PyTuple_GET_SIZE(streams);
    bool fits = n <= HAN_MAX_STREAMS;
    uint32_t at = 0;
    for (Py_ssize_t s = 0; fits && s < n; s++) {
        han_stream *one = &program->streams[s];
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(streams, s), "II", &one->start, &one->stop))
            return -1;
        fits = one->start == at && one->stop >= at;
        at = one->stop;
    }
    program->n_streams = fits ? (uint32_t)n : 0;
    for (size_t k = 0; fits && k < program->length; k++)
        fits = program->code[k].code != HAN_AWAIT || (uint64_t)program->code[k].peer < (uint64_t)n;
    if (fits && at == program->length) return 0;
    return HAN_RAISE(PyExc_ValueError, "its streams do not divide %zu operations", program->length);
}

static PyObject *streams_of(const han_records_of *rolled) {
    PyObject *all = PyTuple_New((Py_ssize_t)rolled->n_streams);
    for (uint32_t s = 0; all && s < rolled->n_streams; s++) {
        PyObject *one = Py_BuildValue("II", rolled->streams[s].start, rolled->streams[s].stop);
        if (one)
            PyTuple_SET_ITEM(all, (Py_ssize_t)s, one);
        else
            Py_CLEAR(all);
    }
    return all;
}

/* The records as views, which free their memory. */
static PyObject *views_of(const han_records_of *rolled) {
    size_t n = rolled->length;
    return Py_BuildValue("(NNNN)", han_view_of(rolled->code, n * sizeof *rolled->code),
                         han_view_of(rolled->terms, rolled->terms ? n * sizeof *rolled->terms : 0),
                         han_view_of(rolled->strides, rolled->n_strides * sizeof *rolled->strides),
                         streams_of(rolled));
}

static PyObject *roll(const han_records_of *program) {
    han_records_of rolled;
    int found;
    Py_BEGIN_ALLOW_THREADS
    found = han_roll(program, &rolled);
    Py_END_ALLOW_THREADS
    if (found < 0) return PyErr_NoMemory();
    if (!found) Py_RETURN_NONE;
    return views_of(&rolled);
}

/* The views of a program's records. */
typedef struct {
    Py_buffer code, terms;
    han_records_of records;
} viewed;

static void release(viewed *program) {
    PyBuffer_Release(&program->code);
    PyBuffer_Release(&program->terms);
}

/* Read code, terms and streams; 0, or -1 with an error. */
static int take_records(PyObject *tuple, viewed *out) {
    PyObject *streams;
    *out = (viewed){0};
    if (!PyArg_ParseTuple(tuple, "y*z*O!", &out->code, &out->terms, &PyTuple_Type, &streams))
        return -1;
    size_t n = (size_t)out->code.len / sizeof(han_instr);
    out->records = (han_records_of){.code = out->code.buf, .terms = out->terms.buf, .length = n};
    if (out->terms.buf && (size_t)out->terms.len != n * sizeof(han_term))
        PyErr_SetString(PyExc_ValueError, "the terms are not those of the operations");
    else if (!take_streams(streams, &out->records))
        return 0;
    release(out);
    return -1;
}

static PyObject *rolled(PyObject *Py_UNUSED(module), PyObject *args) {
    viewed program;
    if (take_records(args, &program)) return NULL;
    PyObject *found = roll(&program.records);
    release(&program);
    return found;
}

static PyObject *period(PyObject *Py_UNUSED(module), PyObject *args) {
    viewed program;
    if (take_records(args, &program)) return NULL;
    const uint32_t found = han_period(&program.records);
    release(&program);
    return PyLong_FromUnsignedLong(found);
}

static PyObject *repeated(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *given[2];
    viewed shorter, longer;
    han_samples samples = {&shorter.records, &longer.records, 0, 0};
    han_records_of out;
    unsigned long long scratch;
    unsigned int times;
    if (!PyArg_ParseTuple(args, "O!O!IKI:repeated", &PyTuple_Type, &given[0], &PyTuple_Type,
                          &given[1], &samples.grains, &scratch, &times) ||
        take_records(given[0], &shorter))
        return NULL;
    if (take_records(given[1], &longer)) {
        release(&shorter);
        return NULL;
    }
    samples.scratch = scratch;
    const int found = han_repeat(&samples, times, &out);
    release(&shorter);
    release(&longer);
    if (found < 0) return PyErr_NoMemory();
    if (!found) Py_RETURN_NONE;
    return views_of(&out);
}

PyMethodDef han_rolled_functions[] = {
    HAN_METHOD("rolled", rolled, METH_VARARGS, "$module, code, terms, streams, /",
               "Return records with loops, their terms, strides and streams; None if loops save "
               "too little."),
    HAN_METHOD(
        "period", period, METH_VARARGS, "$module, code, terms, streams, /",
        "Return after how many grains of the message all streams repeat; 0: none was found."),
    HAN_METHOD(
        "repeated", repeated, METH_VARARGS, "$module, shorter, longer, grains, scratch, times, /",
        "Return records with loops for a longer message than those of two samples, or None."),
    {NULL, NULL, 0, NULL},
};
