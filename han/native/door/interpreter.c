/* The interpreter of a program of C or Fortran. It is the one that `han run` or `han preload` named, in
 * the program's environment. Only its structures are taken from Python.h: its functions are looked up. */
#define _GNU_SOURCE
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "door/interpreter.h"

/* The program initializes and finalizes MPI, and keeps its handlers of errors. Modules leave no garbage
 * that is worth a search while they are imported. */
static const char START[] = "import gc\n"
                            "import mpi4py\n"
                            "mpi4py.rc(initialize=False, finalize=False, errors='default')\n"
                            "gc.disable()\n"
                            "try:\n"
                            " import han.preloaded\n"
                            "finally:\n"
                            " gc.enable()\n"
                            "han.preloaded.start()\n";

/* NumPy's library of linear algebra starts a thread on each core; han does not use it. */
static const char THREADS[] = "OPENBLAS_NUM_THREADS";

bool han_door_cannot(const char *why, const char *more) {
    fprintf(stderr, "han: this program runs on MPI alone: %s%s\n", why, more ? more : "");
    return false;
}

/* A function of Python, wherever it is. */
#define PYTHON(RESULT, NAME, TYPES) ((RESULT(*) TYPES)dlsym(python, #NAME))

/* Start the interpreter without its handlers of signals. The program's locale and streams stay as they
 * are. */
static bool start(void *python, const char *executable) {
    PyPreConfig before;
    PyConfig config;
    PYTHON(void, PyPreConfig_InitPythonConfig, (PyPreConfig *))(&before);
    before.parse_argv = before.configure_locale = before.coerce_c_locale = 0;
    before.utf8_mode = 1;
    (void)PYTHON(PyStatus, Py_PreInitialize, (const PyPreConfig *))(&before);
    PYTHON(void, PyConfig_InitPythonConfig, (PyConfig *))(&config);
    config.install_signal_handlers = 0;
    config.parse_argv = 0;
    config.buffered_stdio = 1;
    config.configure_c_stdio = 0;
    PyStatus status =
        PYTHON(PyStatus, PyConfig_SetBytesString,
               (PyConfig *, wchar_t **, const char *))(&config, &config.program_name, executable);
    if (!PYTHON(int, PyStatus_Exception, (PyStatus))(status))
        status = PYTHON(PyStatus, Py_InitializeFromConfig, (const PyConfig *))(&config);
    bool failed = PYTHON(int, PyStatus_Exception, (PyStatus))(status);
    PYTHON(void, PyConfig_Clear, (PyConfig *))(&config);
    return failed ? han_door_cannot("Python does not start: ", status.err_msg) : true;
}

#define TEXT(NUMBER) #NUMBER
#define DOTTED(MAJOR, MINOR) TEXT(MAJOR) "." TEXT(MINOR) "."

/* Whether the Python that a program is linked to can be han's. A process can have no other one. */
static bool has_version(void *python) {
    static const char wanted[] = DOTTED(PY_MAJOR_VERSION, PY_MINOR_VERSION);
    const char *version = PYTHON(const char *, Py_GetVersion, (void))();
    return !strncmp(version, wanted, strlen(wanted)) ||
           han_door_cannot("it is linked to Python ", version);
}

static bool started;

bool han_door_has_python(void) { return started; }

bool han_door_python(void) {
    const bool linked = dlsym(RTLD_DEFAULT, "Py_IsInitialized");
    const char *library = getenv("HAN_PRELOAD_LIBPYTHON");
    const char *executable = getenv("HAN_PRELOAD_PYTHON");
    if (!library || !executable)
        return han_door_cannot("start it with `han run`, or as `han preload` says", NULL);
    void *python = linked ? RTLD_DEFAULT : dlopen(library, RTLD_NOW | RTLD_GLOBAL);
    if (!linked && !python) return han_door_cannot("", dlerror());
    if (linked && !has_version(python)) return false;
    if (!start(python, executable)) return false;
    started = true;
    const bool threads = getenv(THREADS);
    if (!threads) (void)setenv(THREADS, "1", true);
    int failed =
        PYTHON(int, PyRun_SimpleStringFlags, (const char *, PyCompilerFlags *))(START, NULL);
    if (!threads) (void)unsetenv(THREADS);
    (void)PYTHON(PyThreadState *, PyEval_SaveThread, (void))();
    return failed ? han_door_cannot("Python cannot import han (see above)", NULL) : true;
}
