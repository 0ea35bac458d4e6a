/* The choice between a plan and its alternative: all ranks run the same one.
 *
 * The alternative needs the buffers of all ranks in memory that their peers map, and each rank
 * knows only about its own buffers. A rank offers the alternative with a bit of the `entered` field
 * of its control record. A rank that does not offer runs its plan at once. A rank that offers waits
 * for the bits of all peers. `entered` holds the bits of a rank's last HAN_HISTORY runs: a rank
 * does not begin a run if that would push out a bit that a peer may still read. So all ranks read
 * the same bits, whenever they look, and choose alike.
 *
 * The choice between a plan and its rival follows from the number of the run: engine/trials.h. */
#ifndef HAN_CHOICE_H
#define HAN_CHOICE_H

#include "engine.h"

/* What a stream waits for: an instruction, and the rank that must act. */
typedef struct {
    int code, peer;
    uint32_t task;
} han_where;

/* Values of han_where.code where no plan is chosen yet. */
enum { HAN_AWAITS_OFFER = HAN_CODES, HAN_AWAITS_VERDICT };

/* Whether the run at the head may begin: no peer can still need the bit that it pushes out. */
bool han_offers_read(han_engine *);

/* The plan that all ranks run; NULL while bits of peers are missing. */
han_plan *han_decide(han_engine *);

/* The ranks whose bits are missing; returns their number, at most HAN_MAX_STREAMS. */
uint32_t han_missing_offers(const han_engine *, han_where *rows);

#endif
