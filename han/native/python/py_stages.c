/* The steps of an exchange in messages: operands that arrive are combined, and results gathered. */
#include "python/py_stages.h"

#include <stdbool.h>

#include "python/py_waits.h"

/* Some transfers; borrowed. */
typedef struct {
    PyObject *const *all;
    Py_ssize_t n;
} transfers;

static transfers in_tuple(PyObject *tuple) {
    return (transfers){PySequence_Fast_ITEMS(tuple), PyTuple_GET_SIZE(tuple)};
}

/* ---- operands that arrive ------------------------------------------------------------------- */

/* Bytes [start, stop) of operands, which are combined in parts of `step` bytes. */
typedef struct {
    const RefObject *work, *own;
    transfers before, after, sends;
    uint64_t start, stop, step;
} combination;

/* Wait for the part [first, last) of an operand, and find it. */
static int arrived(MailObject *self, PyObject *from, uint64_t first, uint64_t last,
                   RefObject *operand) {
    TransferObject *transfer = han_transfer_of(self, from);
    if (!transfer) return -1;
    *operand = han_ref_at(&transfer->place, first);
    return han_complete_until(self, transfer, last > first ? last : first + 1);
}

/* Wait for sends of the part [first, last), which the result overwrites. */
static int end_sends(MailObject *self, const transfers *sends, uint64_t first, uint64_t last) {
    for (Py_ssize_t k = 0; k < sends->n; k++) {
        TransferObject *transfer = han_transfer_of(self, sends->all[k]);
        if (!transfer) return -1;
        if (first < transfer->stop && transfer->start < last &&
            han_complete_until(self, transfer, last))
            return -1;
    }
    return 0;
}

static int reduce(MailObject *self, const RefObject *dst, const RefObject *a, const RefObject *b,
                  uint64_t nbytes) {
    return han_emit_reduce(self->stream, (const RefObject *[4]){dst, a, b}, nbytes, HAN_NO_BLOCK);
}

/* Combine the operands before this rank's own where the first of them has arrived. */
static int combine_before(MailObject *self, const combination *c, uint64_t first, uint64_t last,
                          RefObject *total) {
    for (Py_ssize_t k = 0; k < c->before.n; k++) {
        RefObject operand;
        if (arrived(self, c->before.all[k], first, last, &operand) ||
            (k && reduce(self, total, total, &operand, last - first)))
            return -1;
        if (!k) *total = operand;
    }
    return 0;
}

static int combine_part(MailObject *self, const combination *c, uint64_t first, uint64_t last) {
    RefObject left, right, total = han_ref_at(c->own, first);
    const RefObject result = han_ref_at(c->work, first);
    if (combine_before(self, c, first, last, &left) || end_sends(self, &c->sends, first, last))
        return -1;
    if (c->before.n) {
        if (reduce(self, &result, &left, &total, last - first)) return -1;
        total = result;
    }
    for (Py_ssize_t k = 0; k < c->after.n; k++) {
        if (arrived(self, c->after.all[k], first, last, &right) ||
            reduce(self, &result, &total, &right, last - first))
            return -1;
        total = result;
    }
    return han_emit_copy(self->stream, &result, &total, last - first, HAN_NO_BLOCK);
}

static int combine(MailObject *self, const char *name, const combination *c) {
    if (!c->step || c->stop < c->start) {
        PyErr_Format(PyExc_ValueError, "%s: parts of %llu bytes, from byte %llu to byte %llu", name,
                     (unsigned long long)c->step, (unsigned long long)c->start,
                     (unsigned long long)c->stop);
        return -1;
    }
    uint64_t first = c->start;
    do {
        uint64_t last = c->stop - first < c->step ? c->stop : first + c->step;
        if (combine_part(self, c, first, last)) return -1;
        first = last;
    } while (first < c->stop);
    return 0;
}

PyObject *han_mail_combine(MailObject *self, PyObject *const *args, Py_ssize_t given) {
    static const char name[] = "combine";
    const RefObject *ref[2];
    uint64_t number[3];
    if (han_expect(name, given, 8) || han_take(name, args, 5, ref, 2, number, 3) ||
        han_mail_ready(self))
        return NULL;
    for (int k = 5; k < 8; k++)
        if (han_expect_tuple(name, args[k], -1)) return NULL;
    const combination c = {
        ref[0],    ref[1],    in_tuple(args[5]), in_tuple(args[6]), in_tuple(args[7]),
        number[0], number[1], number[2]};
    if (combine(self, name, &c)) return NULL;
    Py_RETURN_NONE;
}

/* ---- a combining stage ---------------------------------------------------------------------- */

typedef struct {
    const RefObject *room, *mine, *own, *work; /* see han_mail_stage */
    uint64_t start, most, step;
    PyObject *arriving, *leaving, *folds; /* tuples of tuples; borrowed */
    PyObject *arrived, *sent;             /* lists of transfers; owned */
} stage;

/* Start the messages of letters (member, start, stop), which count from byte `start`, and append
 * their transfers to a list. With `apart`, each has a fourth number: its place behind `place`. */
static int start_letters(MailObject *self, const char *name, PyObject *letters, uint64_t start,
                         uint64_t most, const RefObject *place, bool apart, start_message *emit,
                         PyObject *list) {
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(letters); k++) {
        uint64_t number[4];
        RefObject where = *place;
        if (han_numbers_of(name, PyTuple_GET_ITEM(letters, k), number, apart ? 4 : 3)) return -1;
        const letter what = {start + number[1], start + number[2], number[0], most};
        if (apart) {
            where.offset += number[3];
            where.at = where.origin = what.start;
        }
        PyObject *transfer = han_mail_start(self, &where, &what, emit);
        if (!transfer) return -1;
        int failed = PyList_Append(list, transfer);
        Py_DECREF(transfer);
        if (failed) return -1;
    }
    return 0;
}

static int complete_each(MailObject *self, PyObject *list) {
    for (Py_ssize_t k = 0; k < PyList_GET_SIZE(list); k++)
        if (han_complete_all(self, (TransferObject *)PyList_GET_ITEM(list, k))) return -1;
    return 0;
}

/* Find the transfers that bring bytes [first, last) of members' operands. Both members and arrivals
 * are in one order as a rule, so each search begins behind what the last one has found. */
static int find_operands(const char *name, const stage *s, PyObject *members, uint64_t first,
                         uint64_t last, Py_ssize_t *from, PyObject **found) {
    Py_ssize_t all = PyList_GET_SIZE(s->arrived);
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(members); k++) {
        uint64_t member, number[4];
        Py_ssize_t tried = 0;
        if (han_number_of(PyTuple_GET_ITEM(members, k), &member)) return -1;
        for (;; tried++, *from = (*from + 1) % all) {
            if (tried == all) {
                PyErr_Format(PyExc_ValueError, "%s: nothing arrives from member %llu", name,
                             (unsigned long long)member);
                return -1;
            }
            const TransferObject *t = (TransferObject *)PyList_GET_ITEM(s->arrived, *from);
            if (han_numbers_of(name, PyTuple_GET_ITEM(s->arriving, *from), number, 4)) return -1;
            if (number[0] == member && t->start <= first && last <= t->stop) break;
        }
        found[k] = PyList_GET_ITEM(s->arrived, *from);
    }
    return 0;
}

/* Combine a run: (start, stop, whole, before, after), members before and after this one. */
static int fold_run(MailObject *self, const char *name, const stage *s, PyObject *fold,
                    Py_ssize_t *from) {
    uint64_t number[3];
    if (han_expect_tuple(name, fold, 5)) return -1;
    for (int k = 0; k < 3; k++)
        if (han_number_of(PyTuple_GET_ITEM(fold, k), &number[k])) return -1;
    PyObject *before = PyTuple_GET_ITEM(fold, 3), *after = PyTuple_GET_ITEM(fold, 4);
    if (han_expect_tuple(name, before, -1) || han_expect_tuple(name, after, -1)) return -1;
    Py_ssize_t n_before = PyTuple_GET_SIZE(before), n_after = PyTuple_GET_SIZE(after);
    PyObject **operands = PyMem_Calloc((size_t)(n_before + n_after) + 1, sizeof *operands);
    if (!operands) {
        PyErr_NoMemory();
        return -1;
    }
    const combination c = {
        s->work,
        number[2] ? s->own : s->work,
        {operands, n_before},
        {operands + n_before, n_after},
        {PySequence_Fast_ITEMS(s->sent), PyList_GET_SIZE(s->sent)},
        s->start + number[0],
        s->start + number[1],
        s->step,
    };
    int failed = find_operands(name, s, before, c.start, c.stop, from, operands) ||
                 find_operands(name, s, after, c.start, c.stop, from, operands + n_before) ||
                 combine(self, name, &c);
    PyMem_Free(operands);
    return failed ? -1 : 0;
}

static int run_stage(MailObject *self, const char *name, const stage *s) {
    Py_ssize_t from = 0;
    if (start_letters(self, name, s->arriving, s->start, s->most, s->room, true, han_emit_irecv,
                      s->arrived) ||
        start_letters(self, name, s->leaving, s->start, s->most, s->mine, false, han_emit_isend,
                      s->sent))
        return -1;
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(s->folds); k++)
        if (fold_run(self, name, s, PyTuple_GET_ITEM(s->folds, k), &from)) return -1;
    return complete_each(self, s->sent);
}

/* Carry out a stage of the tuples `each`: what arrives, what leaves, and folds. */
static int stage_of(MailObject *self, const char *name, stage *s, PyObject *const each[3]) {
    for (int k = 0; k < 3; k++)
        if (han_expect_tuple(name, each[k], -1)) return -1;
    s->arriving = each[0], s->leaving = each[1], s->folds = each[2];
    s->arrived = PyList_New(0);
    s->sent = PyList_New(0);
    int failed = !s->arrived || !s->sent || run_stage(self, name, s);
    Py_CLEAR(s->arrived);
    Py_CLEAR(s->sent);
    return failed ? -1 : 0;
}

PyObject *han_mail_stage(MailObject *self, PyObject *const *args, Py_ssize_t given) {
    static const char name[] = "stage";
    const RefObject *ref[4];
    uint64_t number[3];
    if (han_expect(name, given, 10) || han_take(name, args, 7, ref, 4, number, 3) ||
        han_mail_ready(self))
        return NULL;
    stage s = {.room = ref[0],
               .mine = ref[1],
               .own = ref[2],
               .work = ref[3],
               .start = number[0],
               .most = number[1],
               .step = number[2]};
    if (stage_of(self, name, &s, args + 7)) return NULL;
    Py_RETURN_NONE;
}

/* ---- gathering steps ------------------------------------------------------------------------ */

/* A step: letters that arrive, for which it waits, and letters that leave. */
static int gather_step(MailObject *self, const char *name, PyObject *step, const RefObject *work,
                       const uint64_t number[2], PyObject *sent) {
    PyObject *received, *arriving, *leaving;
    if (han_expect_tuple(name, step, 2)) return -1;
    arriving = PyTuple_GET_ITEM(step, 0);
    leaving = PyTuple_GET_ITEM(step, 1);
    if (han_expect_tuple(name, arriving, -1) || han_expect_tuple(name, leaving, -1) ||
        !(received = PyList_New(0)))
        return -1;
    int failed = start_letters(self, name, arriving, number[0], number[1], work, false,
                               han_emit_irecv, received) ||
                 start_letters(self, name, leaving, number[0], number[1], work, false,
                               han_emit_isend, sent) ||
                 complete_each(self, received);
    Py_DECREF(received);
    return failed ? -1 : 0;
}

static int gather(MailObject *self, const char *name, const RefObject *work,
                  const uint64_t number[2], PyObject *steps) {
    PyObject *sent;
    if (han_expect_tuple(name, steps, -1) || !(sent = PyList_New(0))) return -1;
    int failed = 0;
    for (Py_ssize_t k = 0; !failed && k < PyTuple_GET_SIZE(steps); k++)
        failed = gather_step(self, name, PyTuple_GET_ITEM(steps, k), work, number, sent);
    failed = failed || complete_each(self, sent);
    Py_DECREF(sent);
    return failed ? -1 : 0;
}

PyObject *han_mail_gather(MailObject *self, PyObject *const *args, Py_ssize_t given) {
    static const char name[] = "gather";
    const RefObject *work;
    uint64_t number[2]; /* start, most */
    if (han_expect(name, given, 4) || han_take(name, args, 3, &work, 1, number, 2) ||
        han_mail_ready(self) || gather(self, name, work, number, args[3]))
        return NULL;
    Py_RETURN_NONE;
}

/* ---- whole tasks ---------------------------------------------------------------------------- */

/* Carry out a task: a pair of stages and of gathering steps. */
static int exchange_task(MailObject *self, const char *name, stage s, PyObject *task) {
    if (han_expect_tuple(name, task, 2) || han_expect_tuple(name, PyTuple_GET_ITEM(task, 0), -1))
        return -1;
    PyObject *stages = PyTuple_GET_ITEM(task, 0);
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(stages); k++) {
        PyObject *one = PyTuple_GET_ITEM(stages, k);
        if (han_expect_tuple(name, one, 3) || stage_of(self, name, &s, PySequence_Fast_ITEMS(one)))
            return -1;
        if (PyTuple_GET_SIZE(PyTuple_GET_ITEM(one, 2))) s.mine = s.work;
    }
    return gather(self, name, s.work, (const uint64_t[2]){s.start, s.most},
                  PyTuple_GET_ITEM(task, 1));
}

PyObject *han_mail_exchange(MailObject *self, PyObject *const *args, Py_ssize_t given) {
    static const char name[] = "exchange";
    const RefObject *ref[3]; /* room, own, work */
    uint64_t number[2], span[2];
    if (han_expect(name, given, 7) || han_take(name, args, 5, ref, 3, number, 2) ||
        han_expect_tuple(name, args[5], -1) ||
        han_expect_tuple(name, args[6], PyTuple_GET_SIZE(args[5])) || han_mail_ready(self))
        return NULL;
    PyObject *ends = PyTuple_New(PyTuple_GET_SIZE(args[5]));
    for (Py_ssize_t k = 0; ends && k < PyTuple_GET_SIZE(args[5]); k++) {
        stage s = {.room = ref[0],
                   .mine = ref[1],
                   .own = ref[1],
                   .work = ref[2],
                   .most = number[0],
                   .step = number[1]};
        if (han_begin_turn(self->stream, name, PyTuple_GET_ITEM(args[5], k), span)) {
            Py_CLEAR(ends);
            break;
        }
        s.start = span[0];
        if (exchange_task(self, name, s, PyTuple_GET_ITEM(args[6], k)) ||
            han_end_turn(self->stream, ends, k))
            Py_CLEAR(ends);
    }
    return ends;
}
