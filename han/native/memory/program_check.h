/* A check of programs that were read from a file: the executor trusts the programs that it runs. */
#ifndef HAN_PROGRAM_CHECK_H
#define HAN_PROGRAM_CHECK_H

#include <stdbool.h>
#include <stddef.h>

#include "program.h"

#define HAN_CHECK_COMMS 64 /* communicators of a program */

/* What a program may access. */
typedef struct {
    uint64_t ranks, tasks, requests;
    uint64_t count, element; /* of the message; in a broadcast bytes, and 1 */
    bool native;             /* reductions use han's kernels: counts may exceed an int */
    uint64_t operand;        /* bytes of room for one operand */
    uint64_t lengths[3];     /* bytes of the send buffer, the receive buffer and the scratch */
    uint32_t n_streams, n_channels, n_comms;
    han_stream streams[HAN_MAX_STREAMS];
    struct {
        uint64_t members, ring, part; /* ranks; bytes of a ring, and of the part that a run takes */
    } channels[HAN_MAX_CHANNELS];
    uint64_t comms[HAN_CHECK_COMMS]; /* their numbers of members */
} han_bounds;

/* Return NULL, or what is wrong with instruction `*where`. The streams must divide the code.
 * `state` is a zeroed byte for each request. */
const char *han_check_program(const han_bounds *, const han_instr *code, uint8_t *state,
                              uint32_t *where);

#endif
