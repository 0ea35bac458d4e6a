/* Streams under construction. A submodule in Python names each operation; records are written here,
 * since a program may have thousands of them. */
#include "python/module.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <structmember.h>

#include "python/py_batches.h"
#include "python/py_emit.h"
#include "python/py_slots.h"

static void operations_dealloc(OperationsObject *self) {
    free(self->code);
    free(self->terms);
    free(self->tests);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyObject *operations_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    (void)args, (void)kwargs; /* __init__ takes them, and that of a subclass takes others */
    OperationsObject *self = (OperationsObject *)type->tp_alloc(type, 0);
    if (self) self->element = self->grain = 1; /* until __init__; grain_bits is 0 */
    return (PyObject *)self;
}

static int operations_init(OperationsObject *self, PyObject *args, PyObject *kwargs) {
    unsigned long long nbytes, element, grain, grains;
    int tag, uneven = 0, own = 0;
    if (kwargs && PyDict_Size(kwargs))
        return HAN_RAISE(PyExc_TypeError, "Operations takes no keyword arguments");
    if (!PyArg_ParseTuple(args, "iKKKK|pp:Operations", &tag, &nbytes, &element, &grain, &grains,
                          &uneven, &own))
        return -1;
    if (own && !grains)
        return HAN_RAISE(PyExc_ValueError, "a program for own sizes is one for many sizes");
    if (!element || !grain || element > UINT32_MAX)
        return HAN_RAISE(PyExc_ValueError, "elements and grains have at least one byte");
    if (self->length || self->made) return HAN_RAISE(PyExc_ValueError, "a stream is made once");
    if (tag < 0 || tag > UINT16_MAX) return HAN_RAISE(PyExc_ValueError, "a tag of %d", tag);
    self->tag = (uint16_t)tag;
    self->nbytes = nbytes;
    self->element = element;
    self->grain = grain;
    self->grain_bits = grain & (grain - 1) ? -1 : __builtin_ctzll(grain);
    self->grains = grains;
    self->uneven = uneven;
    self->own = own;
    self->made = true;
    return 0;
}

static Py_ssize_t operations_length(OperationsObject *self) { return (Py_ssize_t)self->length; }

/* ---- operations ----------------------------------------------------------------------------- */

static PyObject *none_or_error(int failed) {
    if (failed) return NULL;
    Py_RETURN_NONE;
}

static PyObject *emit_named(OperationsObject *self, operation op, const han_options *more) {
    op = han_named(op, more);
    return none_or_error(han_emit(self, &op));
}

/* copy(dst, src, nbytes, block=None, count=0, above=0, upto=0) */
static PyObject *copy(OperationsObject *self, PyObject *const *args, Py_ssize_t given,
                      PyObject *names) {
    const RefObject *ref[2];
    han_options more;
    uint64_t nbytes;
    if (han_take("copy", args, given, ref, 2, &nbytes, 1) ||
        han_take_options("copy", args, given, names, &more))
        return NULL;
    if (!self->own)
        return none_or_error(han_emit_copy(self, ref[0], ref[1], nbytes, more.block, more.count));
    han_wrote(self, ref[0]);
    const operation op = {.code = HAN_COPY, .refs = {ref[0], ref[1]}, .n = nbytes, .each = 1};
    return emit_named(self, op, &more);
}

/* reduce(dst, a, b, nbytes, also=None, block=None) */
static PyObject *reduce(OperationsObject *self, PyObject *const *args, Py_ssize_t given,
                        PyObject *names) {
    const RefObject *ref[4] = {NULL};
    han_options more;
    uint64_t nbytes;
    if (han_take("reduce", args, given, ref, 3, &nbytes, 1) ||
        han_take_options("reduce", args, given, names, &more))
        return NULL;
    ref[3] = more.also;
    return none_or_error(han_emit_reduce(self, ref, nbytes, more.block));
}

/* accumulate(dst, operand, nbytes) */
static PyObject *accumulate(OperationsObject *self, PyObject *const *args, Py_ssize_t given) {
    const RefObject *ref[2];
    uint64_t nbytes;
    if (han_take("accumulate", args, given, ref, 2, &nbytes, 1)) return NULL;
    return none_or_error(han_emit_accumulate(self, ref[0], ref[1], nbytes));
}

/* pull or push (dst, src, nbytes, (rank, channel, slot), block=None, above=0, upto=0, from_=None) */
static PyObject *attach(OperationsObject *self, const char *name, enum han_code code,
                        PyObject *const *args, Py_ssize_t given, PyObject *names) {
    const RefObject *ref[2];
    han_options more;
    uint64_t nbytes;
    int rank;
    unsigned int channel, slot;
    if (han_expect(name, given, 4) || han_take(name, args, 3, ref, 2, &nbytes, 1) ||
        han_take_options(name, args, given, names, &more))
        return NULL;
    if (!PyTuple_Check(args[3]))
        return PyErr_Format(PyExc_TypeError, "%s: a peer is a tuple of rank, channel and slot",
                            name);
    if (!PyArg_ParseTuple(args[3], "iII", &rank, &channel, &slot)) return NULL;
    if (!nbytes) Py_RETURN_NONE;
    if (code == HAN_PULL) han_wrote(self, ref[0]);
    const operation op = {.code = code,
                          .refs = {ref[0], ref[1]},
                          .numbers = {channel, slot},
                          .n = nbytes,
                          .each = 1,
                          .at = ref[0]->at,
                          .peer = rank};
    return emit_named(self, op, &more);
}

static PyObject *post(OperationsObject *self, PyObject *const *args, Py_ssize_t given) {
    const RefObject *flag[1];
    uint64_t value;
    if (han_take("post", args, given, flag, 1, &value, 1)) return NULL;
    return none_or_error(han_emit_post(self, flag[0], value));
}

/* wait(flag, k, rank, block=None, above=0, upto=0), expect(number, nbytes, ...) */
static PyObject *look_at(OperationsObject *self, const char *name, enum han_code code,
                         PyObject *const *args, Py_ssize_t given, PyObject *names) {
    const RefObject *ref[1];
    uint64_t number[2]; /* value or bytes, rank */
    han_options more;
    int32_t rank;
    if (han_take(name, args, given, ref, 1, number, 2) || han_rank_of(number[1], &rank) ||
        han_take_options(name, args, given, names, &more))
        return NULL;
    const operation op = {
        .code = code, .refs = {ref[0]}, .n = number[0], .each = code == HAN_EXPECT, .peer = rank};
    return emit_named(self, op, &more);
}

/* isend(src, nbytes, rank, request, block=None, count=0, above=0, upto=0, told=None, some=None), or
 * irecv(dst, ...) */
static PyObject *message(OperationsObject *self, const char *name, enum han_code code,
                         PyObject *const *args, Py_ssize_t given, PyObject *names) {
    const RefObject *ref[1];
    uint64_t number[3]; /* bytes, rank, request */
    han_options more;
    if (han_take(name, args, given, ref, 1, number, 3) ||
        han_take_options(name, args, given, names, &more))
        return NULL;
    return none_or_error(han_emit_message(self, code, ref[0], number, &more));
}

#define DEFINE_METHOD(NAME, EMIT, CODE)                                                           \
    static PyObject *emit_##NAME(OperationsObject *self, PyObject *const *args, Py_ssize_t given, \
                                 PyObject *names) {                                               \
        return EMIT(self, #NAME, HAN_##CODE, args, given, names);                                 \
    }
DEFINE_METHOD(pull, attach, PULL)
DEFINE_METHOD(push, attach, PUSH)
DEFINE_METHOD(wait, look_at, WAIT)
DEFINE_METHOD(expect, look_at, EXPECT)
DEFINE_METHOD(isend, message, ISEND)
DEFINE_METHOD(irecv, message, IRECV)

static PyObject *test(OperationsObject *self, PyObject *argument) {
    uint64_t request;
    if (han_number_of(argument, &request)) return NULL;
    return none_or_error(han_emit_test(self, request));
}

/* coll(kind, dst, src, n, root, comm, request) */
static PyObject *coll(OperationsObject *self, PyObject *const *args, Py_ssize_t given) {
    const RefObject *ref[2];
    uint64_t kind, number[4]; /* n, root, comm, request */
    int32_t root;
    if (han_expect("coll", given, 7) || han_number_of(args[0], &kind) ||
        han_take("coll", args + 1, 6, ref, 2, number, 4) || han_check_small("request", number[3]) ||
        han_rank_of(number[1], &root))
        return NULL;
    bool broadcasts = (kind & ~(uint64_t)HAN_C_BLOCKING) == HAN_C_BCAST;
    const operation op = {
        .code = HAN_COLL,
        .refs = {ref[0], ref[1]},
        .numbers = {kind, number[2]},
        .n = number[0],
        .each = broadcasts ? 1 : self->element,
        .at = (ref[0]->base ? ref[0] : ref[1])->at,
        .peer = root,
        .slot = number[3],
        .block = HAN_NO_BLOCK,
    };
    han_combines(self, op.n * op.each);
    han_wrote(self, ref[0]);
    const operation test = {.block = HAN_NO_BLOCK};
    return none_or_error(han_note_test(self, number[3], &test) || han_emit(self, &op));
}

static PyObject *await_stream(OperationsObject *self, PyObject *const *args, Py_ssize_t given) {
    uint64_t number[2]; /* stream, position */
    if (han_take("await_stream", args, given, NULL, 0, number, 2)) return NULL;
    return none_or_error(han_emit_await(self, number[0], number[1]));
}

/* ---- the program ---------------------------------------------------------------------------- */

static PyObject *get_writes(OperationsObject *self, void *Py_UNUSED(closure)) {
    return PyBytes_FromStringAndSize((const char *)self->writes, sizeof self->writes);
}

static PyMethodDef methods[] = {
    HAN_METHOD("copy", copy, HAN_NAMED,
               "$self, dst, src, nbytes, /, *, block=None, count=0, above=0, upto=0",
               "Copy, unless there are no bytes or both addresses are the same; `block` is what is "
               "moved."),
    HAN_METHOD("reduce", reduce, HAN_NAMED, "$self, dst, a, b, nbytes, /, *, also=None, block=None",
               "Combine ``dst = a op b``; write the result to `also` too, if given."),
    HAN_METHOD(
        "accumulate", accumulate, METH_FASTCALL, "$self, dst, operand, nbytes, /",
        "Combine ``dst = dst op operand``; several of these may be carried out in any order."),
    HAN_METHOD("pull", emit_pull, HAN_NAMED,
               "$self, dst, src, nbytes, peer, /, *, block=None, above=0, upto=0, from_=None",
               "Copy from `src` in the memory of a peer, which has shown its buffers, and at "
               "`from_` how far behind."),
    HAN_METHOD("push", emit_push, HAN_NAMED,
               "$self, dst, src, nbytes, peer, /, *, block=None, above=0, upto=0, from_=None",
               "Copy to `dst` in the memory of a peer, which has allowed its peers to write."),
    HAN_METHOD("post", post, METH_FASTCALL, "$self, flag, k, /",
               "Store-release ``epoch + k`` to a flag of this rank."),
    HAN_METHOD("wait", emit_wait, HAN_NAMED,
               "$self, flag, k, rank, /, *, block=None, above=0, upto=0",
               "Load-acquire `rank`'s flag until it reaches ``epoch + k``."),
    HAN_METHOD("expect", emit_expect, HAN_NAMED,
               "$self, number, nbytes, rank, /, *, block=None, above=0, upto=0",
               "Raise an error unless the number that `rank` has stored is the size of a block."),
    HAN_METHOD("pack", han_emit_pack, METH_FASTCALL, "$self, dst, src, message, nbytes, slot, /",
               "Append slots of small blocks to a message, behind the number of its bytes."),
    HAN_METHOD("unpack", han_emit_unpack, METH_FASTCALL,
               "$self, dst, src, message, nbytes, slot, rank, /",
               "Put what `rank` has packed into slots."),
    HAN_METHOD("tally", han_emit_tally, METH_FASTCALL, "$self, dst, sizes, nbytes, slot, first, /",
               "Count the blocks that fit into slots."),
    HAN_METHOD("wait_each", han_wait_each, METH_FASTCALL, "$self, flags, k, ranks, /",
               "Wait for the flag of each of `ranks` as `wait` does, one after the other."),
    HAN_METHOD("again", han_again, METH_FASTCALL, "$self, first, second, n, turns, /",
               "Append the `n` operations of one more turn; two turns tell how they change."),
    HAN_METHOD("show_each", han_show_each, METH_FASTCALL,
               "$self, cells, offset, src, bounds, part, /",
               "Copy a part of each share of a message to a cell."),
    HAN_METHOD(
        "take_each", han_take_each, METH_FASTCALL,
        "$self, dst, cells, offset, bounds, part, flags, k, ranks, /",
        "Copy a part of each share of a message from a cell; wait for the flag of each before it."),
    HAN_METHOD(
        "fold_each", han_fold_each, METH_FASTCALL,
        "$self, dst, operands, mine, start, nbytes, order, partials, waits, also, block=None, /",
        "Combine operands of several members in any order; wait for the flag of each before it."),
    HAN_METHOD("isend", emit_isend, HAN_NAMED,
               "$self, src, nbytes, rank, request, /, *, block=None, count=0, above=0, upto=0, "
               "told=None, some=None",
               "Start sending to `rank`; as many bytes as `told` says, and none if `some` is 0."),
    HAN_METHOD("irecv", emit_irecv, HAN_NAMED,
               "$self, dst, nbytes, rank, request, /, *, block=None, count=0, above=0, upto=0, "
               "told=None, some=None",
               "Start receiving from `rank`; `told` gets the bytes, unless `some` is 0."),
    HAN_METHOD("test", test, METH_O, "$self, request, /",
               "Wait until a request is complete; the message of a receive must have its size."),
    HAN_METHOD(
        "coll", coll, METH_FASTCALL, "$self, kind, dst, src, n, root, comm, request, /",
        "Start a collective of the MPI library, of `n` elements, on communicator number `comm`."),
    HAN_METHOD("await_stream", await_stream, METH_FASTCALL, "$self, stream, position, /",
               "Wait until a stream of this rank has passed so many of its operations."),
    {NULL, NULL, 0, NULL},
};

static PyMemberDef members[] = {
    {"task", T_UINT, offsetof(OperationsObject, task), 0,
     "The number of the task that operations belong to from now on."},
    {"operand", T_ULONGLONG, offsetof(OperationsObject, operand), READONLY,
     "The most bytes that one operation combines."},
    {NULL, 0, 0, 0, NULL},
};

static PyGetSetDef getset[] = {
    {"writes", (getter)get_writes, NULL, "Bits for what is written, by channel.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PySequenceMethods as_sequence = {.sq_length = (lenfunc)operations_length};

PyTypeObject OperationsType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "han._native.Operations",
    .tp_basicsize = sizeof(OperationsObject),
    .tp_new = operations_new,
    .tp_init = (initproc)operations_init,
    .tp_dealloc = (destructor)operations_dealloc,
    .tp_as_sequence = &as_sequence,
    .tp_methods = methods,
    .tp_members = members,
    .tp_getset = getset,
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
    .tp_doc = "The operations of one stream, as they are emitted.",
};
