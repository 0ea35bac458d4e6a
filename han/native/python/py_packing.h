/* Packed copies of buffers of derived types, which MPI makes. */
#ifndef HAN_PY_PACKING_H
#define HAN_PY_PACKING_H

#include "python/py_reader.h"

/* Make memory for the copy of a buffer; a direct buffer is its own copy. False with an
 * exception if there is no memory. The caller releases the copy in either case. */
bool han_py_packed(const han_buffer *, han_buffer *copy);

/* Copy the data of some elements to their place in a packed copy: MPI's error code. */
int han_py_pack(const ReaderObject *, const han_buffer *, han_part, char *packed);
/* Return an object that copies the data of some elements to `packed`, a bytes object, or that of the
 * whole buffer back, whenever it is called; or NULL. It raises MPI.Exception. */
PyObject *han_py_packer(ReaderObject *, const han_buffer *, han_part, PyObject *packed);
PyObject *han_py_unpacker(ReaderObject *, const han_buffer *, PyObject *packed);

int han_py_open_packing(void);

#endif
