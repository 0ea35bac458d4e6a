#include "python/py_batches.h"

#include <string.h>

#include "strides.h"

enum { MOST_PARTIALS = 64 }; /* that wait for their right half; one more doubles the operands */

/* Flags of several ranks that are to reach one value. */
typedef struct {
    PyObject *flags, *ranks; /* tuples of Ref and int; borrowed; NULL: nothing to wait for */
    uint64_t k;
    Py_ssize_t n;
} waits;

/* Wait for the flag of one of the ranks; 0 or -1. */
static int wait_one(OperationsObject *self, const waits *all, Py_ssize_t number) {
    const RefObject *flag = han_ref_of(PyTuple_GET_ITEM(all->flags, number));
    uint64_t given;
    int32_t rank;
    if (!flag || han_number_of(PyTuple_GET_ITEM(all->ranks, number), &given) ||
        han_rank_of(given, &rank))
        return -1;
    return han_emit_wait(self, flag, all->k, rank);
}

/* Read the arguments flags, k and ranks; 0 or -1. */
static int take_waits(const char *name, PyObject *const *args, waits *out) {
    if (han_expect_tuple(name, args[0], -1)) return -1;
    *out = (waits){.flags = args[0], .ranks = args[2], .n = PyTuple_GET_SIZE(args[0])};
    return han_expect_tuple(name, args[2], out->n) || han_number_of(args[1], &out->k) ? -1 : 0;
}

int han_emit_waits(OperationsObject *self, PyObject *flags, PyObject *ranks, uint64_t k) {
    if (han_expect_tuple("wait", flags, -1)) return -1;
    const waits all = {.flags = flags, .ranks = ranks, .k = k, .n = PyTuple_GET_SIZE(flags)};
    if (han_expect_tuple("wait", ranks, all.n)) return -1;
    for (Py_ssize_t number = 0; number < all.n; number++)
        if (wait_one(self, &all, number)) return -1;
    return 0;
}

PyObject *han_wait_each(OperationsObject *self, PyObject *const *args, Py_ssize_t given) {
    uint64_t k;
    if (han_expect("wait_each", given, 3) || han_number_of(args[1], &k) ||
        han_emit_waits(self, args[0], args[2], k))
        return NULL;
    Py_RETURN_NONE;
}

/* ---- turns -------------------------------------------------------------------------------- */

/* Whether the `n` records from `a` on and those from `b` on are of the same kinds. */
static bool same_turns(const OperationsObject *self, uint64_t a, uint64_t b, uint64_t n) {
    for (uint64_t k = 0; k < n; k++)
        if (!han_alike(han_record_at(self->code, self->terms, a + k),
                       han_record_at(self->code, self->terms, b + k)))
            return false;
    return true;
}

/* Append record `b` with what changed since record `a`, `times` times; 0 or -1. */
static int append_again(OperationsObject *self, uint64_t a, uint64_t b, uint64_t times) {
    if (han_make_room(self)) return -1;
    const han_stride stride = han_stride_between(han_record_at(self->code, self->terms, a),
                                                 han_record_at(self->code, self->terms, b));
    han_instr *code = &self->code[self->length];
    han_term *term = self->terms ? &self->terms[self->length] : NULL;
    *code = self->code[b];
    if (term) *term = self->terms[b];
    han_add_stride(code, term, &stride, times);
    code->task = self->task;
    self->length++;
    return 0;
}

/* Append the `n` records of each turn, which follow two that begin at `a` and `b`; 0 or -1. */
static int append_turns(OperationsObject *self, const uint64_t number[3], PyObject *turns,
                        PyObject *ends) {
    const uint64_t a = number[0], b = number[1], n = number[2];
    for (Py_ssize_t turn = 0; turn < PyTuple_GET_SIZE(turns); turn++) {
        if (han_begin_turn(self, PyTuple_GET_ITEM(turns, turn))) return -1;
        for (uint64_t k = 0; k < n; k++)
            if (append_again(self, a + k, b + k, (uint64_t)turn + 1)) return -1;
        if (han_end_turn(self, ends)) return -1;
    }
    return 0;
}

PyObject *han_again(OperationsObject *self, PyObject *const *args, Py_ssize_t given) {
    uint64_t number[3]; /* first, second, n */
    if (han_expect("again", given, 4) || han_take("again", args, 3, NULL, 0, number, 3) ||
        han_expect_tuple("again", args[3], -1))
        return NULL;
    const uint64_t a = number[0], b = number[1], n = number[2];
    if (n > self->length || a > b || b > self->length - n || !same_turns(self, a, b, n))
        return PyErr_Format(
            PyExc_ValueError,
            "again: %llu operations from number %llu on are not those from number %llu on "
            "with strides",
            (unsigned long long)n, (unsigned long long)b, (unsigned long long)a);
    PyObject *ends = PyList_New(0);
    if (ends && append_turns(self, number, args[3], ends)) Py_CLEAR(ends);
    return ends;
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

static uint64_t smaller(uint64_t a, uint64_t b) { return a < b ? a : b; }

/* Read the arguments cells and offset, and then bounds and part; 0 or -1. */
static int take_shares(const char *name, PyObject *const *cells, PyObject *const *bounds,
                       shares *out) {
    if (han_expect_tuple(name, cells[0], -1)) return -1;
    *out = (shares){.cells = cells[0], .bounds = bounds[0], .n = PyTuple_GET_SIZE(cells[0])};
    uint64_t part[3];
    if (han_number_of(cells[1], &out->offset) || han_expect_tuple(name, bounds[0], out->n) ||
        han_numbers_of(name, bounds[1], part, 3))
        return -1;
    out->start = part[0], out->at = part[1], out->most = part[2];
    return 0;
}

/* Find the cell of a member, and the bytes to be moved; 0 or -1. */
static int share_at(const char *name, const shares *all, Py_ssize_t k, RefObject *cell,
                    uint64_t *nbytes) {
    const RefObject *found = han_ref_of(PyTuple_GET_ITEM(all->cells, k));
    uint64_t bound[2];
    if (!found || han_numbers_of(name, PyTuple_GET_ITEM(all->bounds, k), bound, 2)) return -1;
    const uint64_t last = bound[1], first = smaller(bound[0] + all->at, last);
    *cell = *found;
    cell->offset += all->offset;
    cell->at = cell->origin = all->start + first;
    *nbytes = smaller(all->most, last - first);
    return 0;
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
        from = han_ref_at(src, cell.at);
        if (han_emit_copy(self, &cell, &from, nbytes, HAN_NO_BLOCK, 0)) return NULL;
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
        han_expect_tuple(name, args[5], all.n))
        return NULL;
    for (Py_ssize_t k = 0; k < all.n; k++) {
        RefObject cell, into;
        uint64_t nbytes;
        if (share_at(name, &all, k, &cell, &nbytes) ||
            (!same_flag(&members, k) && wait_one(self, &members, k)))
            return NULL;
        into = han_ref_at(dst, cell.at);
        if (han_emit_copy(self, &into, &cell, nbytes, HAN_NO_BLOCK, 0)) return NULL;
    }
    Py_RETURN_NONE;
}

/* ---- operands in any order ------------------------------------------------------------------ */

/* Operands of several members, and how they are combined. */
typedef struct {
    PyObject *operands, *order, *partials; /* tuples of Ref, int and Ref; borrowed */
    Py_ssize_t n;
    const RefObject *dst, *also; /* `also` may be NULL */
    const RefObject *own;        /* this rank's; NULL: it is one of the operands */
    uint64_t mine, start, nbytes;
    uint32_t block; /* that is combined, where blocks differ in size */
    waits members;
} folding;

/* Read all arguments; 0 or -1. */
static int take_folding(const char *name, PyObject *const *args, Py_ssize_t given, folding *out) {
    uint64_t block;
    *out = (folding){
        .operands = args[1], .order = args[5], .partials = args[6], .block = HAN_NO_BLOCK};
    if (given == 10 && args[9] != Py_None) {
        if (han_number_of(args[9], &block) || han_check_small("request", block)) return -1;
        out->block = (uint32_t)block;
    }
    if (han_expect(name, given == 10 ? 9 : given, 9) || !(out->dst = han_ref_of(args[0])) ||
        han_expect_tuple(name, args[1], -1) || han_number_of(args[2], &out->mine) ||
        han_number_of(args[3], &out->start) || han_number_of(args[4], &out->nbytes))
        return -1;
    out->n = PyTuple_GET_SIZE(args[1]);
    if (han_expect_tuple(name, args[5], out->n) || han_expect_tuple(name, args[6], -1)) return -1;
    if (args[8] != Py_None && !(out->also = han_ref_of(args[8]))) return -1;
    if (args[7] == Py_None) return 0;
    if (han_expect_tuple(name, args[7], 3)) return -1;
    PyObject *each[] = {PyTuple_GET_ITEM(args[7], 0), PyTuple_GET_ITEM(args[7], 1),
                        PyTuple_GET_ITEM(args[7], 2)};
    return take_waits(name, each, &out->members) || han_expect_tuple(name, each[0], out->n) ? -1
                                                                                            : 0;
}

/* Wait for an operand, and find it; 0 or -1. */
static int operand_at(OperationsObject *self, const folding *f, Py_ssize_t k, RefObject *out) {
    bool mine = (uint64_t)k == f->mine;
    const RefObject *found = mine && f->own ? f->own : han_ref_of(PyTuple_GET_ITEM(f->operands, k));
    if (!found || (!mine && f->members.flags && wait_one(self, &f->members, k))) return -1;
    *out = han_ref_at(found, f->dst->at);
    if (!mine) out->origin = f->start;
    return 0;
}

/* Write `left op right` to the place of a partial result, which becomes `left`; 0 or -1. */
static int into_partial(OperationsObject *self, const folding *f, Py_ssize_t number,
                        RefObject *left, const RefObject *right) {
    const bool none = f->own && !PyTuple_GET_SIZE(f->partials);
    if (!none && number >= PyTuple_GET_SIZE(f->partials))
        return HAN_RAISE(PyExc_ValueError, "%zd places are too few for partial results",
                         PyTuple_GET_SIZE(f->partials));
    const RefObject *place = none ? f->dst : han_ref_of(PyTuple_GET_ITEM(f->partials, number));
    if (!place) return -1;
    RefObject result = han_ref_at(place, f->dst->at);
    if (!han_ref_same(place, f->dst)) result.origin = result.at;
    int failed =
        han_emit_reduce(self, (const RefObject *[4]){&result, left, right}, f->nbytes, f->block);
    *left = result;
    return failed;
}

/* Combine the last operands on the stack `combinations` times; the last result of all goes to its
 * destination. 0 or -1. */
static int combine_top(OperationsObject *self, const folding *f, Py_ssize_t *depth,
                       uint64_t combinations, RefObject *stack, bool last) {
    for (; combinations; combinations--) {
        if (*depth < 2)
            return HAN_RAISE(PyExc_ValueError, "an order combines more operands than there are");
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
    if (han_emit_copy(self, f->dst, operand, f->nbytes, f->block, 0)) return -1;
    return f->also ? han_emit_copy(self, f->also, operand, f->nbytes, f->block, 0) : 0;
}

/* Combine all operands; 0 or -1. */
static int fold_all(OperationsObject *self, const folding *f) {
    RefObject stack[MOST_PARTIALS];
    Py_ssize_t depth = 0;
    for (Py_ssize_t k = 0; k < f->n; k++) {
        uint64_t combinations;
        if (depth == MOST_PARTIALS)
            return HAN_RAISE(PyExc_ValueError, "more than %d partial results", MOST_PARTIALS);
        if (operand_at(self, f, k, &stack[depth++]) ||
            han_number_of(PyTuple_GET_ITEM(f->order, k), &combinations) ||
            combine_top(self, f, &depth, combinations, stack, k == f->n - 1))
            return -1;
    }
    if (depth > 1)
        return HAN_RAISE(PyExc_ValueError, "an order leaves operands that it does not combine");
    return f->n == 1 ? copy_only(self, f, stack) : 0;
}

PyObject *han_fold_each(OperationsObject *self, PyObject *const *args, Py_ssize_t given) {
    folding f;
    if (take_folding("fold_each", args, given, &f) || fold_all(self, &f)) return NULL;
    Py_RETURN_NONE;
}

int han_emit_fold(OperationsObject *self, const RefObject *dst, const RefObject *own,
                  PyObject *cells, PyObject *const how[5], uint64_t k, uint64_t nbytes) {
    if (han_expect_tuple("fold", cells, -1)) return -1;
    const Py_ssize_t n = PyTuple_GET_SIZE(cells);
    folding f = {.operands = cells,
                 .order = how[1],
                 .partials = how[2],
                 .n = n,
                 .dst = dst,
                 .own = own,
                 .start = dst->at,
                 .nbytes = nbytes,
                 .block = HAN_NO_BLOCK,
                 .members = {.flags = how[3], .ranks = how[4], .k = k, .n = n}};
    if (han_number_of(how[0], &f.mine) || han_expect_tuple("fold", how[1], n) ||
        han_expect_tuple("fold", how[2], -1) || han_expect_tuple("fold", how[3], n) ||
        han_expect_tuple("fold", how[4], n))
        return -1;
    return fold_all(self, &f);
}
