/* The module han._native. */
#define HAN_FILLS_NUMPY
#include "python/module.h"

#include <errno.h>
#include <stdbool.h>

#include "channel.h"
#include "data/cross_memory.h"
#include "data/kernels.h"
#include "data/processor.h"
#include "engine/helper.h"
#include "engine/queue.h"
#include "python/py_request_object.h"

static PyObject *module_let_attach(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(none)) {
    han_let_attach();
    Py_RETURN_NONE;
}

static PyObject *module_peek(PyObject *Py_UNUSED(module), PyObject *args) {
    long long pid;
    unsigned long long address, value = 0;
    if (!PyArg_ParseTuple(args, "LK", &pid, &address)) return NULL;
    errno = han_pull(pid, &value, address, sizeof value);
    return errno ? PyErr_SetFromErrno(PyExc_OSError) : PyLong_FromUnsignedLongLong(value);
}

static PyObject *module_poke(PyObject *Py_UNUSED(module), PyObject *args) {
    long long pid;
    unsigned long long address, value;
    if (!PyArg_ParseTuple(args, "LKK", &pid, &address, &value)) return NULL;
    errno = han_push(pid, address, &value, sizeof value);
    if (errno) return PyErr_SetFromErrno(PyExc_OSError);
    Py_RETURN_NONE;
}

static PyObject *module_isa(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(none)) {
    return PyUnicode_FromString(han_kernels_isa());
}

static PyObject *module_has_kernel(PyObject *Py_UNUSED(module), PyObject *args) {
    int op, dtype;
    if (!PyArg_ParseTuple(args, "ii", &op, &dtype)) return NULL;
    return PyBool_FromLong(han_reduce_kernel((enum han_op)op, (enum han_dtype)dtype) != NULL);
}

static PyObject *module_progress(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(none)) {
    Py_BEGIN_ALLOW_THREADS
    han_progress_others(NULL);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

static PyObject *module_orphans(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(none)) {
    return han_py_orphans();
}

/* helper(way, multiple, look): how the helper works. */
static PyObject *module_helper(PyObject *Py_UNUSED(module), PyObject *args) {
    int off, multiple;
    double look;
    if (!PyArg_ParseTuple(args, "ppd", &off, &multiple, &look)) return NULL;
    han_helper_set((han_helper_way){.look_ns = (uint32_t)(look * 1e9),
                                    .off = off,
                                    .mpi = multiple,
                                    .collect = han_tokens_collect});
    Py_RETURN_NONE;
}

static PyObject *module_stop_helper(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(none)) {
    Py_BEGIN_ALLOW_THREADS /* it may be inside a user's reduction */
    han_helper_stop(true);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

static PyObject *module_close_requests(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(none)) {
    han_tokens_close();
    Py_RETURN_NONE;
}

#define DEFINE_QUESTION(NAME, ASK)                                                           \
    static PyObject *module_##NAME(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(none)) { \
        return PyBool_FromLong(ASK());                                                       \
    }
DEFINE_QUESTION(on_mesh, han_on_mesh)
DEFINE_QUESTION(helper_runs, han_helper_runs)
DEFINE_QUESTION(inside_op, han_inside_op)

static PyMethodDef module_methods[] = {
    HAN_METHOD("progress", module_progress, METH_NOARGS, "$module, /",
               "Step every active engine of this process once."),
    HAN_METHOD("orphans", module_orphans, METH_NOARGS, "$module, /",
               "Return the requests that were dropped while their collectives run."),
    HAN_METHOD("request_class", han_py_request_class, METH_VARARGS,
               "$module, base, handle, null, library, status, /",
               "Return the class of requests, which extends mpi4py's."),
    HAN_METHOD("helper", module_helper, METH_VARARGS, "$module, off, multiple, look, /",
               "Say how the helper thread works."),
    HAN_METHOD("stop_helper", module_stop_helper, METH_NOARGS, "$module, /",
               "End the helper thread, for ever."),
    HAN_METHOD("close_requests", module_close_requests, METH_NOARGS, "$module, /",
               "Let requests call MPI no more: it is about to be finalized."),
    HAN_METHOD("helper_runs", module_helper_runs, METH_NOARGS, "$module, /",
               "Return whether the helper thread exists."),
    HAN_METHOD("inside_op", module_inside_op, METH_NOARGS, "$module, /",
               "Return whether this thread runs a user's reduction operation inside a collective."),
    HAN_METHOD("isa", module_isa, METH_NOARGS, "$module, /",
               "Return the instruction set of the reduction kernels in use."),
    HAN_METHOD("on_mesh", module_on_mesh, METH_NOARGS, "$module, /",
               "Return whether cores exchange cache lines over a mesh, and therefore slowly."),
    HAN_METHOD("let_attach", module_let_attach, METH_NOARGS, "$module, /",
               "Allow other ranks to access this process's memory, as far as the system lets it."),
    HAN_METHOD("peek", module_peek, METH_VARARGS, "$module, pid, address, /",
               "Return the 8-byte word at an address of another process; raises OSError."),
    HAN_METHOD("poke", module_poke, METH_VARARGS, "$module, pid, address, value, /",
               "Store an 8-byte word at an address of another process; raises OSError."),
    HAN_METHOD(
        "simulate", han_py_simulate, METH_VARARGS, "$module, arrays, sizes, lengths, tell, /",
        "Run programs in virtual time; write the results into arrays and return spans as bytes."),
    HAN_METHOD("has_kernel", module_has_kernel, METH_VARARGS, "$module, op, dtype, /",
               "Return whether han has a kernel for a pair of operation and element type."),
    {NULL, NULL, 0, NULL},
};

static PyTypeObject *const types[] = {&BoardType,      &CallsType, &EagerType,  &EngineType,
                                      &OperationsType, &PlanType,  &ReaderType, &RefType};
static PyMethodDef *const functions[] = {
    han_arena_functions,   han_dlpack_functions, han_door_functions,    han_encoded_functions,
    han_joined_functions,  han_kernel_functions, han_mapping_functions, han_own_functions,
    han_packing_functions, han_rolled_functions, han_vector_functions};

/* Fill a new module. */
static int fill(PyObject *m) {
    import_array1(-1);
    int failed = PyType_Ready(&RecordsType) || PyType_Ready(&DeliveryType) ||
                 PyType_Ready(&PackerType) || han_py_add_numbers(m) || han_py_open_memory() ||
                 han_py_open_dlpack() || han_py_open_encoded() || han_py_open_vectors();
    for (size_t k = 0; !failed && k < sizeof types / sizeof *types; k++)
        failed = PyModule_AddType(m, types[k]);
    for (size_t k = 0; !failed && k < sizeof functions / sizeof *functions; k++)
        failed = PyModule_AddFunctions(m, functions[k]);
    return failed ? -1 : 0;
}

/* Types and tables are the process's, so one interpreter has them, and Python's lock guards them:
 * docs/decisions/free-threading.md. */
static PyModuleDef_Slot module_slots[] = {
    {Py_mod_exec, fill},
#ifdef Py_mod_multiple_interpreters
    {Py_mod_multiple_interpreters, Py_MOD_MULTIPLE_INTERPRETERS_NOT_SUPPORTED},
#endif
#ifdef Py_mod_gil
    {Py_mod_gil, Py_MOD_GIL_USED},
#endif
    {0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT,       .m_name = "han._native", .m_doc = "han's compiled part.",
    .m_methods = module_methods, .m_slots = module_slots,
};

PyMODINIT_FUNC PyInit__native(void) { return PyModuleDef_Init(&module); }
