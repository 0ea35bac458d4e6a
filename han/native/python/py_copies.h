/* Copies in place of buffers of derived types, and of results that are received in a copy. */
#ifndef HAN_PY_COPIES_H
#define HAN_PY_COPIES_H

#include "python/py_arguments.h"

static inline bool han_py_needs_copies(const han_call *c) {
    return han_py_is_copied(&c->send) || han_py_is_copied(&c->recv);
}

/* Make the call on copies of the buffers of another one, with `end` that delivers what it receives.
 * False with an exception if there is no memory. The caller releases the copies in either case. */
bool han_py_copy(const han_caller *, const han_call *, han_call *copy);
void han_py_release_copy(han_call *copy);

/* Pack what this rank sends into its copy: MPI's error code. */
int han_py_pack_sent(const han_caller *, const han_call *, han_call *copy);
/* Make what packs it whenever it is called, or NULL if there is nothing to pack: 0, or -1 with an
 * exception. */
int han_py_packer_of_sent(const han_caller *, const han_call *, han_call *copy, PyObject **out);

#endif
