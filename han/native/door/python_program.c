/* Python programs: extension modules call MPI from C. The program's own interpreter opens the door. It may
 * be of another version than the one that han was built with, so only stable functions are called, which
 * are looked up. */
#define _GNU_SOURCE
#define PY_SSIZE_T_CLEAN
#include "door/python_program.h"

#include <Python.h>

#include <dlfcn.h>

#include "door/interpreter.h"

/* This leaves no name in the program's modules. Where mpi4py was not imported, MPI was initialized by
 * another module, which finalizes it and has set the handlers of errors. */
static const char JOIN[] = "try:\n"
                           "    import sys\n"
                           "    if 'mpi4py' not in sys.modules:\n"
                           "        import mpi4py\n"
                           "        mpi4py.rc(initialize=False, finalize=False, errors='default')\n"
                           "    import han.preloaded\n"
                           "    han.preloaded.open()\n"
                           "except BaseException as error:\n"
                           "    why = f'{type(error).__name__}: {error}'.splitlines()[0]\n";

/* Call a function of Python. */
#define PYTHON(RESULT, NAME, TYPES, ...) \
    (((RESULT(*) TYPES)dlsym(RTLD_DEFAULT, #NAME))(__VA_ARGS__))

static void drop(PyObject *o) { PYTHON(void, Py_DecRef, (PyObject *), o); }

/* Python's lock, which this thread may hold already, and the exception that is set while the program
 * calls MPI. */
typedef struct {
    PyGILState_STATE lock;
    PyObject *type, *value, *trace;
} entered;

static entered enter(void) {
    entered e = {.lock = PYTHON(PyGILState_STATE, PyGILState_Ensure, (void))};
    PYTHON(void, PyErr_Fetch, (PyObject **, PyObject **, PyObject **), &e.type, &e.value, &e.trace);
    return e;
}

static void leave(entered e) {
    PYTHON(void, PyErr_Restore, (PyObject *, PyObject *, PyObject *), e.type, e.value, e.trace);
    PYTHON(void, PyGILState_Release, (PyGILState_STATE), e.lock);
}

bool han_door_python_runs(void) {
    int (*running)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, "Py_IsInitialized");
    return running && running();
}

bool han_door_join_python(void) {
    entered e = enter();
    PyObject *names = PYTHON(PyObject *, PyDict_New, (void));
    drop(PYTHON(PyObject *, PyRun_StringFlags,
                (const char *, int, PyObject *, PyObject *, PyCompilerFlags *), JOIN, Py_file_input,
                names, names, NULL));
    PyObject *why =
        PYTHON(PyObject *, PyDict_GetItemString, (PyObject *, const char *), names, "why");
    if (why)
        (void)han_door_cannot("its Python cannot import han: ",
                              PYTHON(const char *, PyUnicode_AsUTF8, (PyObject *), why));
    drop(names);
    leave(e);
    return !why;
}

static void (*at_end)(void);

static PyObject *end(PyObject *self, PyObject *none) {
    (void)self, (void)none;
    at_end();
    return PYTHON(PyObject *, Py_BuildValue, (const char *, ...), "");
}

void han_door_at_pythons_end(void (*act)(void)) {
    static PyMethodDef method = {"han_door_end", end, METH_NOARGS, NULL};
    if (at_end || !han_door_python_runs()) return;
    at_end = act;
    entered e = enter();
    PyObject *function = PYTHON(PyObject *, PyCFunction_NewEx,
                                (PyMethodDef *, PyObject *, PyObject *), &method, NULL, NULL);
    PyObject *module = PYTHON(PyObject *, PyImport_ImportModule, (const char *), "atexit");
    drop(PYTHON(PyObject *, PyObject_CallMethod, (PyObject *, const char *, const char *, ...),
                module, "register", "O", function));
    drop(function);
    drop(module);
    leave(e);
}
