/* The file that dump_programs.py writes, in memory. */
#ifndef PROGRAMS_H
#define PROGRAMS_H

#include <stdint.h>

#include "engine.h"

enum { MAX_RANKS = 8 };

typedef struct {
    uint64_t requests, scratch, sync, footprint[HAN_MAX_CHANNELS], writes[HAN_MAX_CHANNELS];
    uint64_t n_streams, n_code;
    han_stream streams[HAN_MAX_STREAMS];
    const han_instr *code;
    uint64_t grains, grain;    /* of a program for many sizes */
    const han_term *terms;     /* or NULL */
    uint64_t blocks;           /* that differ in size; else 0 */
    uint64_t n_strides;        /* of a program with loops */
    const han_stride *strides; /* or NULL */
} program;

typedef struct {
    char name[64];
    uint64_t collective, op, dtype, nbytes, root;
    program programs[MAX_RANKS];
} test_case;

typedef struct {
    uint64_t owner, size, me, bytes; /* owning rank, members, own place, bytes in all */
    uint64_t flags, small, cells, small_bank, ring;
} place;

typedef struct {
    char name[64];
    uint64_t ranks, n_channels, n_cases;
    place places[HAN_MAX_CHANNELS][MAX_RANKS];
    test_case *cases;
} world;

/* Both exit with a message if the file is wrong. */
world *programs_read(const char *path, uint64_t *n_worlds);
void programs_free(world *, uint64_t n_worlds);

#endif
