#include "python/py_batches.h"

enum { MOST_PARTIALS = 64 }; /* that wait for their right half; one more doubles the operands */

/* Flags of several ranks that are to reach one value. */
typedef struct {
    PyObject *flags, *ranks; /* tuples of Ref and int; borrowed; NULL: nothing to wait for */
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
    uint64_t given;
    int32_t rank;
    if (!flag || han_number_of(PyTuple_GET_ITEM(all->ranks, number), &given) ||
        han_rank_of(given, &rank))
        return -1;
    return han_emit_wait(self, flag, all->k, rank);
}

PyObject *han_wait_each(OperationsObject *self, PyObject *const *args, Py_ssize_t given) {
    waits all;
    if (han_expect("wait_each", given, 3) || take_waits("wait_each", args, &all)) return NULL;
    for (Py_ssize_t k = 0; k < all.n; k++)
        if (wait_for(self, &all, k)) return NULL;
    Py_RETURN_NONE;
}

static bool is_nowhere(const RefObject *ref) { return ref->base == HAN_B_NONE; }

/* Combine an operand of this rank, if there is one, with those of the members, into `dst`; wait for
 * the flag of each member before. Operands begin with the part of the message that is combined, as
 * `dst` does. 0 or -1. */
static int combine(OperationsObject *self, const RefObject *dst, const RefObject *own,
                   PyObject *operands, uint64_t nbytes, const waits *members) {
    RefObject first; /* keeps an operand if this rank has none */
    const RefObject *total = is_nowhere(own) ? NULL : own;
    for (Py_ssize_t k = 0; k < members->n; k++) {
        const RefObject *found = han_ref_of(PyTuple_GET_ITEM(operands, k));
        if (!found || wait_for(self, members, k)) return -1;
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

PyObject *han_combine_each(OperationsObject *self, PyObject *const *args, Py_ssize_t given) {
    static const char name[] = "combine_each";
    const RefObject *ref[2]; /* dst, own */
    uint64_t nbytes;
    waits all;
    if (han_expect(name, given, 7) || han_take(name, args, 2, ref, 2, NULL, 0) ||
        han_number_of(args[3], &nbytes) || take_waits(name, args + 4, &all) ||
        expect_tuple(name, args[2], all.n) ||
        combine(self, ref[0], ref[1], args[2], nbytes, &all))
        return NULL;
    Py_RETURN_NONE;
}

/* ---- pieces --------------------------------------------------------------------------------- */

/* What is done with each piece of a task. Pieces go through `cells` cells in turn. */
typedef struct {
    PyObject *dst, *own;         /* Ref, or a tuple of those of each cell */
    PyObject *operands;          /* for each cell, a tuple of Refs */
    PyObject *posts;             /* a tuple of flags */
    uint64_t start, stop, step;  /* of the task, and bytes of a piece */
    uint64_t index;              /* of the first piece */
    uint64_t cells;
    waits arrivals, reads; /* of operands, and of the piece that was in the cell before */
} pieces;

static uint64_t smaller(uint64_t a, uint64_t b) { return a < b ? a : b; }

/* Read flags and ranks from a pair; 0 or -1. */
static int take_pair(const char *name, PyObject *pair, waits *out) {
    if (expect_tuple(name, pair, 2)) return -1;
    PyObject *flags = PyTuple_GET_ITEM(pair, 0), *ranks = PyTuple_GET_ITEM(pair, 1);
    if (expect_tuple(name, flags, -1)) return -1;
    *out = (waits){.flags = flags, .ranks = ranks, .n = PyTuple_GET_SIZE(flags)};
    return expect_tuple(name, ranks, out->n);
}

/* Read all arguments; 0 or -1. */
static int take_pieces(const char *name, PyObject *const *args, Py_ssize_t given, pieces *out) {
    uint64_t *numbers[] = {&out->start, &out->stop, &out->step, &out->index};
    if (han_expect(name, given, 8) || expect_tuple(name, args[2], -1) ||
        expect_tuple(name, args[3], 3) || han_number_of(args[4], &out->index) ||
        take_pair(name, args[5], &out->arrivals) || take_pair(name, args[6], &out->reads) ||
        expect_tuple(name, args[7], -1))
        return -1;
    out->dst = args[0], out->own = args[1], out->operands = args[2], out->posts = args[7];
    out->cells = (uint64_t)PyTuple_GET_SIZE(args[2]);
    for (int k = 0; k < 3; k++)
        if (han_number_of(PyTuple_GET_ITEM(args[3], k), numbers[k])) return -1;
    if (out->cells && out->step && out->start <= out->stop) return 0;
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
    const RefObject *found = han_ref_of(in_cells ? PyTuple_GET_ITEM(place, (Py_ssize_t)cell) : place);
    if (!found) return -1;
    *out = *found;
    out->at = at;
    if (in_cells) out->origin = at;
    return 0;
}

static int pass_piece(OperationsObject *self, const char *name, pieces *p, uint64_t at) {
    uint64_t cell = p->index % p->cells;
    PyObject *operands = PyTuple_GET_ITEM(p->operands, (Py_ssize_t)cell);
    RefObject dst, own;
    p->reads.k = p->index < p->cells ? 0 : p->index - p->cells + 1;
    p->arrivals.k = p->index + 1;
    for (Py_ssize_t k = 0; p->reads.k && k < p->reads.n; k++)
        if (wait_for(self, &p->reads, k)) return -1;
    if (expect_tuple(name, operands, p->arrivals.n) || place_of(name, p->dst, cell, at, &dst) ||
        place_of(name, p->own, cell, at, &own) ||
        combine(self, &dst, &own, operands, smaller(p->step, p->stop - at), &p->arrivals))
        return -1;
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(p->posts); k++) {
        const RefObject *flag = han_ref_of(PyTuple_GET_ITEM(p->posts, k));
        if (!flag || han_emit_post(self, flag, p->index + 1)) return -1;
    }
    return 0;
}

PyObject *han_pass_pieces(OperationsObject *self, PyObject *const *args, Py_ssize_t given) {
    static const char name[] = "pass_pieces";
    pieces p;
    if (take_pieces(name, args, given, &p)) return NULL;
    uint64_t number = p.stop == p.start ? 1 : (p.stop - p.start - 1) / p.step + 1;
    for (uint64_t k = 0; k < number; k++, p.index++)
        if (pass_piece(self, name, &p, p.start + k * p.step)) return NULL;
    return PyLong_FromUnsignedLongLong(p.index);
}

/* ---- shares --------------------------------------------------------------------------------- */

/* A share of each of `n` members, in cells of theirs: where in the message behind byte `start` it
 * begins and ends. Of each share, the bytes from its byte `at` on are moved, `most` at most. */
typedef struct {
    PyObject *cells, *bounds; /* tuples of Ref and of pairs of int; borrowed */
    Py_ssize_t n;
    uint64_t offset; /* from the cells */
    uint64_t start, at, most;
} shares;

/* Read the arguments cells and offset, and then bounds and part; 0 or -1. */
static int take_shares(const char *name, PyObject *const *cells, PyObject *const *bounds,
                       shares *out) {
    if (expect_tuple(name, cells[0], -1)) return -1;
    *out = (shares){.cells = cells[0], .bounds = bounds[0], .n = PyTuple_GET_SIZE(cells[0])};
    if (han_number_of(cells[1], &out->offset) || expect_tuple(name, bounds[0], out->n) ||
        expect_tuple(name, bounds[1], 3))
        return -1;
    uint64_t *part[] = {&out->start, &out->at, &out->most};
    for (int k = 0; k < 3; k++)
        if (han_number_of(PyTuple_GET_ITEM(bounds[1], k), part[k])) return -1;
    return 0;
}

/* Find the cell of a member, and the bytes to be moved; 0 or -1. */
static int share_at(const char *name, const shares *all, Py_ssize_t k, RefObject *cell,
                    uint64_t *nbytes) {
    const RefObject *found = han_ref_of(PyTuple_GET_ITEM(all->cells, k));
    PyObject *pair = PyTuple_GET_ITEM(all->bounds, k);
    uint64_t first, last;
    if (!found || expect_tuple(name, pair, 2) || han_number_of(PyTuple_GET_ITEM(pair, 0), &first) ||
        han_number_of(PyTuple_GET_ITEM(pair, 1), &last))
        return -1;
    first = smaller(first + all->at, last);
    *cell = *found;
    cell->offset += all->offset;
    cell->at = cell->origin = all->start + first;
    *nbytes = smaller(all->most, last - first);
    return 0;
}

static RefObject to(const RefObject *ref, uint64_t at) {
    RefObject found = *ref;
    found.at = at;
    return found;
}

PyObject *han_show_each(OperationsObject *self, PyObject *const *args, Py_ssize_t given) {
    static const char name[] = "show_each";
    const RefObject *src;
    shares all;
    if (han_expect(name, given, 5) || !(src = han_ref_of(args[2])) ||
        take_shares(name, args, args + 3, &all))
        return NULL;
    for (Py_ssize_t k = 0; k < all.n; k++) {
        RefObject cell, from;
        uint64_t nbytes;
        if (share_at(name, &all, k, &cell, &nbytes)) return NULL;
        from = to(src, cell.at);
        if (han_emit_copy(self, &cell, &from, nbytes, HAN_NO_BLOCK)) return NULL;
    }
    Py_RETURN_NONE;
}

/* Whether two members in turn have the same flag: shares of one member. */
static bool same_flag(const waits *all, Py_ssize_t k) {
    return k && PyTuple_GET_ITEM(all->flags, k) == PyTuple_GET_ITEM(all->flags, k - 1);
}

PyObject *han_take_each(OperationsObject *self, PyObject *const *args, Py_ssize_t given) {
    static const char name[] = "take_each";
    const RefObject *dst;
    waits members;
    shares all;
    if (han_expect(name, given, 8) || !(dst = han_ref_of(args[0])) ||
        take_shares(name, args + 1, args + 3, &all) || take_waits(name, args + 5, &members) ||
        expect_tuple(name, args[5], all.n))
        return NULL;
    for (Py_ssize_t k = 0; k < all.n; k++) {
        RefObject cell, into;
        uint64_t nbytes;
        if (share_at(name, &all, k, &cell, &nbytes) ||
            (!same_flag(&members, k) && wait_for(self, &members, k)))
            return NULL;
        into = to(dst, cell.at);
        if (han_emit_copy(self, &into, &cell, nbytes, HAN_NO_BLOCK)) return NULL;
    }
    Py_RETURN_NONE;
}

/* ---- operands in any order ------------------------------------------------------------------ */

/* Operands of several members, and how they are combined. */
typedef struct {
    PyObject *operands, *order, *partials; /* tuples of Ref, int and Ref; borrowed */
    Py_ssize_t n;
    const RefObject *dst, *also; /* `also` may be NULL */
    uint64_t mine, start, nbytes;
    uint32_t block; /* that is combined, where blocks differ in size */
    waits members;
} folding;

/* Read all arguments; 0 or -1. */
static int take_folding(const char *name, PyObject *const *args, Py_ssize_t given, folding *out) {
    uint64_t block;
    *out = (folding){.operands = args[1], .order = args[5], .partials = args[6],
                     .block = HAN_NO_BLOCK};
    if (given == 10 && args[9] != Py_None) {
        if (han_number_of(args[9], &block) || han_check_request(block)) return -1;
        out->block = (uint32_t)block;
    }
    if (han_expect(name, given == 10 ? 9 : given, 9) || !(out->dst = han_ref_of(args[0])) ||
        expect_tuple(name, args[1], -1) || han_number_of(args[2], &out->mine) ||
        han_number_of(args[3], &out->start) || han_number_of(args[4], &out->nbytes))
        return -1;
    out->n = PyTuple_GET_SIZE(args[1]);
    if (expect_tuple(name, args[5], out->n) || expect_tuple(name, args[6], -1)) return -1;
    if (args[8] != Py_None && !(out->also = han_ref_of(args[8]))) return -1;
    if (args[7] == Py_None) return 0;
    if (expect_tuple(name, args[7], 3)) return -1;
    PyObject *each[] = {PyTuple_GET_ITEM(args[7], 0), PyTuple_GET_ITEM(args[7], 1),
                        PyTuple_GET_ITEM(args[7], 2)};
    return take_waits(name, each, &out->members) || expect_tuple(name, each[0], out->n) ? -1 : 0;
}

/* Wait for an operand, and find it; 0 or -1. */
static int operand_at(OperationsObject *self, const folding *f, Py_ssize_t k, RefObject *out) {
    const RefObject *found = han_ref_of(PyTuple_GET_ITEM(f->operands, k));
    bool mine = (uint64_t)k == f->mine;
    if (!found || (!mine && f->members.flags && wait_for(self, &f->members, k))) return -1;
    *out = to(found, f->dst->at);
    if (!mine) out->origin = f->start;
    return 0;
}

/* Write `left op right` to the place of a partial result, which becomes `left`; 0 or -1. */
static int into_partial(OperationsObject *self, const folding *f, Py_ssize_t number,
                        RefObject *left, const RefObject *right) {
    if (number >= PyTuple_GET_SIZE(f->partials)) {
        PyErr_Format(PyExc_ValueError, "%zd places are too few for partial results",
                     PyTuple_GET_SIZE(f->partials));
        return -1;
    }
    const RefObject *place = han_ref_of(PyTuple_GET_ITEM(f->partials, number));
    if (!place) return -1;
    RefObject result = to(place, f->dst->at);
    if (!han_ref_same(place, f->dst)) result.origin = result.at;
    int failed = han_emit_reduce(self, (const RefObject *[4]){&result, left, right}, f->nbytes,
                                 f->block);
    *left = result;
    return failed;
}

/* Combine the last operands on the stack `combinations` times; the last result of all goes to its
 * destination. 0 or -1. */
static int combine_top(OperationsObject *self, const folding *f, Py_ssize_t *depth,
                       uint64_t combinations, RefObject *stack, bool last) {
    for (; combinations; combinations--) {
        if (*depth < 2) {
            PyErr_SetString(PyExc_ValueError, "an order combines more operands than there are");
            return -1;
        }
        RefObject *left = &stack[*depth - 2], *right = &stack[*depth - 1];
        --*depth;
        if (last && combinations == 1 && *depth == 1)
            return han_emit_reduce(self, (const RefObject *[4]){f->dst, left, right, f->also},
                                   f->nbytes, f->block);
        if (into_partial(self, f, *depth - 1, left, right)) return -1;
    }
    return 0;
}

static int copy_only(OperationsObject *self, const folding *f, const RefObject *operand) {
    if (han_emit_copy(self, f->dst, operand, f->nbytes, f->block)) return -1;
    return f->also ? han_emit_copy(self, f->also, operand, f->nbytes, f->block) : 0;
}

PyObject *han_fold_each(OperationsObject *self, PyObject *const *args, Py_ssize_t given) {
    RefObject stack[MOST_PARTIALS];
    Py_ssize_t depth = 0;
    folding f;
    if (take_folding("fold_each", args, given, &f)) return NULL;
    for (Py_ssize_t k = 0; k < f.n; k++) {
        uint64_t combinations;
        if (depth == MOST_PARTIALS) {
            PyErr_Format(PyExc_ValueError, "more than %d partial results", MOST_PARTIALS);
            return NULL;
        }
        if (operand_at(self, &f, k, &stack[depth++]) ||
            han_number_of(PyTuple_GET_ITEM(f.order, k), &combinations) ||
            combine_top(self, &f, &depth, combinations, stack, k == f.n - 1))
            return NULL;
    }
    if (depth > 1) {
        PyErr_SetString(PyExc_ValueError, "an order leaves operands that it does not combine");
        return NULL;
    }
    if (f.n == 1 && copy_only(self, &f, stack)) return NULL;
    Py_RETURN_NONE;
}
