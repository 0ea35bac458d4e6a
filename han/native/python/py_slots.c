#include "python/py_slots.h"

static PyObject *emitted(int failed) {
    if (failed) return NULL;
    Py_RETURN_NONE;
}

/* pack(dst, src, message, nbytes, slot) or unpack(dst, src, message, nbytes, slot, rank) */
static PyObject *slots(OperationsObject *self, const char *name, enum han_code code,
                       PyObject *const *args, Py_ssize_t given) {
    const bool packs = code == HAN_PACK;
    const RefObject *ref[3];
    uint64_t number[3] = {0}; /* bytes, bytes of a slot, rank */
    int32_t rank;
    if (han_take(name, args, given, ref, 3, number, packs ? 2 : 3) ||
        han_check_small("slot", number[1]) || han_rank_of(number[2], &rank))
        return NULL;
    if (!number[1] || number[0] % number[1])
        return PyErr_Format(PyExc_ValueError, "%s: whole slots expected", name);
    han_wrote(self, ref[0]);
    return emitted(han_emit(self, &(operation){.code = code,
                                               .refs = {ref[0], ref[1], ref[2]},
                                               .n = number[0],
                                               .slot = number[1],
                                               .peer = rank,
                                               .block = HAN_NO_BLOCK}));
}

/* tally(dst, sizes, nbytes, slot, first) */
PyObject *han_emit_tally(OperationsObject *self, PyObject *const *args, Py_ssize_t given) {
    const RefObject *ref[2];
    uint64_t number[3]; /* bytes, bytes of a slot, whether they are the first ones */
    if (han_take("tally", args, given, ref, 2, number, 3) || han_check_small("slot", number[1]))
        return NULL;
    return emitted(han_emit(self, &(operation){.code = HAN_TALLY,
                                               .refs = {ref[0], ref[1]},
                                               .n = number[0],
                                               .slot = number[1],
                                               .peer = number[2] != 0,
                                               .block = HAN_NO_BLOCK}));
}

PyObject *han_emit_pack(OperationsObject *self, PyObject *const *args, Py_ssize_t given) {
    return slots(self, "pack", HAN_PACK, args, given);
}

PyObject *han_emit_unpack(OperationsObject *self, PyObject *const *args, Py_ssize_t given) {
    return slots(self, "unpack", HAN_UNPACK, args, given);
}
