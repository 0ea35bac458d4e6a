/* A program may have megabytes of records, and the time to write them is that of the page faults. So
 * the longest stream's memory becomes the program's: only the records of the others are copied. */
#include "python/module.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "python/objects.h"
#include "python/py_batches.h"
#include "python/py_pieces.h"

/* Memory of a program's records, which a memoryview exports. */
typedef struct {
    PyObject_HEAD
    void *data;
    Py_ssize_t nbytes;
} RecordsObject;

static void records_dealloc(RecordsObject *self) {
    free(self->data);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static int records_buffer(RecordsObject *self, Py_buffer *view, int flags) {
    return PyBuffer_FillInfo(view, (PyObject *)self, self->data, self->nbytes, 0, flags);
}

static PyBufferProcs as_buffer = {.bf_getbuffer = (getbufferproc)records_buffer};

PyTypeObject RecordsType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "han._native.Records",
    .tp_basicsize = sizeof(RecordsObject),
    .tp_dealloc = (destructor)records_dealloc,
    .tp_as_buffer = &as_buffer,
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_doc = "The records of a program.",
};

PyObject *han_view_of(void *data, size_t nbytes) {
    RecordsObject *records = PyObject_New(RecordsObject, &RecordsType);
    if (!records) {
        free(data);
        return NULL;
    }
    records->data = data;
    records->nbytes = (Py_ssize_t)nbytes;
    PyObject *view = PyMemoryView_FromObject((PyObject *)records);
    Py_DECREF(records);
    return view;
}

/* The streams of a program. */
typedef struct {
    OperationsObject *const *all;
    size_t *starts; /* where each starts in the code, and at last where all end */
    Py_ssize_t n, longest;
} streams;

/* Whether an AWAIT names a stream of the program, and a position in it; raises ValueError. */
static bool awaits_well(const streams *s, const han_instr *i) {
    bool known = i->peer >= 0 && i->peer < s->n;
    if (known && i->n <= s->all[i->peer]->length) return true;
    PyErr_Format(PyExc_ValueError, "an operation awaits number %llu of stream %d",
                 (unsigned long long)i->n, (int)i->peer);
    return false;
}

/* Check the streams, and find where each starts; 0 or -1. */
static int measure(streams *s) {
    for (Py_ssize_t k = 0; k < s->n; k++) {
        const OperationsObject *one = s->all[k];
        for (Py_ssize_t j = 0; j < k; j++)
            if (s->all[j] == one) return HAN_RAISE(PyExc_ValueError, "a stream is joined once");
        if (!one->grains != !s->all[0]->grains)
            return HAN_RAISE(PyExc_ValueError, "streams for one size and for many");
        for (size_t j = 0; j < one->length; j++)
            if (one->code[j].code == HAN_AWAIT && !awaits_well(s, &one->code[j])) return -1;
        s->starts[k + 1] = s->starts[k] + one->length;
        if (one->length > s->all[s->longest]->length) s->longest = k;
    }
    return 0;
}

/* The memory of the longest stream, with room for all records of `size` bytes; it takes the place
 * of `*memory`. NULL: no memory, or no records. */
static char *with_room(const streams *s, void **memory, size_t size) {
    size_t length = s->all[s->longest]->length * size;
    char *found = *memory ? realloc(*memory, s->starts[s->n] * size) : NULL;
    if (!found) return NULL;
    *memory = found;
    memmove(found + s->starts[s->longest] * size, found, length);
    return found;
}

/* Positions in a stream become indices into the code. */
static void number_awaited(const streams *s, han_instr *code) {
    for (size_t k = 0; k < s->starts[s->n]; k++)
        if (code[k].code == HAN_AWAIT) code[k].n += s->starts[code[k].peer];
}

/* Copy the records of all streams but the longest one, and free their memory. */
static void gather(const streams *s, han_instr *code, han_term *terms) {
    for (Py_ssize_t k = 0; k < s->n; k++) {
        OperationsObject *one = s->all[k];
        if (k != s->longest) {
            if (one->length) memcpy(code + s->starts[k], one->code, one->length * sizeof *code);
            if (one->length && terms)
                memcpy(terms + s->starts[k], one->terms, one->length * sizeof *terms);
            free(one->code);
            free(one->terms);
        }
        one->code = NULL;
        one->terms = NULL;
        one->length = one->room = 0;
    }
}

/* Join the records; NULL with an error. */
static PyObject *join(const streams *s) {
    size_t total = s->starts[s->n];
    if (!total) return Py_BuildValue("(NN)", han_view_of(NULL, 0), han_view_of(NULL, 0));
    OperationsObject *longest = s->all[s->longest];
    void *code = longest->code, *terms = longest->terms;
    bool enough = with_room(s, &code, sizeof(han_instr)) &&
                  (!terms || with_room(s, &terms, sizeof(han_term)));
    longest->code = code;
    longest->terms = terms;
    if (!enough) { /* its records may have moved */
        longest->length = longest->room = 0;
        return PyErr_NoMemory();
    }
    gather(s, code, terms);
    number_awaited(s, code);
    return Py_BuildValue("(NN)", han_view_of(code, total * sizeof(han_instr)),
                         han_view_of(terms, terms ? total * sizeof(han_term) : 0));
}

static PyObject *joined(PyObject *Py_UNUSED(module), PyObject *given) {
    bool fit = PyTuple_Check(given);
    Py_ssize_t n = fit ? PyTuple_GET_SIZE(given) : 0;
    for (Py_ssize_t k = 0; k < n && fit; k++)
        fit = PyObject_TypeCheck(PyTuple_GET_ITEM(given, k), &OperationsType);
    if (!fit) return PyErr_Format(PyExc_TypeError, "joined takes a tuple of Operations");
    streams s = {.all = (OperationsObject *const *)((PyTupleObject *)given)->ob_item,
                 .n = n,
                 .starts = calloc((size_t)n + 1, sizeof *s.starts)};
    if (!s.starts) return PyErr_NoMemory();
    PyObject *found = measure(&s) ? NULL : join(&s);
    free(s.starts);
    return found;
}

PyMethodDef han_joined_functions[] = {
    HAN_METHOD(
        "each_piece", han_each_piece, METH_VARARGS,
        "$module, rows, turns, step, index, first, stop, /",
        "Emit the operations that rows name for each piece of tasks; return where tasks end."),
    HAN_METHOD(
        "joined", joined, METH_O, "$module, streams, /",
        "Return the records of all streams, and their terms; none in a program for one size."),
    {NULL, NULL, 0, NULL},
};
