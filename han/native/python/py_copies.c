#include "python/py_copies.h"

#include "python/py_packing.h"

static bool is_root_of_bcast(const han_caller *self, const han_call *c) {
    return c->key.collective == HAN_C_BCAST && c->key.root == self->rank;
}

/* Make what delivers the result, unless this rank receives none. */
static bool make_end(const han_caller *self, const han_call *c, han_call *copy) {
    if (!han_py_is_copied(&c->recv) || is_root_of_bcast(self, c)) return true;
    copy->end = han_py_unpacker(self->reader, &c->recv, copy->recv.owner);
    return copy->end;
}

/* Find the copy of a buffer that is a part of the other one. */
static void place_part(const han_call *c, han_call *copy) {
    if (c->sharing == HAN_SEND_IN_RECV) copy->send.data = copy->recv.data + c->part.to;
    if (c->sharing == HAN_RECV_IN_SEND) copy->recv.data = copy->send.data + c->part.to;
}

bool han_py_copy(const han_caller *self, const han_call *c, han_call *copy) {
    *copy = (han_call){.key = c->key, .counts = c->counts};
    bool made = han_py_packed(&c->send, &copy->send) && han_py_packed(&c->recv, &copy->recv) &&
                make_end(self, c, copy);
    if (made) place_part(c, copy);
    return made;
}

void han_py_release_copy(han_call *copy) {
    Py_XDECREF(copy->end);
    han_py_release(&copy->send);
    han_py_release(&copy->recv);
}

/* What this rank packs before a run. */
typedef struct {
    const han_buffer *from, *to; /* a buffer and its copy; NULL: nothing */
    han_part part;
} packing;

static packing sent(const han_call *c, const han_call *copy) {
    if (c->sharing == HAN_SEND_IN_RECV) return (packing){&c->recv, &copy->recv, c->part};
    if (c->send.use != HAN_PACKED) return (packing){0};
    return (packing){&c->send, &copy->send, {.count = c->send.count}};
}

int han_py_pack_sent(const han_caller *self, const han_call *c, han_call *copy) {
    packing p = sent(c, copy);
    return p.from ? han_py_pack(self->reader, p.from, p.part, (char *)p.to->data) : 0;
}

int han_py_packer_of_sent(const han_caller *self, const han_call *c, han_call *copy,
                          PyObject **out) {
    packing p = sent(c, copy);
    bool any = p.from && p.part.count;
    *out = any ? han_py_packer(self->reader, p.from, p.part, p.to->owner) : NULL;
    return any && !*out ? -1 : 0;
}
