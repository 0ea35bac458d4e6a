#include "python/py_eager.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <structmember.h>

#include "python/py_ref.h"

/* A block, and a block for each rank: bytearrays, and arrays over them, which are read more quickly.
 * What makes objects of blocks that do not hold them all. What is returned if a call has no plan yet. */
enum { ONE, EVERY, ONE_ARRAY, EVERY_ARRAY, LARGE, UNPLANNED, PARTS };

/* The blocks of one communicator, and what calls of bytes get in their place. A call that begins while
 * another one uses them (of another thread, of a signal handler) has its own. */
typedef struct {
    PyObject_HEAD
    PyObject *parts[PARTS];
    Py_ssize_t most; /* bytes of a block in `gather_up_to` */
    int call;        /* whose collective of bytes is under way; 0: none */
    bool busy;
    bool done; /* no rank waits for this one in its last gather */
} EagerObject;

typedef struct {
    PyObject *one, *every, *one_array, *every_array;
    Py_ssize_t size; /* bytes of each */
    bool shared;
} blocks;

enum { HEAD = sizeof(han_eager_head) };

static bool holds_blocks(PyObject *memory) {
    return PyByteArray_Check(memory) && PyByteArray_GET_SIZE(memory) &&
           PyByteArray_GET_SIZE(memory) % HAN_EAGER_BLOCK == 0;
}

static PyObject *eager_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    PyObject *p[PARTS];
    if (kwargs && PyDict_GET_SIZE(kwargs))
        return PyErr_Format(PyExc_TypeError, "Eager takes no keywords");
    if (!PyArg_ParseTuple(args, "OOOOO", &p[ONE], &p[EVERY], &p[ONE_ARRAY], &p[EVERY_ARRAY],
                          &p[LARGE]))
        return NULL;
    if (!holds_blocks(p[ONE]) || !holds_blocks(p[EVERY]))
        return PyErr_Format(PyExc_ValueError, "Eager: bytearrays of blocks of %d bytes expected",
                            HAN_EAGER_BLOCK);
    EagerObject *self = (EagerObject *)type->tp_alloc(type, 0);
    for (int k = 0; self && k < UNPLANNED; k++) self->parts[k] = Py_NewRef(p[k]);
    if (self) self->parts[UNPLANNED] = PyObject_CallNoArgs((PyObject *)&PyBaseObject_Type);
    if (self && !self->parts[UNPLANNED]) Py_CLEAR(self);
    return (PyObject *)self;
}

static int eager_traverse(EagerObject *self, visitproc visit, void *arg) {
    for (int k = 0; k < PARTS; k++) Py_VISIT(self->parts[k]);
    return 0;
}

static int eager_clear(EagerObject *self) {
    for (int k = 0; k < PARTS; k++) Py_CLEAR(self->parts[k]);
    return 0;
}

static void eager_dealloc(EagerObject *self) {
    PyObject_GC_UnTrack(self);
    eager_clear(self);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

/* ---- blocks ---------------------------------------------------------------------------------- */

/* Return a bytearray of zeros, as large as another one. */
static PyObject *like(PyObject *memory) {
    PyObject *made = PyByteArray_FromStringAndSize(NULL, PyByteArray_GET_SIZE(memory));
    if (made) memset(PyByteArray_AS_STRING(made), 0, (size_t)PyByteArray_GET_SIZE(made));
    return made;
}

/* Take the blocks, or new ones if these are in use; 0 or -1. */
static int take(EagerObject *self, blocks *out) {
    if (!self->busy) {
        self->busy = true;
        *out = (blocks){self->parts[ONE],         self->parts[EVERY], self->parts[ONE_ARRAY],
                        self->parts[EVERY_ARRAY], HAN_EAGER_BLOCK,    true};
        return 0;
    }
    PyObject *one = like(self->parts[ONE]), *every = one ? like(self->parts[EVERY]) : NULL;
    if (!every) {
        Py_XDECREF(one);
        return -1;
    }
    *out = (blocks){one, every, one, every, HAN_EAGER_BLOCK, false};
    return 0;
}

/* Make a block that is as long as its object, or a head if this is too large; where they are `wanted`,
 * also blocks for those of all ranks. 0 or -1. */
static int make(const EagerObject *self, PyObject *data, bool wanted, blocks *out) {
    const Py_ssize_t ranks = PyByteArray_GET_SIZE(self->parts[EVERY]) / HAN_EAGER_BLOCK;
    const Py_ssize_t nbytes = PyBytes_GET_SIZE(data);
    PyObject *every = Py_None;
    PyObject *one =
        PyByteArray_FromStringAndSize(NULL, HEAD + (nbytes <= self->most - HEAD ? nbytes : 0));
    if (one)
        every = wanted ? PyByteArray_FromStringAndSize(NULL, ranks * self->most) : Py_NewRef(every);
    *out = (blocks){one, every, one, every, self->most, false};
    if (one && every) return 0;
    Py_XDECREF(one);
    return -1;
}

static void give(EagerObject *self, blocks *taken) {
    if (taken->shared) {
        self->busy = false;
        return;
    }
    Py_DECREF(taken->one);
    Py_DECREF(taken->every);
}

/* Write a head, and the object behind it if it fits into `size` bytes with it. */
static void fill(char *block, Py_ssize_t size, han_eager_head head, PyObject *data) {
    Py_ssize_t nbytes = PyBytes_GET_SIZE(data);
    head.nbytes = nbytes;
    memcpy(block, &head, sizeof head);
    if (nbytes <= size - HEAD) memcpy(block + sizeof head, PyBytes_AS_STRING(data), (size_t)nbytes);
}

static int expect_bytes(PyObject *data) {
    if (PyBytes_Check(data)) return 0;
    return HAN_RAISE(PyExc_TypeError, "expected bytes, %.200s found", Py_TYPE(data)->tp_name);
}

static int fill_one(const blocks *to, han_eager_head head, PyObject *data) {
    if (expect_bytes(data)) return -1;
    fill(PyByteArray_AS_STRING(to->one), to->size, head, data);
    return 0;
}

/* Measure the objects of a list, one for each block; 0 or -1. */
static int measure(const blocks *to, PyObject *items, han_eager_spread *out) {
    Py_ssize_t count = PyByteArray_GET_SIZE(to->every) / HAN_EAGER_BLOCK;
    if (!PyList_Check(items) || PyList_GET_SIZE(items) != count)
        return HAN_RAISE(PyExc_ValueError, "a list of %zd objects expected", count);
    for (Py_ssize_t k = 0; k < count; k++) {
        PyObject *data = PyList_GET_ITEM(items, k);
        if (expect_bytes(data)) return -1;
        int64_t nbytes = PyBytes_GET_SIZE(data);
        out->total += nbytes;
        if (nbytes > out->most) out->most = nbytes;
    }
    return 0;
}

/* Fill a block for each rank. If an object does not fit, the blocks hold no object; 0 or -1. */
static int fill_every(const blocks *to, han_eager_head head, PyObject *items) {
    han_eager_spread spread = {0};
    if (measure(to, items, &spread)) return -1;
    char *block = PyByteArray_AS_STRING(to->every);
    for (Py_ssize_t k = 0; k < PyList_GET_SIZE(items); k++, block += HAN_EAGER_BLOCK) {
        PyObject *data = PyList_GET_ITEM(items, k);
        if (spread.most <= HAN_EAGER_ROOM) {
            fill(block, HAN_EAGER_BLOCK, head, data);
            continue;
        }
        head.nbytes = ~(int64_t)PyBytes_GET_SIZE(data);
        memcpy(block, &head, sizeof head);
        memcpy(block + sizeof head, &spread, sizeof spread);
    }
    return 0;
}

/* Return the objects in blocks of `size` bytes, encoded; NULL without an error if one is of another
 * call, or not there. */
static PyObject *items_in(PyObject *blocks, Py_ssize_t size, han_eager_head want) {
    Py_ssize_t count = PyByteArray_GET_SIZE(blocks) / size;
    const char *at = PyByteArray_AS_STRING(blocks);
    PyObject *items = PyList_New(count);
    for (Py_ssize_t k = 0; items && k < count; k++, at += size) {
        han_eager_head head;
        memcpy(&head, at, sizeof head);
        if (head.call != want.call || head.root != want.root || head.nbytes < 0 ||
            head.nbytes > size - HEAD) {
            Py_CLEAR(items);
            break;
        }
        PyObject *data = PyBytes_FromStringAndSize(at + sizeof head, (Py_ssize_t)head.nbytes);
        if (data)
            PyList_SET_ITEM(items, k, data);
        else
            Py_CLEAR(items);
    }
    return items;
}

/* Replace the encoded objects of a list by the objects; 0 or -1. */
static int decode_each(PyObject *items) {
    for (Py_ssize_t k = 0; k < PyList_GET_SIZE(items); k++) {
        PyObject *item = han_py_decode(PyList_GET_ITEM(items, k));
        if (!item || PyList_SetItem(items, k, item)) return -1;
    }
    return 0;
}

/* ---- calls ----------------------------------------------------------------------------------- */

/* Carry out a collective of bytes by ``run(*args)``, which returns False if it has no plan; give the
 * blocks back. Return the objects in `from`, encoded, or None without it; or `unplanned`; or what
 * `large` makes of the blocks if not all objects are there; or NULL. */
static PyObject *carry(EagerObject *self, blocks *taken, PyObject *run, PyObject *const *args,
                       size_t n, PyObject *from, han_eager_head head) {
    int before = self->call;
    self->call = head.call;
    PyObject *done = PyObject_Vectorcall(run, args, n, NULL), *found = NULL;
    self->call = before;
    if (done == Py_True && !from) {
        found = Py_NewRef(Py_None);
    } else if (done == Py_True) {
        found = items_in(from, taken->size, head);
        if (!found && !PyErr_Occurred())
            found = PyObject_CallFunction(self->parts[LARGE], "On", from, taken->size);
    } else if (done) {
        found = Py_NewRef(self->parts[UNPLANNED]);
    }
    Py_XDECREF(done);
    give(self, taken);
    return found;
}

/* Return what `carry` found: all objects of a list, or the one object if it is `single`. */
static PyObject *decoded(PyObject *found, bool single) {
    if (!found || !PyList_CheckExact(found)) return found;
    PyObject *result = decode_each(found) ? NULL : single ? PyList_GET_ITEM(found, 0) : found;
    Py_XINCREF(result);
    Py_DECREF(found);
    return result;
}

/* Read the arguments run, data, call, root and, if five are expected, `wanted`; 0 or -1. */
static int read_call(const char *name, PyObject *const *args, Py_ssize_t given, int *wanted,
                     han_eager_head *head) {
    if (han_expect(name, given, wanted ? 5 : 4)) return -1;
    const long call = PyLong_AsLong(args[2]), root = PyErr_Occurred() ? 0 : PyLong_AsLong(args[3]);
    if (!PyErr_Occurred() && wanted) *wanted = PyObject_IsTrue(args[4]);
    *head = (han_eager_head){.call = (int32_t)call, .root = (int32_t)root};
    return PyErr_Occurred() ? -1 : 0;
}

/* Read the arguments, take blocks, and fill them with the data; 0 or -1. */
static int begin(EagerObject *self, const char *name, PyObject *const *args, Py_ssize_t given,
                 int *wanted, int (*fill_in)(const blocks *, han_eager_head, PyObject *),
                 han_eager_head *head, blocks *out) {
    if (read_call(name, args, given, wanted, head) || take(self, out)) return -1;
    if (args[1] == Py_None || !fill_in(out, *head, args[1])) return 0;
    give(self, out);
    return -1;
}

static PyObject *eager_tell(EagerObject *self, PyObject *const *args, Py_ssize_t given) {
    han_eager_head head;
    blocks b;
    int wanted = false;
    if (begin(self, "tell", args, given, &wanted, fill_one, &head, &b)) return NULL;
    PyObject *bytes[] = {b.one_array, b.every_array};
    PyObject *found = carry(self, &b, args[0], bytes, 2, b.every, head);
    return wanted ? decoded(found, false) : found;
}

/* On other ranks than the root the blocks of all are of no use. */
static PyObject *gathered(EagerObject *self, blocks *b, PyObject *const *args, bool wanted,
                          han_eager_head head) {
    bool fits = PyBytes_GET_SIZE(args[1]) <= b->size - HEAD;
    self->done = false;
    PyObject *bytes[] = {b->one_array, wanted ? b->every_array : Py_None, args[3]};
    PyObject *found = carry(self, b, args[0], bytes, 3, wanted ? b->every : NULL, head);
    self->done = found && (wanted ? PyList_CheckExact(found) : fits);
    return decoded(found, false);
}

static PyObject *eager_gather(EagerObject *self, PyObject *const *args, Py_ssize_t given) {
    han_eager_head head;
    blocks b;
    int wanted = false;
    if (begin(self, "gather", args, given, &wanted, fill_one, &head, &b)) return NULL;
    return gathered(self, &b, args, wanted, head);
}

static PyObject *eager_gather_up_to(EagerObject *self, PyObject *const *args, Py_ssize_t given) {
    han_eager_head head;
    blocks b;
    int wanted = false;
    if (read_call("gather_up_to", args, given, &wanted, &head) || expect_bytes(args[1]) ||
        make(self, args[1], wanted, &b) || fill_one(&b, head, args[1]))
        return NULL;
    return gathered(self, &b, args, wanted, head);
}

static PyObject *eager_bcast(EagerObject *self, PyObject *const *args, Py_ssize_t given) {
    han_eager_head head;
    blocks b;
    if (begin(self, "bcast", args, given, NULL, fill_one, &head, &b)) return NULL;
    PyObject *bytes[] = {b.one_array, args[3]};
    return decoded(carry(self, &b, args[0], bytes, 2, b.one, head), true);
}

static PyObject *eager_scatter(EagerObject *self, PyObject *const *args, Py_ssize_t given) {
    han_eager_head head;
    blocks b;
    if (begin(self, "scatter", args, given, NULL, fill_every, &head, &b)) return NULL;
    PyObject *bytes[] = {args[1] == Py_None ? Py_None : b.every_array, b.one_array, args[3]};
    return decoded(carry(self, &b, args[0], bytes, 3, b.one, head), true);
}

static PyObject *eager_alltoall(EagerObject *self, PyObject *const *args, Py_ssize_t given) {
    han_eager_head head;
    blocks b;
    if (begin(self, "alltoall", args, given, NULL, fill_every, &head, &b)) return NULL;
    PyObject *bytes[] = {Py_None, b.every_array}; /* in place */
    return decoded(carry(self, &b, args[0], bytes, 2, b.every, head), false);
}

static PyMethodDef methods[] = {
    HAN_METHOD("tell", eager_tell, METH_FASTCALL, "$self, run, data, call, root, wanted, /",
               "Tell all ranks an object by run(one, every); return those of all, or encoded "
               "unless wanted."),
    HAN_METHOD("gather", eager_gather, METH_FASTCALL, "$self, run, data, call, root, wanted, /",
               "Gather an object of each rank by run(one, every, root); return all on the root."),
    HAN_METHOD("gather_up_to", eager_gather_up_to, METH_FASTCALL,
               "$self, run, data, call, root, wanted, /",
               "The same; blocks have at most `most` bytes, and come as long as they are."),
    HAN_METHOD("bcast", eager_bcast, METH_FASTCALL, "$self, run, data, call, root, /",
               "Broadcast an object by run(one, root); return it."),
    HAN_METHOD("scatter", eager_scatter, METH_FASTCALL, "$self, run, items, call, root, /",
               "Scatter objects of the root by run(every, one, root); return this rank's."),
    HAN_METHOD("alltoall", eager_alltoall, METH_FASTCALL, "$self, run, items, call, root, /",
               "Send an object to each rank by run(None, every); return those that arrive."),
    {NULL, NULL, 0, NULL},
};

static PyMemberDef fields[] = {
    {"most", T_PYSSIZET, offsetof(EagerObject, most), 0,
     "The most bytes of a block in gather_up_to."},
    {"call", T_INT, offsetof(EagerObject, call), 0,
     "The number of the call whose collective of bytes is under way; 0: none."},
    {"done", T_BOOL, offsetof(EagerObject, done), READONLY,
     "Whether no rank waits for this one in its last gather."},
    {"unplanned", T_OBJECT, offsetof(EagerObject, parts[UNPLANNED]), READONLY,
     "What a method returns if the collective of bytes has no plan yet."},
    {NULL, 0, 0, 0, NULL},
};

PyTypeObject EagerType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "han._native.Eager",
    .tp_basicsize = sizeof(EagerObject),
    .tp_dealloc = (destructor)eager_dealloc,
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_doc = "Eager(one, every, one_array, every_array, large, /)\n--\n\n"
              "The eager blocks of a communicator.",
    .tp_traverse = (traverseproc)eager_traverse,
    .tp_clear = (inquiry)eager_clear,
    .tp_methods = methods,
    .tp_members = fields,
    .tp_new = eager_new,
};
