/* The copy in which a call receives what it cannot receive where it is to be. */
#ifndef HAN_PY_COPIES_H
#define HAN_PY_COPIES_H

#include "python/py_arguments.h"

/* Pack blocks of a derived type, of `sizes` bytes of data each, one after the other; `places`, where
 * they begin in the buffer, become those in the packed data. 0, or what MPI says. */
int han_py_pack_blocks(const ReaderObject *, const han_buffer *, int32_t blocks,
                       const uint64_t *sizes, uint64_t *places, uint8_t *packed);

/* Make the copy, and the call that receives there: a new bytes object. The root of a broadcast packs
 * what it sends. NULL, without an exception, if there is no memory or MPI cannot pack. */
PyObject *han_py_copy(const han_caller *, const han_call *, han_call *copy);
/* Deliver the result, unless this is the root of a broadcast. 0, or -1 with an exception: MPI refuses
 * a type that was freed meanwhile. */
int han_py_deliver(const han_caller *, const han_call *, const han_call *copy);

#endif
