/* Packed copies of buffers of derived types, which MPI makes. */
#ifndef HAN_PY_PACKING_H
#define HAN_PY_PACKING_H

#include "python/py_reader.h"

/* Make memory for the packed data of a buffer; a buffer without gaps is its own copy. False with an
 * exception if there is no memory. The caller releases the copy in either case. */
bool han_py_packed(const han_buffer *, han_buffer *copy);

/* Copy the data of a buffer of a derived type to dense bytes, or back: MPI's error code. */
int han_py_pack(const ReaderObject *, const han_buffer *, void *packed);
int han_py_unpack(const ReaderObject *, const han_buffer *, const void *packed);

/* Raise MPI.Exception. */
void han_py_raise(const ReaderObject *, int code);

#endif
