/* Reads buffer arguments in every spelling, as han/message/buffers.py does. What it does not know,
 * and what is wrong, it refuses: Python parses the arguments, and raises. A file that reads must
 * import NumPy's table of functions. */
#ifndef HAN_PY_READER_H
#define HAN_PY_READER_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#define NPY_NO_DEPRECATED_API NPY_1_7_API_VERSION
#include <numpy/arrayobject.h>

#include "mpi_table.h"
#include "python/elements.h"
#include "python/py_memory.h"

typedef struct {
    PyObject_HEAD
    PyTypeObject *datatype; /* MPI.Datatype */
    PyTypeObject *op;       /* MPI.Op */
    PyObject *ops;          /* predefined operations, by their handles */
    PyObject *in_place;
    han_classes classes;
    PyObject *codes;   /* type codes such as "d", with the handles of their types */
    Py_ssize_t handle; /* where MPI's handle is in a Datatype, and in an Op */
    PyObject *error;   /* MPI.Exception */
    han_mpi mpi;
    han_handle self; /* MPI_COMM_SELF */
    han_elements known;
} ReaderObject;

/* How a call uses the memory of a buffer. */
typedef enum {
    HAN_DIRECT, /* it moves the elements where they are */
    HAN_PACKED, /* a derived type: it moves a packed copy, which has the data without gaps */
    HAN_GAPPED, /* a result with gaps: it is received, gaps and all, in a copy; its data is delivered */
    HAN_BESIDE, /* a result that would overwrite operands still in use: it is received in a copy */
    HAN_SCATTERED, /* blocks that are not contiguous, or of a derived type: they are received packed
                    * in a copy, and delivered one by one */
} han_use;

/* A buffer argument. */
typedef struct {
    uint8_t *data;
    uint64_t nbytes; /* that the call moves: of the elements, or of the copy in their place */
    const han_element *element;
    PyObject *owner; /* keeps the memory; a new reference, or NULL */
    bool readonly;
    han_use use;
    /* Of a packed or gapped buffer: the type, a new reference; the number of elements; bytes from
     * the first one's address to the end of the data, and to that of the memory; bytes of the data.
     * `element` of a packed one is no type of numbers. */
    PyObject *datatype;
    uint64_t count, span, room, packed;
    /* Of blocks that are apart: bytes of the data of each block, and then where each one begins, in
     * elements, of memory that the caller owns; bytes of an element's data, and from one to the next. */
    const uint64_t *blocks;
    int32_t n_blocks;
    uint64_t each, step;
} han_buffer;

/* Some elements of a buffer. */
typedef struct {
    uint64_t from, count, to; /* bytes before them in the buffer; their number; bytes before them in
                               * the packed copy */
} han_part;

extern PyTypeObject ReaderType;

/* Read an argument that is no plain array, as han_py_read does. */
bool han_py_read_other(const ReaderObject *, PyObject *, uint64_t blocks, han_buffer *);
/* MPI's handle in a Datatype, as mpi4py tells it. */
han_handle han_py_handle(const ReaderObject *, PyObject *datatype);
/* The object that stands for the operation of another one: for a predefined operation always the
 * same, else the object itself; borrowed. */
PyObject *han_py_operation(const ReaderObject *, PyObject *op);
/* Take the elements of a packed buffer as they lie in memory, if their type is a predefined one with
 * gaps, such as MPI.DOUBLE_INT: so the MPI library combines them. False for derived types. */
bool han_py_with_gaps(const ReaderObject *, han_buffer *);
/* Whether an argument is a list or a tuple, whose items are those that are iterated. */
static inline bool han_py_is_list(PyObject *o) {
    getiterfunc iterates = Py_TYPE(o)->tp_iter;
    return (PyList_Check(o) && iterates == PyList_Type.tp_iter) ||
           (PyTuple_Check(o) && iterates == PyTuple_Type.tp_iter);
}

int han_py_add_reader(PyObject *module);

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

/* Whether a call uses a copy of a buffer. */
static inline bool han_py_is_copied(const han_buffer *b) { return b->use != HAN_DIRECT; }

static inline void han_py_release(han_buffer *b) {
    Py_XDECREF(b->owner);
    Py_XDECREF(b->datatype);
}

/* Address, bytes, size, handle and kind of elements, and read-only of a buffer. */
PyObject *han_py_buffer_facts(const han_buffer *);

/* Whether an argument says MPI.IN_PLACE; mpi4py takes None for it. */
static inline bool han_says_in_place(const ReaderObject *r, const PyObject *o) {
    return o == r->in_place || o == Py_None;
}

#endif
