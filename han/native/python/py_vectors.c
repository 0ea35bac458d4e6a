#include "python/py_vectors.h"

#include "python/py_whole.h"

bool han_py_blocks(han_blocks *b, uint64_t **counts, int32_t rank, int32_t size) {
    *counts = PyMem_Malloc(2 * (size_t)size * sizeof **counts);
    if (!*counts) return false;
    *b = (han_blocks){.counts = *counts, .places = *counts + size, .rank = rank, .size = size};
    return true;
}

/* ---- counts and displacements ------------------------------------------------------------- */

/* Read a number for each block, of which none may be negative. */
static bool read_each(PyObject *o, const han_blocks *b, uint64_t *out) {
    if (!han_py_integers(o, b->size, (int64_t *)out)) return false;
    for (int32_t r = 0; r < b->size; r++)
        if (out[r] > INT64_MAX) return false;
    return true;
}

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
    if (!han_py_is_number(o)) return read_each(o, b, b->counts) && measure(b);
    if (!han_py_whole(o, &all)) return false;
    for (int32_t r = 0; r < b->size; r++) b->counts[r] = all;
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

typedef struct {
    uint64_t start, end;
} range;

static int by_start(const void *a, const void *b) {
    uint64_t one = ((const range *)a)->start, two = ((const range *)b)->start;
    return (one > two) - (one < two);
}

/* Whether no two blocks overlap, in whatever order they are. */
static bool are_apart(const han_blocks *b) {
    if (in_order(b)) return true;
    range *ranges = PyMem_Malloc((size_t)b->size * sizeof *ranges);
    size_t n = 0;
    if (!ranges) return false;
    for (int32_t r = 0; r < b->size; r++)
        if (b->counts[r]) ranges[n++] = (range){b->places[r], b->places[r] + b->counts[r]};
    qsort(ranges, n, sizeof *ranges, by_start);
    bool apart = true;
    for (size_t k = 1; k < n; k++) apart = apart && ranges[k - 1].end <= ranges[k].start;
    PyMem_Free(ranges);
    return apart;
}

/* Find where blocks are that have one distance. */
static bool spread_out(PyObject *o, const han_blocks *b) {
    uint64_t distance;
    if (!han_py_whole(o, &distance)) return false;
    for (int32_t r = 0; r < b->size; r++)
        if (__builtin_mul_overflow(distance, (uint64_t)r, &b->places[r])) return false;
    return true;
}

/* Read displacements, or NULL: blocks are contiguous. One number is the distance of all. Blocks that
 * overlap are refused. */
static bool place(PyObject *o, const han_blocks *b, spread *s) {
    uint64_t at = 0, end;
    if (o && !(han_py_is_number(o) ? spread_out(o, b) : read_each(o, b, b->places))) return false;
    *s = (spread){.joined = true};
    for (int32_t r = 0; r < b->size; at += b->counts[r++]) {
        if (!o) b->places[r] = at;
        if (!b->counts[r]) continue;
        if (__builtin_add_overflow(b->places[r], b->counts[r], &end)) return false;
        if (end > s->reach) s->reach = end;
        s->joined = s->joined && b->places[r] == at;
    }
    return s->joined || are_apart(b);
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
    if (!han_py_is_list(pair) || PyTuple_GET_SIZE(pair) != 2) return false;
    p->counts = given(PyTuple_GET_ITEM(pair, 0));
    p->starts = given(PyTuple_GET_ITEM(pair, 1));
    return true;
}

static bool parts_of(const ReaderObject *r, PyObject *o, parts *p) {
    *p = (parts){.data = o};
    if (!han_py_is_list(o)) return true;
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
    bool direct = all->use == HAN_DIRECT;
    uint64_t count = direct ? all->nbytes / all->element->size : all->count;
    uint64_t size = (uint64_t)b->size;
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

static bool of_parts(const ReaderObject *r, const parts *p, han_blocks *b, han_buffer *out) {
    spread s;
    if (!p->counts)
        return !p->starts && read_data(r, p, NULL, out) && divide(out, b) && place(NULL, b, &s) &&
               divide_apart(b, &s, out);
    if (!han_py_read_counts(p->counts, b) || !place(p->starts, b, &s)) return false;
    PyObject *reach = PyLong_FromUnsignedLongLong(s.reach);
    bool found = reach && read_data(r, p, reach, out) && divide_apart(b, &s, out);
    if (!reach) PyErr_Clear();
    Py_XDECREF(reach);
    return found;
}

bool han_py_read_vector(const ReaderObject *r, PyObject *o, han_blocks *b, han_buffer *out) {
    parts p;
    if (!parts_of(r, o, &p)) return false;
    PyObject *const held[] = {p.data, p.counts, p.starts, p.type};
    for (int k = 0; k < 4; k++) Py_XINCREF(held[k]); /* code of their classes may change the list */
    bool found = of_parts(r, &p, b, out);
    for (int k = 0; k < 4; k++) Py_XDECREF(held[k]);
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
    PyObject *answer =
        found ? Py_BuildValue("(NN)", han_py_buffer_facts(&buffer), found) : Py_NewRef(Py_None);
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
