/* What is done with each piece of a message: rows that name an operation once, for all pieces. */
#include "python/py_pieces.h"
#include "python/py_batches.h"
#include "python/module.h"

#include <stdlib.h>

/* Bytes of the message from `start` on; where in its task they are, and the number of the piece. */
typedef struct {
    Py_ssize_t turn; /* the number of the task */
    uint64_t start, nbytes, index;
    bool first, last;
} piece;

/* Tasks and their pieces; `ends` tells where streams end tasks. */
typedef struct {
    PyObject *turns, *ends;
    piece *pieces;
    Py_ssize_t n;
} work;

/* An operation of each piece, in a stream. At a step it is that of the piece so many `ahead`. */
typedef struct row {
    OperationsObject *stream;
    int (*emit)(const struct row *self, const work *all, const piece *p);
    int64_t ahead;
    PyObject *const *operand; /* borrowed */
} row;

/* ---- operands ------------------------------------------------------------------------------- */

/* One of several objects that pieces use in turn; NULL with an error. */
static PyObject *in_turn(PyObject *all, const piece *p) {
    if (han_expect_tuple("each_piece", all, -1)) return NULL;
    const Py_ssize_t n = PyTuple_GET_SIZE(all);
    if (n) return PyTuple_GET_ITEM(all, (Py_ssize_t)(p->index % (uint64_t)n));
    PyErr_SetString(PyExc_ValueError, "each_piece: pieces use at least one of a tuple in turn");
    return NULL;
}

/* Where a piece is: in memory of the whole message, or in one of several cells; 0 or -1. */
static int place_of(PyObject *place, const piece *p, RefObject *out) {
    const bool whole = Py_IS_TYPE(place, &RefType);
    PyObject *one = whole ? place : in_turn(place, p);
    const RefObject *found = one ? han_ref_of(one) : NULL;
    if (!found) return -1;
    *out = han_ref_at(found, p->start);
    if (!whole) out->origin = p->start;
    return 0;
}

static int request_of(PyObject *requests, const piece *p, uint64_t *request) {
    PyObject *one = in_turn(requests, p);
    return !one || han_number_of(one, request) ? -1 : 0;
}

/* The value of a flag for a piece: so many for each earlier piece, and some more; 0: none. */
static int value_of(PyObject *const *operand, const piece *p, uint64_t *value) {
    const long long each = PyLong_AsLongLong(operand[0]);
    const long long more = PyErr_Occurred() ? -1 : PyLong_AsLongLong(operand[1]);
    if (PyErr_Occurred()) return -1;
    const long long found = each * (long long)p->index + more;
    *value = found > 0 ? (uint64_t)found : 0;
    return 0;
}

/* ---- rows ----------------------------------------------------------------------------------- */

/* The number of a task, or where it starts or stops: 0 to 2. 0 or -1. */
static int of_turn(PyObject *turn, int field, uint64_t *number) {
    return han_expect_tuple("each_piece", turn, 4) ||
                   han_number_of(PyTuple_GET_ITEM(turn, field), number)
               ? -1
               : 0;
}

static int label(const row *r, const work *all, const piece *p) {
    uint64_t task;
    if (of_turn(PyTuple_GET_ITEM(all->turns, p->turn), 0, &task)) return -1;
    r->stream->task = (unsigned int)task;
    return 0;
}

/* Wait for what a task needs from other streams, before its first piece. */
static int begin(const row *r, const work *all, const piece *p) {
    return p->first ? han_begin_turn(r->stream, PyTuple_GET_ITEM(all->turns, p->turn)) : 0;
}

static int end(const row *r, const work *all, const piece *p) {
    return p->last ? han_end_turn(r->stream, all->ends) : 0;
}

static int follow(const row *r, const work *Py_UNUSED(all), const piece *Py_UNUSED(p)) {
    uint64_t number;
    PyObject *other = r->operand[0];
    if (!PyObject_TypeCheck(other, &OperationsType))
        return HAN_RAISE(PyExc_TypeError, "each_piece: a stream follows a stream");
    if (han_number_of(r->operand[1], &number)) return -1;
    return han_emit_await(r->stream, number, ((OperationsObject *)other)->length);
}

static int copy(const row *r, const work *Py_UNUSED(all), const piece *p) {
    RefObject ref[2];
    for (int k = 0; k < 2; k++)
        if (place_of(r->operand[k], p, &ref[k])) return -1;
    return han_emit_copy(r->stream, &ref[0], &ref[1], p->nbytes, HAN_NO_BLOCK, 0);
}

static int reduce(const row *r, const work *Py_UNUSED(all), const piece *p) {
    RefObject ref[3];
    for (int k = 0; k < 3; k++)
        if (place_of(r->operand[k], p, &ref[k])) return -1;
    const RefObject *const refs[4] = {&ref[0], &ref[1], &ref[2]};
    return han_emit_reduce(r->stream, refs, p->nbytes, HAN_NO_BLOCK);
}

static int accumulate(const row *r, const work *Py_UNUSED(all), const piece *p) {
    RefObject ref[2];
    for (int k = 0; k < 2; k++)
        if (place_of(r->operand[k], p, &ref[k])) return -1;
    return han_emit_accumulate(r->stream, &ref[0], &ref[1], p->nbytes);
}

static int fold(const row *r, const work *Py_UNUSED(all), const piece *p) {
    RefObject dst, own;
    uint64_t value;
    PyObject *cells = in_turn(r->operand[2], p);
    if (!cells || place_of(r->operand[0], p, &dst) || place_of(r->operand[1], p, &own) ||
        value_of(r->operand + 8, p, &value))
        return -1;
    return han_emit_fold(r->stream, &dst, &own, cells, r->operand + 3, value, p->nbytes);
}

static int post(const row *r, const work *Py_UNUSED(all), const piece *p) {
    const RefObject *flag = han_ref_of(r->operand[0]);
    uint64_t value;
    if (!flag || value_of(r->operand + 1, p, &value)) return -1;
    return han_emit_post(r->stream, flag, value);
}

static int wait(const row *r, const work *Py_UNUSED(all), const piece *p) {
    uint64_t value;
    if (value_of(r->operand + 2, p, &value)) return -1;
    return value ? han_emit_waits(r->stream, r->operand[0], r->operand[1], value) : 0;
}

static int message(const row *r, const piece *p, enum han_code code) {
    const han_options none = {.block = HAN_NO_BLOCK};
    RefObject place;
    uint64_t number[3] = {p->nbytes};
    if (place_of(r->operand[0], p, &place) || han_number_of(r->operand[1], &number[1]) ||
        request_of(r->operand[2], p, &number[2]))
        return -1;
    return han_emit_message(r->stream, code, &place, number, &none);
}

static int isend(const row *r, const work *Py_UNUSED(all), const piece *p) {
    return message(r, p, HAN_ISEND);
}

static int irecv(const row *r, const work *Py_UNUSED(all), const piece *p) {
    return message(r, p, HAN_IRECV);
}

static int test(const row *r, const work *Py_UNUSED(all), const piece *p) {
    uint64_t request;
    return request_of(r->operand[0], p, &request) ? -1 : han_emit_test(r->stream, request);
}

static const struct {
    const char *name;
    Py_ssize_t operands;
    int (*emit)(const row *self, const work *all, const piece *p);
} KINDS[] = {
    {"label", 0, label},
    {"begin", 0, begin},
    {"end", 0, end},
    {"follow", 2, follow},         /* a stream, its number */
    {"copy", 2, copy},             /* dst, src */
    {"reduce", 3, reduce},         /* dst, a, b */
    {"accumulate", 2, accumulate}, /* dst, operand */
    {"fold", 10, fold}, /* dst, own, cells, mine, order, partials, flags, ranks, each, more */
    {"post", 3, post},  /* flag, each, more */
    {"wait", 4, wait},  /* flags, ranks, each, more */
    {"isend", 3, isend},
    {"irecv", 3, irecv}, /* place, rank, requests */
    {"test", 1, test},   /* requests */
};
enum { N_KINDS = sizeof KINDS / sizeof *KINDS, FIELDS = 3 };

/* ---- arguments ------------------------------------------------------------------------------ */

/* Read a row: a stream, a name, how far ahead, and operands. 0 or -1. */
static int take_row(PyObject *tuple, row *out) {
    if (han_expect_tuple("each_piece", tuple, -1)) return -1;
    const Py_ssize_t n = PyTuple_GET_SIZE(tuple) - FIELDS;
    PyObject *const *field = &PyTuple_GET_ITEM(tuple, 0);
    if (n < 0 || !PyObject_TypeCheck(field[0], &OperationsType) || !PyUnicode_Check(field[1]))
        return HAN_RAISE(PyExc_TypeError, "each_piece: a row begins with a stream and a name");
    *out = (row){.stream = (OperationsObject *)field[0], .operand = field + FIELDS};
    for (int k = 0; k < N_KINDS; k++)
        if (KINDS[k].operands == n && !PyUnicode_CompareWithASCIIString(field[1], KINDS[k].name))
            out->emit = KINDS[k].emit;
    if (!out->emit)
        return HAN_RAISE(PyExc_ValueError, "each_piece: no row %R has %zd operands", field[1], n);
    out->ahead = PyLong_AsLongLong(field[2]);
    return PyErr_Occurred() ? -1 : 0;
}

/* The number of pieces of a task, the last of which may be shorter; an empty one has one. 0 or -1. */
static int count(PyObject *turn, uint64_t step, uint64_t *pieces) {
    uint64_t start, stop;
    if (of_turn(turn, 1, &start) || of_turn(turn, 2, &stop)) return -1;
    if (stop < start)
        return HAN_RAISE(PyExc_ValueError, "each_piece: a task ends before it starts");
    *pieces = stop > start ? (stop - start - 1) / step + 1 : 1;
    return 0;
}

/* Write the pieces of a task; 0 or -1. */
static int cut(work *all, Py_ssize_t turn, uint64_t step, uint64_t index) {
    PyObject *tuple = PyTuple_GET_ITEM(all->turns, turn);
    uint64_t start, stop, pieces;
    if (of_turn(tuple, 1, &start) || of_turn(tuple, 2, &stop) || count(tuple, step, &pieces))
        return -1;
    for (uint64_t k = 0; k < pieces; k++, start += step) {
        const bool last = k == pieces - 1;
        all->pieces[all->n] = (piece){.turn = turn,
                                      .start = start,
                                      .nbytes = last ? stop - start : step,
                                      .index = index + (uint64_t)all->n,
                                      .first = !k,
                                      .last = last};
        all->n++;
    }
    return 0;
}

/* Cut all tasks into pieces; 0 or -1. */
static int cut_all(work *all, uint64_t step, uint64_t index) {
    const Py_ssize_t tasks = PyTuple_GET_SIZE(all->turns);
    uint64_t pieces, sum = 0;
    if (!step) return HAN_RAISE(PyExc_ValueError, "each_piece: pieces of no bytes");
    for (Py_ssize_t k = 0; k < tasks; k++, sum += pieces)
        if (count(PyTuple_GET_ITEM(all->turns, k), step, &pieces)) return -1;
    all->pieces = sum < SIZE_MAX / sizeof(piece) ? malloc((sum + 1) * sizeof(piece)) : NULL;
    if (!all->pieces) return HAN_NO_MEMORY;
    for (Py_ssize_t k = 0; k < tasks; k++)
        if (cut(all, k, step, index)) return -1;
    return 0;
}

/* Emit the rows of some steps; 0 or -1. */
static int emit_steps(const work *all, const row *rows, Py_ssize_t n, int64_t first, int64_t stop) {
    for (int64_t step = first; step < stop; step++)
        for (Py_ssize_t k = 0; k < n; k++) {
            const int64_t number = step + rows[k].ahead;
            if (number >= 0 && number < all->n && rows[k].emit(&rows[k], all, &all->pieces[number]))
                return -1;
        }
    return 0;
}

/* Read the rows; their number, or -1. */
static Py_ssize_t take_rows(PyObject *tuple, row **out) {
    if (han_expect_tuple("each_piece", tuple, -1)) return -1;
    const Py_ssize_t n = PyTuple_GET_SIZE(tuple);
    row *rows = malloc(((size_t)n + 1) * sizeof *rows);
    if (!rows) return HAN_NO_MEMORY;
    for (Py_ssize_t k = 0; k < n; k++)
        if (take_row(PyTuple_GET_ITEM(tuple, k), &rows[k])) {
            free(rows);
            return -1;
        }
    *out = rows;
    return n;
}

PyObject *han_each_piece(PyObject *Py_UNUSED(module), PyObject *args) {
    work all = {0};
    row *rows = NULL;
    PyObject *given;
    unsigned long long step, index;
    long long first, stop;
    if (!PyArg_ParseTuple(args, "OO!KKLL:each_piece", &given, &PyTuple_Type, &all.turns, &step,
                          &index, &first, &stop))
        return NULL;
    const Py_ssize_t n = take_rows(given, &rows);
    if (n >= 0) all.ends = PyList_New(0);
    if (!all.ends || cut_all(&all, step, index) || emit_steps(&all, rows, n, first, stop))
        Py_CLEAR(all.ends);
    free(all.pieces);
    free(rows);
    return all.ends;
}
