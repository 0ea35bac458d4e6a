/* What a Program that was read from a file may touch. The executor believes what it runs. */
#ifndef HAN_FENCE_H
#define HAN_FENCE_H

#include <stdbool.h>
#include <stddef.h>

#include "program.h"

#define HAN_FENCE_COMMS 64

typedef struct {
    uint64_t ranks, tasks, requests;
    uint64_t count, element; /* of the message: in a broadcast, bytes and 1 */
    bool native;             /* reductions are han's own: no library counts in ints */
    uint64_t operand;        /* bytes of room for one operand */
    uint64_t lengths[3];     /* bytes of the send buffer, the receive buffer and the scratch */
    uint32_t n_streams, n_channels, n_comms;
    han_stream streams[32];
    struct {
        uint64_t members, ring, part; /* ranks; bytes of one's ring, and what a run takes of it */
    } channels[HAN_MAX_CHANNELS];
    uint64_t comms[HAN_FENCE_COMMS]; /* their numbers of members */
} han_ground;

/* NULL, or what is wrong with operation `*where`; streams must divide the code. `state` has a
 * zeroed byte for each request. */
const char *han_fence(const han_ground *, const han_instr *code, uint8_t *state, uint32_t *where);

#endif
