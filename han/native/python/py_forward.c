/* Pieces that arrive from a parent and are sent on to children, event by event. */
#include "python/py_forward.h"

#include "python/py_waits.h"

static const char NAME[] = "forward";

/* Where in the tasks a piece is. */
typedef struct {
    Py_ssize_t turn;
    uint64_t start, stop, end; /* of the piece, and where its task ends */
    bool first;                /* of its task */
} piece;

typedef struct {
    OperationsObject *stream;
    const RefObject *source, *result;
    PyObject *parent, *children, *turns, *ends;
    uint64_t step, receives, most; /* requests of receives, and of sends at most */
    uint64_t first, sent, done;    /* the first request; sends that were started, and completed */
    piece next;                    /* to be received */
    uint64_t posted;
} forwarding;

/* ---- pieces ---------------------------------------------------------------------------------- */

static int task_at(const forwarding *f, Py_ssize_t turn, uint64_t number[3]) {
    PyObject *tuple = PyTuple_GET_ITEM(f->turns, turn);
    if (han_expect_tuple(NAME, tuple, 4)) return -1;
    for (int k = 0; k < 3; k++)
        if (han_number_of(PyTuple_GET_ITEM(tuple, k), &number[k])) return -1;
    return 0;
}

static bool is_piece(const forwarding *f, const piece *p) {
    return p->turn < PyTuple_GET_SIZE(f->turns);
}

static uint64_t behind(const forwarding *f, const piece *p) {
    return p->end - p->start > f->step ? p->start + f->step : p->end;
}

/* Go to the first piece of a task, if there is one; 0 or -1. */
static int enter(const forwarding *f, Py_ssize_t turn, piece *p) {
    uint64_t number[3];
    *p = (piece){.turn = turn, .first = true};
    if (!is_piece(f, p)) return 0;
    if (task_at(f, turn, number)) return -1;
    p->start = number[1], p->end = number[2];
    p->stop = behind(f, p);
    return 0;
}

static int go_on(const forwarding *f, piece *p) {
    if (p->stop >= p->end) return enter(f, p->turn + 1, p);
    p->start = p->stop, p->first = false;
    p->stop = behind(f, p);
    return 0;
}

/* The number of pieces; 0, or -1 with an error. */
static int count(const forwarding *f, uint64_t *pieces) {
    piece p;
    *pieces = 0;
    if (enter(f, 0, &p)) return -1;
    while (is_piece(f, &p)) {
        if (p.end < p.start) {
            PyErr_Format(PyExc_ValueError, "%s: a task ends before it starts", NAME);
            return -1;
        }
        ++*pieces;
        if (go_on(f, &p)) return -1;
    }
    return 0;
}

static int begin(const forwarding *f, const piece *p) {
    uint64_t span[2];
    return han_begin_turn(f->stream, NAME, PyTuple_GET_ITEM(f->turns, p->turn), span);
}

/* ---- messages -------------------------------------------------------------------------------- */

static int rank_at(PyObject *ranks, Py_ssize_t k, int32_t *rank) {
    uint64_t number;
    return han_number_of(PyTuple_GET_ITEM(ranks, k), &number) || han_rank_of(number, rank) ? -1 : 0;
}

/* Post the receive of the next piece, if there is one. Other streams may still read this part of the
 * buffer, so its task begins before. */
static int post(forwarding *f) {
    int32_t rank;
    if (!f->receives || !is_piece(f, &f->next)) return 0;
    const RefObject at = han_ref_at(f->result, f->next.start);
    if ((f->next.first && begin(f, &f->next)) || rank_at(f->parent, 0, &rank) ||
        han_emit_irecv(f->stream, &at, f->next.stop - f->next.start, rank,
                       f->first + f->posted % f->receives))
        return -1;
    f->posted++;
    return go_on(f, &f->next);
}

static int complete(forwarding *f) {
    return han_emit_test(f->stream, f->first + f->receives + f->done++ % f->most);
}

/* Send a piece to all children; the oldest send is completed if too many are under way. */
static int send(forwarding *f, const piece *p) {
    const RefObject at = han_ref_at(f->source, p->start);
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(f->children); k++) {
        int32_t rank;
        if (f->sent - f->done >= f->most && complete(f)) return -1;
        if (rank_at(f->children, k, &rank) ||
            han_emit_isend(f->stream, &at, p->stop - p->start, rank,
                           f->first + f->receives + f->sent % f->most))
            return -1;
        f->sent++;
    }
    return 0;
}

static int pass(forwarding *f, const piece *p, uint64_t index) {
    uint64_t number[3];
    if (task_at(f, p->turn, number)) return -1;
    f->stream->task = (unsigned int)number[0];
    if (f->receives ? han_emit_test(f->stream, f->first + index % f->receives)
                    : p->first && begin(f, p))
        return -1;
    if (send(f, p)) return -1;
    if (p->stop >= p->end && han_end_turn(f->stream, f->ends, p->turn)) return -1;
    return post(f);
}

static int run(forwarding *f) {
    piece p;
    if (enter(f, 0, &f->next) || enter(f, 0, &p)) return -1;
    for (uint64_t k = 0; k < f->receives; k++)
        if (post(f)) return -1;
    for (uint64_t index = 0; is_piece(f, &p); index++)
        if (pass(f, &p, index) || go_on(f, &p)) return -1;
    while (f->done < f->sent)
        if (complete(f)) return -1;
    return 0;
}

/* ---- arguments ------------------------------------------------------------------------------- */

static int take_arguments(forwarding *f, PyObject *const *args, Py_ssize_t given) {
    uint64_t window, pieces;
    if (han_expect(NAME, given, 8) || !(f->source = han_ref_of(args[0])) ||
        !(f->result = han_ref_of(args[1])))
        return -1;
    for (int k = 2; k < 5; k++)
        if (han_expect_tuple(NAME, args[k], -1)) return -1;
    f->parent = args[2], f->children = args[3], f->turns = args[4];
    if (han_number_of(args[5], &f->step) || han_number_of(args[6], &window) ||
        han_number_of(args[7], &f->first))
        return -1;
    if (!f->step || !window || PyTuple_GET_SIZE(f->parent) > 1) {
        PyErr_Format(PyExc_ValueError, "%s: pieces of no bytes, no window, or two parents", NAME);
        return -1;
    }
    if (count(f, &pieces)) return -1;
    f->most = window * (uint64_t)(PyTuple_GET_SIZE(f->children) ? PyTuple_GET_SIZE(f->children) : 1);
    if (PyTuple_GET_SIZE(f->parent)) f->receives = window < pieces ? window : pieces;
    return han_check_request(f->first) || han_check_request(f->first + f->receives + f->most) ? -1 : 0;
}

PyObject *han_forward(OperationsObject *self, PyObject *const *args, Py_ssize_t given) {
    forwarding f = {.stream = self};
    if (take_arguments(&f, args, given)) return NULL;
    f.ends = PyTuple_New(PyTuple_GET_SIZE(f.turns));
    if (!f.ends || run(&f)) {
        Py_XDECREF(f.ends);
        return NULL;
    }
    const uint64_t sends = f.sent < f.most ? f.sent : f.most;
    return Py_BuildValue("(NK)", f.ends, (unsigned long long)(f.first + f.receives + sends));
}
