/* Tasks whose pieces go through cells that are used in turn. */
#include "python/py_pieces.h"

#include "python/py_waits.h"

/* What is done with each piece of some tasks. Pieces go through `cells` cells in turn. */
typedef struct {
    PyObject *dst, *own; /* Ref, or a tuple of those of each cell */
    PyObject *operands;  /* for each cell, a tuple of Refs */
    PyObject *posts;     /* a tuple of flags */
    PyObject *turns;     /* a tuple: see han_begin_turn */
    uint64_t step;       /* bytes of a piece */
    uint64_t index;      /* of the next piece */
    uint64_t cells;
    waits arrivals, reads; /* of operands, and of the piece that was in the cell before */
} pieces;

/* Read flags and ranks from a pair; 0 or -1. */
static int take_pair(const char *name, PyObject *pair, waits *out) {
    if (han_expect_tuple(name, pair, 2)) return -1;
    PyObject *flags = PyTuple_GET_ITEM(pair, 0), *ranks = PyTuple_GET_ITEM(pair, 1);
    if (han_expect_tuple(name, flags, -1)) return -1;
    *out = (waits){.flags = flags, .ranks = ranks, .n = PyTuple_GET_SIZE(flags)};
    return han_expect_tuple(name, ranks, out->n);
}

/* Read all arguments; 0 or -1. */
static int take_pieces(const char *name, PyObject *const *args, Py_ssize_t given, pieces *out) {
    if (han_expect(name, given, 9) || han_expect_tuple(name, args[2], -1) ||
        han_expect_tuple(name, args[3], -1) || han_number_of(args[4], &out->step) ||
        han_number_of(args[5], &out->index) || take_pair(name, args[6], &out->arrivals) ||
        take_pair(name, args[7], &out->reads) || han_expect_tuple(name, args[8], -1))
        return -1;
    out->dst = args[0], out->own = args[1], out->operands = args[2], out->turns = args[3];
    out->posts = args[8];
    out->cells = (uint64_t)PyTuple_GET_SIZE(args[2]);
    if (out->cells && out->step) return 0;
    PyErr_Format(PyExc_ValueError, "%s: pieces of no bytes, or no cells", name);
    return -1;
}

/* Find the memory for bytes from `at` on: in a buffer, or in the cell with this number. 0 or -1. */
static int place_of(const char *name, PyObject *place, uint64_t cell, uint64_t at, RefObject *out) {
    bool in_cells = PyTuple_Check(place);
    if (in_cells && cell >= (uint64_t)PyTuple_GET_SIZE(place)) {
        PyErr_Format(PyExc_ValueError, "%s: cell %llu of %zd", name, (unsigned long long)cell,
                     PyTuple_GET_SIZE(place));
        return -1;
    }
    const RefObject *found =
        han_ref_of(in_cells ? PyTuple_GET_ITEM(place, (Py_ssize_t)cell) : place);
    if (!found) return -1;
    *out = *found;
    out->at = at;
    if (in_cells) out->origin = at;
    return 0;
}

/* Pass the piece of a task that stops at byte `stop`. */
static int pass_piece(OperationsObject *self, const char *name, pieces *p, uint64_t at,
                      uint64_t stop) {
    uint64_t cell = p->index % p->cells;
    PyObject *operands = PyTuple_GET_ITEM(p->operands, (Py_ssize_t)cell);
    RefObject dst, own;
    p->reads.k = p->index < p->cells ? 0 : p->index - p->cells + 1;
    p->arrivals.k = p->index + 1;
    for (Py_ssize_t k = 0; p->reads.k && k < p->reads.n; k++)
        if (han_wait_one(self, &p->reads, k)) return -1;
    if (han_expect_tuple(name, operands, p->arrivals.n) || place_of(name, p->dst, cell, at, &dst) ||
        place_of(name, p->own, cell, at, &own) ||
        han_combine_members(self, &dst, &own, operands, stop - at < p->step ? stop - at : p->step,
                            &p->arrivals))
        return -1;
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(p->posts); k++) {
        const RefObject *flag = han_ref_of(PyTuple_GET_ITEM(p->posts, k));
        if (!flag || han_emit_post(self, flag, p->index + 1)) return -1;
    }
    return 0;
}

/* Pass all pieces of the task whose turn it is; 0 or -1. */
static int pass_task(OperationsObject *self, const char *name, pieces *p, PyObject *turn) {
    uint64_t span[2]; /* start and stop */
    if (han_begin_turn(self, name, turn, span)) return -1;
    uint64_t number = span[1] == span[0] ? 1 : (span[1] - span[0] - 1) / p->step + 1;
    for (uint64_t k = 0; k < number; k++, p->index++)
        if (pass_piece(self, name, p, span[0] + k * p->step, span[1])) return -1;
    return 0;
}

PyObject *han_pass_pieces(OperationsObject *self, PyObject *const *args, Py_ssize_t given) {
    static const char name[] = "pass_pieces";
    pieces p;
    if (take_pieces(name, args, given, &p)) return NULL;
    PyObject *ends = PyTuple_New(PyTuple_GET_SIZE(p.turns));
    for (Py_ssize_t k = 0; ends && k < PyTuple_GET_SIZE(p.turns); k++)
        if (pass_task(self, name, &p, PyTuple_GET_ITEM(p.turns, k)) || han_end_turn(self, ends, k))
            Py_CLEAR(ends);
    return ends ? Py_BuildValue("(KN)", (unsigned long long)p.index, ends) : NULL;
}
