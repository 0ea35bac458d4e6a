/* Among a thousand nodes a ring has thousands of hops, each of a few operations. han/submodules/ring.py
 * says what they do. Position p is piece p % width of hop 1 + p / width. */
#include "python/py_ring.h"

#include <stdbool.h>

static const char NAME[] = "circulate";

typedef struct {
    Py_ssize_t position;
    uint64_t request;
} sent;

typedef struct {
    OperationsObject *stream;
    const RefObject *source, *result;
    PyObject *cells, *pieces, *awaits; /* tuples; borrowed */
    PyObject *ends;                    /* a list: how many operations there are after each piece */
    int32_t before, behind;            /* ranks */
    Py_ssize_t width, half, window;    /* pieces that arrive from position `half` on are finished */
    Py_ssize_t begun;                  /* pieces, for which this rank has awaited its own streams */
    uint64_t *arriving;                /* requests by position */
    sent *sends; /* those from number `completed` to `n_sends` are under way */
    Py_ssize_t completed, n_sends;
    uint64_t *free, n_free, next; /* requests that are free, and the first one that is new */
} ring;

/* A piece: bytes of the message. `some`: whether the block has a piece at this position. */
typedef struct {
    uint64_t start, stop;
    bool some;
} piece;

/* Read two numbers of a tuple; 0 or -1. */
static int pair_of(PyObject *object, uint64_t *first, uint64_t *second) {
    uint64_t pair[2];
    if (han_numbers_of(NAME, object, pair, 2)) return -1;
    *first = pair[0];
    *second = pair[1];
    return 0;
}

static int piece_at(const ring *r, Py_ssize_t position, piece *out) {
    PyObject *found = PyTuple_GET_ITEM(r->pieces, position);
    *out = (piece){.some = found != Py_None};
    return out->some ? pair_of(found, &out->start, &out->stop) : 0;
}

/* ---- requests ------------------------------------------------------------------------------- */

static uint64_t request_of(ring *r) { return r->n_free ? r->free[--r->n_free] : r->next++; }

static int complete_one(ring *r, uint64_t request) {
    r->free[r->n_free++] = request;
    return han_emit_test(r->stream, request);
}

/* Wait for the sends up to a position. */
static int complete(ring *r, Py_ssize_t position) {
    while (r->completed < r->n_sends && r->sends[r->completed].position <= position)
        if (complete_one(r, r->sends[r->completed++].request)) return -1;
    return 0;
}

/* ---- hops ----------------------------------------------------------------------------------- */

/* Await this rank's other streams before a piece: pairs of a stream and a position. */
static int begin(ring *r) {
    if (r->begun >= PyTuple_GET_SIZE(r->awaits)) {
        PyErr_SetString(PyExc_ValueError, "circulate: awaits are fewer than pieces");
        return -1;
    }
    PyObject *all = PyTuple_GET_ITEM(r->awaits, r->begun++);
    if (han_expect_tuple(NAME, all, -1)) return -1;
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(all); k++) {
        uint64_t stream, position;
        if (pair_of(PyTuple_GET_ITEM(all, k), &stream, &position) ||
            han_emit_await(r->stream, stream, position))
            return -1;
    }
    return 0;
}

static int end(ring *r) {
    PyObject *length = PyLong_FromSize_t(r->stream->length);
    int failed = length ? PyList_Append(r->ends, length) : -1;
    Py_XDECREF(length);
    return failed;
}

static int send_piece(ring *r, Py_ssize_t position, const RefObject *place, const piece *p) {
    if (complete(r, position - r->width - r->window)) return -1;
    uint64_t request = request_of(r);
    r->sends[r->n_sends++] = (sent){position, request};
    return han_emit_isend(r->stream, place, p->stop - p->start, r->behind, request);
}

/* The cell that a piece arrives in. */
static int cell_of(const ring *r, Py_ssize_t position, const piece *p, RefObject *cell) {
    const RefObject *found = han_ref_of(PyTuple_GET_ITEM(r->cells, position % r->window));
    if (!found) return -1;
    *cell = han_ref_at(found, p->start);
    cell->origin = p->start;
    return 0;
}

/* Start receiving a piece: beside what it is combined with, or as a result. */
static int post(ring *r, Py_ssize_t position) {
    piece p;
    if (piece_at(r, position, &p)) return -1;
    if (!p.some) return 0;
    RefObject place = han_ref_at(r->result, p.start);
    if (position < r->half ? cell_of(r, position, &p, &place) : complete(r, position - r->half))
        return -1;
    uint64_t request = r->arriving[position] = request_of(r);
    return han_emit_irecv(r->stream, &place, p.stop - p.start, r->before, request);
}

/* Combine a piece that has arrived with this node's. */
static int combine(ring *r, Py_ssize_t position, const piece *p, const RefObject *result) {
    RefObject arrived, own = han_ref_at(r->source, p->start);
    if (begin(r) || cell_of(r, position, p, &arrived)) return -1;
    return han_emit_reduce(r->stream, (const RefObject *[4]){result, &arrived, &own},
                           p->stop - p->start, HAN_NO_BLOCK);
}

/* Wait for a piece, combine it, and send it on. */
static int take(ring *r, Py_ssize_t position) {
    piece p;
    if (piece_at(r, position, &p)) return -1;
    if (!p.some) return 0;
    const RefObject result = han_ref_at(r->result, p.start);
    if (complete_one(r, r->arriving[position]) ||
        (position < r->half && combine(r, position, &p, &result)) ||
        (position >= r->half - r->width && end(r)))
        return -1;
    bool last = position + r->width >= 2 * r->half;
    return last ? 0 : send_piece(r, position + r->width, &result, &p);
}

/* Send the pieces of the block that this node sends first. */
static int send_own(ring *r) {
    for (Py_ssize_t k = 0; k < r->width; k++) {
        piece p;
        if (piece_at(r, 2 * r->half + k, &p)) return -1;
        const RefObject own = han_ref_at(r->source, p.start);
        if (p.some && (begin(r) || send_piece(r, k, &own, &p))) return -1;
    }
    return 0;
}

static int run(ring *r) {
    const Py_ssize_t positions = 2 * r->half;
    for (Py_ssize_t k = 0; k < positions && k < r->window; k++)
        if (post(r, k)) return -1;
    if (send_own(r)) return -1;
    for (Py_ssize_t k = 0; k < positions; k++)
        if (take(r, k) || (k + r->window < positions && post(r, k + r->window))) return -1;
    return complete(r, positions);
}

/* ---- arguments ------------------------------------------------------------------------------ */

/* Read all arguments but the free requests; 0 or -1. */
static int take_arguments(ring *r, PyObject *const *args, Py_ssize_t given) {
    uint64_t before, behind, width;
    if (han_expect(NAME, given, 9) || !(r->source = han_ref_of(args[0])) ||
        !(r->result = han_ref_of(args[1])) || han_expect_tuple(NAME, args[2], -1) ||
        pair_of(args[3], &before, &behind) || han_expect_tuple(NAME, args[4], -1) ||
        han_number_of(args[5], &width) || han_expect_tuple(NAME, args[6], -1) ||
        han_expect_tuple(NAME, args[7], -1) || han_number_of(args[8], &r->next))
        return -1;
    r->cells = args[2];
    r->pieces = args[4];
    r->awaits = args[6];
    if (han_rank_of(before, &r->before) || han_rank_of(behind, &r->behind)) return -1;
    r->window = PyTuple_GET_SIZE(args[2]);
    r->n_free = (uint64_t)PyTuple_GET_SIZE(args[7]);
    Py_ssize_t positions = PyTuple_GET_SIZE(args[4]);
    if (!width || width > (uint64_t)positions || (positions - (Py_ssize_t)width) % 2 ||
        (positions - (Py_ssize_t)width) / 2 < (Py_ssize_t)width || !r->window) {
        PyErr_SetString(PyExc_ValueError,
                        "circulate: no ring of two nodes or more has these pieces");
        return -1;
    }
    r->width = (Py_ssize_t)width;
    r->half = (positions - r->width) / 2;
    if (han_check_request(r->next)) return -1;
    return han_check_request(r->next + r->n_free + 2 * (uint64_t)positions);
}

/* Make room for the requests and fill in those that are free; 0 or -1. */
static int make_room(ring *r, PyObject *free) {
    size_t positions = (size_t)PyTuple_GET_SIZE(r->pieces);
    r->arriving = PyMem_Calloc(positions, sizeof *r->arriving);
    r->sends = PyMem_Calloc(positions, sizeof *r->sends);
    r->free = PyMem_Calloc(r->n_free + 2 * positions, sizeof *r->free);
    r->ends = PyList_New(0);
    if (!r->arriving || !r->sends || !r->free || !r->ends) {
        PyErr_NoMemory();
        return -1;
    }
    for (uint64_t k = 0; k < r->n_free; k++) {
        PyObject *request = PyTuple_GET_ITEM(free, (Py_ssize_t)k);
        if (han_number_of(request, &r->free[k]) || han_check_request(r->free[k])) return -1;
    }
    return 0;
}

/* Where the pieces end, the requests that are free afterwards, and the first one that is new. */
static PyObject *answer(const ring *r) {
    PyObject *free = PyTuple_New((Py_ssize_t)r->n_free);
    for (uint64_t k = 0; free && k < r->n_free; k++) {
        PyObject *request = PyLong_FromUnsignedLongLong(r->free[k]);
        if (!request)
            Py_CLEAR(free);
        else
            PyTuple_SET_ITEM(free, (Py_ssize_t)k, request);
    }
    return free ? Py_BuildValue("(ONK)", r->ends, free, (unsigned long long)r->next) : NULL;
}

PyObject *han_circulate(OperationsObject *self, PyObject *const *args, Py_ssize_t given) {
    ring r = {.stream = self};
    if (take_arguments(&r, args, given)) return NULL;
    PyObject *found = make_room(&r, args[7]) || run(&r) ? NULL : answer(&r);
    Py_XDECREF(r.ends);
    PyMem_Free(r.arriving);
    PyMem_Free(r.sends);
    PyMem_Free(r.free);
    return found;
}
