#include "group.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "data/kernels.h"
#include "engine/sizes.h"
#include "engine/stepping.h"

static void *aligned(size_t bytes) {
    size_t rounded = (bytes + HAN_LINE) / HAN_LINE * HAN_LINE;
    void *p = aligned_alloc(HAN_LINE, rounded);
    if (!p) abort();
    return memset(p, 0, rounded);
}

/* The start time of this process: the 22nd field of /proc/self/stat. */
uint64_t group_process_start(void) {
    unsigned long long start = 0;
    FILE *f = fopen("/proc/self/stat", "r");
    const char *format = "%*d %*s %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d "
                         "%*d %*d %*d %llu";
    if (!f || fscanf(f, format, &start) != 1) abort();
    fclose(f);
    return start;
}

/* Let a channel start without rings, all of whose memory is announced already. */
static void lend(han_channel *ch, const place *p) {
    han_control *first = han_records(ch);
    ch->lender = ch->memory;
    ch->least = HAN_RING_LEAST;
    ch->rings = NULL;
    ch->wrap = 0;
    atomic_store(&first->cells, p->cells);
    atomic_store(&first->room, p->ring);
}

static void open_channel(group *g, const place *places, uint64_t c, uint64_t rank) {
    const place *p = &places[rank];
    uint8_t **memory = &g->memory[c][p->owner];
    if (!*memory) *memory = aligned(p->bytes);
    g->engines[rank].channels[c] = (han_channel){.memory = *memory,
                                                 .size = (uint32_t)p->size,
                                                 .me = (uint32_t)p->me,
                                                 .flags = p->flags,
                                                 .small = p->small,
                                                 .small_bank = p->small_bank,
                                                 .banks = HAN_SMALL_BANKS,
                                                 .rings = *memory + p->cells,
                                                 .ring = p->ring,
                                                 .wrap = p->ring};
    if (g->lends) lend(&g->engines[rank].channels[c], p);
    han_control *mine = (han_control *)(void *)*memory + p->me;
    mine->pid = getpid();
    mine->pid_start = group_process_start();
    mine->rank = rank;
}

group *group_open(const world *w, bool messages, han_wait_policy wait) {
    group *g = aligned(sizeof *g);
    static _Atomic unsigned opened;
    g->lends = atomic_fetch_add(&opened, 1) % 2;
    g->ranks = w->ranks;
    g->n_channels = w->n_channels;
    if (messages) {
        g->box = mailbox_new((int)w->ranks);
        mailbox_table(&g->mpi);
    }
    for (uint64_t r = 0; r < w->ranks; r++) {
        han_engine *e = &g->engines[r];
        e->mpi = messages ? &g->mpi : NULL;
        e->comm = e->messages = messages ? mailbox_comm(g->box, (int)r) : 0;
        e->n_channels = (uint32_t)w->n_channels;
        e->wait = wait;
        e->bells = wait.futex ? (1u << w->n_channels) - 1 : 0;
        e->dead_rank = -1;
        atomic_flag_clear(&e->busy);
        for (uint64_t c = 0; c < w->n_channels; c++) open_channel(g, w->places[c], c, r);
    }
    return g;
}

void group_close(group *g) {
    for (uint64_t r = 0; r < g->ranks; r++) han_engine_stop(&g->engines[r]);
    for (uint64_t c = 0; c < g->n_channels; c++)
        for (uint64_t r = 0; r < g->ranks; r++) free(g->memory[c][r]);
    if (g->box) mailbox_free(g->box);
    free(g);
}

world group_of(uint64_t ranks) {
    world w = {.ranks = ranks, .n_channels = 1};
    for (uint64_t r = 0; r < ranks; r++)
        w.places[0][r] = (place){.size = ranks,
                                 .me = r,
                                 .bytes = 65536,
                                 .flags = 12288,
                                 .small = 16384,
                                 .cells = 24576,
                                 .small_bank = 64,
                                 .ring = 4096};
    return w;
}

void require(bool holds, const char *what, uint64_t got) {
    if (holds) return;
    printf("FAILED: %s (got %llu)\n", what, (unsigned long long)got);
    exit(1);
}

han_control *group_control(group *g, uint64_t rank) {
    return (han_control *)(void *)g->memory[0][0] + rank;
}

/* Ranks are threads here: a peer's buffer has the same address. */
static const uint64_t no_shifts[HAN_SHIFTS * MAX_RANKS];

static void *copy_of(const void *data, size_t bytes) {
    void *p = aligned(bytes);
    if (bytes) memcpy(p, data, bytes);
    return p;
}

static void take_terms(han_plan *p, const program *from) {
    p->terms = copy_of(from->terms, from->n_code * sizeof *p->terms);
    p->grains = from->grains;
    p->grain = from->grain;
    p->nbytes = p->grains * p->grain;
    p->message = han_block_of(p, p->nbytes, 0);
    p->n_blocks = (uint32_t)from->blocks;
    if (from->blocks) {
        p->table = aligned((from->blocks + 1) * sizeof *p->table);
        memset(p->table, 0, (from->blocks + 1) * sizeof *p->table);
    }
}

void plan_open(han_plan *p, const test_case *c, uint64_t rank) {
    const program *from = &c->programs[rank];
    *p = (han_plan){.n_code = (uint32_t)from->n_code,
                    .n_streams = (uint32_t)from->n_streams,
                    .n_requests = (uint32_t)from->requests,
                    .scratch_size = from->scratch,
                    .sync = from->sync,
                    .signature = (uint64_t)(uintptr_t)c->name,
                    .element = 8,
                    .shifts = no_shifts,
                    .strides = from->strides,
                    /* vary how bytes are copied */
                    .much = rank % 2,
                    .streaming = rank % 3 == 2};
    p->code = p->fitted = copy_of(from->code, from->n_code * sizeof *p->fitted);
    if (from->terms) take_terms(p, from);
    memcpy(p->streams, from->streams, sizeof p->streams);
    for (int b = 0; b < HAN_MAX_CHANNELS; b++)
        p->writes[b] = (uint8_t)from->writes[b], p->shows |= (p->writes[b] & HAN_W_SHOWN) != 0;
    memcpy(p->footprint, from->footprint, sizeof p->footprint);
    p->requests = aligned(from->requests * sizeof *p->requests);
    p->scratch = aligned(from->scratch);
    p->reduce = han_reduce_kernel((enum han_op)c->op, (enum han_dtype)c->dtype);
    p->reduce2 = han_reduce2_kernel((enum han_op)c->op, (enum han_dtype)c->dtype);
}

void plan_close(han_plan *p) {
    free(p->requests);
    free(p->scratch);
    free(p->fitted);
    free(p->terms);
    free(p->table);
}
