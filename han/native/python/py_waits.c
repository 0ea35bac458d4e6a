#include "python/py_waits.h"

#include <stdbool.h>
#include <string.h>

int han_wait_one(OperationsObject *self, const waits *all, Py_ssize_t number) {
    const RefObject *flag = han_ref_of(PyTuple_GET_ITEM(all->flags, number));
    uint64_t given;
    int32_t rank;
    if (!flag || han_number_of(PyTuple_GET_ITEM(all->ranks, number), &given) ||
        han_rank_of(given, &rank))
        return -1;
    return han_emit_wait(self, flag, all->k, rank);
}

static bool is_nowhere(const RefObject *ref) { return ref->base == HAN_B_NONE; }

int han_combine_members(OperationsObject *self, const RefObject *dst, const RefObject *own,
                        PyObject *operands, uint64_t nbytes, const waits *members) {
    RefObject first; /* keeps an operand if this rank has none */
    const RefObject *total = is_nowhere(own) ? NULL : own;
    for (Py_ssize_t k = 0; k < members->n; k++) {
        const RefObject *found = han_ref_of(PyTuple_GET_ITEM(operands, k));
        if (!found || han_wait_one(self, members, k)) return -1;
        if (is_nowhere(found)) continue;
        RefObject operand = *found;
        operand.at = operand.origin = dst->at;
        if (!total) {
            first = operand;
            total = &first;
            continue;
        }
        if (han_emit_reduce(self, (const RefObject *[4]){dst, total, &operand}, nbytes,
                            HAN_NO_BLOCK))
            return -1;
        total = dst;
    }
    return total ? han_emit_copy(self, dst, total, nbytes, HAN_NO_BLOCK) : 0;
}
