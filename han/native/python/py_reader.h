/* Reads buffer arguments in the spellings that programs write often, as han/message/buffers.py does.
 * Others, and what is wrong, it refuses: Python parses the arguments. */
#ifndef HAN_PY_READER_H
#define HAN_PY_READER_H

#include "mpi_table.h"
#include "python/elements.h"
#include "python/module.h"
#include "python/py_memory.h"

typedef struct {
    PyObject_HEAD
    PyTypeObject *datatype; /* MPI.Datatype */
    PyObject *in_place;
    han_classes classes;
    Py_ssize_t handle; /* where MPI's handle is in a Datatype, and in an Op */
    PyObject *error;   /* MPI.Exception */
    han_mpi mpi;
    han_handle self; /* MPI_COMM_SELF */
    han_elements known;
} ReaderObject;

/* The items of a list that describes a buffer; new references; NULL: not given. */
typedef struct {
    PyObject *data, *count, *displacement, *type;
} han_items;

/* Elements of the memory that an item shows. */
typedef struct {
    uint64_t start, count;
    bool counted; /* else all from the first one on */
} han_range;

/* Read an argument that is no plain array, as han_py_read does. */
bool han_py_read_other(const ReaderObject *, PyObject *, uint64_t blocks, han_buffer *);
/* Take the items of `[data]`, `[data, count]`, `[data, (count, displacement)]`, one of these with a type,
 * or `[data, count, displacement, type]`, as list or tuple: false for others. The caller drops them in either case, as code of their
 * classes may change the list meanwhile. */
bool han_py_items(const ReaderObject *, PyObject *list, han_items *);
void han_py_drop_items(han_items *);
/* Read an int, or another object with `__index__`, that is not negative and fits 63 bits. */
bool han_py_whole(PyObject *, uint64_t *);
/* Read some elements of the data, into a buffer that is all zero. */
bool han_py_read_items(const ReaderObject *, const han_items *, han_range, han_buffer *);
/* MPI's handle in a Datatype, as mpi4py tells it. */
han_handle han_py_handle(const ReaderObject *, PyObject *datatype);
/* Raise MPI.Exception with a code of MPI's; return -1. */
int han_py_raise_code(const ReaderObject *, int code);
/* Take the elements of a buffer with a type as they lie in memory, if it is a predefined one with
 * gaps, such as MPI.DOUBLE_INT: so the MPI library combines them. False for derived types. */
bool han_py_with_gaps(const ReaderObject *, han_buffer *);

/* Read a contiguous array of numbers in native byte order; false for all other arguments. */
static inline bool han_py_read_array(const ReaderObject *r, PyObject *o, han_buffer *b) {
    if (!PyArray_CheckExact(o)) return false;
    PyArrayObject *a = (PyArrayObject *)o;
    unsigned type = (unsigned)PyArray_TYPE(a);
    if (type >= HAN_ARRAY_TYPES || !r->known.arrays[type].size || !PyArray_ISNOTSWAPPED(a))
        return false;
    if (!PyArray_IS_C_CONTIGUOUS(a) && !PyArray_IS_F_CONTIGUOUS(a)) return false;
    b->data = PyArray_DATA(a);
    b->nbytes = (uint64_t)PyArray_SIZE(a) * r->known.arrays[type].size;
    b->element = &r->known.arrays[type];
    b->owner = Py_NewRef(o);
    b->readonly = !PyArray_ISWRITEABLE(a);
    return true;
}

/* Read an argument into a buffer that is all zero. A count is that of one of `blocks` blocks.
 * False, without an exception, if the argument is refused; the caller releases its objects then
 * too. */
static inline bool han_py_read(const ReaderObject *r, PyObject *o, uint64_t blocks, han_buffer *b) {
    return han_py_read_array(r, o, b) || han_py_read_other(r, o, blocks, b);
}

static inline void han_py_release(han_buffer *b) {
    Py_XDECREF(b->owner);
    Py_XDECREF(b->datatype);
}

/* Address, bytes, size, handle and kind of elements, and read-only of a buffer. */
PyObject *han_py_buffer_facts(const han_buffer *);

#endif
