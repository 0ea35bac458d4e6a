#include "python/py_reader.h"

#include <limits.h>
#include <string.h>

#include "python/py_whole.h"

/* ---- lists -------------------------------------------------------------------------------- */

/* The items of a list that describes a buffer; borrowed; NULL: not given. */
typedef struct {
    PyObject *data, *count, *displacement, *type;
} items;

static bool is_type(const ReaderObject *r, PyObject *o) {
    return PyObject_TypeCheck(o, r->datatype) || PyUnicode_Check(o);
}

static PyObject *given(PyObject *o) { return o == Py_None ? NULL : o; }

static bool items_of(const ReaderObject *r, PyObject *list, items *out) {
    PyObject **item = PySequence_Fast_ITEMS(list);
    Py_ssize_t n = PySequence_Fast_GET_SIZE(list);
    if (n < 1 || n > 4) return false;
    *out = (items){.data = item[0]};
    if (n == 2 && is_type(r, item[1]))
        out->type = item[1];
    else if (n > 1)
        out->count = given(item[1]);
    if (n > 2) out->type = given(item[n - 1]);
    if (n > 3) out->displacement = given(item[2]);
    if (!out->count || !han_py_is_list(out->count)) return true;
    item = PySequence_Fast_ITEMS(out->count);
    if (PySequence_Fast_GET_SIZE(out->count) != 2) return false;
    out->displacement = given(item[1]);
    out->count = given(item[0]);
    return true;
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

PyObject *han_py_operation(const ReaderObject *r, PyObject *op) {
    if (!PyObject_TypeCheck(op, r->op)) return op;
    PyObject *handle = PyLong_FromUnsignedLongLong((unsigned long long)han_py_handle(r, op));
    PyObject *found = handle ? PyDict_GetItemWithError(r->ops, handle) : NULL;
    Py_XDECREF(handle);
    if (!found) PyErr_Clear();
    return found ? found : op;
}

/* The element type that a Datatype or a type code names, or NULL. */
static const han_element *named(const ReaderObject *r, PyObject *type) {
    if (PyObject_TypeCheck(type, r->datatype))
        return han_element_find(&r->known, HAN_BY_HANDLE, (uint64_t)han_py_handle(r, type));
    bool text = PyUnicode_CheckExact(type) || Py_IS_TYPE(type, &PyUnicodeArrType_Type);
    PyObject *handle = text ? PyDict_GetItemWithError(r->codes, type) : NULL;
    if (!handle) return NULL;
    return han_element_find(&r->known, HAN_BY_HANDLE, PyLong_AsUnsignedLongLong(handle));
}

/* Where elements are, relative to the memory that holds them. */
typedef struct {
    uint64_t count, start; /* in elements */
    bool counted;
    const han_element *element; /* NULL: that of the memory */
    PyObject *derived;          /* a type of the user's, or NULL; borrowed */
    han_type_facts facts;       /* of that type */
} extent;

static const han_element no_numbers = {.size = 1, .kind = -1};

/* Whether a type is derived, or predefined with gaps, and its elements begin at their addresses.
 * MPI is asked each time: it gives the handle of a freed type to a new one. */
static bool derives(const ReaderObject *r, PyObject *type, extent *e) {
    han_type_facts *f = &e->facts;
    if (!PyObject_TypeCheck(type, r->datatype)) return false;
    if (han_type_facts_of(&r->mpi, han_py_handle(r, type), f)) return false;
    if (!f->derived && f->size == f->extent) return false; /* Python has not told of it yet */
    e->element = &no_numbers;
    e->derived = type;
    return f->size > 0 && f->extent > 0 && f->first >= 0;
}

static bool extent_of(const ReaderObject *r, const items *list, uint64_t blocks, extent *out) {
    *out = (extent){.counted = list->count};
    if (list->count && (!han_py_whole(list->count, &out->count) ||
                        __builtin_mul_overflow(out->count, blocks, &out->count)))
        return false;
    if (list->displacement && !han_py_whole(list->displacement, &out->start)) return false;
    if (!list->type) return true;
    out->element = named(r, list->type);
    return out->element || derives(r, list->type, out);
}

static bool room_for(const extent *e, uint64_t size, han_buffer *b) {
    uint64_t start;
    if (__builtin_mul_overflow(e->start, size, &start) || start > b->nbytes) return false;
    b->data += start;
    b->nbytes -= start;
    return e->counted || b->nbytes % size == 0;
}

/* The same for elements of a derived type. */
static bool restrict_derived(const extent *e, han_buffer *b) {
    uint64_t size = (uint64_t)e->facts.extent;
    if (!room_for(e, size, b)) return false;
    b->count = e->counted ? e->count : b->nbytes / size;
    if (b->count > INT_MAX || b->count * (uint64_t)e->facts.size > INT_MAX) return false;
    uint64_t behind = (uint64_t)e->facts.behind;
    b->span = 0;
    if (b->count && (__builtin_mul_overflow(b->count - 1, size, &b->span) ||
                     __builtin_add_overflow(b->span, behind, &b->span)))
        return false;
    if (b->span > b->nbytes) return false;
    b->room = b->nbytes;
    b->nbytes = b->packed = b->count * (uint64_t)e->facts.size;
    b->datatype = Py_NewRef(e->derived);
    b->use = HAN_PACKED;
    b->each = (uint64_t)e->facts.size;
    b->step = size;
    return true;
}

bool han_py_with_gaps(const ReaderObject *r, han_buffer *b) {
    uint64_t handle = (uint64_t)han_py_handle(r, b->datatype);
    const han_element *element = han_element_find(&r->known, HAN_WITH_GAPS, handle);
    if (!element || b->count > b->room / element->size) return false;
    b->nbytes = b->count * element->size;
    b->element = element;
    b->use = HAN_GAPPED;
    return true;
}

/* Restrict a buffer to some of its elements; false if it does not hold them. */
static bool restrict_to(const extent *e, han_buffer *b) {
    uint64_t nbytes, size = b->element->size;
    if (e->derived) return restrict_derived(e, b);
    if (!room_for(e, size, b)) return false;
    if (!e->counted) return true;
    if (__builtin_mul_overflow(e->count, size, &nbytes) || nbytes > b->nbytes) return false;
    b->nbytes = nbytes;
    return true;
}

static bool of_object(const ReaderObject *r, PyObject *o, han_buffer *out) {
    han_memory m;
    if (!han_py_memory(&r->known, &r->classes, o, &m)) return false;
    *out = (han_buffer){.data = m.data,
                        .nbytes = m.nbytes,
                        .element = m.element,
                        .owner = m.owner,
                        .readonly = m.readonly};
    return true;
}

static bool of_items(const ReaderObject *r, const items *list, uint64_t blocks, han_buffer *out) {
    extent e;
    if (!extent_of(r, list, blocks, &e)) return false;
    if (list->data == Py_None && e.element) { /* a buffer without elements */
        *out = (han_buffer){.element = e.element};
        return !e.count && !e.start && !e.derived;
    }
    if (!of_object(r, list->data, out)) return false;
    if (e.element) out->element = e.element;
    return out->element && restrict_to(&e, out);
}

static bool of_list(const ReaderObject *r, PyObject *o, uint64_t blocks, han_buffer *out) {
    items list;
    if (!items_of(r, o, &list)) return false;
    PyObject *const held[] = {list.data, list.count, list.displacement, list.type};
    for (int k = 0; k < 4; k++) Py_XINCREF(held[k]); /* code of their classes may change the list */
    bool found = of_items(r, &list, blocks, out);
    for (int k = 0; k < 4; k++) Py_XDECREF(held[k]);
    return found;
}

bool han_py_read_other(const ReaderObject *r, PyObject *o, uint64_t blocks, han_buffer *out) {
    if (!han_py_is_list(o)) return of_object(r, o, out) && out->element;
    return of_list(r, o, blocks, out);
}

/* ---- han._native.Reader ------------------------------------------------------------------- */

/* An element type from the tuple (size, handle, kind). 0, or -1 with an exception. */
static int element_of(PyObject *facts, han_element *out) {
    unsigned long long size, handle;
    if (!PyArg_ParseTuple(facts, "KKi", &size, &handle, &out->kind)) return -1;
    out->size = size;
    out->handle = handle;
    return 0;
}

static PyObject *learn(ReaderObject *self, enum han_element_source source, uint64_t key,
                       const han_element *element) {
    han_element_learn(&self->known, source, key, element);
    Py_RETURN_NONE;
}

static PyObject *reader_learn_array(ReaderObject *self, PyObject *args) {
    unsigned long long number;
    PyObject *facts;
    han_element element;
    if (!PyArg_ParseTuple(args, "KO!", &number, &PyTuple_Type, &facts)) return NULL;
    if (element_of(facts, &element)) return NULL;
    return learn(self, HAN_BY_ARRAY, number, &element);
}

static PyObject *reader_learn_type(ReaderObject *self, PyObject *facts) {
    han_element element;
    if (element_of(facts, &element)) return NULL;
    return learn(self, HAN_BY_HANDLE, element.handle, &element);
}

static PyObject *reader_learn_gaps(ReaderObject *self, PyObject *facts) {
    han_element element;
    if (element_of(facts, &element)) return NULL;
    return learn(self, HAN_WITH_GAPS, element.handle, &element);
}

static PyObject *reader_learn_code(ReaderObject *self, PyObject *args) {
    PyObject *code, *handle;
    if (!PyArg_ParseTuple(args, "UO!", &code, &PyLong_Type, &handle)) return NULL;
    if (PyDict_SetItem(self->codes, code, handle)) return NULL;
    Py_RETURN_NONE;
}

static PyObject *reader_learn_format(ReaderObject *self, PyObject *args) {
    const char *format;
    PyObject *facts;
    han_element element;
    if (!PyArg_ParseTuple(args, "sO!", &format, &PyTuple_Type, &facts)) return NULL;
    if (element_of(facts, &element)) return NULL;
    uint64_t key = han_format_key(format, (int64_t)element.size);
    if (!key) Py_RETURN_NONE;
    return learn(self, HAN_BY_FORMAT, key, &element);
}

static PyObject *reader_learn_tensor(ReaderObject *self, PyObject *args) {
    unsigned char code, bits;
    unsigned short lanes;
    PyObject *facts;
    han_element element;
    if (!PyArg_ParseTuple(args, "(bbH)O!", &code, &bits, &lanes, &PyTuple_Type, &facts))
        return NULL;
    if (element_of(facts, &element)) return NULL;
    return learn(self, HAN_BY_TENSOR, han_tensor_key(code, bits, lanes), &element);
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
    if (han_py_read(self, spec, blocks, &b) && b.use == HAN_DIRECT)
        facts = han_py_buffer_facts(&b);
    else
        facts = Py_NewRef(Py_None);
    han_py_release(&b);
    return facts;
}

static int reader_init(ReaderObject *self, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"library", "wide",    "comm_self", "datatype", "op",    "ops",
                            "handle",  "refused", "buffer",    "in_place", "error", NULL};
    const char *library;
    unsigned long long comm_self;
    PyObject *datatype, *op, *ops, *refused, *buffer, *in_place, *error;
    if (!PyArg_ParseTupleAndKeywords(
            args, kwargs, "spKO!O!O!nO!O!OO", names, &library, &self->mpi.wide, &comm_self,
            &PyType_Type, &datatype, &PyType_Type, &op, &PyDict_Type, &ops, &self->handle,
            &PyTuple_Type, &refused, &PyType_Type, &buffer, &in_place, &error))
        return -1;
    const char *missing = han_mpi_load(&self->mpi, library);
    if (missing) {
        PyErr_Format(PyExc_ImportError, "han: the MPI library has no %s (%s)", missing, library);
        return -1;
    }
    self->self = (han_handle)comm_self;
    self->error = Py_NewRef(error);
    self->codes = PyDict_New();
    self->datatype = (PyTypeObject *)Py_NewRef(datatype);
    self->op = (PyTypeObject *)Py_NewRef(op);
    self->ops = Py_NewRef(ops);
    self->classes = (han_classes){Py_NewRef(refused), Py_NewRef(buffer)};
    self->in_place = Py_NewRef(in_place);
    return self->codes ? 0 : -1;
}

static void reader_dealloc(ReaderObject *self) {
    Py_XDECREF(self->codes);
    Py_XDECREF(self->datatype);
    Py_XDECREF(self->op);
    Py_XDECREF(self->ops);
    Py_XDECREF(self->classes.refused);
    Py_XDECREF(self->classes.buffer);
    Py_XDECREF(self->error);
    Py_XDECREF(self->in_place);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyMethodDef reader_methods[] = {
    {"learn_array", (PyCFunction)reader_learn_array, METH_VARARGS,
     "learn_array($self, number, facts, /)\n--\n\n"
     "Learn the elements of arrays with a type number of NumPy."},
    {"learn_type", (PyCFunction)reader_learn_type, METH_O,
     "learn_type($self, facts, /)\n--\n\n"
     "Learn a predefined MPI type without gaps."},
    {"learn_gaps", (PyCFunction)reader_learn_gaps, METH_O,
     "learn_gaps($self, facts, /)\n--\n\n"
     "Learn a predefined MPI type with gaps; its size is its extent."},
    {"learn_code", (PyCFunction)reader_learn_code, METH_VARARGS,
     "learn_code($self, code, handle, /)\n--\n\n"
     "Learn which MPI type a type code names."},
    {"learn_format", (PyCFunction)reader_learn_format, METH_VARARGS,
     "learn_format($self, format, facts, /)\n--\n\n"
     "Learn the elements of buffers of a format; other sizes of elements are other formats."},
    {"learn_tensor", (PyCFunction)reader_learn_tensor, METH_VARARGS,
     "learn_tensor($self, fields, facts, /)\n--\n\n"
     "Learn the elements of tensors; `fields` are DLPack's code, bits and lanes."},
    {"read", (PyCFunction)reader_read, METH_VARARGS,
     "read($self, spec, blocks=1, /)\n--\n\n"
     "Return address, bytes, size, handle and kind of elements, and read-only; None if refused."},
    {NULL, NULL, 0, NULL},
};

PyTypeObject ReaderType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "han._native.Reader",
    .tp_basicsize = sizeof(ReaderObject),
    .tp_dealloc = (destructor)reader_dealloc,
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_doc =
        "Reader(library, wide, comm_self, datatype, op, ops, handle, refused, buffer, in_place, "
        "error)"
        "\n--\n\n"
        "Reads buffer arguments. Facts of an element type are (size, handle, kind).",
    .tp_methods = reader_methods,
    .tp_init = (initproc)reader_init,
    .tp_new = PyType_GenericNew,
};

int han_py_add_reader(PyObject *module) {
    import_array1(-1);
    if (han_py_open_memory() || PyType_Ready(&ReaderType)) return -1;
    return PyModule_AddObjectRef(module, "Reader", (PyObject *)&ReaderType);
}
