#include "python/py_reader.h"

#include <limits.h>
#include <string.h>

#include "python/objects.h"

/* ---- lists -------------------------------------------------------------------------------- */

/* Whether an item is a type, or those of the blocks. */
static bool is_type(const ReaderObject *r, PyObject *o) {
    if (PyObject_TypeCheck(o, r->datatype) || PyUnicode_Check(o)) return true;
    bool several = (PyList_CheckExact(o) || PyTuple_CheckExact(o)) && PySequence_Fast_GET_SIZE(o);
    return several && PyObject_TypeCheck(PySequence_Fast_GET_ITEM(o, 0), r->datatype);
}

bool han_py_items(const ReaderObject *r, PyObject *list, han_items *out) {
    *out = (han_items){0};
    Py_ssize_t n = PySequence_Fast_GET_SIZE(list);
    PyObject **item = PySequence_Fast_ITEMS(list);
    if (n < 1 || n > 4 || (n > 2 && !is_type(r, item[n - 1]))) return false;
    out->data = Py_NewRef(item[0]);
    if (n > 1 && is_type(r, item[n - 1])) out->type = Py_NewRef(item[--n]);
    if (n < 2) return true;
    if (n == 3) {
        out->count = han_py_given(item[1]);
        out->displacement = han_py_given(item[2]);
        return true;
    }
    bool paired = PyTuple_CheckExact(item[1]);
    if (paired && PyTuple_GET_SIZE(item[1]) != 2) return false;
    out->count = han_py_given(paired ? PyTuple_GET_ITEM(item[1], 0) : item[1]);
    if (paired) out->displacement = han_py_given(PyTuple_GET_ITEM(item[1], 1));
    return true;
}

void han_py_drop_items(han_items *items) {
    Py_XDECREF(items->data);
    Py_XDECREF(items->count);
    Py_XDECREF(items->displacement);
    Py_XDECREF(items->type);
}

bool han_py_whole(PyObject *o, uint64_t *n) {
    Py_ssize_t number = -1;
    if (PyLong_Check(o))
        number = PyLong_AsSsize_t(o);
    else if (PyIndex_Check(o))
        number = PyNumber_AsSsize_t(o, PyExc_OverflowError);
    if (number == -1) PyErr_Clear();
    *n = (uint64_t)number;
    return number >= 0;
}

han_handle han_py_handle(const ReaderObject *r, PyObject *datatype) {
    const char *at = (const char *)datatype + r->handle;
    int narrow;
    han_handle wide;
    if (r->mpi.wide) {
        memcpy(&wide, at, sizeof wide);
        return wide;
    }
    memcpy(&narrow, at, sizeof narrow);
    return narrow;
}

int han_py_raise_code(const ReaderObject *r, int code) {
    PyObject *number = PyLong_FromLong(code);
    if (number) PyErr_SetObject(r->error, number);
    Py_XDECREF(number);
    return -1;
}

/* ---- elements ----------------------------------------------------------------------------- */

static const han_element no_numbers = {.size = 1, .kind = -1};

/* The element type that a Datatype or a type code names, or NULL. */
static const han_element *named(const ReaderObject *r, PyObject *type) {
    if (PyObject_TypeCheck(type, r->datatype))
        return han_element_find(&r->known, HAN_BY_HANDLE, (uint64_t)han_py_handle(r, type));
    Py_ssize_t length = 0;
    const char *code = PyUnicode_CheckExact(type) ? PyUnicode_AsUTF8AndSize(type, &length) : NULL;
    if (!code) PyErr_Clear();
    return code && strlen(code) == (size_t)length
               ? han_element_find(&r->known, HAN_BY_CODE, han_text_key(code, 1))
               : NULL;
}

/* Restrict a buffer to a range of elements, `extent` bytes each. Without a count its memory must be a
 * whole number of them. */
static bool restrict_to(const han_range *range, uint64_t extent, han_buffer *b) {
    uint64_t start;
    if (__builtin_mul_overflow(range->start, extent, &start) || start > b->nbytes) return false;
    b->data += start;
    b->room = b->nbytes - start;
    b->count = range->counted ? range->count : b->room / extent;
    return range->counted || b->room % extent == 0;
}

/* Take elements of a derived type, or of a predefined one with gaps, which begin at their addresses.
 * MPI is asked each time: it gives the handle of a freed type to a new one. */
static bool take_derived(const ReaderObject *r, PyObject *type, const han_range *range,
                         han_buffer *b) {
    han_type_facts f;
    uint64_t span = 0;
    if (!PyObject_TypeCheck(type, r->datatype)) return false;
    if (han_type_facts_of(&r->mpi, han_py_handle(r, type), &f)) return false;
    if (!f.derived && f.size == f.extent) return false; /* Python has not told of it yet */
    if (f.size <= 0 || f.extent <= 0 || f.first < 0) return false;
    if (!restrict_to(range, (uint64_t)f.extent, b)) return false;
    if (b->count > INT_MAX || b->count * (uint64_t)f.size > INT_MAX) return false;
    if (b->count && (__builtin_mul_overflow(b->count - 1, (uint64_t)f.extent, &span) ||
                     __builtin_add_overflow(span, (uint64_t)f.behind, &span)))
        return false;
    b->size = (uint64_t)f.size;
    b->extent = (uint64_t)f.extent;
    b->span = span;
    b->nbytes = b->packed = b->count * (uint64_t)f.size;
    b->element = &no_numbers;
    b->derived = true;
    b->datatype = Py_NewRef(type);
    return span <= b->room;
}

bool han_py_with_gaps(const ReaderObject *r, han_buffer *b) {
    uint64_t handle = (uint64_t)han_py_handle(r, b->datatype);
    const han_element *element = han_element_find(&r->known, HAN_WITH_GAPS, handle);
    if (!element || b->count > b->room / element->size) return false;
    b->nbytes = b->count * element->size;
    b->element = element;
    return true;
}

bool han_py_read_items(const ReaderObject *r, const han_items *items, han_range range,
                       han_buffer *b) {
    const han_element *element = items->type ? named(r, items->type) : NULL;
    if (!han_py_memory(&r->known, &r->classes, items->data, b)) return false;
    if (items->type && !element) return take_derived(r, items->type, &range, b);
    if (element) b->element = element;
    if (!b->element || !restrict_to(&range, b->element->size, b)) return false;
    if (b->count > b->room / b->element->size) return false;
    b->nbytes = b->count * b->element->size;
    return true;
}

static bool of_list(const ReaderObject *r, PyObject *o, uint64_t blocks, han_buffer *b) {
    han_items items;
    han_range range = {0};
    bool found = han_py_items(r, o, &items);
    range.counted = items.count;
    if (found && items.count)
        found = han_py_whole(items.count, &range.count) &&
                !__builtin_mul_overflow(range.count, blocks, &range.count);
    if (found && items.displacement) found = han_py_whole(items.displacement, &range.start);
    found = found && han_py_read_items(r, &items, range, b);
    han_py_drop_items(&items);
    return found;
}

bool han_py_read_other(const ReaderObject *r, PyObject *o, uint64_t blocks, han_buffer *b) {
    if (PyList_CheckExact(o) || PyTuple_CheckExact(o)) return of_list(r, o, blocks, b);
    return han_py_memory(&r->known, &r->classes, o, b) && b->element;
}

/* ---- han._native.Reader ------------------------------------------------------------------- */

static PyObject *reader_learn(ReaderObject *self, PyObject *args) {
    int source;
    unsigned long long key, size, handle;
    han_element element;
    if (!PyArg_ParseTuple(args, "CK(KKi)", &source, &key, &size, &handle, &element.kind))
        return NULL;
    element.size = size;
    element.handle = handle;
    han_element_learn(&self->known, (enum han_element_source)source, key, &element);
    Py_RETURN_NONE;
}

/* The facts of a buffer, for tests: a new tuple. */
PyObject *han_py_buffer_facts(const han_buffer *b) {
    return Py_BuildValue("(KKKKiN)", (unsigned long long)(uintptr_t)b->data,
                         (unsigned long long)b->nbytes, (unsigned long long)b->element->size,
                         (unsigned long long)b->element->handle, (int)b->element->kind,
                         PyBool_FromLong(b->readonly));
}

static PyObject *reader_read(ReaderObject *self, PyObject *args) {
    PyObject *spec, *facts = NULL;
    unsigned long long blocks = 1;
    han_buffer b = {0};
    if (!PyArg_ParseTuple(args, "O|K", &spec, &blocks)) return NULL;
    if (han_py_read(self, spec, blocks, &b) && !b.derived)
        facts = han_py_buffer_facts(&b);
    else
        facts = Py_NewRef(Py_None);
    han_py_release(&b);
    return facts;
}

static int read_combiners(han_mpi *m, PyObject *numbers) {
    if (PyTuple_GET_SIZE(numbers) != HAN_COMBINERS)
        return HAN_RAISE(PyExc_ValueError, "Reader: %d combiners expected", HAN_COMBINERS);
    for (int k = 0; k < HAN_COMBINERS; k++)
        m->combiners[k] = (int)PyLong_AsLong(PyTuple_GET_ITEM(numbers, k));
    return PyErr_Occurred() ? -1 : 0;
}

static int reader_init(ReaderObject *self, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"library", "wide",     "comm_self", "datatype",  "handle",  "refused",
                            "buffer",  "in_place", "error",     "combiners", "order_c", NULL};
    const char *library;
    unsigned long long comm_self;
    PyObject *datatype, *refused, *buffer, *in_place, *error, *combiners;
    if (!PyArg_ParseTupleAndKeywords(
            args, kwargs, "spKO!nO!O!OOO!i", names, &library, &self->mpi.wide, &comm_self,
            &PyType_Type, &datatype, &self->handle, &PyTuple_Type, &refused, &PyType_Type, &buffer,
            &in_place, &error, &PyTuple_Type, &combiners, &self->mpi.order_c) ||
        read_combiners(&self->mpi, combiners))
        return -1;
    const char *missing = han_mpi_load(&self->mpi, library);
    if (missing)
        return HAN_RAISE(PyExc_ImportError, "han: the MPI library has no %s (%s)", missing,
                         library);
    self->self = (han_handle)comm_self;
    self->error = Py_NewRef(error);
    self->datatype = (PyTypeObject *)Py_NewRef(datatype);
    self->classes = (han_classes){Py_NewRef(refused), Py_NewRef(buffer)};
    self->in_place = Py_NewRef(in_place);
    return 0;
}

static void reader_dealloc(ReaderObject *self) {
    Py_XDECREF(self->datatype);
    Py_XDECREF(self->classes.refused);
    Py_XDECREF(self->classes.buffer);
    Py_XDECREF(self->error);
    Py_XDECREF(self->in_place);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyMethodDef reader_methods[] = {
    HAN_METHOD("learn", reader_learn, METH_VARARGS, "$self, source, key, facts, /",
               "Learn the elements for which a key of a source stands."),
    HAN_METHOD("read", reader_read, METH_VARARGS, "$self, spec, blocks=1, /",
               "Return address, bytes, size, handle and kind of elements, and read-only; None if "
               "refused."),
    {NULL, NULL, 0, NULL},
};

PyTypeObject ReaderType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "han._native.Reader",
    .tp_basicsize = sizeof(ReaderObject),
    .tp_dealloc = (destructor)reader_dealloc,
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_doc = "Reader(library, wide, comm_self, datatype, handle, refused, buffer, in_place, "
              "error, combiners, order_c)\n--\n\n"
              "Reads buffer arguments. Facts of an element type are (size, handle, kind).",
    .tp_methods = reader_methods,
    .tp_init = (initproc)reader_init,
    .tp_new = PyType_GenericNew,
};
