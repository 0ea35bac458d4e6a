#include "programs.h"

#include <stdio.h>
#include <stdlib.h>

static const uint64_t MAGIC = 0x31474f5250;

static void *room(size_t n, size_t size) {
    void *p = calloc(n + 1, size);
    if (!p) abort();
    return p;
}

static void read_bytes(FILE *f, void *into, size_t n) {
    if (n && fread(into, 1, n, f) != n) {
        printf("FAILED: the file of programs is too short\n");
        exit(1);
    }
}

static uint64_t number(FILE *f) {
    uint64_t n;
    read_bytes(f, &n, sizeof n);
    return n;
}

static uint64_t at_most(uint64_t n, uint64_t most) {
    if (n > most) {
        printf("FAILED: the file of programs holds %llu, at most %llu expected\n",
               (unsigned long long)n, (unsigned long long)most);
        exit(1);
    }
    return n;
}

static void read_program(FILE *f, program *p) {
    p->requests = number(f);
    p->scratch = number(f);
    p->sync = number(f);
    read_bytes(f, p->footprint, sizeof p->footprint);
    read_bytes(f, p->writes, sizeof p->writes);
    p->n_streams = at_most(number(f), HAN_MAX_STREAMS);
    for (uint64_t s = 0; s < p->n_streams; s++) {
        p->streams[s].start = (uint32_t)number(f);
        p->streams[s].stop = (uint32_t)number(f);
    }
    p->n_code = number(f);
    han_instr *code = room(p->n_code, sizeof *code);
    read_bytes(f, code, p->n_code * sizeof *code);
    p->code = code;
    p->grains = number(f);
    p->grain = number(f);
    p->blocks = at_most(number(f), MAX_RANKS);
    if (p->grains) {
        han_term *terms = room(p->n_code, sizeof *terms);
        read_bytes(f, terms, p->n_code * sizeof *terms);
        p->terms = terms;
    }
    p->n_strides = number(f);
    if (!p->n_strides) return;
    han_stride *strides = room(p->n_strides, sizeof *strides);
    read_bytes(f, strides, p->n_strides * sizeof *strides);
    p->strides = strides;
}

static void read_case(FILE *f, const world *w, test_case *c) {
    read_bytes(f, c->name, sizeof c->name);
    c->collective = number(f);
    c->op = number(f);
    c->dtype = number(f);
    c->nbytes = number(f);
    c->root = number(f);
    for (uint64_t r = 0; r < w->ranks; r++) read_program(f, &c->programs[r]);
}

static void read_world(FILE *f, world *w) {
    read_bytes(f, w->name, sizeof w->name);
    w->ranks = at_most(number(f), MAX_RANKS);
    w->n_channels = at_most(number(f), HAN_MAX_CHANNELS);
    for (uint64_t c = 0; c < w->n_channels; c++)
        read_bytes(f, w->places[c], w->ranks * sizeof(place));
    w->n_cases = number(f);
    w->cases = room(w->n_cases, sizeof *w->cases);
    for (uint64_t c = 0; c < w->n_cases; c++) read_case(f, w, &w->cases[c]);
}

world *programs_read(const char *path, uint64_t *n_worlds) {
    FILE *f = fopen(path, "rb");
    if (!f || number(f) != MAGIC) {
        printf("FAILED: %s is not a file of programs\n", path);
        exit(1);
    }
    *n_worlds = number(f);
    world *worlds = room(*n_worlds, sizeof *worlds);
    for (uint64_t w = 0; w < *n_worlds; w++) read_world(f, &worlds[w]);
    fclose(f);
    return worlds;
}

static void free_program(program *p) {
    free((void *)(uintptr_t)p->code);
    free((void *)(uintptr_t)p->terms);
    free((void *)(uintptr_t)p->strides);
}

void programs_free(world *worlds, uint64_t n_worlds) {
    for (uint64_t w = 0; w < n_worlds; w++) {
        for (uint64_t c = 0; c < worlds[w].n_cases; c++)
            for (uint64_t r = 0; r < worlds[w].ranks; r++)
                free_program(&worlds[w].cases[c].programs[r]);
        free(worlds[w].cases);
    }
    free(worlds);
}
