/* The memory of an object: a NumPy array or scalar, an object with a buffer of Python, a tensor on
 * the host. As han/message/memory.py finds it. */
#ifndef HAN_PY_MEMORY_H
#define HAN_PY_MEMORY_H

#include "python/module.h"

#include "mpi_table.h"
#include "python/elements.h"

/* A buffer argument. */
typedef struct {
    uint8_t *data;
    uint64_t nbytes;            /* of the elements; of a derived type: of their data */
    const han_element *element; /* NULL: not known */
    PyObject *owner;            /* keeps the memory; a new reference, or NULL */
    bool readonly;
    /* Of elements of a derived type, or with gaps: their type, a new reference, or, in a call of a C
     * program, MPI's handle; their number; bytes of their data; bytes from the first one to the end of
     * the memory, and to that of the data. */
    bool derived;
    PyObject *datatype;
    han_handle type;
    uint64_t count, packed, room, span;
    uint64_t size, extent; /* bytes of data of such an element, and from one to the next */
} han_buffer;

/* Classes: a tuple of those whose objects are no memory, and MPI.buffer. */
typedef struct {
    PyObject *refused, *buffer;
} han_classes;

/* Read an object into a buffer that is all zero. False, without an exception, if it is none of these,
 * its memory has gaps, or it is an MPI.buffer made from another object than an address. */
bool han_py_memory(const han_elements *, const han_classes *, PyObject *, han_buffer *);

#endif
