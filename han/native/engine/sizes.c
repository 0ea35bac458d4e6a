#include "engine/sizes.h"

static void fit_message(han_plan *p, uint64_t nbytes) {
    p->message = han_block_of(p, nbytes, 0);
    for (uint32_t k = 0; k < p->n_code; k++)
        if (p->terms[k].each) han_resolve_one(p, &p->fitted[k], &p->terms[k], &p->message, NULL);
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
        p->table[b] = han_block_of(p, sizes[b], start);
    p->table[p->n_blocks].start = start;
    for (uint32_t k = 0; k < p->n_code; k++) {
        const han_term *t = &p->terms[k];
        if (t->each) han_resolve_one(p, &p->fitted[k], t, &p->table[t->block], p->table);
    }
}

void han_resolve(han_plan *p, const han_run *run) {
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
