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

bool han_py_copy(const han_caller *self, const han_call *c, han_call *copy) {
    *copy = (han_call){.key = c->key, .counts = c->counts};
    bool made = han_py_packed(&c->send, &copy->send) && han_py_packed(&c->recv, &copy->recv) &&
                make_end(self, c, copy);
    /* a broadcast sends and receives in one buffer, and so in one copy */
    if (c->key.collective == HAN_C_BCAST) copy->send.data = copy->recv.data;
    return made;
}

void han_py_release_copy(han_call *copy) {
    Py_XDECREF(copy->end);
    han_py_release(&copy->send);
    han_py_release(&copy->recv);
}

/* The buffer whose data this rank packs, and its copy; NULL: none. */
static const han_buffer *sent(const han_caller *self, const han_call *c, const han_call *copy,
                              const han_buffer **packed) {
    *packed = c->send.use == HAN_PACKED ? &copy->send : &copy->recv;
    if (c->send.use == HAN_PACKED) return &c->send;
    return is_root_of_bcast(self, c) ? &c->recv : NULL;
}

int han_py_pack_sent(const han_caller *self, const han_call *c, han_call *copy) {
    const han_buffer *packed, *b = sent(self, c, copy, &packed);
    return b ? han_py_pack(self->reader, b, packed->data) : 0;
}

int han_py_packer_of_sent(const han_caller *self, const han_call *c, han_call *copy,
                          PyObject **out) {
    const han_buffer *packed, *b = sent(self, c, copy, &packed);
    *out = b ? han_py_packer(self->reader, b, packed->owner) : NULL;
    return b && !*out ? -1 : 0;
}
