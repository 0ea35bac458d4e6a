/* The board of a communicator's persistent requests: its ranks agree on slots without messages.
 *
 * Ranks make requests in the same order, but free them in any order. Each rank logs the slots that
 * it leaves. The leader, the first rank of the channel, reads the logs of all ranks, chooses a slot
 * that all ranks have left for each request in turn, and publishes its choice. The others read the
 * choices in the same order. */
#ifndef HAN_BOARD_H
#define HAN_BOARD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "channel.h"

#define HAN_BOARD_SLOTS 4096 /* slots of a communicator at most; a power of two */
#define HAN_BOARD_CHOICES 64 /* choices that the leader may publish ahead; a power of two */

typedef struct {
    _Atomic uint64_t number; /* of the request, counted from 1; 0: none */
    _Atomic uint64_t slot;   /* what the leader chose; the board does not interpret it */
    _Atomic uint64_t call;   /* a number that identifies the leader's call */
} han_choice;

/* What one rank writes. A slot is in a rank's log once between two choices of it, so that no entry
 * is overwritten before the leader has read it. */
typedef struct {
    _Atomic uint64_t reached; /* the last request that this rank has come to, counted from 1 */
    _Atomic uint64_t read;    /* choices that this rank has read */
    _Atomic uint64_t entries; /* ever written to its log */
    uint64_t unused[5];
    _Atomic uint32_t log[HAN_BOARD_SLOTS];
    han_choice choices[HAN_BOARD_CHOICES]; /* of the leader */
} han_notes;

typedef struct {
    uint8_t *memory; /* the notes of rank r begin at r * stride */
    uint64_t stride;
    uint32_t size, me; /* number of ranks, and this rank's place; the leader has place 0 */
    uint64_t made;     /* requests so far */
    uint64_t *heard;   /* by rank: entries of its log that the leader has read */
    uint32_t *leavers; /* by slot: ranks that have left it since it was chosen */
} han_board;

/* Publish the choice for the next request; false if a rank has not read the choice whose place it
 * takes. Only the leader calls this. */
bool han_board_publish(han_board *, uint64_t slot, uint64_t call);

/* Read the choice for the next request; false if it is not published yet. */
bool han_board_read(han_board *, uint64_t *slot, uint64_t *call);

/* Whether all ranks have come to the next request. What they leave before it is in their logs. */
bool han_board_gathered(const han_board *);

/* Log that this rank leaves a slot. */
void han_board_leave(han_board *, uint32_t slot);

/* A slot that all ranks have left since the last choice of it, each once; -1: there is none. Only
 * the leader calls this. */
int64_t han_board_reclaim(han_board *);

#endif
