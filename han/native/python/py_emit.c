#include "python/py_emit.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { HUGE_PAGE = 1 << 21, FIRST = 16, LARGE = 1 << 13, HUGE_ROOM = 1 << 16 };

/* Memory of another size with the same records; NULL: there is none, and the old one stays. Page
 * faults would take most of the time to write a large program, so it is in huge pages. */
static void *resized(void *old, size_t had, size_t nbytes) {
    if (nbytes < HUGE_PAGE) return realloc(old, nbytes);
    size_t whole = (nbytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
    void *found = aligned_alloc(HUGE_PAGE, whole);
    if (!found) return NULL;
    (void)madvise(found, whole, MADV_HUGEPAGE); /* a kernel may have none */
    if (had) memcpy(found, old, had);
    free(old);
    return found;
}

int han_make_room(OperationsObject *self) {
    if (self->length < self->room) return 0;
    size_t room = !self->room ? FIRST : self->room == LARGE ? HUGE_ROOM : 2 * self->room;
    size_t length = self->length;
    han_instr *code = resized(self->code, length * sizeof *code, room * sizeof *code);
    if (code) self->code = code;
    han_term *terms = NULL;
    if (code && self->grains)
        terms = resized(self->terms, length * sizeof *terms, room * sizeof *terms);
    if (terms) self->terms = terms;
    if (!code || (self->grains && !terms)) return HAN_NO_MEMORY;
    self->room = room;
    return 0;
}

void han_wrote(OperationsObject *self, const RefObject *ref) {
    uint64_t number = ref->base - HAN_B_CHANNEL; /* huge for other bases */
    if (number >= HAN_B_PER_CHANNEL * HAN_MAX_CHANNELS) return;
    uint64_t area = number % HAN_B_PER_CHANNEL;
    if (area != HAN_B_FLAGS) self->writes[number / HAN_B_PER_CHANNEL] |= (uint8_t)(1u << area);
}

static int check_base(const RefObject *ref) {
    if (ref->base <= UINT16_MAX) return 0;
    return HAN_RAISE(PyExc_ValueError, "a base of %llu", (unsigned long long)ref->base);
}

/* 0, or -1 with a ValueError unless an operand addresses the message's byte `at`, for any size. */
static int check_operand(const RefObject *ref, uint64_t at) {
    bool users = ref->base == HAN_B_SEND || ref->base == HAN_B_RECV || ref->base >= HAN_B_PEER;
    if (ref->at != at)
        PyErr_Format(PyExc_ValueError,
                     "operands address bytes %llu and %llu of the message: see Ref.to",
                     (unsigned long long)ref->at, (unsigned long long)at);
    else if (ref->offset && users)
        PyErr_Format(PyExc_ValueError, "an offset of %llu bytes in a user's buffer: use Ref.to",
                     (unsigned long long)ref->offset);
    else
        return 0;
    return -1;
}

/* The number of the grain that holds a byte: large programs have hundreds of thousands of these. */
static uint64_t grain_of(const OperationsObject *self, uint64_t byte) {
    return self->grain_bits < 0 ? byte / self->grain : byte >> self->grain_bits;
}

/* 0, or -1 with a ValueError unless the operation moves a part of a block, or whole blocks. */
static int check_count(const OperationsObject *self, const operation *op) {
    if (!op->count) return 0;
    if (!op->at && op->n * op->each == op->count * self->nbytes && op->count <= UINT16_MAX)
        return 0;
    return HAN_RAISE(PyExc_ValueError,
                     "%llu bytes from byte %llu on: %u blocks of %llu bytes expected",
                     (unsigned long long)(op->n * op->each), (unsigned long long)op->at, op->count,
                     (unsigned long long)self->nbytes);
}

/* Write for which sizes of its block an operation is meant, and what it moves then. */
static void write_own_term(const operation *op, han_term *term) {
    bool named = op->block != HAN_NO_BLOCK, sized = named && op->each;
    *term = (han_term){.start = op->above,
                       .stop = op->upto,
                       .each = sized,
                       .block = named ? (uint16_t)op->block : 0,
                       .offset = {0, 0, op->numbers[0], op->numbers[1]}};
    for (int k = 0; k < 2; k++) {
        if (!op->refs[k]) continue;
        term->offset[k] = op->refs[k]->offset;
        if (sized) term->blocks[k] = (uint16_t)op->refs[k]->blocks;
    }
}

/* Write what the operation moves in a message of any size; 0, or -1 with a ValueError. */
static int write_term(OperationsObject *self, const operation *op, han_term *term) {
    uint64_t grain = self->grain, end = op->at + (op->count ? 0 : op->n * op->each);
    uint64_t start = grain_of(self, op->at), stop = grain_of(self, end);
    if (check_count(self, op)) return -1;
    if (op->each && (start * grain != op->at || stop * grain != end))
        return HAN_RAISE(PyExc_ValueError, "bytes %llu to %llu: not whole grains of %llu bytes",
                         (unsigned long long)op->at, (unsigned long long)end,
                         (unsigned long long)grain);
    if (op->each && self->uneven && op->block == HAN_NO_BLOCK)
        return HAN_RAISE(PyExc_ValueError, "blocks differ in size: name the block that is moved");
    *term = (han_term){.start = (uint32_t)start,
                       .stop = (uint32_t)stop,
                       .each = (uint32_t)op->each,
                       .block = self->uneven && op->each ? (uint16_t)op->block : 0,
                       .count = (uint16_t)op->count,
                       .offset = {0, 0, op->numbers[0], op->numbers[1]}};
    for (int k = 0; k < 4; k++) {
        const RefObject *ref = op->refs[k];
        term->origin[k] = term->start;
        if (!ref) continue;
        term->offset[k] = ref->offset;
        if (!op->each || ref->base == HAN_B_NONE) continue;
        if (check_operand(ref, op->at)) return -1;
        term->origin[k] = (uint32_t)grain_of(self, ref->origin);
        term->blocks[k] = (uint16_t)ref->blocks;
    }
    return 0;
}

int han_emit(OperationsObject *self, const operation *op) {
    if (han_make_room(self)) return -1;
    han_instr *instr = &self->code[self->length];
    *instr = (han_instr){.code = (uint16_t)op->code,
                         .stream = self->tag,
                         .peer = op->peer,
                         .off = {0, 0, op->numbers[0], op->numbers[1]},
                         .n = op->n,
                         .slot = (uint32_t)op->slot,
                         .task = self->task};
    for (int k = 0; k < 4; k++) {
        const RefObject *ref = op->refs[k];
        if (!ref) continue;
        if (check_base(ref)) return -1;
        instr->base[k] = (uint16_t)ref->base;
        instr->off[k] = han_ref_start(ref, self->nbytes);
    }
    if (op->from) {
        instr->base[2] = (uint16_t)op->from->base;
        instr->slot = (uint32_t)op->from->offset;
    }
    if (self->own)
        write_own_term(op, &self->terms[self->length]);
    else if (self->grains && write_term(self, op, &self->terms[self->length]))
        return -1;
    self->length++;
    return 0;
}

int han_emit_copy(OperationsObject *self, const RefObject *dst, const RefObject *src,
                  uint64_t nbytes, uint32_t block, uint32_t count) {
    if (!nbytes || han_ref_same(dst, src)) return 0;
    han_wrote(self, dst);
    return han_emit(self, &(operation){.code = HAN_COPY,
                                       .refs = {dst, src},
                                       .n = nbytes,
                                       .each = 1,
                                       .at = dst->at,
                                       .block = block,
                                       .count = count});
}

int han_emit_reduce(OperationsObject *self, const RefObject *const refs[4], uint64_t nbytes,
                    uint32_t block) {
    if (!nbytes) return 0;
    han_wrote(self, refs[0]);
    if (refs[3]) han_wrote(self, refs[3]);
    han_combines(self, nbytes);
    return han_emit(self, &(operation){.code = refs[3] ? HAN_REDUCE2 : HAN_REDUCE,
                                       .refs = {refs[0], refs[1], refs[2], refs[3]},
                                       .n = nbytes / self->element,
                                       .each = self->element,
                                       .at = refs[0]->at,
                                       .block = block});
}

int han_emit_wait(OperationsObject *self, const RefObject *flag, uint64_t k, int32_t rank) {
    return han_emit(self, &(operation){.code = HAN_WAIT, .refs = {flag}, .n = k, .peer = rank});
}

int han_check_small(const char *what, uint64_t number) {
    if (number <= INT32_MAX) return 0;
    return HAN_RAISE(PyExc_ValueError, "a %s of number %llu", what, (unsigned long long)number);
}

int han_rank_of(uint64_t number, int32_t *rank) {
    if (han_check_small("rank", number)) return -1;
    *rank = (int32_t)number;
    return 0;
}

int han_note_test(OperationsObject *self, uint64_t request, const operation *test) {
    if (han_check_small("request", request)) return -1;
    if (request >= self->n_tests) {
        size_t room = 2 * (size_t)request + 16;
        request_test *more = realloc(self->tests, room * sizeof *more);
        if (!more) return HAN_NO_MEMORY;
        memset(more + self->n_tests, 0, (room - self->n_tests) * sizeof *more);
        self->tests = more;
        self->n_tests = room;
    }
    self->tests[request].op = *test;
    if (test->refs[0]) self->tests[request].told = *test->refs[0];
    return 0;
}

int han_emit_accumulate(OperationsObject *self, const RefObject *dst, const RefObject *operand,
                        uint64_t nbytes) {
    if (!nbytes) return 0;
    han_wrote(self, dst);
    han_combines(self, nbytes);
    return han_emit(self, &(operation){.code = HAN_ACCUMULATE,
                                       .refs = {dst, dst, operand},
                                       .n = nbytes / self->element,
                                       .each = self->element,
                                       .at = dst->at,
                                       .block = HAN_NO_BLOCK});
}

int han_emit_post(OperationsObject *self, const RefObject *flag, uint64_t value) {
    han_wrote(self, flag);
    return han_emit(self, &(operation){.code = HAN_POST, .refs = {flag}, .n = value});
}

operation han_named(operation op, const han_options *more) {
    op.block = more->block;
    op.count = more->count;
    op.above = more->above;
    op.upto = more->upto;
    op.from = more->from;
    return op;
}

int han_emit_message(OperationsObject *self, enum han_code code, const RefObject *place,
                     const uint64_t number[3], const han_options *more) {
    const bool sends = code == HAN_ISEND;
    int32_t rank;
    if (han_rank_of(number[1], &rank)) return -1;
    const RefObject *refs[2] = {sends ? NULL : place, sends ? place : NULL};
    const operation op =
        han_named((operation){.code = code,
                              .refs = {refs[0], refs[1], sends ? more->told : NULL, more->some},
                              .n = number[0],
                              .each = 1,
                              .at = place->at,
                              .peer = rank,
                              .slot = number[2]},
                  more);
    operation test = !sends || self->own ? op : (operation){.block = HAN_NO_BLOCK};
    test.refs[0] = sends ? NULL : more->told;
    test.refs[1] = test.refs[2] = test.refs[3] = test.from = NULL;
    if (sends) test.n = 0;
    return han_note_test(self, number[2], &test) || han_emit(self, &op) ? -1 : 0;
}

int han_emit_test(OperationsObject *self, uint64_t request) {
    operation op = {.block = HAN_NO_BLOCK};
    if (han_check_small("request", request)) return -1;
    if (request < self->n_tests) op = self->tests[request].op;
    if (op.refs[0]) op.refs[0] = &self->tests[request].told;
    op.code = HAN_TEST;
    op.each = op.n ? 1 : 0;
    op.slot = request;
    return han_emit(self, &op);
}

int han_emit_await(OperationsObject *self, uint64_t stream, uint64_t position) {
    if (han_check_small("stream", stream)) return -1;
    if (stream < HAN_MAX_STREAMS) {
        if (position <= self->awaited[stream]) return 0;
        self->awaited[stream] = position;
    }
    return han_emit(self, &(operation){.code = HAN_AWAIT, .n = position, .peer = (int32_t)stream});
}

int han_begin_turn(OperationsObject *stream, PyObject *turn) {
    uint64_t task;
    if (han_expect_tuple("a turn", turn, 4) || han_number_of(PyTuple_GET_ITEM(turn, 0), &task))
        return -1;
    stream->task = (unsigned int)task;
    PyObject *awaits = PyTuple_GET_ITEM(turn, 3);
    if (han_expect_tuple("a turn", awaits, -1)) return -1;
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(awaits); k++) {
        uint64_t number[2]; /* stream, position */
        if (han_numbers_of("a turn", PyTuple_GET_ITEM(awaits, k), number, 2) ||
            han_emit_await(stream, number[0], number[1]))
            return -1;
    }
    return 0;
}

int han_end_turn(const OperationsObject *stream, PyObject *ends) {
    PyObject *position = PyLong_FromSize_t(stream->length);
    const int failed = !position || PyList_Append(ends, position);
    Py_XDECREF(position);
    return failed ? -1 : 0;
}
