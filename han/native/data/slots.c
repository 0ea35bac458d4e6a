#include "data/slots.h"

#include <string.h>

#include "data/copies.h"
#include "data/operands.h"

enum { WORD = sizeof(uint64_t), STAMP = 48 }; /* the bits from this one on are the run's number */

#define SIZE ((UINT64_C(1) << STAMP) - 1)

static uint64_t stamp_of(const han_engine *e) { return e->epoch << STAMP; }

/* The bytes that are used of a slot of `room` bytes, by the size of its block: whole words. */
static uint64_t used(uint64_t nbytes, uint64_t room) {
    return nbytes > room - WORD ? WORD : WORD + (nbytes + WORD - 1) / WORD * WORD;
}

/* Copy the `n` bytes of a slot that are used; its first word is to be `word`. */
static void copy_slot(uint8_t *to, const uint8_t *from, uint64_t n, uint64_t word) {
    memcpy(to, &word, WORD);
    if (n > WORD) han_copy(to + WORD, from + WORD, n - WORD);
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
    const uint64_t before = h->length;
    for (uint64_t at = 0; at < i->n; at += i->slot) {
        uint64_t nbytes;
        memcpy(&nbytes, slots + at, WORD);
        const uint64_t n = used(nbytes, i->slot);
        copy_slot(parcel + h->length, slots + at, n, (nbytes & SIZE) | stamp_of(e));
        h->length += n;
        h->blocks += n > WORD;
    }
    han_add(&p->counts.copied, h->length - before);
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

/* A parcel of an earlier call, which nobody expected then, has the number of another run. One with a
 * block that nobody expects has more blocks than ranks have told, if they have told any. */
enum han_status han_unpack_slots(han_engine *e, han_plan *p, const han_instr *i) {
    const uint8_t *message = han_at(e, i, 1);
    uint8_t *slots = han_at(e, i, 0);
    const head *h = head_at(e, i, 2);
    uint64_t done = 0, blocks = 0;
    if (!h->length) return HAN_OK;
    for (uint64_t at = 0; at < i->n; at += i->slot) {
        uint64_t word = 0;
        if (h->length - done < WORD) return differs(e, i, HAN_E_SHORT);
        memcpy(&word, message + done, WORD);
        const uint64_t n = used(word & SIZE, i->slot);
        if ((word & ~SIZE) != stamp_of(e)) return differs(e, i, HAN_E_LONG);
        if (h->length - done < n) return differs(e, i, HAN_E_SHORT);
        copy_slot(slots + at, message + done, n, word & SIZE);
        done += n;
        blocks += n > WORD;
    }
    han_add(&p->counts.copied, done);
    const bool more = done < h->length || (h->blocks && blocks > h->blocks);
    return more ? differs(e, i, HAN_E_LONG) : HAN_OK;
}
