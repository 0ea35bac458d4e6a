#include "python/py_batches.h"

/* Flags of several ranks that are to reach one value. */
typedef struct {
    PyObject *flags, *ranks; /* tuples of Ref and int; borrowed */
    uint64_t k;
    Py_ssize_t n;
} waits;

/* 0, or -1 with an error unless an argument is a tuple of `n` objects; a negative `n`: of any. */
static int expect_tuple(const char *name, PyObject *argument, Py_ssize_t n) {
    if (!PyTuple_Check(argument)) {
        PyErr_Format(PyExc_TypeError, "%s: a tuple expected, not %.100s", name,
                     Py_TYPE(argument)->tp_name);
        return -1;
    }
    if (n < 0 || PyTuple_GET_SIZE(argument) == n) return 0;
    PyErr_Format(PyExc_ValueError, "%s: a tuple of %zd expected, not of %zd", name, n,
                 PyTuple_GET_SIZE(argument));
    return -1;
}

/* Read the arguments flags, k and ranks; 0 or -1. */
static int take_waits(const char *name, PyObject *const *args, waits *out) {
    if (expect_tuple(name, args[0], -1)) return -1;
    *out = (waits){.flags = args[0], .ranks = args[2], .n = PyTuple_GET_SIZE(args[0])};
    return expect_tuple(name, args[2], out->n) || han_number_of(args[1], &out->k) ? -1 : 0;
}

static int wait_for(OperationsObject *self, const waits *all, Py_ssize_t number) {
    const RefObject *flag = han_ref_of(PyTuple_GET_ITEM(all->flags, number));
    uint64_t rank;
    if (!flag || han_number_of(PyTuple_GET_ITEM(all->ranks, number), &rank)) return -1;
    return han_emit_wait(self, flag, all->k, (int32_t)rank);
}

PyObject *han_wait_each(OperationsObject *self, PyObject *const *args, Py_ssize_t given) {
    waits all;
    if (han_expect("wait_each", given, 3) || take_waits("wait_each", args, &all)) return NULL;
    for (Py_ssize_t k = 0; k < all.n; k++)
        if (wait_for(self, &all, k)) return NULL;
    Py_RETURN_NONE;
}

static bool is_nowhere(const RefObject *ref) { return ref->base == HAN_B_NONE; }

/* Operands begin with the part of the message that is combined, as `dst` does. */
PyObject *han_combine_each(OperationsObject *self, PyObject *const *args, Py_ssize_t given) {
    static const char name[] = "combine_each";
    const RefObject *ref[2], *total; /* dst, own */
    uint64_t nbytes;
    waits all;
    if (han_expect(name, given, 7) || han_take(name, args, 2, ref, 2, NULL, 0) ||
        han_number_of(args[3], &nbytes) || take_waits(name, args + 4, &all) ||
        expect_tuple(name, args[2], all.n))
        return NULL;
    RefObject first; /* keeps an operand if this rank has none */
    total = is_nowhere(ref[1]) ? NULL : ref[1];
    for (Py_ssize_t k = 0; k < all.n; k++) {
        const RefObject *given_ref = han_ref_of(PyTuple_GET_ITEM(args[2], k));
        if (!given_ref || wait_for(self, &all, k)) return NULL;
        if (is_nowhere(given_ref)) continue;
        RefObject operand = *given_ref;
        operand.at = operand.origin = ref[0]->at;
        if (!total) {
            first = operand;
            total = &first;
            continue;
        }
        if (han_emit_reduce(self, (const RefObject *[4]){ref[0], total, &operand}, nbytes,
                            HAN_NO_BLOCK))
            return NULL;
        total = ref[0];
    }
    if (total && han_emit_copy(self, ref[0], total, nbytes, HAN_NO_BLOCK)) return NULL;
    Py_RETURN_NONE;
}
