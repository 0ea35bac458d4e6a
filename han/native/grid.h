/* Data that lies in memory as a grid: equal runs of bytes, in the order of nested loops. A run may be in
 * several pieces, as the data of a structure with padding is. */
#ifndef HAN_GRID_H
#define HAN_GRID_H

#include <stdbool.h>
#include <stdint.h>

enum { HAN_GRID_LOOPS = 4, HAN_GRID_PIECES = 12 };

typedef struct {
    uint64_t count;
    int64_t stride; /* in bytes */
} han_loop;

typedef struct {
    int32_t at; /* from where the run begins */
    uint32_t n; /* bytes */
} han_piece;

typedef struct {
    int64_t first;  /* where the first run begins, from the address of the data */
    uint64_t run;   /* bytes of a run; 0: there is no data */
    int32_t loops;  /* 0: there is one run; negative: it is no grid, and nothing else is told */
    int32_t pieces; /* 0: a run is contiguous */
    han_loop loop[HAN_GRID_LOOPS]; /* from the innermost one on; each repeats what is before it */
    han_piece piece[HAN_GRID_PIECES];
} han_grid;

static inline han_grid han_grid_of(uint64_t run) { return (han_grid){.run = run}; }
static inline han_grid han_no_grid(void) { return (han_grid){.loops = -1}; }
/* Whether the data lies in order and without gaps. */
static inline bool han_is_run(const han_grid *g) { return g->loops == 0 && !g->pieces; }

/* Repeat a grid, `stride` bytes apart. False if that is no grid of so few loops. */
bool han_grid_repeat(han_grid *, uint64_t count, int64_t stride);
/* Add bytes at a place to the run of a grid without loops. False if that takes too many pieces. */
bool han_grid_append(han_grid *, int64_t at, uint64_t n);
/* Where the first byte of a grid is, and where the last one ends. */
void han_grid_bounds(const han_grid *, int64_t *low, int64_t *high);
/* Whether two grids at these addresses are found to have no byte in common: their bounds have none, or the
 * runs of both are in different places of the same period, as columns of a matrix are. */
bool han_grids_apart(const han_grid *, const uint8_t *, const han_grid *, const uint8_t *);
/* Copy the data of a grid to packed bytes, or back. */
void han_grid_pack(const han_grid *, const uint8_t *data, uint8_t *packed);
void han_grid_unpack(const han_grid *, const uint8_t *packed, uint8_t *data);

#endif
