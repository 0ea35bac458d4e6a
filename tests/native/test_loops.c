/* Random programs are the same with loops as without: every record, each time, for several sizes of
 * the message. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/loops.h"
#include "engine/sizes.h"
#include "memory/roll.h"

enum { STREAMS = 8, MOST = 2400, GRAIN = 64, GRAINS = 1 << 16 };

static uint64_t state = 1;

static uint32_t below(uint32_t n) {
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(state >> 33) % n;
}

static void require(bool holds, const char *what, uint64_t k) {
    if (holds) return;
    printf("FAILED: %s (record %llu)\n", what, (unsigned long long)k);
    exit(1);
}

/* ---- random programs ------------------------------------------------------------------------ */

static han_instr random_record(uint32_t streams) {
    static const uint16_t codes[] = {HAN_COPY,  HAN_REDUCE, HAN_POST,  HAN_WAIT,
                                     HAN_ISEND, HAN_TEST,   HAN_AWAIT, HAN_PULL};
    han_instr i = {.code = codes[below(8)], .stream = 1, .n = below(3), .slot = below(2)};
    i.peer = (int32_t)below(i.code == HAN_AWAIT ? streams : 3);
    for (int ref = 0; ref < 4; ref++) {
        bool peers = !below(4);
        i.base[ref] =
            (uint16_t)(peers ? HAN_B_PEER | 1u << HAN_PEER_BUFFER_SHIFT | below(9) : below(9));
        i.off[ref] = 64 * below(5);
    }
    i.task = below(3);
    return i;
}

static han_term random_term(void) {
    han_term t = {.start = below(3), .each = below(3) ? 1 + 7 * below(2) : 0, .block = below(2)};
    t.stop = t.start + below(3);
    t.count = t.each == 1 && !below(4) ? (uint16_t)(1 + below(2)) : 0;
    for (int ref = 0; ref < 4; ref++) {
        t.offset[ref] = 64 * below(3);
        t.origin[ref] = below(2) ? t.start : 0;
        t.blocks[ref] = (uint16_t)below(3);
    }
    return t;
}

static uint64_t some(void) { return below(3) ? 0 : below(4); }

/* The record that comes some times later. Each field is stepped now and then. */
static void step(han_instr *i, han_term *t, const han_stride *by, uint32_t streams) {
    bool flag = i->code == HAN_POST || i->code == HAN_WAIT || i->code == HAN_AWAIT;
    for (int ref = 0; ref < 4; ref++) {
        i->off[ref] += by->off[ref];
        t->offset[ref] += by->offset[ref];
        t->origin[ref] += by->origin[ref];
        t->blocks[ref] = (uint16_t)(t->blocks[ref] + by->blocks[ref]);
        if (i->base[ref] & HAN_B_PEER) i->base[ref] = (uint16_t)(i->base[ref] + by->base[ref]);
    }
    if (flag) i->n += by->n;
    i->task += by->task;
    i->peer += by->peer;
    if (i->code == HAN_AWAIT) i->peer %= (int32_t)streams;
    t->start += by->start;
    t->stop += by->start;
    t->block += by->block;
}

static han_stride random_stride(void) {
    han_stride by = {.n = some(),
                     .start = (uint32_t)some(),
                     .block = (uint32_t)some(),
                     .task = (uint32_t)some(),
                     .peer = (int32_t)some()};
    for (int ref = 0; ref < 4; ref++) {
        by.off[ref] = 64 * some();
        by.offset[ref] = 64 * some();
        by.origin[ref] = by.start ? (uint32_t)below(2) * by.start : 0;
        by.base[ref] = (uint16_t)some();
        by.blocks[ref] = (uint16_t)some();
    }
    return by;
}

/* Append a group of records that repeats. */
static void put_group(han_records_of *p, uint32_t streams, size_t until) {
    enum { LONGEST = 6 };
    han_instr code[LONGEST];
    han_term terms[LONGEST];
    han_stride by[LONGEST];
    uint32_t length = 1 + below(LONGEST), times = 1 + below(100);
    for (uint32_t k = 0; k < length; k++) {
        code[k] = random_record(streams);
        terms[k] = random_term();
        by[k] = random_stride();
    }
    for (uint32_t turn = 0; turn < times; turn++)
        for (uint32_t k = 0; k < length && p->length < until; k++, p->length++) {
            p->code[p->length] = code[k];
            if (p->terms) p->terms[p->length] = terms[k];
            step(&code[k], &terms[k], &by[k], streams);
        }
}

/* Change a field of some records, so that loops end there. */
static void disturb(han_records_of *p) {
    for (uint32_t times = below(4); times; times--) {
        uint32_t k = below((uint32_t)p->length), ref = below(4);
        han_instr *i = &p->code[k];
        han_term none, *t = p->terms ? &p->terms[k] : &none;
        switch (below(9)) {
        case 0:
            i->off[ref] += 64;
            break;
        case 1:
            for (int r = 0; r < 4; r++) i->base[r] ^= i->base[r] & HAN_B_PEER ? 1 : 0;
            break;
        case 2:
            i->task++;
            break;
        case 3:
            i->peer = 0;
            break;
        case 4:
            t->start++, t->stop++;
            break;
        case 5:
            t->origin[ref]++;
            break;
        case 6:
            t->blocks[ref]++;
            break;
        case 7:
            t->block++;
            break;
        default:
            t->offset[ref] += 64;
        }
    }
}

static void random_program(han_records_of *p, bool sized) {
    p->length = 0;
    p->n_streams = 1 + below(STREAMS);
    p->terms = sized ? p->terms : NULL;
    for (uint32_t s = 0; s < p->n_streams; s++) {
        size_t until = p->length + 1 + below(MOST / STREAMS);
        p->streams[s].start = (uint32_t)p->length;
        while (p->length < until) put_group(p, p->n_streams, until);
        p->streams[s].stop = (uint32_t)p->length;
    }
    if (below(2)) disturb(p);
}

/* ---- with loops and without ----------------------------------------------------------------- */

/* A plan of the records, for a message of some size. */
static han_plan plan_of(const han_records_of *rolled, uint64_t nbytes) {
    han_plan p = {.code = rolled->code,
                  .fitted = rolled->code,
                  .terms = rolled->terms,
                  .strides = rolled->strides,
                  .n_code = (uint32_t)rolled->length,
                  .n_streams = rolled->n_streams,
                  .grain = GRAIN,
                  .grains = GRAINS,
                  .nbytes = nbytes};
    memcpy(p.streams, rolled->streams, sizeof p.streams);
    p.message = han_block_of(&p, nbytes, 0);
    for (uint32_t k = 0; p.terms && nbytes < GRAIN * GRAINS && k < p.n_code; k++)
        if (p.terms[k].each) han_resolve_one(&p, &p.fitted[k], &p.terms[k], &p.message, NULL);
    return p;
}

/* What the plan must do where the program without loops has record k. */
static han_instr expected(const han_plan *p, const han_records_of *plain, size_t k) {
    han_instr i = plain->code[k];
    if (i.code == HAN_AWAIT)
        i.n += (uint64_t)p->streams[i.peer].start - plain->streams[i.peer].start;
    if (p->terms && plain->terms[k].each && p->nbytes < GRAIN * GRAINS)
        han_resolve_one(p, &i, &plain->terms[k], &p->message, NULL);
    return i;
}

static void walk(han_plan *p, const han_records_of *plain) {
    static han_engine e;
    memset(&e, 0, sizeof e);
    for (uint32_t s = 0; s < p->n_streams; s++) {
        e.pc[s] = p->streams[s].start;
        for (uint32_t k = plain->streams[s].start; k < plain->streams[s].stop; k++) {
            const han_instr i = expected(p, plain, k);
            require(!memcmp(&p->code[e.pc[s]], &i, sizeof i), "the same operation", k);
            bool fitted = p->terms && plain->terms[k].each && p->nbytes < GRAIN * GRAINS;
            require(!fitted || !memcmp(&p->terms[e.pc[s]], &plain->terms[k], sizeof(han_term)),
                    "the same term", k);
            require(han_position_of(&e, p, s) - p->streams[s].start == k - plain->streams[s].start,
                    "the same position", k);
            e.pc[s]++;
            bool last = k + 1 == plain->streams[s].stop;
            require(han_same_task(&e, p, s, i.task) == (!last && plain->code[k + 1].task == i.task),
                    "the same task", k);
            if (han_at_loop(&e, p, s)) han_end_loop(&e, p, s);
            require(han_done_until(&e, p, s) >= e.pc[s], "what was done is before", k);
        }
        require(e.pc[s] == p->streams[s].stop && !e.loops[s], "the end", plain->streams[s].stop);
    }
}

/* Run all records, twice for each size: loops leave their records as they were. */
static void compare(const han_records_of *plain, const han_records_of *rolled) {
    static const uint64_t sizes[] = {GRAIN * GRAINS, GRAIN * GRAINS / 3, 1000, 0};
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes && (!k || plain->terms); k++) {
        han_plan p = plan_of(rolled, sizes[k]);
        walk(&p, plain);
        walk(&p, plain);
    }
}

int main(int argc, char **argv) {
    static han_instr code[MOST + STREAMS];
    static han_term terms[MOST + STREAMS];
    uint64_t calls = argc > 2 ? strtoull(argv[2], NULL, 10) : 1000, found = 0;
    for (uint64_t call = 0; call < 4 * calls; call++) {
        han_records_of plain = {.code = code, .terms = terms}, rolled;
        random_program(&plain, call % 2);
        int made = han_roll(&plain, &rolled);
        require(made >= 0, "there is memory", call);
        if (!made) continue;
        found++;
        require(rolled.length <= plain.length / 2, "loops save half of the records", call);
        compare(&plain, &rolled);
        han_free_records(&rolled);
    }
    require(found > calls / 2, "many programs have loops", found);
    return 0;
}
