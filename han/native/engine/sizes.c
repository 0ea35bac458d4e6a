#include "engine/sizes.h"

static void fit_message(han_plan *p, uint64_t nbytes) {
    p->message = han_block_of(p, nbytes, 0);
    for (uint32_t k = 0; k < p->n_code; k++)
        if (p->terms[k].each) han_resolve_one(p, &p->fitted[k], &p->terms[k], &p->message, NULL);
}

static bool same_blocks(const han_plan *p, const uint64_t *sizes) {
    for (uint32_t b = 0; b < p->n_blocks; b++)
        if (p->table[b].nbytes != sizes[b]) return false;
    return true;
}

static void fit_blocks(han_plan *p, const uint64_t *sizes) {
    uint64_t start = 0;
    for (uint32_t b = 0; b < p->n_blocks; start += sizes[b++])
        p->table[b] = han_block_of(p, sizes[b], start);
    p->table[p->n_blocks].start = start;
    for (uint32_t k = 0; k < p->n_code; k++) {
        const han_term *t = &p->terms[k];
        if (t->each) han_resolve_one(p, &p->fitted[k], t, &p->table[t->block], p->table);
    }
}

/* How many blocks a run brings: block 0 of a plan for own sizes is empty. */
static uint32_t brought(const han_plan *p) { return p->n_blocks - 1; }

static bool same_own_blocks(const han_plan *p, const uint64_t *sizes, const uint64_t *starts) {
    for (uint32_t b = 0; b < brought(p); b++)
        if (p->table[b + 1].nbytes != sizes[b] || p->table[b + 1].start != starts[b]) return false;
    return true;
}

/* What an operation moves: of a block that may come shorter, all that may come. Those that compare
 * sizes learn that it may. */
static uint64_t bytes_of(unsigned code, uint64_t size) {
    return code == HAN_TEST || code == HAN_EXPECT ? size : size & ~HAN_AT_MOST;
}

/* Whether an operation is meant for a block of this size. */
static bool is_meant(const han_term *t, uint64_t nbytes) {
    return !t->stop || (nbytes > t->start && (nbytes <= t->stop || t->stop == UINT32_MAX));
}

static void fit_own_blocks(han_plan *p, const uint64_t *sizes, const uint64_t *starts) {
    uint64_t received = 0;
    for (uint32_t b = 0; b < brought(p); b++) {
        p->table[b + 1] = (han_block){.nbytes = sizes[b], .start = starts[b]};
        if (b >= brought(p) / 2 && !(sizes[b] & HAN_AT_MOST)) received += sizes[b];
    }
    p->streaming = received >= p->share;
    for (uint32_t k = 0; k < p->n_code; k++) {
        const han_term *t = &p->terms[k];
        han_instr *i = &p->fitted[k];
        uint64_t size = p->table[t->block].nbytes;
        unsigned code = i->code & ~HAN_VOID;
        i->code = (uint16_t)(is_meant(t, size & ~HAN_AT_MOST) ? code : code | HAN_VOID);
        if (!t->each) continue;
        i->n = bytes_of(code, size);
        for (int ref = 0; ref < 2; ref++)
            i->off[ref] = t->offset[ref] + p->table[t->blocks[ref]].start;
    }
}

static void resolve_own(han_plan *p, const han_run *run) {
    const uint64_t *starts = run->sizes + brought(p);
    if (p->nbytes != run->nbytes || !same_own_blocks(p, run->sizes, starts))
        fit_own_blocks(p, run->sizes, starts);
}

void han_resolve(han_plan *p, const han_run *run) {
    if (p->own)
        resolve_own(p, run);
    else if (!p->table)
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
