#include "python/module.h"
#include "simulate/world.h"

enum { INPUTS = 26, OUTPUTS = 7, ALL = INPUTS + OUTPUTS, STEPS = 1 << 16 };

/* Where the address of an array goes, and the bytes that it must have. */
typedef struct {
    const void **where;
    int64_t nbytes;
} slot;

/* Take the arrays in the order of `slots`; the first `count` views are held. 0 or -1. */
static int take(PyObject *arrays, const slot *slots, Py_buffer *views, int *count) {
    for (*count = 0; *count < ALL; ++*count) {
        int k = *count, flags = k < INPUTS ? PyBUF_SIMPLE : PyBUF_WRITABLE;
        if (PyObject_GetBuffer(PyTuple_GET_ITEM(arrays, k), &views[k], flags)) return -1;
        *slots[k].where = views[k].buf;
        if (views[k].len >= slots[k].nbytes) continue;
        PyErr_Format(PyExc_ValueError, "array %d has %zd bytes, %lld expected", k, views[k].len,
                     (long long)slots[k].nbytes);
        ++*count;
        return -1;
    }
    return 0;
}

/* Simulate; call `tell` whenever a rank has finished a run. The spans as bytes, or NULL. */
static PyObject *simulate(const sim_world *w, PyObject *tell) {
    sim_state s;
    PyObject *spans = NULL;
    bool more = sim_open_state(&s, w), finished;
    while (more) {
        more = sim_go(&s, STEPS, &finished);
        if (PyErr_CheckSignals()) break;
        PyObject *none = finished && tell != Py_None ? PyObject_CallNoArgs(tell) : NULL;
        Py_XDECREF(none);
        if (PyErr_Occurred()) break;
    }
    if (s.failed || !s.memory)
        PyErr_NoMemory();
    else if (!PyErr_Occurred())
        spans = PyBytes_FromStringAndSize((const char *)s.spans,
                                          (Py_ssize_t)(s.span_count * sizeof(sim_span)));
    sim_close(&s);
    return spans;
}

PyObject *han_py_simulate(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *arrays, *tell, *answer = NULL;
    sim_world w = {0};
    long long n_ops, n_streams, n_shapes, n_names, homes, home_ranks, members, hosts;
    int keep, count;
    if (!PyArg_ParseTuple(args, "O!(iiiiiiiiip)(LLLLLLLL)O:simulate", &PyTuple_Type, &arrays,
                          &w.size, &w.runs, &w.levels, &w.channels, &w.rails, &w.flags, &w.messages,
                          &w.meetings, &w.banks, &keep, &n_ops, &n_streams, &n_shapes, &n_names,
                          &homes, &home_ranks, &members, &hosts, &tell))
        return NULL;
    if (PyTuple_GET_SIZE(arrays) != ALL)
        return PyErr_Format(PyExc_ValueError, "%d arrays expected", ALL);
    w.keep = keep;
    int64_t size = w.size, in_channels = size * w.channels, each = sizeof(int32_t);
    int64_t word = sizeof(int64_t), real = sizeof(double), levels = w.levels;
#define AT(field) (const void **)&w.field
    const slot table[ALL] = {
        {AT(ops), n_ops * (int64_t)sizeof(sim_op)},
        {AT(streams), 2 * n_streams * word},
        {AT(shape), size * each},
        {AT(first_stream), (n_shapes + 1) * word},
        {AT(requests), n_shapes * word},
        {AT(names), n_names * (int64_t)sizeof(sim_name)},
        {AT(first_name), (size + 1) * word},
        {AT(place), size * levels * each},
        {AT(node_of), size * each},
        {AT(memory_of), size * each},
        {AT(host_of), size * each},
        {AT(rail), size * each},
        {AT(links), levels * (int64_t)sizeof(sim_link)},
        {AT(copy), 2 * (levels + 1) * real},
        {AT(reduce), 2 * (levels + 1) * real},
        {AT(node), sizeof(sim_node)},
        {AT(cores), hosts * real},
        {AT(crowded), hosts},
        {AT(needed), w.runs * w.channels * each},
        {AT(writes), in_channels},
        {AT(home), in_channels * each},
        {AT(first_home), (homes + 1) * each},
        {AT(home_ranks), home_ranks * each},
        {AT(collectives), w.meetings * (int64_t)sizeof(sim_collective)},
        {AT(first_member), (w.meetings + 1) * each},
        {AT(members), members * each},
        {AT(finish), size * w.runs * real},
        {AT(copying), size * real},
        {AT(reducing), size * real},
        {AT(messaging), size * real},
        {AT(level_messages), levels * word},
        {AT(level_bytes), levels * word},
        {AT(operations), word},
    };
#undef AT
    Py_buffer views[ALL];
    if (!take(arrays, table, views, &count)) answer = simulate(&w, tell);
    while (count) PyBuffer_Release(&views[--count]);
    return answer;
}
