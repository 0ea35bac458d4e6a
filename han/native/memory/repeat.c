#include "memory/repeat.h"

#include <stdlib.h>
#include <string.h>

#include "strides.h"

enum {
    PLACES = 16,  /* in a stream at which a period is sought */
    WHILE = 3,    /* a period lasts for this part of a stream at least */
    EFFORT = 256, /* records that are compared for each record of the program */
};

/* ---- records of one kind in the same memory ---------------------------------------------------- */

/* How much later two records of one kind are in the message, in private memory and in the list of
 * tasks, if they are. */
typedef struct {
    uint32_t grains, tasks;
    uint64_t scratch;
} shift;

/* Whether a record moves a part of the message, or whole blocks. */
static bool moves(han_record a) {
    return a.term->each && (a.term->stop != a.term->start || a.term->count);
}

/* Whether a record of data may be another one with grains that are later by `by.grains`. Operands in
 * private memory may be elsewhere by `by.scratch`. */
static bool shifted_data(han_record a, han_record b, shift by) {
    const han_term *t = a.term, *u = b.term;
    if (u->start - t->start != by.grains || t->block != u->block) return false;
    for (int ref = 0; ref < 4; ref++) {
        const uint32_t origin = u->origin[ref] - t->origin[ref];
        const uint64_t offset = u->offset[ref] - t->offset[ref];
        const bool beside =
            by.scratch && a.code->base[ref] == HAN_B_SCRATCH && offset == by.scratch;
        if ((origin && origin != by.grains) || (offset && !beside) ||
            t->blocks[ref] != u->blocks[ref])
            return false;
    }
    return true;
}

/* Whether a record may be another one for later grains: all but these and counts is alike. */
static bool shifted(han_record a, han_record b, shift by) {
    const han_instr *i = a.code, *j = b.code;
    if (!han_alike(a, b) || i->peer != j->peer || memcmp(i->base, j->base, sizeof i->base) ||
        j->task - i->task != by.tasks)
        return false;
    if (moves(a)) return shifted_data(a, b, by);
    return !memcmp(a.term->offset, b.term->offset, sizeof a.term->offset);
}

static han_record at(const han_records_of *program, uint32_t k) {
    return han_record_at(program->code, program->terms, k);
}

/* ---- the period -------------------------------------------------------------------------------- */

/* Whether `n` records from `first` on repeat `length` records later; by how many grains. */
static bool repeats(const han_records_of *program, uint32_t first, uint32_t length, uint32_t n,
                    uint32_t *grains, uint64_t *effort) {
    shift by = {0};
    if (n) by.tasks = program->code[first + length].task - program->code[first].task;
    for (uint32_t k = 0; k < n && *effort; k++, --*effort) {
        const han_record a = at(program, first + k), b = at(program, first + length + k);
        if (moves(a) && !by.grains) by.grains = b.term->start - a.term->start;
        if (by.grains > INT32_MAX || !shifted(a, b, by)) return false;
    }
    *grains = by.grains;
    return *effort && by.grains;
}

/* The least number of grains after which a stream repeats for a while; 0: none was found. Blocks of
 * a piece repeat for a shorter time. */
static uint32_t period_of(const han_records_of *program, han_stream stream) {
    const uint32_t n = stream.stop - stream.start, least = n / WHILE;
    uint64_t effort = (uint64_t)EFFORT * n;
    uint32_t grains;
    for (uint32_t place = 0; place < PLACES; place++) {
        const uint32_t first = stream.start + (uint32_t)((uint64_t)n * place / PLACES);
        for (uint32_t length = 1; effort && length <= (stream.stop - first) / 2; length++) {
            const uint32_t again = length > least ? length : least;
            if (again <= stream.stop - first - length &&
                repeats(program, first, length, again, &grains, &effort))
                return grains;
        }
    }
    return 0;
}

static uint64_t common_divisor(uint64_t a, uint64_t b) {
    while (b) {
        const uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

uint32_t han_period(const han_records_of *program) {
    uint64_t period = 0;
    for (uint32_t s = 0; program->terms && s < program->n_streams; s++) {
        const uint64_t one = period_of(program, program->streams[s]);
        if (one) period = period ? period / common_divisor(period, one) * one : one;
        if (period > INT32_MAX) return 0;
    }
    return (uint32_t)period;
}

/* ---- once more --------------------------------------------------------------------------------- */

/* Where the streams of both samples part, and the length of the group that the longer one repeats. */
typedef struct {
    uint32_t parts, length;
} seam;

/* Whether an operation in front of the seam is in both streams: the same one of the same grains. The
 * tasks of a stream may be further behind in the list. */
static bool same_begin(const han_samples *s, uint32_t stream, uint32_t k, uint32_t tasks) {
    const uint32_t a = s->shorter->streams[stream].start + k,
                   b = s->longer->streams[stream].start + k;
    const han_instr *i = &s->shorter->code[a], *j = &s->longer->code[b];
    if (!shifted(at(s->shorter, a), at(s->longer, b), (shift){0, tasks, s->scratch})) return false;
    if (i->code != HAN_AWAIT) return i->n == j->n;
    return i->n - s->shorter->streams[i->peer].start == j->n - s->longer->streams[j->peer].start;
}

/* Find the seam of a stream; false: the longer one does not repeat a group once more. */
static bool find_seam(const han_samples *s, uint32_t stream, seam *found) {
    const han_stream a = s->shorter->streams[stream], b = s->longer->streams[stream];
    const uint32_t n = a.stop - a.start, m = b.stop - b.start;
    if (m < n) return false;
    *found = (seam){0, m - n};
    const uint32_t behind = n ? s->longer->code[b.start].task - s->shorter->code[a.start].task : 0;
    while (found->parts < n && same_begin(s, stream, found->parts, behind)) found->parts++;
    if (found->parts < found->length) return false;
    const uint32_t again = b.start + found->parts,
                   group = again - found->length; /* in the longer one */
    const uint32_t tasks =
        found->length ? s->longer->code[again].task - s->longer->code[group].task : 0;
    for (uint32_t k = 0; k < found->length; k++)
        if (!shifted(at(s->longer, group + k), at(s->longer, again + k),
                     (shift){s->grains, tasks, 0}))
            return false;
    for (uint32_t k = found->parts; k < n; k++)
        if (!shifted(at(s->shorter, a.start + k), at(s->longer, b.start + found->length + k),
                     (shift){s->grains, behind + tasks, s->scratch}))
            return false;
    return true;
}

/* Positions in a stream in place of indices into the code, which differ in both samples. */
static han_record counted(const han_records_of *program, uint32_t k, han_instr *copy) {
    han_record found = at(program, k);
    if (found.code->code != HAN_AWAIT) return found;
    *copy = *found.code;
    copy->n -= program->streams[copy->peer].start;
    found.code = copy;
    return found;
}

/* What is added to a record of one program in that of another one. */
static han_stride difference(const han_records_of *one, uint32_t a, const han_records_of *other,
                             uint32_t b) {
    han_instr first, second;
    return han_stride_between(counted(one, a, &first), counted(other, b, &second));
}

/* Write a record of the shorter sample, with what changes up to that of the longer one. */
static void put(const han_samples *s, uint32_t a, uint32_t b, uint32_t times, han_records_of *out) {
    const han_stride change = difference(s->shorter, a, s->longer, b);
    han_instr *code = &out->code[out->length];
    han_term *term = &out->terms[out->length];
    han_instr copy;
    const han_record from = counted(s->shorter, a, &copy);
    *code = *from.code;
    *term = *from.term;
    han_add_stride(code, term, &change, times);
    out->length++;
}

static void put_stream(const han_samples *s, uint32_t stream, seam where, uint32_t times,
                       han_records_of *out) {
    const han_stream a = s->shorter->streams[stream];
    const uint32_t start = s->longer->streams[stream].start;
    for (uint32_t k = 0; k < where.parts; k++) put(s, a.start + k, start + k, times, out);
    if (where.length) {
        const uint32_t group = start + where.parts - where.length;
        han_put_mark(out, where.length, (uint64_t)times + 1);
        for (uint32_t k = 0; k < where.length; k++)
            out->strides[out->n_strides++] =
                difference(s->longer, group + k, s->longer, group + where.length + k);
    }
    for (uint32_t k = a.start + where.parts; k < a.stop; k++)
        put(s, k, start + where.length + k - a.start, times, out);
}

static bool comparable(const han_samples *s) {
    const han_records_of *a = s->shorter, *b = s->longer;
    return a->terms && b->terms && a->n_streams == b->n_streams;
}

/* Whether there is memory for the records of the shorter sample, marks, and the groups' strides. */
static bool make_room(const han_samples *s, han_records_of *out) {
    const size_t n = s->shorter->length + s->shorter->n_streams;
    out->code = malloc((n + 1) * sizeof *out->code);
    out->terms = malloc((n + 1) * sizeof *out->terms);
    out->strides = malloc((n + 1) * sizeof *out->strides);
    return out->code && out->terms && out->strides;
}

int han_repeat(const han_samples *samples, uint32_t times, han_records_of *out) {
    seam seams[HAN_MAX_STREAMS];
    *out = (han_records_of){0};
    if (!comparable(samples) || times == UINT32_MAX) return 0;
    out->n_streams = samples->shorter->n_streams;
    for (uint32_t s = 0; s < out->n_streams; s++)
        if (!find_seam(samples, s, &seams[s])) return 0;
    if (!make_room(samples, out)) {
        han_free_records(out);
        return -1;
    }
    for (uint32_t s = 0; s < out->n_streams; s++) {
        out->streams[s].start = (uint32_t)out->length;
        put_stream(samples, s, seams[s], times, out);
        out->streams[s].stop = (uint32_t)out->length;
    }
    for (size_t k = 0; k < out->length; k++)
        if (out->code[k].code == HAN_AWAIT) out->code[k].n += out->streams[out->code[k].peer].start;
    return 1;
}
