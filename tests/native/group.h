/* Ranks inside one process: each has an engine over memory that they share. */
#ifndef GROUP_H
#define GROUP_H

#include "mailbox.h"
#include "programs.h"

typedef struct {
    uint64_t ranks, n_channels;
    uint8_t *memory[HAN_MAX_CHANNELS][MAX_RANKS]; /* by channel and owner */
    han_engine engines[MAX_RANKS];
    han_mpi mpi;
    mailbox *box;
    bool lends; /* its channels are lent */
} group;

/* Set up the group that `w` describes; with `messages`, engines also have a mailbox as MPI. */
group *group_open(const world *w, bool messages, han_wait_policy wait);
void group_close(group *);

/* One level of `ranks` ranks that share memory. */
world group_of(uint64_t ranks);

/* A rank's control record in its first channel. */
han_control *group_control(group *, uint64_t rank);

uint64_t group_process_start(void);

void plan_open(han_plan *, const test_case *, uint64_t rank);
void plan_close(han_plan *);

/* End the test with a message unless `holds`; `got` is the value found. */
void require(bool holds, const char *what, uint64_t got);

/* An operation on a rank's first flag. */
static inline han_instr at_flag(enum han_code code, uint64_t rank, uint64_t n) {
    han_instr i = {.code = (uint16_t)code, .peer = (int32_t)rank, .n = n};
    i.base[0] = HAN_B_CHANNEL + HAN_B_FLAGS;
    i.off[0] = rank * HAN_LINE;
    return i;
}

#endif
