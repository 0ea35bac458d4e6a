#include "python/py_program_check.h"

#include <stdlib.h>

#include "memory/program_check.h"

static int fill_streams(han_bounds *g, PyObject *streams, Py_ssize_t operations) {
    Py_ssize_t n = PyTuple_GET_SIZE(streams), at = 0;
    if (n > HAN_MAX_STREAMS) goto bad;
    g->n_streams = (uint32_t)n;
    for (Py_ssize_t s = 0; s < n; s++) {
        han_stream *one = &g->streams[s];
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(streams, s), "II", &one->start, &one->stop))
            return -1;
        if (one->start != at || one->stop < one->start) goto bad;
        at = one->stop;
    }
    if (at == operations) return 0;
bad:
    PyErr_Format(PyExc_ValueError, "its streams do not divide %zd operations", operations);
    return -1;
}

static int fill_channels(han_bounds *g, PyObject *channels) {
    Py_ssize_t n = PyTuple_GET_SIZE(channels);
    if (n > HAN_MAX_CHANNELS) {
        PyErr_Format(PyExc_ValueError, "it has %zd channels", n);
        return -1;
    }
    g->n_channels = (uint32_t)n;
    for (Py_ssize_t c = 0; c < n; c++) {
        unsigned long long members, ring, part;
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(channels, c), "KKK", &members, &ring, &part))
            return -1;
        if (!ring || part > ring) {
            PyErr_Format(PyExc_ValueError, "it takes %llu bytes of a ring of %llu", part, ring);
            return -1;
        }
        g->channels[c].members = members;
        g->channels[c].ring = ring;
        g->channels[c].part = part;
    }
    return 0;
}

static int fill_comms(han_bounds *g, PyObject *comms) {
    Py_ssize_t n = PyTuple_GET_SIZE(comms);
    if (n > HAN_CHECK_COMMS) {
        PyErr_Format(PyExc_ValueError, "it has %zd communicators", n);
        return -1;
    }
    g->n_comms = (uint32_t)n;
    for (Py_ssize_t k = 0; k < n; k++)
        g->comms[k] = PyLong_AsUnsignedLongLong(PyTuple_GET_ITEM(comms, k));
    return PyErr_Occurred() ? -1 : 0;
}

static PyObject *examine(const han_bounds *g, const han_instr *code) {
    uint32_t where = 0;
    uint8_t *state = calloc(g->requests + 1, 1);
    if (!state) return PyErr_NoMemory();
    const char *problem = han_check_program(g, code, state, &where);
    free(state);
    if (!problem) Py_RETURN_NONE;
    return PyErr_Format(PyExc_ValueError, "operation %u: %s", where, problem);
}

PyObject *han_py_check_program(PyObject *self, PyObject *args, PyObject *kwargs) {
    (void)self;
    static char *names[] = {"code",     "streams", "channels", "comms",  "ranks",   "tasks",
                            "requests", "count",   "element",  "native", "operand", "lengths",
                            NULL};
    PyObject *streams, *channels, *comms, *answer = NULL;
    unsigned long long ranks, tasks, requests, count, element, operand, send, recv, scratch;
    int native;
    Py_buffer code;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "y*O!O!O!KKKKKpK(KKK)", names, &code,
                                     &PyTuple_Type, &streams, &PyTuple_Type, &channels,
                                     &PyTuple_Type, &comms, &ranks, &tasks, &requests, &count,
                                     &element, &native, &operand, &send, &recv, &scratch))
        return NULL;
    Py_ssize_t operations = code.len / (Py_ssize_t)sizeof(han_instr);
    han_bounds g = {
        .ranks = ranks, .tasks = tasks, .requests = requests, .count = count, .element = element,
        .native = native, .operand = operand, .lengths = {send, recv, scratch},
    };
    if (requests > (unsigned long long)operations)
        PyErr_Format(PyExc_ValueError, "it has %llu requests for %zd operations", requests,
                     operations);
    else if (!fill_streams(&g, streams, operations) && !fill_channels(&g, channels) &&
             !fill_comms(&g, comms))
        answer = examine(&g, code.buf);
    PyBuffer_Release(&code);
    return answer;
}
