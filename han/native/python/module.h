/* What the module han._native consists of: types and functions, which py_module.c adds. */
#ifndef HAN_PY_MODULE_H
#define HAN_PY_MODULE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

/* One table of NumPy's functions serves all files. py_module.c fills it. */
#define NPY_NO_DEPRECATED_API NPY_1_7_API_VERSION
#define NPY_TARGET_VERSION NPY_1_22_API_VERSION
#define PY_ARRAY_UNIQUE_SYMBOL han_numpy
#ifndef HAN_FILLS_NUMPY
#define NO_IMPORT_ARRAY
#endif
#include <numpy/arrayobject.h>

/* An entry of a table of methods: a function that is called as the flags say, the parameters that
 * Python shows, and what it does. */
#define HAN_METHOD(NAME, FUNCTION, FLAGS, PARAMETERS, TEXT) \
    {NAME, (PyCFunction)(void (*)(void))(FUNCTION), FLAGS, NAME "(" PARAMETERS ")\n--\n\n" TEXT}
#define HAN_NAMED (METH_FASTCALL | METH_KEYWORDS)

/* Raise an exception, as PyErr_Format does; -1. */
#define HAN_RAISE(...) (PyErr_Format(__VA_ARGS__), -1)
#define HAN_NO_MEMORY (PyErr_NoMemory(), -1)

extern PyTypeObject BoardType, CallsType, DeliveryType, EagerType, EngineType, OperationsType,
    PackerType, PlanType, ReaderType, RecordsType, RefType;
extern PyMethodDef han_arena_functions[], han_dlpack_functions[], han_door_functions[],
    han_encoded_functions[], han_joined_functions[], han_kernel_functions[],
    han_mapping_functions[], han_own_functions[], han_rolled_functions[], han_packing_functions[],
    han_vector_functions[];

/* Run programs in virtual time (tasks/simulate). */
PyObject *han_py_simulate(PyObject *self, PyObject *args);

/* Add the numbers that C and Python share, as tables of names; 0 or -1. */
int han_py_add_numbers(PyObject *module);
/* Make the names that readers and the encoding look up; 0 or -1. */
int han_py_open_memory(void);
int han_py_open_dlpack(void);
int han_py_open_encoded(void);
int han_py_open_vectors(void);

/* Return the object for which the bytes of a buffer stand; no bytes stand for None. */
PyObject *han_py_decode(PyObject *data);

#endif
