#include "python/py_vectors.h"

bool han_py_blocks(han_blocks *b, uint64_t **counts, int32_t size) {
    *counts = PyMem_Calloc(3 * (size_t)size, sizeof **counts);
    if (!*counts) return false;
    *b = (han_blocks){.counts = *counts,
                      .places = *counts + size,
                      .elements = *counts + 2 * (size_t)size,
                      .size = size};
    return true;
}

/* ---- counts and displacements ------------------------------------------------------------- */

static bool from_list(PyObject *o, int32_t n, uint64_t *out) {
    for (int32_t k = 0; k < n; k++) {
        if (PySequence_Fast_GET_SIZE(o) != n)
            return false; /* code of an item's class may change it */
        PyObject *item = Py_NewRef(PySequence_Fast_GET_ITEM(o, k));
        bool found = han_py_whole(item, &out[k]);
        Py_DECREF(item);
        if (!found) return false;
    }
    return PySequence_Fast_GET_SIZE(o) == n;
}

/* Read signed numbers of 4 or 8 bytes, each `stride` bytes behind the one before it. */
static bool from_numbers(const char *at, Py_ssize_t stride, Py_ssize_t size, int32_t n,
                         uint64_t *out) {
    for (int32_t k = 0; k < n; k++, at += stride) {
        out[k] = (uint64_t)(size == 4 ? *(const int32_t *)at : *(const int64_t *)at);
        if (out[k] > INT64_MAX) return false;
    }
    return true;
}

static bool from_array(PyArrayObject *a, int32_t n, uint64_t *out) {
    npy_intp size = PyArray_ITEMSIZE(a);
    if (PyArray_NDIM(a) != 1 || PyArray_DIM(a, 0) != n || !PyArray_ISBEHAVED_RO(a) ||
        !PyTypeNum_ISSIGNED(PyArray_TYPE(a)) || size < 4)
        return false;
    return from_numbers(PyArray_BYTES(a), PyArray_STRIDE(a, 0), size, n, out);
}

static PyTypeObject *plain_array; /* array.array */

/* Read an array.array of int, long or long long. */
static bool from_plain_array(PyObject *o, int32_t n, uint64_t *out) {
    Py_buffer view;
    if (PyObject_GetBuffer(o, &view, PyBUF_FORMAT | PyBUF_ND)) {
        PyErr_Clear();
        return false;
    }
    bool found = view.shape[0] == n && strchr("ilq", view.format[0]) &&
                 from_numbers(view.buf, view.itemsize, view.itemsize, n, out);
    PyBuffer_Release(&view);
    return found;
}

/* Read a number for each block, of which none may be negative. */
static bool read_each(PyObject *o, int32_t n, uint64_t *out) {
    if (PyList_CheckExact(o) || PyTuple_CheckExact(o)) return from_list(o, n, out);
    if (PyArray_CheckExact(o)) return from_array((PyArrayObject *)o, n, out);
    return Py_IS_TYPE(o, plain_array) && from_plain_array(o, n, out);
}

bool han_py_read_counts(PyObject *o, han_blocks *b) {
    if (!read_each(o, b->size, b->counts)) return false;
    b->alike = true;
    for (int32_t r = 0; r < b->size; r++) {
        if (__builtin_add_overflow(b->total, b->counts[r], &b->total)) return false;
        if (b->counts[r] > b->largest) b->largest = b->counts[r];
        b->alike = b->alike && b->counts[r] == b->counts[0];
    }
    return true;
}

static bool is_left_out(const han_blocks *b, int32_t block) {
    return b->ranks && b->ranks[block] < 0;
}

/* Read displacements, or NULL: blocks are contiguous. */
static bool place(PyObject *o, han_blocks *b) {
    uint64_t at = 0;
    if (o && !read_each(o, b->size, b->places)) return false;
    b->joined = b->ascending = true;
    for (int32_t r = 0; r < b->size; at += b->counts[r++]) {
        uint64_t end;
        if (!o) b->places[r] = at;
        if (!b->counts[r] || is_left_out(b, r)) continue;
        b->joined = b->joined && b->places[r] == at;
        b->ascending = b->ascending && b->places[r] >= b->reach;
        if (__builtin_add_overflow(b->places[r], b->counts[r], &end)) return false;
        if (end > b->reach) b->reach = end;
    }
    for (int32_t r = 0; r < b->size; r++)
        if (is_left_out(b, r)) b->counts[r] = 0;
    return true;
}

/* Whether no two of a few blocks overlap. */
static bool apart(const han_blocks *b) {
    enum { FEW = 64 }; /* all pairs are compared */
    if (b->ascending) return true;
    for (int32_t r = 0; r < b->size; r++)
        for (int32_t s = 0; s < r; s++)
            if (b->counts[r] && b->counts[s] && b->places[r] < b->places[s] + b->counts[s] &&
                b->places[s] < b->places[r] + b->counts[r])
                return false;
    return b->size <= FEW;
}

static bool read_placed(const ReaderObject *r, const han_items *items, han_blocks *b,
                        han_buffer *out) {
    bool found =
        items->count && han_py_read_counts(items->count, b) && place(items->displacement, b);
    han_range all = {.count = b->reach, .counted = true};
    return found && han_py_read_items(r, items, all, out);
}

bool han_py_read_vector(const ReaderObject *r, PyObject *o, han_blocks *b, han_buffer *out) {
    han_items items;
    if (!PyList_CheckExact(o) && !PyTuple_CheckExact(o)) return false;
    bool found = han_py_items(r, o, &items) && read_placed(r, &items, b, out) && b->ascending;
    han_py_drop_items(&items);
    return found;
}

/* Divide a buffer without counts; none of a derived type. */
static bool divide(const ReaderObject *r, PyObject *o, han_blocks *b, han_buffer *out) {
    if (!han_py_read(r, o, 1, out) || out->derived) return false;
    uint64_t size = (uint64_t)b->size, n = out->nbytes / out->element->size;
    for (int32_t k = 0; k < b->size; k++) b->counts[k] = n / size + ((uint64_t)k < n % size);
    return place(NULL, b);
}

bool han_py_read_any_vector(const ReaderObject *r, PyObject *o, bool only_read, han_blocks *b,
                            han_buffer *out) {
    han_items items;
    if (!PyList_CheckExact(o) && !PyTuple_CheckExact(o)) return divide(r, o, b, out);
    bool listed = han_py_items(r, o, &items), whole = listed && !items.count && !items.displacement;
    bool found = listed && !whole && read_placed(r, &items, b, out) && (only_read || apart(b));
    han_py_drop_items(&items);
    return whole ? divide(r, o, b, out) : found;
}

/* ---- types of their own ------------------------------------------------------------------- */

/* Read the numbers of elements, or NULL: one; and displacements in bytes, or NULL: none. */
static bool read_numbers(const han_items *items, han_blocks *b) {
    for (int32_t k = 0; k < b->size; k++) b->counts[k] = !items->count;
    return (!items->count || read_each(items->count, b->size, b->counts)) &&
           (!items->displacement || read_each(items->displacement, b->size, b->places));
}

/* Turn the elements of a block into bytes; `gaps` if they must be packed. */
static bool measure(const ReaderObject *r, PyObject *type, uint64_t *count, uint64_t place,
                    uint64_t *reach, bool *gaps) {
    han_type_facts f;
    uint64_t end, nbytes;
    if (!PyObject_TypeCheck(type, r->datatype) ||
        han_type_facts_of(&r->mpi, han_py_handle(r, type), &f) || f.size < 0 || f.extent < 0 ||
        f.first < 0)
        return false;
    if (__builtin_mul_overflow(*count, (uint64_t)f.size, &nbytes) || nbytes > INT32_MAX)
        return false;
    if (nbytes) {
        if (__builtin_mul_overflow(*count - 1, (uint64_t)f.extent, &end) ||
            __builtin_add_overflow(end, (uint64_t)f.behind, &end) ||
            __builtin_add_overflow(end, place, &end))
            return false;
        if (end > *reach) *reach = end;
        *gaps = *gaps || f.derived || f.size != f.extent;
    }
    *count = nbytes;
    return true;
}

bool han_py_read_typed(const ReaderObject *r, PyObject *o, han_blocks *b, han_buffer *out) {
    han_items items;
    if (!PyList_CheckExact(o) && !PyTuple_CheckExact(o)) return false;
    bool found = han_py_items(r, o, &items) && items.type && PySequence_Check(items.type) &&
                 !items.count == !items.displacement &&
                 han_py_memory(&r->known, &r->classes, items.data, out) && read_numbers(&items, b);
    bool gaps = false;
    if (found) out->datatype = PySequence_Tuple(items.type);
    found = found && out->datatype && PyTuple_GET_SIZE(out->datatype) == b->size;
    for (int32_t k = 0; found && k < b->size; k++) {
        if (is_left_out(b, k)) b->counts[k] = 0;
        b->elements[k] = b->counts[k];
        if (b->counts[k])
            found = measure(r, PyTuple_GET_ITEM(out->datatype, k), &b->counts[k], b->places[k],
                            &b->reach, &gaps);
    }
    han_py_drop_items(&items);
    PyErr_Clear();
    found = found && b->reach <= out->nbytes;
    out->nbytes = out->span = b->reach;
    out->derived = gaps;
    if (!gaps) Py_CLEAR(out->datatype);
    return found;
}

int han_py_open_vectors(void) {
    PyObject *module = PyImport_ImportModule("array");
    plain_array = module ? (PyTypeObject *)PyObject_GetAttrString(module, "array") : NULL;
    Py_XDECREF(module);
    return plain_array ? 0 : -1;
}

static PyObject *read_vector(PyObject *Py_UNUSED(module), PyObject *args) {
    const ReaderObject *reader;
    PyObject *spec;
    int size;
    uint64_t *counts = NULL;
    han_blocks b;
    han_buffer buffer = {0};
    if (!PyArg_ParseTuple(args, "O!Oi", &ReaderType, &reader, &spec, &size)) return NULL;
    if (!han_py_blocks(&b, &counts, size)) return PyErr_NoMemory();
    PyObject *answer = !han_py_read_vector(reader, spec, &b, &buffer) || buffer.derived
                           ? Py_NewRef(Py_None)
                           : Py_BuildValue("(Ny#)", han_py_buffer_facts(&buffer), (char *)counts,
                                           2 * (Py_ssize_t)size * (Py_ssize_t)sizeof *counts);
    han_py_release(&buffer);
    PyMem_Free(counts);
    return answer;
}

PyMethodDef han_vector_functions[] = {
    HAN_METHOD("read_vector", read_vector, METH_VARARGS, "$module, reader, spec, size, /",
               "Return what `reader.read` does, and in 64 bits each the counts and places of "
               "blocks; or None."),
    {NULL, NULL, 0, NULL},
};
