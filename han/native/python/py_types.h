/* Derived types of C programs that han has looked into. Calls that combine nothing move their elements
 * without Python: as bytes, if these are without gaps and in order, else packed, by their grid or by MPI. */
#ifndef HAN_PY_TYPES_H
#define HAN_PY_TYPES_H

#include "datatypes.h"
#include "python/elements.h"

typedef struct {
    han_element element; /* its size is that of an element's data; 0: only Python moves it */
    han_grid grid;   /* of the data of an element; if it is one, elements in a row are a grid too */
    uint64_t extent; /* bytes from an element to the next one */
    uint64_t behind; /* bytes from where an element begins to the end of its data */
} han_known_type;

static inline bool han_is_dense(const han_known_type *t) {
    return han_is_run(&t->grid) && !t->grid.first && t->extent == t->element.size;
}

/* What was learnt of a type that han can pack, or NULL. Needs no lock. */
const han_known_type *han_type_known(han_handle type);
/* Look into a type once, with the lock of the interpreter, which is released meanwhile. It is known until
 * MPI frees it. */
void han_type_learn(const han_mpi *, han_handle type);

#endif
