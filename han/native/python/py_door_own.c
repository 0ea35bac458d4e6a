/* han's own calls of MPI where the C door (door/door.h) is there: they pass it by. */
#define _GNU_SOURCE
#include "python/module.h"

#include <dlfcn.h>

#include "door.h"
#include "python/py_arguments.h"

/* This thread's number of han's own calls under way, or NULL without a door. */
static int *own(void) {
    static han_door_own_fn *find;
    static bool looked; /* Python's lock guards both */
    if (!looked) find = (han_door_own_fn *)dlsym(RTLD_DEFAULT, HAN_DOOR_OWN);
    looked = true;
    return find ? find() : NULL;
}

static PyObject *by_mpi(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t n) {
    int *calls = own();
    if (n < 1) return PyErr_Format(PyExc_TypeError, "by_mpi needs a function");
    if (calls) ++*calls;
    PyObject *answer = PyObject_Vectorcall(args[0], args + 1, (size_t)n - 1, NULL);
    if (calls) --*calls;
    return answer;
}

static PyObject *lose(PyObject *Py_UNUSED(module), PyObject *handle) {
    han_door_lose_fn *act = (han_door_lose_fn *)dlsym(RTLD_DEFAULT, HAN_DOOR_LOSE);
    unsigned long long number = PyLong_AsUnsignedLongLong(handle);
    if (PyErr_Occurred()) return NULL;
    if (act) act((han_handle)number);
    Py_RETURN_NONE;
}

PyMethodDef han_own_functions[] = {
    HAN_METHOD("by_mpi", by_mpi, METH_FASTCALL, "$module, function, /, *arguments",
               "Call a function that calls MPI; the preloaded library leaves its calls to MPI."),
    HAN_METHOD("lose", lose, METH_O, "$module, handle, /",
               "Let the preloaded library forget what han held for a communicator."),
    {NULL, NULL, 0, NULL},
};
