#include "engine/sizes.h"

enum { RATE_BITS = 32 }; /* of the fraction of a rate, as in han/model/program.py */

static inline uint64_t position(const han_block *b, uint64_t grain, uint32_t number) {
    uint64_t up = (UINT64_C(1) << RATE_BITS) - 1;
    uint64_t at = ((number * b->rate + up) >> RATE_BITS) * grain;
    return at < b->nbytes ? at : b->nbytes;
}

static han_block block_of(const han_plan *p, uint64_t nbytes, uint64_t start) {
    uint64_t grains = (nbytes + p->grain - 1) / p->grain;
    return (han_block){.nbytes = nbytes, .start = start, .rate = (grains << RATE_BITS) / p->grains};
}

/* Where an instruction that moves grains of block `b` begins, by operand, and how much it moves.
 * `starts` holds blocks by number, or is NULL if all are like `b`. */
static inline void fit(const han_plan *p, han_instr *i, const han_term *t, const han_block *b,
                       const han_block *starts) {
    uint64_t start = position(b, p->grain, t->start);
    uint64_t length = position(b, p->grain, t->stop) - start;
    for (int ref = 0; ref < 4; ref++) {
        uint64_t before = starts ? starts[t->blocks[ref]].start : t->blocks[ref] * b->nbytes;
        i->off[ref] = t->offset[ref] + before + start - position(b, p->grain, t->origin[ref]);
    }
    i->n = t->each == 1 ? length : length / t->each;
}

static void fit_message(han_plan *p, uint64_t nbytes) {
    const han_block whole = block_of(p, nbytes, 0);
    for (uint32_t k = 0; k < p->n_code; k++)
        if (p->terms[k].each) fit(p, &p->fitted[k], &p->terms[k], &whole, NULL);
    p->nbytes = nbytes;
}

static bool same_blocks(const han_plan *p, const uint64_t *sizes) {
    for (uint32_t b = 0; b < p->n_blocks; b++)
        if (p->table[b].nbytes != sizes[b]) return false;
    return true;
}

static void fit_blocks(han_plan *p, const uint64_t *sizes) {
    uint64_t start = 0;
    for (uint32_t b = 0; b < p->n_blocks; start += sizes[b++])
        p->table[b] = block_of(p, sizes[b], start);
    for (uint32_t k = 0; k < p->n_code; k++) {
        const han_term *t = &p->terms[k];
        if (t->each) fit(p, &p->fitted[k], t, &p->table[t->block], p->table);
    }
}

void han_fit(han_plan *p, const han_run *run) {
    if (!p->table)
        fit_message(p, run->nbytes);
    else if (!same_blocks(p, run->sizes) || p->nbytes != run->nbytes)
        fit_blocks(p, run->sizes);
    p->nbytes = run->nbytes;
}

uint64_t han_digest_of_sizes(const uint64_t *sizes, uint32_t n) {
    uint64_t h = 1;
    for (uint32_t b = 0; b < n; b++) h = (h ^ sizes[b]) * UINT64_C(0x9e3779b97f4a7c15);
    return h;
}
