#include "python/py_eager.h"

#include <stdbool.h>
#include <string.h>

#include "python/py_ref.h"

/* The blocks of one communicator. The lock is held from the filling of blocks until they are read.
 * Calls of bytes get the arrays, which show the memory of the blocks. */
typedef struct {
    PyObject_HEAD
    PyObject *one, *every;                /* bytearrays: a block, and a block for each rank */
    PyObject *one_array, *every_array;    /* arrays over them */
    PyObject *loads, *acquire, *release;  /* of pickled objects; of the lock */
    PyObject *unplanned;                  /* is returned if the call has no plan yet */
    int call;                             /* whose collective of bytes is under way; 0: none */
} EagerObject;

static bool holds_blocks(PyObject *memory) {
    return PyByteArray_Check(memory) && PyByteArray_GET_SIZE(memory) &&
           PyByteArray_GET_SIZE(memory) % HAN_EAGER_BLOCK == 0;
}

static int eager_init(EagerObject *self, PyObject *args, PyObject *kwargs) {
    PyObject *one, *every, *one_array, *every_array, *loads, *lock;
    if (self->one || (kwargs && PyDict_GET_SIZE(kwargs))) {
        PyErr_SetString(PyExc_TypeError, "Eager takes six arguments by position, once");
        return -1;
    }
    if (!PyArg_ParseTuple(args, "OOOOOO", &one, &every, &one_array, &every_array, &loads, &lock))
        return -1;
    if (!holds_blocks(one) || !holds_blocks(every)) {
        PyErr_Format(PyExc_ValueError, "Eager: bytearrays of blocks of %d bytes expected",
                     HAN_EAGER_BLOCK);
        return -1;
    }
    if (!(self->acquire = PyObject_GetAttrString(lock, "acquire")) ||
        !(self->release = PyObject_GetAttrString(lock, "release")) ||
        !(self->unplanned = PyObject_CallNoArgs((PyObject *)&PyBaseObject_Type)))
        return -1;
    self->one = Py_NewRef(one);
    self->every = Py_NewRef(every);
    self->one_array = Py_NewRef(one_array);
    self->every_array = Py_NewRef(every_array);
    self->loads = Py_NewRef(loads);
    return 0;
}

static int eager_traverse(EagerObject *self, visitproc visit, void *arg) {
    Py_VISIT(self->one);
    Py_VISIT(self->every);
    Py_VISIT(self->one_array);
    Py_VISIT(self->every_array);
    Py_VISIT(self->loads);
    Py_VISIT(self->acquire);
    Py_VISIT(self->release);
    Py_VISIT(self->unplanned);
    return 0;
}

static int eager_clear(EagerObject *self) {
    Py_CLEAR(self->one);
    Py_CLEAR(self->every);
    Py_CLEAR(self->one_array);
    Py_CLEAR(self->every_array);
    Py_CLEAR(self->loads);
    Py_CLEAR(self->acquire);
    Py_CLEAR(self->release);
    Py_CLEAR(self->unplanned);
    return 0;
}

static void eager_dealloc(EagerObject *self) {
    PyObject_GC_UnTrack(self);
    eager_clear(self);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

/* ---- blocks ---------------------------------------------------------------------------------- */

/* Read the call and the root of a head; 0 or -1. */
static int take_call(PyObject *const *args, han_eager_head *out) {
    long call = PyLong_AsLong(args[0]), root = PyLong_AsLong(args[1]);
    if (PyErr_Occurred()) return -1;
    *out = (han_eager_head){.call = (int32_t)call, .root = (int32_t)root};
    return 0;
}

static void fill(char *block, han_eager_head head, PyObject *data) {
    Py_ssize_t nbytes = PyBytes_GET_SIZE(data);
    head.nbytes = nbytes;
    memcpy(block, &head, sizeof head);
    if (nbytes <= HAN_EAGER_ROOM) memcpy(block + sizeof head, PyBytes_AS_STRING(data), (size_t)nbytes);
}

static int expect_bytes(PyObject *data) {
    if (PyBytes_Check(data)) return 0;
    PyErr_Format(PyExc_TypeError, "expected bytes, %.200s found", Py_TYPE(data)->tp_name);
    return -1;
}

static int fill_one(EagerObject *self, han_eager_head head, PyObject *data) {
    if (expect_bytes(data)) return -1;
    fill(PyByteArray_AS_STRING(self->one), head, data);
    return 0;
}

/* Return the bytes of each object of a list, one for each block; or -1. */
static int measure(EagerObject *self, PyObject *items, han_eager_spread *out) {
    Py_ssize_t blocks = PyByteArray_GET_SIZE(self->every) / HAN_EAGER_BLOCK;
    if (!PyList_Check(items) || PyList_GET_SIZE(items) != blocks) {
        PyErr_Format(PyExc_ValueError, "a list of %zd objects expected", blocks);
        return -1;
    }
    for (Py_ssize_t k = 0; k < blocks; k++) {
        PyObject *data = PyList_GET_ITEM(items, k);
        if (expect_bytes(data)) return -1;
        int64_t nbytes = PyBytes_GET_SIZE(data);
        out->total += nbytes;
        if (nbytes > out->most) out->most = nbytes;
    }
    return 0;
}

/* Fill a block for each rank. If an object does not fit, the blocks hold no object; 0 or -1. */
static int fill_every(EagerObject *self, han_eager_head head, PyObject *items) {
    han_eager_spread spread = {0};
    if (measure(self, items, &spread)) return -1;
    char *block = PyByteArray_AS_STRING(self->every);
    for (Py_ssize_t k = 0; k < PyList_GET_SIZE(items); k++, block += HAN_EAGER_BLOCK) {
        PyObject *data = PyList_GET_ITEM(items, k);
        if (spread.most <= HAN_EAGER_ROOM) {
            fill(block, head, data);
            continue;
        }
        head.nbytes = ~(int64_t)PyBytes_GET_SIZE(data);
        memcpy(block, &head, sizeof head);
        memcpy(block + sizeof head, &spread, sizeof spread);
    }
    return 0;
}

/* Return the objects in blocks, pickled; NULL without an error if one is of another call, or not
 * there. */
static PyObject *items_in(PyObject *blocks, han_eager_head want) {
    Py_ssize_t count = PyByteArray_GET_SIZE(blocks) / HAN_EAGER_BLOCK;
    const char *at = PyByteArray_AS_STRING(blocks);
    PyObject *items = PyList_New(count);
    for (Py_ssize_t k = 0; items && k < count; k++, at += HAN_EAGER_BLOCK) {
        han_eager_head head;
        memcpy(&head, at, sizeof head);
        if (head.call != want.call || head.root != want.root || head.nbytes < 0 ||
            head.nbytes > HAN_EAGER_ROOM) {
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

/* Replace the pickled objects of a list by the objects; nothing stands for None. 0 or -1. */
static int load_each(EagerObject *self, PyObject *items) {
    for (Py_ssize_t k = 0; k < PyList_GET_SIZE(items); k++) {
        PyObject *data = PyList_GET_ITEM(items, k);
        PyObject *item = PyBytes_GET_SIZE(data) ? PyObject_CallOneArg(self->loads, data)
                                                : Py_NewRef(Py_None);
        if (!item || PyList_SetItem(items, k, item)) return -1;
    }
    return 0;
}

/* ---- calls ----------------------------------------------------------------------------------- */

static int lock(EagerObject *self) {
    PyObject *done = PyObject_CallNoArgs(self->acquire);
    Py_XDECREF(done);
    return done ? 0 : -1;
}

static void unlock(EagerObject *self) {
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    Py_XDECREF(PyObject_CallNoArgs(self->release));
    PyErr_Restore(type, value, trace);
}

/* Carry out a collective of bytes by ``run(*args)``, which returns False if it has no plan. Return
 * the objects in `blocks`, pickled; or `unplanned`; or the blocks themselves, and keep the lock, if
 * not all objects are there; or NULL. */
static PyObject *carry(EagerObject *self, PyObject *run, PyObject *const *args, size_t n,
                       PyObject *blocks, han_eager_head head) {
    self->call = head.call;
    PyObject *done = PyObject_Vectorcall(run, args, n, NULL), *found = NULL;
    self->call = 0;
    if (done == Py_True) {
        found = items_in(blocks, head);
        if (!found && !PyErr_Occurred()) {
            Py_DECREF(done);
            return Py_NewRef(blocks);
        }
    } else if (done) {
        found = Py_NewRef(self->unplanned);
    }
    Py_XDECREF(done);
    unlock(self);
    return found;
}

/* Return what `carry` found: all objects of a list or the one object if it is `single`. */
static PyObject *loaded(EagerObject *self, PyObject *found, bool single) {
    if (!found || !PyList_Check(found)) return found;
    PyObject *result = load_each(self, found) ? NULL : single ? PyList_GET_ITEM(found, 0) : found;
    Py_XINCREF(result);
    Py_DECREF(found);
    return result;
}

/* Take the lock, and fill blocks; 0, or -1 unlocked. */
static int begin(EagerObject *self, int (*fill_in)(EagerObject *, han_eager_head, PyObject *),
                 han_eager_head head, PyObject *given) {
    if (lock(self)) return -1;
    if (given == Py_None || !fill_in(self, head, given)) return 0;
    unlock(self);
    return -1;
}

static PyObject *eager_tell(EagerObject *self, PyObject *const *args, Py_ssize_t given) {
    han_eager_head head;
    if (han_expect("tell", given, 5) || take_call(args + 2, &head)) return NULL;
    int wanted = PyObject_IsTrue(args[4]);
    if (wanted < 0 || begin(self, fill_one, head, args[1])) return NULL;
    PyObject *bytes[] = {self->one_array, self->every_array};
    PyObject *found = carry(self, args[0], bytes, 2, self->every, head);
    return wanted ? loaded(self, found, false) : found;
}

static PyObject *eager_bcast(EagerObject *self, PyObject *const *args, Py_ssize_t given) {
    han_eager_head head;
    if (han_expect("bcast", given, 4) || take_call(args + 2, &head) ||
        begin(self, fill_one, head, args[1]))
        return NULL;
    PyObject *bytes[] = {self->one_array, args[3]};
    return loaded(self, carry(self, args[0], bytes, 2, self->one, head), true);
}

static PyObject *eager_scatter(EagerObject *self, PyObject *const *args, Py_ssize_t given) {
    han_eager_head head;
    if (han_expect("scatter", given, 4) || take_call(args + 2, &head) ||
        begin(self, fill_every, head, args[1]))
        return NULL;
    PyObject *from = args[1] == Py_None ? Py_None : self->every_array;
    PyObject *bytes[] = {from, self->one_array, args[3]};
    return loaded(self, carry(self, args[0], bytes, 3, self->one, head), true);
}

static PyObject *eager_alltoall(EagerObject *self, PyObject *const *args, Py_ssize_t given) {
    han_eager_head head;
    if (han_expect("alltoall", given, 4) || take_call(args + 2, &head) ||
        begin(self, fill_every, head, args[1]))
        return NULL;
    PyObject *bytes[] = {Py_None, self->every_array}; /* in place */
    return loaded(self, carry(self, args[0], bytes, 2, self->every, head), false);
}

static PyObject *eager_sizes(EagerObject *self, PyObject *const *args, Py_ssize_t given) {
    han_eager_head want;
    if (han_expect("sizes", given, 2) || take_call(args, &want)) return NULL;
    Py_ssize_t count = PyByteArray_GET_SIZE(self->every) / HAN_EAGER_BLOCK;
    const char *at = PyByteArray_AS_STRING(self->every);
    PyObject *sizes = PyList_New(count);
    for (Py_ssize_t k = 0; sizes && k < count; k++, at += HAN_EAGER_BLOCK) {
        han_eager_head head;
        memcpy(&head, at, sizeof head);
        if (head.call != want.call || head.root != want.root) {
            Py_DECREF(sizes);
            Py_RETURN_NONE;
        }
        PyObject *nbytes = PyLong_FromLongLong(head.nbytes < 0 ? ~head.nbytes : head.nbytes);
        if (nbytes)
            PyList_SET_ITEM(sizes, k, nbytes);
        else
            Py_CLEAR(sizes);
    }
    return sizes;
}

static PyObject *eager_get_call(EagerObject *self, void *unused) {
    (void)unused;
    return PyLong_FromLong(self->call);
}

static PyObject *eager_get_unplanned(EagerObject *self, void *unused) {
    (void)unused;
    return Py_XNewRef(self->unplanned);
}

#define METHOD(name) (PyCFunction)(void (*)(void))eager_##name, METH_FASTCALL

static PyMethodDef methods[] = {
    {"tell", METHOD(tell),
     "tell($self, run, data, call, root, wanted, /)\n--\n\n"
     "Tell all ranks an object by run(one, every); return those of all, or pickled unless wanted."},
    {"bcast", METHOD(bcast),
     "bcast($self, run, data, call, root, /)\n--\n\n"
     "Broadcast an object by run(one, root); return it."},
    {"scatter", METHOD(scatter),
     "scatter($self, run, items, call, root, /)\n--\n\n"
     "Scatter objects of the root by run(every, one, root); return this rank's."},
    {"alltoall", METHOD(alltoall),
     "alltoall($self, run, items, call, root, /)\n--\n\n"
     "Send an object to each rank by run(None, every); return those that arrive."},
    {"sizes", METHOD(sizes),
     "sizes($self, call, root, /)\n--\n\n"
     "Return the sizes in the blocks of all ranks; None if one is of another call."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef fields[] = {
    {"call", (getter)eager_get_call, NULL,
     "The number of the call whose collective of bytes is under way; 0: none.", NULL},
    {"unplanned", (getter)eager_get_unplanned, NULL,
     "What a method returns if the collective of bytes has no plan yet.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyTypeObject EagerType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "han._native.Eager",
    .tp_basicsize = sizeof(EagerObject),
    .tp_dealloc = (destructor)eager_dealloc,
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_doc = "Eager(one, every, one_array, every_array, loads, lock, /)\n--\n\n"
              "The eager blocks of a communicator.",
    .tp_traverse = (traverseproc)eager_traverse,
    .tp_clear = (inquiry)eager_clear,
    .tp_methods = methods,
    .tp_getset = fields,
    .tp_init = (initproc)eager_init,
    .tp_new = PyType_GenericNew,
};

int han_py_add_eager(PyObject *module) {
    if (PyType_Ready(&EagerType)) return -1;
    return PyModule_AddObjectRef(module, "Eager", (PyObject *)&EagerType);
}
