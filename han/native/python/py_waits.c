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

/* ---- turns ---------------------------------------------------------------------------------- */

int han_begin_turn(OperationsObject *self, const char *name, PyObject *turn, uint64_t span[2]) {
    uint64_t number[3], pair[2];
    if (han_expect_tuple(name, turn, 4)) return -1;
    for (int k = 0; k < 3; k++)
        if (han_number_of(PyTuple_GET_ITEM(turn, k), &number[k])) return -1;
    PyObject *awaits = PyTuple_GET_ITEM(turn, 3);
    if (han_expect_tuple(name, awaits, -1)) return -1;
    if (number[0] > UINT32_MAX || number[2] < number[1]) {
        PyErr_Format(PyExc_ValueError, "%s: task %llu from byte %llu to byte %llu", name,
                     (unsigned long long)number[0], (unsigned long long)number[1],
                     (unsigned long long)number[2]);
        return -1;
    }
    self->task = (unsigned int)number[0];
    memcpy(span, number + 1, 2 * sizeof *span);
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(awaits); k++)
        if (han_numbers_of(name, PyTuple_GET_ITEM(awaits, k), pair, 2) ||
            han_emit_await(self, pair[0], pair[1]))
            return -1;
    return 0;
}

int han_end_turn(const OperationsObject *self, PyObject *ends, Py_ssize_t number) {
    PyObject *end = PyLong_FromSize_t(self->length);
    if (!end) return -1;
    PyTuple_SET_ITEM(ends, number, end);
    return 0;
}
