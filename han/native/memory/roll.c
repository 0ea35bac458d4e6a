/* Candidates for the length of a loop are the distances to the next records of the same kind. The one
 * that leaves the smallest part of what it covers is taken, and the search goes on behind it. */
#include "memory/roll.h"

#include <stdlib.h>
#include <string.h>

#include "strides.h"

enum {
    LONGEST = 1024,  /* records of a loop */
    CANDIDATES = 48, /* lengths that are tried at one record */
    TIMES = 4,       /* a loop is carried out so often at least, */
    SAVED = 16,      /* and saves so many records */
    MANY = 16,       /* of a loop with so many times, multiples of its length are not tried */
    VAIN = 2048,     /* records without any loop, after which none is sought */
    EFFORT = 64,     /* records that are compared for each record of the program */
};
#define NONE UINT32_MAX

typedef struct {
    const han_instr *code;
    const han_term *terms;
    uint64_t *kinds;          /* by record: a number for its kind */
    uint32_t *next;           /* by record: the next one of its kind in its stream, or NONE */
    han_stride *trial, *best; /* strides of a loop */
    uint64_t effort;          /* comparisons left */
} search;

typedef struct {
    uint32_t length, times;
} loop;

/* ---- kinds and strides ------------------------------------------------------------------------ */

static uint64_t mix(uint64_t h, uint64_t value) {
    h = (h ^ value) * UINT64_C(0x9e3779b97f4a7c15);
    return h ^ h >> 29;
}

static uint64_t kind_of(const search *s, uint32_t k) {
    const han_instr *i = &s->code[k];
    uint64_t h = mix(i->code, (uint64_t)i->slot << 16 | i->stream);
    h = mix(h, han_fixed_peer(i));
    for (int ref = 0; ref < 4; ref++) h = mix(h, han_fixed_base(i->base[ref]));
    if (!han_is_counted(i)) h = mix(h, i->n);
    if (s->terms)
        h = mix(h, (uint64_t)s->terms[k].each << 32 | (s->terms[k].stop - s->terms[k].start));
    return h;
}

static han_record at(const search *s, uint32_t k) { return han_record_at(s->code, s->terms, k); }

/* Whether two records are of one kind; two kinds may have the same hash. */
static bool same_kind(const search *s, uint32_t a, uint32_t b) {
    return s->kinds[a] == s->kinds[b] && han_alike(at(s, a), at(s, b));
}

/* Link the records of a stream that are of the same kind; 0, or -1 if there is no memory. */
static int link_kinds(search *s, uint32_t start, uint32_t stop) {
    uint32_t room = 64;
    while (room < 2 * (stop - start)) room *= 2;
    uint32_t *last = malloc(room * sizeof *last); /* a record of each kind, by hash */
    if (!last) return -1;
    memset(last, 0xff, room * sizeof *last);
    for (uint32_t k = stop; k-- > start;) {
        s->kinds[k] = kind_of(s, k);
        uint32_t at = (uint32_t)(s->kinds[k] >> 32) & (room - 1);
        while (last[at] != NONE && s->kinds[last[at]] != s->kinds[k]) at = (at + 1) & (room - 1);
        s->next[k] = last[at];
        last[at] = k;
    }
    free(last);
    return 0;
}

/* ---- loops ---------------------------------------------------------------------------------- */

/* Whether `length` records from `b` on are those before them with the strides of the trial. */
static bool strides_again(search *s, uint32_t b, uint32_t length) {
    for (uint32_t k = 0; k < length; k++) {
        s->effort -= s->effort > 0;
        if (!same_kind(s, b + k - length, b + k)) return false;
        const han_stride stride = han_stride_between(at(s, b + k - length), at(s, b + k));
        if (memcmp(&stride, &s->trial[k], sizeof stride)) return false;
    }
    return true;
}

/* How often `length` records from `first` on are carried out as a loop; leaves its strides. */
static uint32_t times_of(search *s, uint32_t first, uint32_t stop, uint32_t length) {
    uint32_t b = first + length, times = 2;
    for (uint32_t k = 0; k < length; k++) {
        s->effort -= s->effort > 0;
        if (!same_kind(s, first + k, b + k)) return 1;
    }
    for (uint32_t k = 0; k < length; k++)
        s->trial[k] = han_stride_between(at(s, first + k), at(s, b + k));
    while (stop - b >= 2 * length && strides_again(s, b += length, length)) times++;
    return times;
}

/* Whether a loop leaves a smaller part of what it covers. */
static bool better(loop a, loop b) {
    uint64_t left_a = a.length + 1, left_b = b.length + 1;
    return left_a * b.length * b.times < left_b * a.length * a.times;
}

/* Find the best loop that begins at a record; its length is 0 if there is none. */
static loop loop_at(search *s, uint32_t first, uint32_t stop) {
    loop best = {0, 0};
    uint32_t next = s->next[first];
    for (int k = 0; k < CANDIDATES && next != NONE && s->effort; k++, next = s->next[next]) {
        uint32_t length = next - first;
        if (length > LONGEST || length > (stop - first) / TIMES) break;
        if (best.times >= MANY && length % best.length == 0) continue; /* it hardly covers more */
        loop one = {length, times_of(s, first, stop, length)};
        if (one.times < TIMES || (one.times - 1) * length < SAVED + 1) continue;
        if (best.length && !better(one, best)) continue;
        best = one;
        memcpy(s->best, s->trial, length * sizeof *s->best);
    }
    return best;
}

/* ---- the program ---------------------------------------------------------------------------- */

static void put(const search *s, han_records_of *out, uint32_t k) {
    out->code[out->length] = s->code[k];
    if (s->terms) out->terms[out->length] = s->terms[k];
    out->length++;
}

void han_put_mark(han_records_of *out, uint32_t length, uint64_t times) {
    const han_instr *last = &out->code[out->length - 1];
    if (out->terms) out->terms[out->length] = (han_term){0};
    out->code[out->length++] = (han_instr){.code = HAN_LOOP,
                                           .stream = last->stream,
                                           .n = length,
                                           .off = {times, out->n_strides},
                                           .task = last->task};
}

/* Write the records of a loop, and the mark at its end. */
static void put_loop(const search *s, han_records_of *out, uint32_t first, loop one) {
    for (uint32_t k = 0; k < one.length; k++) put(s, out, first + k);
    han_put_mark(out, one.length, one.times);
    memcpy(out->strides + out->n_strides, s->best, one.length * sizeof *out->strides);
    out->n_strides += one.length;
}

static int roll_stream(search *s, han_stream stream, han_records_of *out) {
    if (link_kinds(s, stream.start, stream.stop)) return -1;
    for (uint32_t k = stream.start; k < stream.stop;) {
        if (!out->n_strides && out->length == VAIN) s->effort = 0;
        loop found = loop_at(s, k, stream.stop);
        if (found.length)
            put_loop(s, out, k, found);
        else
            put(s, out, k);
        k += found.length ? found.length * found.times : 1;
    }
    return 0;
}

/* Positions in streams are counted from where these begin now. */
static void number_awaited(const han_records_of *program, han_records_of *out) {
    for (size_t k = 0; k < out->length; k++) {
        han_instr *i = &out->code[k];
        if (i->code != HAN_AWAIT) continue;
        i->n += (uint64_t)out->streams[i->peer].start - program->streams[i->peer].start;
    }
}

static int roll_streams(search *s, const han_records_of *program, han_records_of *out) {
    out->n_streams = program->n_streams;
    for (uint32_t k = 0; k < program->n_streams; k++) {
        out->streams[k].start = (uint32_t)out->length;
        if (roll_stream(s, program->streams[k], out)) return -1;
        out->streams[k].stop = (uint32_t)out->length;
    }
    number_awaited(program, out);
    return 0;
}

void han_free_records(han_records_of *records) {
    free(records->code);
    free(records->terms);
    free(records->strides);
    *records = (han_records_of){0};
}

/* Give back the memory that was not needed. */
static void shrink(han_records_of *out) {
    void *code = realloc(out->code, out->length * sizeof *out->code);
    void *terms = out->terms ? realloc(out->terms, out->length * sizeof *out->terms) : NULL;
    void *strides = realloc(out->strides, out->n_strides * sizeof *out->strides);
    if (code) out->code = code;
    if (terms) out->terms = terms;
    if (strides) out->strides = strides;
}

int han_roll(const han_records_of *program, han_records_of *out) {
    size_t n = program->length;
    *out = (han_records_of){0};
    if (!n || n > UINT32_MAX / 4) return 0;
    search s = {.code = program->code,
                .terms = program->terms,
                .effort = (uint64_t)EFFORT * n,
                .kinds = malloc(n * sizeof *s.kinds),
                .next = malloc(n * sizeof *s.next),
                .trial = malloc(LONGEST * sizeof *s.trial),
                .best = malloc(LONGEST * sizeof *s.best)};
    /* Each loop saves more records than its mark and its strides take. */
    out->code = malloc(n * sizeof *out->code);
    out->terms = program->terms ? malloc(n * sizeof *out->terms) : NULL;
    out->strides = malloc(n * sizeof *out->strides);
    bool room = s.kinds && s.next && s.trial && s.best && out->code && out->strides &&
                (out->terms || !program->terms);
    int found = !room || roll_streams(&s, program, out) ? -1 : out->n_strides > 0;
    free(s.kinds);
    free(s.next);
    free(s.trial);
    free(s.best);
    if (found == 1 && out->length <= n / 2)
        shrink(out);
    else {
        han_free_records(out);
        found = found < 0 ? -1 : 0;
    }
    return found;
}
