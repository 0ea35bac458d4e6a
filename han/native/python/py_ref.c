#include "python/py_ref.h"

#include <stddef.h>
#include <structmember.h>

const RefObject *han_ref_of(PyObject *argument) {
    if (Py_IS_TYPE(argument, &RefType)) return (const RefObject *)argument;
    return (void *)PyErr_Format(PyExc_TypeError, "a Ref expected, not %.100s",
                                Py_TYPE(argument)->tp_name);
}

int han_number_of(PyObject *argument, uint64_t *number) {
    PyObject *index = PyLong_Check(argument) ? Py_NewRef(argument) : PyNumber_Index(argument);
    if (!index) return -1;
    *number = PyLong_AsUnsignedLongLong(index);
    Py_DECREF(index);
    return *number == UINT64_MAX && PyErr_Occurred() ? -1 : 0;
}

static RefObject *copy_of(const RefObject *ref) {
    RefObject *copy = PyObject_New(RefObject, &RefType);
    if (!copy) return NULL;
    copy->base = ref->base;
    copy->offset = ref->offset;
    copy->at = ref->at;
    copy->origin = ref->origin;
    copy->blocks = ref->blocks;
    return copy;
}

static PyObject *ref_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"base", "offset", "at", "origin", "blocks", NULL};
    PyObject *fields[5] = {NULL};
    RefObject *ref;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|OOOO:Ref", names, &fields[0], &fields[1],
                                     &fields[2], &fields[3], &fields[4]))
        return NULL;
    if (!(ref = (RefObject *)type->tp_alloc(type, 0))) return NULL;
    uint64_t *to[] = {&ref->base, &ref->offset, &ref->at, &ref->origin, &ref->blocks};
    for (int k = 0; k < 5; k++)
        if (fields[k] && han_number_of(fields[k], to[k])) {
            Py_DECREF(ref);
            return NULL;
        }
    return (PyObject *)ref;
}

/* A method that changes a copy of an address by a number. */
#define DEFINE_CHANGE(NAME, CHANGE)                                    \
    static PyObject *ref_##NAME(RefObject *self, PyObject *argument) { \
        uint64_t number;                                               \
        if (han_number_of(argument, &number)) return NULL;             \
        RefObject *ref = copy_of(self);                                \
        if (ref) CHANGE;                                               \
        return (PyObject *)ref;                                        \
    }
DEFINE_CHANGE(to, ref->at = number)
DEFINE_CHANGE(holding, ref->at = ref->origin = number)
DEFINE_CHANGE(behind, ref->blocks += number)
DEFINE_CHANGE(within, ref->base = number)
DEFINE_CHANGE(plus, ref->offset += number)

static PyObject *ref_start(RefObject *self, PyObject *nbytes) {
    uint64_t number;
    if (han_number_of(nbytes, &number)) return NULL;
    return PyLong_FromUnsignedLongLong(han_ref_start(self, number));
}

static PyObject *ref_add(PyObject *a, PyObject *b) {
    bool first = Py_IS_TYPE(a, &RefType);
    PyObject *self = first ? a : b, *nbytes = first ? b : a;
    if (!PyIndex_Check(nbytes)) Py_RETURN_NOTIMPLEMENTED;
    return ref_plus((RefObject *)self, nbytes);
}

static PyObject *ref_compare(PyObject *self, PyObject *other, int how) {
    if (!Py_IS_TYPE(other, &RefType) || (how != Py_EQ && how != Py_NE)) Py_RETURN_NOTIMPLEMENTED;
    bool same = han_ref_same((RefObject *)self, (RefObject *)other);
    return PyBool_FromLong(same == (how == Py_EQ));
}

static Py_hash_t ref_hash(RefObject *self) {
    const uint64_t fields[] = {self->base, self->offset, self->at, self->origin, self->blocks};
    uint64_t hash = 0;
    for (int k = 0; k < 5; k++) hash = (hash ^ fields[k]) * UINT64_C(0x9E3779B97F4A7C15);
    return (Py_hash_t)hash == -1 ? -2 : (Py_hash_t)hash;
}

static PyObject *ref_repr(RefObject *self) {
    return PyUnicode_FromFormat("Ref(base=%llu, offset=%llu, at=%llu, origin=%llu, blocks=%llu)",
                                (unsigned long long)self->base, (unsigned long long)self->offset,
                                (unsigned long long)self->at, (unsigned long long)self->origin,
                                (unsigned long long)self->blocks);
}

static PyMethodDef methods[] = {
    HAN_METHOD("to", ref_to, METH_O, "$self, at, /",
               "Return the address of the message's byte `at` in the same memory."),
    HAN_METHOD("holding", ref_holding, METH_O, "$self, at, /",
               "Return the same address, where a part of the message begins with its byte `at`."),
    HAN_METHOD("behind", ref_behind, METH_O, "$self, blocks, /",
               "Return the address behind so many blocks of the message's size."),
    HAN_METHOD("within", ref_within, METH_O, "$self, base, /",
               "Return the same place in another base."),
    HAN_METHOD("start", ref_start, METH_O, "$self, nbytes, /",
               "Return the offset from the base for a message of `nbytes` bytes."),
    {NULL, NULL, 0, NULL},
};

#define FIELD(name) {#name, T_ULONGLONG, offsetof(RefObject, name), READONLY, NULL}
static PyMemberDef members[] = {
    FIELD(base), FIELD(offset), FIELD(at), FIELD(origin), FIELD(blocks), {NULL, 0, 0, 0, NULL},
};

static PyNumberMethods as_number = {.nb_add = ref_add};

PyTypeObject RefType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "han._native.Ref",
    .tp_basicsize = sizeof(RefObject),
    .tp_new = ref_new,
    .tp_repr = (reprfunc)ref_repr,
    .tp_hash = (hashfunc)ref_hash,
    .tp_richcompare = ref_compare,
    .tp_as_number = &as_number,
    .tp_methods = methods,
    .tp_members = members,
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_doc = "Ref(base, offset=0, at=0, origin=0, blocks=0)\n--\n\n"
              "An address in a program: `offset` bytes from a base, behind `blocks` messages.",
};

/* ---- arguments of operations ---------------------------------------------------------------- */

int han_expect(const char *name, Py_ssize_t given, Py_ssize_t expected) {
    if (given == expected) return 0;
    return HAN_RAISE(PyExc_TypeError, "%s takes %zd arguments, not %zd", name, expected, given);
}

int han_expect_tuple(const char *name, PyObject *argument, Py_ssize_t n) {
    if (!PyTuple_Check(argument))
        return HAN_RAISE(PyExc_TypeError, "%s: a tuple expected, not %.100s", name,
                         Py_TYPE(argument)->tp_name);
    if (n < 0 || PyTuple_GET_SIZE(argument) == n) return 0;
    return HAN_RAISE(PyExc_ValueError, "%s: a tuple of %zd expected, not of %zd", name, n,
                     PyTuple_GET_SIZE(argument));
}

int han_numbers_of(const char *name, PyObject *argument, uint64_t *numbers, int n) {
    if (han_expect_tuple(name, argument, n)) return -1;
    for (int k = 0; k < n; k++)
        if (han_number_of(PyTuple_GET_ITEM(argument, k), &numbers[k])) return -1;
    return 0;
}

int han_take(const char *name, PyObject *const *args, Py_ssize_t given, const RefObject **refs,
             int n_refs, uint64_t *numbers, int n_numbers) {
    if (han_expect(name, given, n_refs + n_numbers)) return -1;
    for (int k = 0; k < n_refs; k++)
        if (!(refs[k] = han_ref_of(args[k]))) return -1;
    for (int k = 0; k < n_numbers; k++)
        if (han_number_of(args[n_refs + k], &numbers[k])) return -1;
    return 0;
}

int han_take_options(const char *name, PyObject *const *args, Py_ssize_t given, PyObject *names,
                     han_options *out) {
    *out = (han_options){.block = HAN_NO_BLOCK};
    for (Py_ssize_t k = 0; names && k < PyTuple_GET_SIZE(names); k++) {
        PyObject *key = PyTuple_GET_ITEM(names, k), *value = args[given + k];
        uint64_t number;
        if (!PyUnicode_CompareWithASCIIString(key, "also")) {
            if (value != Py_None && !(out->also = han_ref_of(value))) return -1;
        } else if (!PyUnicode_CompareWithASCIIString(key, "block")) {
            if (value == Py_None) continue;
            if (han_number_of(value, &number)) return -1;
            out->block = (uint32_t)number;
        } else if (!PyUnicode_CompareWithASCIIString(key, "count")) {
            if (han_number_of(value, &number)) return -1;
            out->count = (uint32_t)number;
        } else if (!PyUnicode_CompareWithASCIIString(key, "upto") ||
                   !PyUnicode_CompareWithASCIIString(key, "above")) {
            if (han_number_of(value, &number)) return -1;
            bool least = !PyUnicode_CompareWithASCIIString(key, "above");
            *(least ? &out->above : &out->upto) =
                number < UINT32_MAX ? (uint32_t)number : UINT32_MAX;
        } else if (!PyUnicode_CompareWithASCIIString(key, "from_")) {
            if (value != Py_None && !(out->from = han_ref_of(value))) return -1;
        } else if (!PyUnicode_CompareWithASCIIString(key, "told")) {
            if (value != Py_None && !(out->told = han_ref_of(value))) return -1;
        } else if (!PyUnicode_CompareWithASCIIString(key, "some")) {
            if (value != Py_None && !(out->some = han_ref_of(value))) return -1;
        } else {
            return HAN_RAISE(PyExc_TypeError, "%s takes no keyword argument %R", name, key);
        }
    }
    return 0;
}
