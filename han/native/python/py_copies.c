#include "python/py_copies.h"

#include <string.h>

#include "python/py_packing.h"
#include "python/py_types.h"

static bool is_root_of_bcast(const han_caller *self, const han_call *c) {
    return c->use == HAN_PACKED && c->key.root == self->rank;
}

/* The type of the elements of a block; 0 if there is none. */
static han_handle type_of(const ReaderObject *r, const han_buffer *b, int32_t k) {
    if (!b->datatype) return b->type;
    bool own = PyTuple_Check(b->datatype);
    return han_py_handle(r, own ? PyTuple_GET_ITEM(b->datatype, k) : b->datatype);
}

/* ---- blocks of one type --------------------------------------------------------------------- */

/* All elements of a buffer of a derived type. */
static han_packing whole(const ReaderObject *r, const han_buffer *b, const han_grid *grid,
                         uint8_t *data) {
    return (han_packing){grid, type_of(r, b, 0), b->count, b->packed, data};
}

/* ---- blocks of all ranks -------------------------------------------------------------------- */

/* The blocks that a rank sends, or those that it receives. `places` are those in the buffer; a run gets
 * the `sizes` and `starts`, from the beginning of the buffer too, of blocks that are packed elsewhere. */
typedef struct {
    const han_buffer *buffer;
    han_grid *grids;
    const uint64_t *elements, *places, *types;
    uint64_t *sizes, *starts;
} side;

typedef struct {
    side sent, taken;
} sides;

static sides sides_of(const han_caller *self, const han_call *c, const han_call *copy) {
    const han_own_blocks own = han_own_blocks_of(c->counts, self->size);
    const han_own_blocks run = han_own_blocks_of(copy->counts, self->size);
    return (sides){
        {&c->send, copy->grids, own.sent, own.from, own.sent_types, run.sends, run.from},
        {&c->recv, copy->grids + self->size, own.taken, own.to, own.taken_types, run.takes, run.to},
    };
}

static han_handle type_in(const ReaderObject *r, const side *s, int32_t k) {
    return s->types[k] ? (han_handle)s->types[k] : type_of(r, s->buffer, k);
}

static han_packing block_of(const ReaderObject *r, const side *s, int32_t k) {
    return (han_packing){&s->grids[k], type_in(r, s, k), s->elements[k], s->sizes[k],
                         s->buffer->data + s->places[k]};
}

static void find_grids(const ReaderObject *r, const side *s, int32_t blocks) {
    han_asked last = {.last = 0};
    for (int32_t k = 0; k < blocks; k++) {
        if (!s->sizes[k]) continue;
        s->grids[k] = s->buffer->derived ? han_py_grid(r, &last, type_in(r, s, k), s->elements[k])
                                         : han_grid_of(s->sizes[k]);
    }
}

/* Whether no block that is received has a byte in common with one that is sent. */
static bool all_apart(const side *sent, const side *taken, int32_t blocks) {
    for (int32_t k = 0; k < blocks; k++)
        for (int32_t j = 0; sent->sizes[k] && j < blocks; j++)
            if (taken->sizes[j] &&
                !han_grids_apart(&sent->grids[k], sent->buffer->data + sent->places[k],
                                 &taken->grids[j], taken->buffer->data + taken->places[j]))
                return false;
    return true;
}

/* Whether a block travels packed, in a copy. */
static bool is_packed(const side *s, int32_t k) { return s->sizes[k] && !han_is_run(&s->grids[k]); }

static bool is_same(const ReaderObject *r, const side *s, int32_t a, int32_t b) {
    return s->sizes[a] == s->sizes[b] && s->places[a] == s->places[b] &&
           type_in(r, s, a) == type_in(r, s, b);
}

/* Tell where the data of blocks begins: in the buffer, or packed from `at` on. One that is sent to several
 * ranks in turn is packed once. Return where the packed data ends. */
static uint8_t *find_starts(const ReaderObject *r, const side *s, int32_t blocks, bool sends,
                            uint8_t *at) {
    int32_t last = -1; /* the last one that is packed */
    for (int32_t k = 0; k < blocks; k++) {
        if (!is_packed(s, k)) {
            s->starts[k] = s->places[k] + (s->sizes[k] ? (uint64_t)s->grids[k].first : 0);
        } else if (sends && last >= 0 && is_same(r, s, k, last)) {
            s->starts[k] = s->starts[last];
        } else {
            s->starts[k] = (uint64_t)(at - s->buffer->data); /* maybe before the buffer */
            at += s->sizes[k];
            last = k;
        }
    }
    return at;
}

static int pack_all(const ReaderObject *r, const side *s, int32_t blocks) {
    int32_t last = -1; /* the last one that was packed */
    int rc = 0;
    for (int32_t k = 0; k < blocks && !rc; k++) {
        if (!is_packed(s, k) || (last >= 0 && s->starts[k] == s->starts[last])) continue;
        const han_packing b = block_of(r, s, k);
        rc = han_py_pack(r, &b, s->buffer->data + s->starts[k]);
        last = k;
    }
    return rc;
}

static int unpack_all(const ReaderObject *r, const side *s, int32_t blocks) {
    int rc = 0;
    for (int32_t k = 0; k < blocks && !rc; k++)
        if (is_packed(s, k)) {
            const han_packing b = block_of(r, s, k);
            rc = han_py_unpack(r, &b, s->buffer->data + s->starts[k]);
        }
    return rc;
}

/* Copy a rank's block for itself, so that a run need not move it. */
static int move_own(const han_caller *self, const sides *s, uint8_t *room) {
    const int32_t own = self->rank;
    if (!s->sent.sizes[own] || !s->taken.sizes[own]) return 0;
    const han_packing from = block_of(self->reader, &s->sent, own);
    const han_packing to = block_of(self->reader, &s->taken, own);
    s->sent.sizes[own] = s->taken.sizes[own] = 0;
    return han_py_move(self->reader, &from, &to, room);
}

/* ---- copies --------------------------------------------------------------------------------- */

static uint64_t sum_of(const uint64_t *numbers, int32_t n) {
    uint64_t sum = 0;
    for (int32_t k = 0; k < n; k++) sum += numbers[k];
    return sum;
}

static size_t grids_in(const han_caller *self, const han_call *c) {
    return c->use == HAN_TYPED ? 2 * (size_t)self->size : 2;
}

/* The bytes of the data in a copy: of blocks of derived types, all, although some may be in the buffer.
 * Behind a result with gaps its data is packed, before it is delivered. */
static uint64_t bytes_of(const han_caller *self, const han_call *c) {
    if (c->use == HAN_PACKED) return c->recv.nbytes;
    if (c->use == HAN_WHOLE)
        return (c->send.derived ? c->send.nbytes : 0) + (c->recv.derived ? c->recv.nbytes : 0);
    if (c->use == HAN_GAPPED) return c->recv.nbytes + c->recv.packed;
    if (c->use == HAN_SCATTERED)
        return sum_of(c->counts, self->size) + (c->send.derived ? c->send.nbytes : 0);
    const han_own_blocks own = han_own_blocks_of(c->counts, self->size);
    return c->numbers * sizeof *c->counts + (c->send.derived ? sum_of(own.sends, self->size) : 0) +
           (c->recv.derived ? sum_of(own.takes, self->size) : 0);
}

/* Lay out blocks of derived types behind the numbers of the run, and pack what is sent; -1 if they are
 * not found to be apart. */
static int lay_out_types(const han_caller *self, const han_call *c, han_call *copy) {
    uint8_t *at = copy->recv.data;
    copy->counts = (uint64_t *)at;
    memcpy(at, c->counts, c->numbers * sizeof *c->counts);
    at += c->numbers * sizeof *c->counts;
    copy->recv.data = c->recv.data;
    const sides s = sides_of(self, c, copy);
    find_grids(self->reader, &s.sent, self->size);
    find_grids(self->reader, &s.taken, self->size);
    if (c->meets && !all_apart(&s.sent, &s.taken, self->size)) return -1;
    int rc = move_own(self, &s, at);
    at = find_starts(self->reader, &s.sent, self->size, true, at);
    find_starts(self->reader, &s.taken, self->size, false, at);
    return rc ? rc : pack_all(self->reader, &s.sent, self->size);
}

/* Pack what the root broadcasts. Data that is one run stays in its buffer. */
static int lay_out_bcast(const han_caller *self, const han_call *c, han_call *copy) {
    han_asked none = {.last = 0};
    const han_packing b = whole(self->reader, &c->recv, copy->grids, c->recv.data);
    *copy->grids = han_py_grid(self->reader, &none, b.type, b.elements);
    if (han_is_run(copy->grids)) copy->recv.data = c->recv.data + copy->grids->first;
    copy->send.data = copy->recv.data;
    bool packs = is_root_of_bcast(self, c) && b.nbytes && !han_is_run(copy->grids);
    return packs ? han_py_pack(self->reader, &b, copy->recv.data) : 0;
}

/* Find where a run has the blocks of a buffer: there, if the data is one run, else packed at `*at`. */
static han_packing lay_out_side(const ReaderObject *r, const han_buffer *b, han_grid *grid,
                                uint8_t **data, uint8_t **at) {
    han_asked none = {.last = 0};
    *grid = b->derived ? han_py_grid(r, &none, type_of(r, b, 0), b->count) : han_grid_of(b->nbytes);
    if (han_is_run(grid)) {
        *data = b->data + (b->derived ? grid->first : 0);
        return (han_packing){.grid = grid};
    }
    *data = *at;
    *at += b->nbytes;
    return whole(r, b, grid, b->data);
}

/* Pack what is sent, and make room for what is received. */
static int lay_out_whole(const han_caller *self, const han_call *c, han_call *copy) {
    const ReaderObject *r = self->reader;
    uint8_t *at = copy->recv.data;
    const han_packing sent = lay_out_side(r, &c->send, copy->grids, &copy->send.data, &at);
    (void)lay_out_side(r, &c->recv, copy->grids + 1, &copy->recv.data, &at);
    return sent.nbytes ? han_py_pack(r, &sent, copy->send.data) : 0;
}

/* Pack what is sent, behind the room for all blocks. */
static int lay_out_scattered(const han_caller *self, const han_call *c, han_call *copy) {
    uint8_t *at = copy->recv.data + sum_of(c->counts, self->size);
    const han_packing sent =
        lay_out_side(self->reader, &c->send, copy->grids, &copy->send.data, &at);
    return sent.nbytes ? han_py_pack(self->reader, &sent, copy->send.data) : 0;
}

size_t han_copy_bytes(const han_caller *self, const han_call *c) {
    return grids_in(self, c) * sizeof *c->grids + bytes_of(self, c);
}

int han_copy_lay_out(const han_caller *self, const han_call *c, void *memory, han_call *copy) {
    *copy = *c;
    copy->grids = memory;
    copy->recv.data = (uint8_t *)(copy->grids + grids_in(self, c));
    switch (c->use) {
    case HAN_TYPED:
        return lay_out_types(self, c, copy);
    case HAN_PACKED:
        return lay_out_bcast(self, c, copy);
    case HAN_WHOLE:
        return lay_out_whole(self, c, copy);
    case HAN_SCATTERED:
        return lay_out_scattered(self, c, copy);
    default:
        return 0;
    }
}

PyObject *han_py_copy(const han_caller *self, const han_call *c, han_call *copy) {
    PyObject *memory = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)han_copy_bytes(self, c));
    int rc;
    if (!memory) {
        PyErr_Clear();
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS /* MPI's own lock may be held by a thread that waits for Python's */
    rc = han_copy_lay_out(self, c, PyBytes_AS_STRING(memory), copy);
    Py_END_ALLOW_THREADS
    if (rc) Py_CLEAR(memory);
    return memory;
}

/* ---- delivery ------------------------------------------------------------------------------- */

static int deliver_blocks(const han_caller *self, const han_call *c, const uint8_t *received) {
    const uint64_t *nbytes = c->counts, *places = c->counts + self->size;
    const han_buffer *b = &c->recv;
    han_asked asked = {.last = 0};
    int rc = 0;
    for (int32_t k = 0; k < self->size && !rc; received += nbytes[k++]) {
        if (!nbytes[k]) continue;
        if (!b->derived) {
            memcpy(b->data + places[k], received, nbytes[k]);
            continue;
        }
        const han_handle type = type_of(self->reader, b, k);
        const uint64_t elements = nbytes[k] / b->size;
        const han_grid grid = han_py_grid(self->reader, &asked, type, elements);
        const han_packing block = {&grid, type, elements, nbytes[k], b->data + places[k]};
        rc = han_py_unpack(self->reader, &block, received);
    }
    return rc;
}

static int deliver_packed(const ReaderObject *r, const han_call *c, const han_call *copy) {
    const han_grid *grid = copy->grids + (c->use == HAN_WHOLE);
    if (!c->recv.derived || han_is_run(grid)) return 0;
    const han_packing b = whole(r, &c->recv, grid, c->recv.data);
    return han_py_unpack(r, &b, copy->recv.data);
}

/* Copy the data of elements that have gaps in both places. */
static int deliver_data(const ReaderObject *r, const han_buffer *b, uint8_t *received) {
    const han_grid none = han_no_grid();
    const han_packing from = whole(r, b, &none, received), to = whole(r, b, &none, b->data);
    return han_py_move(r, &from, &to, received + b->nbytes);
}

int han_copy_deliver(const han_caller *self, const han_call *c, const han_call *copy) {
    if (!c->recv.nbytes || is_root_of_bcast(self, c)) return 0;
    switch (c->use) {
    case HAN_TYPED: {
        const sides s = sides_of(self, c, copy);
        return unpack_all(self->reader, &s.taken, self->size);
    }
    case HAN_PACKED:
    case HAN_WHOLE:
        return deliver_packed(self->reader, c, copy);
    case HAN_GAPPED:
        return deliver_data(self->reader, &c->recv, copy->recv.data);
    default:
        return deliver_blocks(self, c, copy->recv.data);
    }
}

bool han_copy_needs_types(const han_caller *self, const han_call *c) {
    if (c->use != HAN_TYPED) return false;
    const uint64_t *types = han_own_blocks_of(c->counts, self->size).taken_types;
    bool needed = false;
    for (int32_t k = 0; k < self->size && !needed; k++) {
        const han_known_type *t = types[k] ? han_type_known((han_handle)types[k]) : NULL;
        needed = t && t->grid.loops < 0;
    }
    return needed;
}

int han_py_deliver(const han_caller *self, const han_call *c, const han_call *copy) {
    int rc;
    Py_BEGIN_ALLOW_THREADS
    rc = han_copy_deliver(self, c, copy);
    Py_END_ALLOW_THREADS
    return rc ? han_py_raise_code(self->reader, rc) : 0;
}
