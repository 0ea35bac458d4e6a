#include "python/py_packing.h"

#include <limits.h>

#include "python/py_types.h"

int han_py_pack(const ReaderObject *r, const han_packing *p, uint8_t *packed) {
    if (p->grid->loops < 0)
        return han_pack(&r->mpi, p->data, (int)p->elements, p->type, packed, (int)p->nbytes,
                        r->self);
    han_grid_pack(p->grid, p->data, packed);
    return 0;
}

int han_py_unpack(const ReaderObject *r, const han_packing *p, const uint8_t *packed) {
    if (p->grid->loops < 0)
        return han_unpack(&r->mpi, packed, (int)p->nbytes, p->data, (int)p->elements, p->type,
                          r->self);
    han_grid_unpack(p->grid, packed, p->data);
    return 0;
}

int han_py_move(const ReaderObject *r, const han_packing *from, const han_packing *to,
                uint8_t *room) {
    if (han_is_run(to->grid)) return han_py_pack(r, from, to->data + to->grid->first);
    if (han_is_run(from->grid)) return han_py_unpack(r, to, from->data + from->grid->first);
    int rc = han_py_pack(r, from, room);
    return rc ? rc : han_py_unpack(r, to, room);
}

han_grid han_py_grid(const ReaderObject *r, han_asked *a, han_handle type, uint64_t elements) {
    if (type != a->last) {
        const han_known_type *known = han_type_known(type);
        a->grid = known ? known->grid : han_grid_of_type(&r->mpi, type, &a->extent);
        if (known) a->extent = (int64_t)known->extent;
        a->last = type;
    }
    han_grid grid = a->grid;
    bool found = grid.loops >= 0 && han_grid_repeat(&grid, elements, a->extent);
    return found ? grid : han_no_grid();
}

/* ---- han._native.Packer --------------------------------------------------------------------- */

typedef struct {
    PyObject_HEAD
    ReaderObject *reader;
    PyObject *datatype, *owner; /* the owner of the packed bytes */
    uint8_t *packed;
    uint64_t elements, nbytes;
    uint8_t *data;
    han_grid grid;
    bool packs;
} PackerObject;

static PyObject *packer_call(PackerObject *self, PyObject *args, PyObject *kwargs) {
    (void)args, (void)kwargs;
    const ReaderObject *r = self->reader;
    const han_packing all = {&self->grid, han_py_handle(r, self->datatype), self->elements,
                             self->nbytes, self->data};
    int rc;
    Py_BEGIN_ALLOW_THREADS
    rc = self->packs ? han_py_pack(r, &all, self->packed) : han_py_unpack(r, &all, self->packed);
    Py_END_ALLOW_THREADS
    if (!rc) Py_RETURN_NONE;
    (void)han_py_raise_code(r, rc);
    return NULL;
}

static void packer_dealloc(PackerObject *self) {
    Py_XDECREF(self->reader);
    Py_XDECREF(self->datatype);
    Py_XDECREF(self->owner);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

PyTypeObject PackerType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "han._native.Packer",
    .tp_basicsize = sizeof(PackerObject),
    .tp_dealloc = (destructor)packer_dealloc,
    .tp_call = (ternaryfunc)packer_call,
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_doc = "Packs elements of a type, or unpacks them.",
};

/* ---- functions ------------------------------------------------------------------------------ */

static bool is_no_type(const ReaderObject *r, PyObject *o) {
    if (PyObject_TypeCheck(o, r->datatype)) return false;
    PyErr_Format(PyExc_TypeError, "an MPI.Datatype expected, %.200s found", Py_TYPE(o)->tp_name);
    return true;
}

static han_grid find_grid(const ReaderObject *r, PyObject *datatype, uint64_t elements) {
    han_asked none = {.last = 0};
    han_handle type = han_py_handle(r, datatype);
    han_grid grid;
    Py_BEGIN_ALLOW_THREADS
    grid = han_py_grid(r, &none, type, elements);
    Py_END_ALLOW_THREADS
    return grid;
}

/* packer(reader, datatype, elements, address, bytes of data, address and owner of packed ones, packs) */
static PyObject *make_packer(PyObject *Py_UNUSED(module), PyObject *args) {
    ReaderObject *reader;
    PyObject *datatype, *owner;
    unsigned long long elements, address, nbytes, packed;
    int packs;
    if (!PyArg_ParseTuple(args, "O!OKKKKOp", &ReaderType, &reader, &datatype, &elements, &address,
                          &nbytes, &packed, &owner, &packs) ||
        is_no_type(reader, datatype))
        return NULL;
    const han_grid grid = find_grid(reader, datatype, elements);
    if (grid.loops < 0 && (elements > INT_MAX || nbytes > INT_MAX))
        return PyErr_Format(PyExc_OverflowError, "MPI packs at most %d bytes of such a type",
                            INT_MAX);
    PackerObject *made = PyObject_New(PackerObject, &PackerType);
    if (!made) return NULL;
    made->reader = (ReaderObject *)Py_NewRef(reader);
    made->datatype = Py_NewRef(datatype);
    made->owner = Py_NewRef(owner);
    made->packed = (uint8_t *)(uintptr_t)packed;
    made->elements = elements;
    made->nbytes = nbytes;
    made->data = (uint8_t *)(uintptr_t)address;
    made->grid = grid;
    made->packs = packs;
    return (PyObject *)made;
}

/* run_start(reader, datatype, elements) */
static PyObject *run_start(PyObject *Py_UNUSED(module), PyObject *args) {
    const ReaderObject *reader;
    PyObject *datatype;
    unsigned long long elements;
    if (!PyArg_ParseTuple(args, "O!OK", &ReaderType, &reader, &datatype, &elements) ||
        is_no_type(reader, datatype))
        return NULL;
    const han_grid grid = find_grid(reader, datatype, elements);
    if (!han_is_run(&grid)) Py_RETURN_NONE;
    return PyLong_FromLongLong(grid.first);
}

PyMethodDef han_packing_functions[] = {
    HAN_METHOD("packer", make_packer, METH_VARARGS,
               "$module, reader, datatype, elements, address, nbytes, packed, owner, packs, /",
               "Return a function that packs elements of a type, or unpacks them."),
    HAN_METHOD("run_start", run_start, METH_VARARGS, "$module, reader, datatype, elements, /",
               "Return where the data of elements begins if it is one run; else None."),
    {NULL, NULL, 0, NULL},
};
