#include "data/slots.h"

#include <string.h>

#include "data/copies.h"
#include "data/operands.h"

enum { WORD = sizeof(uint64_t) };

/* The bytes that are used of a slot of `room` bytes: whole words. */
static uint64_t used(const uint8_t *slot, uint64_t room) {
    uint64_t nbytes;
    memcpy(&nbytes, slot, WORD);
    return nbytes > room - WORD ? WORD : WORD + (nbytes + WORD - 1) / WORD * WORD;
}

/* What lies before a parcel: how many blocks are in it, or are expected; and its bytes. */
typedef struct {
    uint64_t blocks, length;
} head;

static head *head_at(const han_engine *e, const han_instr *i, int ref) {
    return (head *)(void *)han_at(e, i, ref);
}

void han_pack_slots(const han_engine *e, han_plan *p, const han_instr *i) {
    head *h = head_at(e, i, 2);
    uint8_t *parcel = (uint8_t *)(h + 1);
    const uint8_t *slots = han_at(e, i, 1);
    if (han_at(e, i, 0) == parcel) *h = (head){0};
    for (uint64_t at = 0; at < i->n; at += i->slot) {
        const uint64_t n = used(slots + at, i->slot);
        han_copy(parcel + h->length, slots + at, n);
        h->length += n;
        h->blocks += n > WORD;
    }
    han_add(&p->counts.copied, i->n);
}

void han_tally(const han_engine *e, const han_instr *i) {
    head *h = head_at(e, i, 0);
    const uint8_t *sizes = han_at(e, i, 1);
    if (i->peer) *h = (head){0};
    for (uint64_t at = 0; at < i->n; at += WORD) {
        uint64_t nbytes;
        memcpy(&nbytes, sizes + at, WORD);
        h->blocks += nbytes && nbytes <= i->slot - WORD;
    }
}

static enum han_status differs(han_engine *e, const han_instr *i, enum han_status status) {
    e->dead_rank = i->peer;
    return status;
}

enum han_status han_unpack_slots(han_engine *e, han_plan *p, const han_instr *i) {
    const uint8_t *message = han_at(e, i, 1);
    uint8_t *slots = han_at(e, i, 0);
    const uint64_t length = head_at(e, i, 2)->length;
    uint64_t done = 0;
    if (!length) return HAN_OK;
    for (uint64_t at = 0; at < i->n; at += i->slot) {
        const uint64_t left = length - done, n = left < WORD ? WORD : used(message + done, i->slot);
        if (left < n) return differs(e, i, HAN_E_SHORT);
        han_copy(slots + at, message + done, n);
        done += n;
    }
    han_add(&p->counts.copied, i->n);
    return done < length ? differs(e, i, HAN_E_LONG) : HAN_OK;
}
