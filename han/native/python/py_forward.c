/* Pieces that arrive from a parent and are sent on to children, and those that arrive from children
 * and are combined for a parent. */
#include "python/py_forward.h"

#include "python/py_waits.h"

/* Where in the tasks a piece is. */
typedef struct {
    Py_ssize_t turn;
    uint64_t start, stop, end; /* of the piece, and where its task ends */
    bool first;                /* of its task */
} piece;

/* Tasks, whose pieces have `step` bytes. */
typedef struct {
    const char *name; /* of the method, for errors */
    OperationsObject *stream;
    PyObject *turns, *ends;
    uint64_t step;
} work;

typedef struct {
    work all;
    const RefObject *source, *result;
    PyObject *parent, *children;
    uint64_t receives, most;    /* requests of receives, and of sends at most */
    uint64_t first, sent, done; /* the first request; sends that were started, and completed */
    piece next;                 /* to be received */
    uint64_t posted;
} forwarding;

/* ---- pieces ---------------------------------------------------------------------------------- */

static int task_at(const work *w, Py_ssize_t turn, uint64_t number[3]) {
    PyObject *tuple = PyTuple_GET_ITEM(w->turns, turn);
    if (han_expect_tuple(w->name, tuple, 4)) return -1;
    for (int k = 0; k < 3; k++)
        if (han_number_of(PyTuple_GET_ITEM(tuple, k), &number[k])) return -1;
    return 0;
}

static bool is_piece(const work *w, const piece *p) { return p->turn < PyTuple_GET_SIZE(w->turns); }

static uint64_t behind(const work *w, const piece *p) {
    return p->end - p->start > w->step ? p->start + w->step : p->end;
}

/* Go to the first piece of a task, if there is one; 0 or -1. */
static int enter(const work *w, Py_ssize_t turn, piece *p) {
    uint64_t number[3];
    *p = (piece){.turn = turn, .first = true};
    if (!is_piece(w, p)) return 0;
    if (task_at(w, turn, number)) return -1;
    p->start = number[1], p->end = number[2];
    p->stop = behind(w, p);
    return 0;
}

static int go_on(const work *w, piece *p) {
    if (p->stop >= p->end) return enter(w, p->turn + 1, p);
    p->start = p->stop, p->first = false;
    p->stop = behind(w, p);
    return 0;
}

/* The number of pieces; 0, or -1 with an error. */
static int count(const work *w, uint64_t *pieces) {
    piece p;
    *pieces = 0;
    if (enter(w, 0, &p)) return -1;
    while (is_piece(w, &p)) {
        if (p.end < p.start) {
            PyErr_Format(PyExc_ValueError, "%s: a task ends before it starts", w->name);
            return -1;
        }
        ++*pieces;
        if (go_on(w, &p)) return -1;
    }
    return 0;
}

static int begin(const work *w, const piece *p) {
    uint64_t span[2];
    return han_begin_turn(w->stream, w->name, PyTuple_GET_ITEM(w->turns, p->turn), span);
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
    if (!f->receives || !is_piece(&f->all, &f->next)) return 0;
    const RefObject at = han_ref_at(f->result, f->next.start);
    if ((f->next.first && begin(&f->all, &f->next)) || rank_at(f->parent, 0, &rank) ||
        han_emit_irecv(f->all.stream, &at, f->next.stop - f->next.start, rank,
                       f->first + f->posted % f->receives))
        return -1;
    f->posted++;
    return go_on(&f->all, &f->next);
}

static int complete(forwarding *f) {
    return han_emit_test(f->all.stream, f->first + f->receives + f->done++ % f->most);
}

/* Send a piece to all children; the oldest send is completed if too many are under way. */
static int send(forwarding *f, const piece *p) {
    const RefObject at = han_ref_at(f->source, p->start);
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(f->children); k++) {
        int32_t rank;
        if (f->sent - f->done >= f->most && complete(f)) return -1;
        if (rank_at(f->children, k, &rank) ||
            han_emit_isend(f->all.stream, &at, p->stop - p->start, rank,
                           f->first + f->receives + f->sent % f->most))
            return -1;
        f->sent++;
    }
    return 0;
}

static int pass(forwarding *f, const piece *p, uint64_t index) {
    uint64_t number[3];
    if (task_at(&f->all, p->turn, number)) return -1;
    f->all.stream->task = (unsigned int)number[0];
    if (f->receives ? han_emit_test(f->all.stream, f->first + index % f->receives)
                    : p->first && begin(&f->all, p))
        return -1;
    if (send(f, p)) return -1;
    if (p->stop >= p->end && han_end_turn(f->all.stream, f->all.ends, p->turn)) return -1;
    return post(f);
}

static int run(forwarding *f) {
    piece p;
    if (enter(&f->all, 0, &f->next) || enter(&f->all, 0, &p)) return -1;
    for (uint64_t k = 0; k < f->receives; k++)
        if (post(f)) return -1;
    for (uint64_t index = 0; is_piece(&f->all, &p); index++)
        if (pass(f, &p, index) || go_on(&f->all, &p)) return -1;
    while (f->done < f->sent)
        if (complete(f)) return -1;
    return 0;
}

/* ---- arguments ------------------------------------------------------------------------------- */

static int take_arguments(forwarding *f, PyObject *const *args, Py_ssize_t given) {
    uint64_t window, pieces;
    if (han_expect(f->all.name, given, 8) || !(f->source = han_ref_of(args[0])) ||
        !(f->result = han_ref_of(args[1])))
        return -1;
    for (int k = 2; k < 5; k++)
        if (han_expect_tuple(f->all.name, args[k], -1)) return -1;
    f->parent = args[2], f->children = args[3], f->all.turns = args[4];
    if (han_number_of(args[5], &f->all.step) || han_number_of(args[6], &window) ||
        han_number_of(args[7], &f->first))
        return -1;
    if (!f->all.step || !window || PyTuple_GET_SIZE(f->parent) > 1) {
        PyErr_Format(PyExc_ValueError, "%s: pieces of no bytes, no window, or two parents",
                     f->all.name);
        return -1;
    }
    if (count(&f->all, &pieces)) return -1;
    f->most =
        window * (uint64_t)(PyTuple_GET_SIZE(f->children) ? PyTuple_GET_SIZE(f->children) : 1);
    if (PyTuple_GET_SIZE(f->parent)) f->receives = window < pieces ? window : pieces;
    return han_check_request(f->first) || han_check_request(f->first + f->receives + f->most) ? -1
                                                                                              : 0;
}

PyObject *han_forward(OperationsObject *self, PyObject *const *args, Py_ssize_t given) {
    forwarding f = {.all = {.name = "forward", .stream = self}};
    if (take_arguments(&f, args, given)) return NULL;
    f.all.ends = PyTuple_New(PyTuple_GET_SIZE(f.all.turns));
    if (!f.all.ends || run(&f)) {
        Py_XDECREF(f.all.ends);
        return NULL;
    }
    const uint64_t sends = f.sent < f.most ? f.sent : f.most;
    return Py_BuildValue("(NK)", f.all.ends, (unsigned long long)(f.first + f.receives + sends));
}

/* ---- reductions ------------------------------------------------------------------------------ */

/* A child: its rank, whether its operands come first, the room for its pieces, and the first of the
 * requests of its messages. */
typedef struct {
    int32_t rank;
    bool before;
    const RefObject *room;
    uint64_t first;
} child;

typedef struct {
    work all;
    const RefObject *dst, *own;
    PyObject *parent;
    child *children;
    Py_ssize_t n;
    uint64_t window, stride, first; /* `stride`: bytes from one piece in a room to the next */
    uint64_t sent, done;
    piece *sends; /* under way, by request */
    piece next;   /* to be received from all children */
    uint64_t posted;
} combining;

static RefObject cell_of(const combining *c, const child *from, const piece *p, uint64_t index) {
    RefObject cell = *from->room;
    cell.offset += index % c->window * c->stride;
    cell.at = cell.origin = p->start;
    return cell;
}

/* Post the receive of a piece from a child, in the name of the task that it serves. */
static int receive_from(combining *c, const child *from, const piece *p, uint64_t index) {
    uint64_t number[3];
    const RefObject cell = cell_of(c, from, p, index);
    if (task_at(&c->all, p->turn, number)) return -1;
    c->all.stream->task = (unsigned int)number[0];
    return han_emit_irecv(c->all.stream, &cell, p->stop - p->start, from->rank,
                          from->first + index % c->window);
}

static int label(const combining *c, const piece *p) {
    uint64_t number[3];
    if (task_at(&c->all, p->turn, number)) return -1;
    c->all.stream->task = (unsigned int)number[0];
    return 0;
}

/* Combine a piece of a child with what has been combined so far, and receive a later one. */
static int combine(combining *c, Py_ssize_t k, const piece *p, uint64_t index) {
    const child *from = &c->children[k];
    const RefObject dst = han_ref_at(c->dst, p->start), arrived = cell_of(c, from, p, index);
    const RefObject so_far = k ? dst : han_ref_at(c->own, p->start);
    const RefObject *refs[4] = {&dst, from->before ? &arrived : &so_far,
                                from->before ? &so_far : &arrived, NULL};
    if (label(c, p) || han_emit_test(c->all.stream, from->first + index % c->window) ||
        han_emit_reduce(c->all.stream, refs, p->stop - p->start, HAN_NO_BLOCK))
        return -1;
    return is_piece(&c->all, &c->next) ? receive_from(c, from, &c->next, index + c->window) : 0;
}

/* A task ends when its last piece has been sent. */
static int complete_send(combining *c) {
    const uint64_t turn = c->done++ % c->window;
    const piece *p = &c->sends[turn];
    if (han_emit_test(c->all.stream, c->first + turn)) return -1;
    return p->stop >= p->end ? han_end_turn(c->all.stream, c->all.ends, p->turn) : 0;
}

static int send_up(combining *c, const piece *p) {
    int32_t rank;
    const RefObject at = han_ref_at(c->n ? c->dst : c->own, p->start);
    if (c->sent - c->done >= c->window && complete_send(c)) return -1;
    const uint64_t turn = c->sent++ % c->window;
    c->sends[turn] = *p;
    if (rank_at(c->parent, 0, &rank)) return -1;
    return han_emit_isend(c->all.stream, &at, p->stop - p->start, rank, c->first + turn);
}

static int combine_piece(combining *c, const piece *p, uint64_t index) {
    if (label(c, p) || (p->first && begin(&c->all, p))) return -1;
    for (Py_ssize_t k = 0; k < c->n; k++)
        if (combine(c, k, p, index)) return -1;
    if (is_piece(&c->all, &c->next) && go_on(&c->all, &c->next)) return -1;
    if (label(c, p)) return -1;
    if (PyTuple_GET_SIZE(c->parent)) return send_up(c, p);
    return p->stop >= p->end ? han_end_turn(c->all.stream, c->all.ends, p->turn) : 0;
}

/* Post the first receives, child by child; later ones are posted piece by piece. */
static int post_ahead(combining *c) {
    for (Py_ssize_t k = 0; k < c->n; k++) {
        piece p;
        if (enter(&c->all, 0, &p)) return -1;
        for (uint64_t index = 0; index < c->window && is_piece(&c->all, &p); index++)
            if (receive_from(c, &c->children[k], &p, index) || go_on(&c->all, &p)) return -1;
        c->next = p;
    }
    if (!c->n) c->next.turn = PyTuple_GET_SIZE(c->all.turns);
    return 0;
}

static int combine_all(combining *c) {
    piece p;
    if (post_ahead(c) || enter(&c->all, 0, &p)) return -1;
    for (uint64_t index = 0; is_piece(&c->all, &p); index++)
        if (combine_piece(c, &p, index) || go_on(&c->all, &p)) return -1;
    while (c->done < c->sent)
        if (complete_send(c)) return -1;
    return 0;
}

static int take_child(const char *name, PyObject *given, child *out) {
    uint64_t rank, before;
    if (han_expect_tuple(name, given, 4) || han_number_of(PyTuple_GET_ITEM(given, 0), &rank) ||
        han_rank_of(rank, &out->rank) || han_number_of(PyTuple_GET_ITEM(given, 1), &before) ||
        !(out->room = han_ref_of(PyTuple_GET_ITEM(given, 2))) ||
        han_number_of(PyTuple_GET_ITEM(given, 3), &out->first))
        return -1;
    out->before = before;
    return 0;
}

static int take_combining(combining *c, PyObject *const *args, Py_ssize_t given) {
    uint64_t pieces;
    const char *name = c->all.name;
    if (han_expect(name, given, 9) || !(c->dst = han_ref_of(args[0])) ||
        !(c->own = han_ref_of(args[1])))
        return -1;
    for (int k = 2; k < 5; k++)
        if (han_expect_tuple(name, args[k], -1)) return -1;
    c->parent = args[3], c->all.turns = args[4], c->n = PyTuple_GET_SIZE(args[2]);
    if (han_number_of(args[5], &c->all.step) || han_number_of(args[6], &c->window) ||
        han_number_of(args[7], &c->stride) || han_number_of(args[8], &c->first))
        return -1;
    if (!c->all.step || !c->window || PyTuple_GET_SIZE(c->parent) > 1) {
        PyErr_Format(PyExc_ValueError, "%s: pieces of no bytes, no window, or two parents", name);
        return -1;
    }
    if (count(&c->all, &pieces)) return -1;
    if (c->window > pieces && pieces) c->window = pieces;
    if (han_check_request(c->first) || han_check_request(c->first + c->window)) return -1;
    c->children = PyMem_Calloc((size_t)c->n + 1, sizeof *c->children);
    c->sends = PyMem_Calloc((size_t)c->window, sizeof *c->sends);
    if (!c->children || !c->sends) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t k = 0; k < c->n; k++)
        if (take_child(name, PyTuple_GET_ITEM(args[2], k), &c->children[k]) ||
            han_check_request(c->children[k].first) ||
            han_check_request(c->children[k].first + c->window))
            return -1;
    return 0;
}

PyObject *han_combine_pieces(OperationsObject *self, PyObject *const *args, Py_ssize_t given) {
    combining c = {.all = {.name = "combine_pieces", .stream = self}};
    PyObject *found = NULL;
    if (!take_combining(&c, args, given) &&
        (c.all.ends = PyTuple_New(PyTuple_GET_SIZE(c.all.turns))) && !combine_all(&c)) {
        const uint64_t sends = c.sent < c.window ? c.sent : c.window;
        found = Py_BuildValue("(OK)", c.all.ends, (unsigned long long)(c.first + sends));
    }
    Py_XDECREF(c.all.ends);
    PyMem_Free(c.children);
    PyMem_Free(c.sends);
    return found;
}
