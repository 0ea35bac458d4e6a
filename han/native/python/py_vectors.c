#include "python/py_vectors.h"

bool han_py_blocks(han_blocks *b, uint64_t **counts, int32_t rank, int32_t size) {
    *counts = PyMem_Malloc(2 * (size_t)size * sizeof **counts);
    if (!*counts) return false;
    *b = (han_blocks){.counts = *counts, .places = *counts + size, .rank = rank, .size = size};
    return true;
}

/* ---- numbers ------------------------------------------------------------------------------ */

static bool is_list(PyObject *o) { return PyList_CheckExact(o) || PyTuple_CheckExact(o); }

/* One number of an array of integers of 32 or 64 bits; false if it is negative. */
static bool element_at(PyArrayObject *a, npy_intp k, bool wide, bool is_signed, uint64_t *out) {
    const char *at = PyArray_BYTES(a) + k * PyArray_STRIDE(a, 0);
    if (!is_signed) {
        *out = wide ? *(const uint64_t *)(const void *)at : *(const uint32_t *)(const void *)at;
        return true;
    }
    int64_t n = wide ? *(const int64_t *)(const void *)at : *(const int32_t *)(const void *)at;
    *out = (uint64_t)n;
    return n >= 0;
}

static bool is_array_of_numbers(PyObject *o, int32_t n) {
    if (!PyArray_CheckExact(o)) return false;
    PyArrayObject *a = (PyArrayObject *)o;
    return PyArray_NDIM(a) == 1 && PyArray_DIM(a, 0) == n && PyArray_ISBEHAVED_RO(a) &&
           PyTypeNum_ISINTEGER(PyArray_TYPE(a)) &&
           (PyArray_ITEMSIZE(a) == 4 || PyArray_ITEMSIZE(a) == 8);
}

/* Read number `k` of `n` in an array, list or tuple. Code of an item's class may change a list. */
static bool number_at(PyObject *o, int32_t k, int32_t n, uint64_t *out) {
    if (is_list(o))
        return PySequence_Fast_GET_SIZE(o) == n && han_py_whole(PySequence_Fast_GET_ITEM(o, k), out);
    PyArrayObject *a = (PyArrayObject *)o;
    return element_at(a, k, PyArray_ITEMSIZE(a) == 8, PyTypeNum_ISSIGNED(PyArray_TYPE(a)), out);
}

static bool are_numbers(PyObject *o, int32_t n) { return is_list(o) || is_array_of_numbers(o, n); }

/* Find where blocks begin, once their counts are known. */
static bool measure(han_blocks *b) {
    b->alike = true;
    for (int32_t r = 0; r < b->size; r++) {
        if (r == b->rank) b->start = b->total;
        if (__builtin_add_overflow(b->total, b->counts[r], &b->total)) return false;
        if (b->counts[r] > b->largest) b->largest = b->counts[r];
        b->alike = b->alike && b->counts[r] == b->counts[0];
    }
    return true;
}

bool han_py_read_counts(PyObject *o, han_blocks *b) {
    uint64_t all;
    bool one = han_py_whole(o, &all);
    if (!one && !are_numbers(o, b->size)) return false;
    for (int32_t r = 0; r < b->size; r++) {
        if (one)
            b->counts[r] = all;
        else if (!number_at(o, r, b->size, &b->counts[r]))
            return false;
    }
    return measure(b);
}

/* Where blocks are, in elements. */
typedef struct {
    uint64_t reach; /* where the last one ends */
    bool joined;    /* they are contiguous in rank order; empty ones may be anywhere */
} spread;

/* Whether each block follows the one of the rank before, or each precedes it. */
static bool in_order(const han_blocks *b) {
    bool up = true, down = true;
    uint64_t above = 0, below = UINT64_MAX; /* where the blocks so far end and begin */
    for (int32_t r = 0; r < b->size; r++) {
        if (!b->counts[r]) continue;
        up = up && b->places[r] >= above;
        above = b->places[r] + b->counts[r];
        down = down && above <= below;
        below = b->places[r];
    }
    return up || down;
}

/* Read displacements, or NULL: blocks are contiguous. One number is the distance of all. Blocks that
 * may overlap are refused: Python looks at them. */
static bool place(PyObject *o, const han_blocks *b, spread *s) {
    uint64_t distance = 0, at = 0, end;
    bool one = o && han_py_whole(o, &distance);
    if (o && !one && !are_numbers(o, b->size)) return false;
    *s = (spread){.joined = true};
    for (int32_t r = 0; r < b->size; at += b->counts[r++]) {
        uint64_t *start = &b->places[r];
        *start = at;
        if (one ? __builtin_mul_overflow(distance, (uint64_t)r, start)
                : o && !number_at(o, r, b->size, start))
            return false;
        if (!b->counts[r]) continue;
        if (__builtin_add_overflow(*start, b->counts[r], &end)) return false;
        if (end > s->reach) s->reach = end;
        s->joined = s->joined && *start == at;
    }
    return s->joined || in_order(b);
}

/* ---- lists -------------------------------------------------------------------------------- */

/* The items of a list that describes blocks; borrowed; NULL: not given. */
typedef struct {
    PyObject *data, *counts, *starts, *type;
} parts;

static PyObject *given(PyObject *o) { return o == Py_None ? NULL : o; }

static bool is_type(const ReaderObject *r, PyObject *o) {
    return PyObject_TypeCheck(o, r->datatype) || PyUnicode_Check(o);
}

/* A tuple in the place of counts holds counts and displacements. */
static bool split(parts *p) {
    if (!p->counts || !PyTuple_Check(p->counts)) return true;
    PyObject *pair = p->counts;
    if (!PyTuple_CheckExact(pair) || PyTuple_GET_SIZE(pair) != 2) return false;
    p->counts = given(PyTuple_GET_ITEM(pair, 0));
    p->starts = given(PyTuple_GET_ITEM(pair, 1));
    return true;
}

static bool parts_of(const ReaderObject *r, PyObject *o, parts *p) {
    *p = (parts){.data = o};
    if (!is_list(o)) return true;
    PyObject **item = PySequence_Fast_ITEMS(o);
    Py_ssize_t n = PySequence_Fast_GET_SIZE(o);
    if (n < 1 || n > 4) return false;
    p->data = item[0];
    if (n == 2 && is_type(r, item[1])) {
        p->type = item[1];
        return true;
    }
    if (n > 1) p->counts = given(item[1]);
    if (n > 2) p->type = given(item[n - 1]);
    if (n < 4) return split(p);
    p->starts = given(item[2]);
    return true;
}

/* Read `data`, of which the blocks use the first `total` elements; NULL: all of it. */
static bool read_data(const ReaderObject *r, const parts *p, PyObject *total, han_buffer *out) {
    PyObject *whole = NULL;
    if (!total && !p->type) return han_py_read(r, p->data, 1, out);
    if (!total)
        whole = PyTuple_Pack(2, p->data, p->type);
    else if (!p->type)
        whole = PyTuple_Pack(2, p->data, total);
    else
        whole = PyTuple_Pack(3, p->data, total, p->type);
    bool found = whole && han_py_read(r, whole, 1, out);
    if (!whole) PyErr_Clear();
    Py_XDECREF(whole);
    return found;
}

/* Divide all elements of a buffer: the first blocks get one more where a remainder is left. */
static bool divide(const han_buffer *all, han_blocks *b) {
    uint64_t count = all->nbytes / all->element->size, size = (uint64_t)b->size;
    for (int32_t r = 0; r < b->size; r++)
        b->counts[r] = count / size + ((uint64_t)r < count % size);
    return measure(b);
}

/* Let a call receive blocks in a packed copy, unless it can receive them where they are. */
static bool divide_apart(const han_blocks *b, const spread *s, han_buffer *out) {
    if (out->use == HAN_DIRECT && s->joined) return true;
    if (out->use == HAN_DIRECT) {
        out->each = out->step = out->element->size;
        out->span = out->nbytes;
    }
    out->use = HAN_SCATTERED;
    out->blocks = b->counts;
    out->n_blocks = b->size;
    return !__builtin_mul_overflow(b->total, out->each, &out->nbytes);
}

bool han_py_read_vector(const ReaderObject *r, PyObject *o, han_blocks *b, han_buffer *out) {
    parts p;
    spread s;
    if (!parts_of(r, o, &p)) return false;
    if (!p.counts)
        return !p.starts && read_data(r, &p, NULL, out) && out->use == HAN_DIRECT && divide(out, b);
    if (!han_py_read_counts(p.counts, b) || !place(p.starts, b, &s)) return false;
    PyObject *reach = PyLong_FromUnsignedLongLong(s.reach);
    bool found = reach && read_data(r, &p, reach, out) && divide_apart(b, &s, out);
    if (!reach) PyErr_Clear();
    Py_XDECREF(reach);
    return found;
}

static PyObject *read_vector(PyObject *module, PyObject *args) {
    (void)module;
    const ReaderObject *reader;
    PyObject *spec;
    int size;
    uint64_t *counts = NULL;
    han_blocks b;
    han_buffer buffer = {0};
    if (!PyArg_ParseTuple(args, "O!Oi", &ReaderType, &reader, &spec, &size)) return NULL;
    if (!han_py_blocks(&b, &counts, 0, size)) return PyErr_NoMemory();
    bool direct = han_py_read_vector(reader, spec, &b, &buffer) && buffer.use == HAN_DIRECT;
    PyObject *found = direct ? PyTuple_New(size) : NULL;
    for (int r = 0; found && r < size; r++)
        PyTuple_SET_ITEM(found, r, PyLong_FromUnsignedLongLong(counts[r]));
    PyObject *answer = found ? Py_BuildValue("(NN)", han_py_buffer_facts(&buffer), found)
                             : Py_NewRef(Py_None);
    han_py_release(&buffer);
    PyMem_Free(counts);
    return answer;
}

static PyMethodDef methods[] = {
    {"read_vector", read_vector, METH_VARARGS,
     "read_vector($module, reader, spec, size, /)\n--\n\n"
     "Return what `reader.read` does, and the elements of each of `size` blocks; None if refused."},
    {NULL, NULL, 0, NULL},
};

int han_py_add_vectors(PyObject *module) {
    import_array1(-1);
    return PyModule_AddFunctions(module, methods);
}
