/* Slots of small blocks, which several ranks share a parcel for. A slot has the size of its block, and
 * the block itself if it fits; in a parcel there are only the bytes that are used. A parcel without
 * any block need not be sent: its sender packs none, and its receiver counts none. */
#ifndef HAN_SLOTS_H
#define HAN_SLOTS_H

#include "engine.h"

/* HAN_PACK. */
void han_pack_slots(const han_engine *, han_plan *, const han_instr *);
/* HAN_TALLY. */
void han_tally(const han_engine *, const han_instr *);
/* HAN_UNPACK: an error if the parcel has other bytes than its slots; it may not have been sent. */
enum han_status han_unpack_slots(han_engine *, han_plan *, const han_instr *);

#endif
