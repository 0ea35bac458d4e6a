/* An arena is a capsule that NumPy allocates data from (NEP 49). Every array owns a reference to
 * the capsule that its data came from: the arena lives until its last array is freed. */
#include "python/module.h"

#include <errno.h>

#include "memory/arena.h"
#include "memory/cgroup.h"

static const char CAPSULE[] = "mem_handler"; /* the name that NumPy requires */

typedef struct {
    PyDataMem_Handler handler; /* the capsule points to it */
    han_arena *arena;
    PyObject *folders; /* of control groups: a tuple of bytes */
    char **groups;     /* their contents */
} provider;

static void *data_malloc(void *arena, size_t bytes) { return han_arena_take(arena, bytes, false); }

static void *data_calloc(void *arena, size_t n, size_t each) {
    if (each && n > SIZE_MAX / each) return NULL;
    return han_arena_take(arena, n * each, true);
}

static void *data_realloc(void *arena, void *p, size_t bytes) {
    return han_arena_resize(arena, p, bytes);
}

static void data_free(void *arena, void *p, size_t Py_UNUSED(bytes)) { han_arena_give(arena, p); }

static void free_provider(provider *p) {
    Py_XDECREF(p->folders);
    PyMem_Free(p->groups);
    PyMem_Free(p);
}

static void release(PyObject *capsule) {
    provider *p = PyCapsule_GetPointer(capsule, CAPSULE);
    han_arena_close(p->arena);
    free_provider(p);
}

/* Keep the folders of control groups, a tuple of bytes. 0 or -1. */
static int note_groups(provider *p, PyObject *folders) {
    Py_ssize_t n = folders ? PyTuple_GET_SIZE(folders) : 0;
    p->groups = PyMem_Calloc((size_t)n + 1, sizeof *p->groups);
    if (!p->groups) return HAN_NO_MEMORY;
    for (Py_ssize_t k = 0; k < n; k++)
        if (!(p->groups[k] = PyBytes_AsString(PyTuple_GET_ITEM(folders, k)))) return -1;
    p->folders = Py_XNewRef(folders);
    return 0;
}

static PyObject *arena_room(PyObject *Py_UNUSED(module), PyObject *folder) {
    const char *name = PyBytes_AsString(folder);
    return name ? PyLong_FromUnsignedLongLong(han_room(name, UINT64_MAX)) : NULL;
}

static PyObject *arena_open(PyObject *Py_UNUSED(module), PyObject *args) {
    int fd;
    int touch = false;
    PyObject *folders = NULL;
    Py_ssize_t size, keep;
    if (!PyArg_ParseTuple(args, "inn|pO!", &fd, &size, &keep, &touch, &PyTuple_Type, &folders))
        return NULL;
    provider *p = PyMem_Calloc(1, sizeof *p);
    if (!p) return PyErr_NoMemory();
    p->handler = (PyDataMem_Handler){"han", 1, {0}};
    int failed = note_groups(p, folders);
    if (!failed) p->arena = han_arena_open(fd, (size_t)size, (size_t)keep, touch);
    if (!p->arena) {
        if (!failed) PyErr_SetFromErrno(PyExc_OSError);
        free_provider(p);
        return NULL;
    }
    han_arena_limit(p->arena, p->groups);
    p->handler.allocator =
        (PyDataMemAllocator){p->arena, data_malloc, data_calloc, data_realloc, data_free};
    return PyCapsule_New(p, CAPSULE, release);
}

static han_arena *arena_of(PyObject *capsule) {
    provider *p = PyCapsule_GetPointer(capsule, CAPSULE);
    if (p && PyCapsule_GetDestructor(capsule) == release) return p->arena;
    if (!PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "the object is no arena of han");
    return NULL;
}

static PyObject *arena_use(PyObject *Py_UNUSED(module), PyObject *handler) {
    return PyDataMem_SetHandler(handler == Py_None ? NULL : handler);
}

static PyObject *arena_holds(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *capsule;
    unsigned long long address, bytes;
    if (!PyArg_ParseTuple(args, "OKK", &capsule, &address, &bytes)) return NULL;
    const han_arena *a = arena_of(capsule);
    return a ? PyBool_FromLong(han_arena_holds(a, address, bytes)) : NULL;
}

static PyObject *arena_tell(PyObject *Py_UNUSED(module), PyObject *capsule) {
    han_arena *a = arena_of(capsule);
    if (!a) return NULL;
    han_arena_facts f = han_arena_tell(a);
    return Py_BuildValue("(KKKKKKi)", (unsigned long long)(uintptr_t)f.base,
                         (unsigned long long)f.size, (unsigned long long)f.taken,
                         (unsigned long long)f.kept, (unsigned long long)f.refusals,
                         (unsigned long long)f.refused, f.error);
}

/* An address in the arena, or an OSError. */
static PyObject *address_of(void *p) {
    return p ? PyLong_FromVoidPtr(p) : PyErr_SetFromErrno(PyExc_OSError);
}

static PyObject *arena_take(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *capsule;
    Py_ssize_t bytes;
    int bare = false;
    if (!PyArg_ParseTuple(args, "On|p", &capsule, &bytes, &bare)) return NULL;
    han_arena *a = arena_of(capsule);
    if (!a) return NULL;
    return address_of(bare ? han_arena_take_bare(a, (size_t)bytes)
                           : han_arena_take(a, (size_t)bytes, true));
}

static PyObject *arena_fill(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *capsule;
    unsigned long long address;
    Py_ssize_t bytes;
    if (!PyArg_ParseTuple(args, "OKn", &capsule, &address, &bytes)) return NULL;
    han_arena *a = arena_of(capsule);
    if (!a) return NULL;
    errno = han_arena_fill(a, (void *)(uintptr_t)address, (size_t)bytes);
    return errno ? PyErr_SetFromErrno(PyExc_OSError) : Py_NewRef(Py_None);
}

static PyObject *arena_give(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *capsule;
    unsigned long long address;
    if (!PyArg_ParseTuple(args, "OK", &capsule, &address)) return NULL;
    han_arena *a = arena_of(capsule);
    if (!a) return NULL;
    han_arena_give(a, (void *)(uintptr_t)address);
    Py_RETURN_NONE;
}

PyMethodDef han_arena_functions[] = {
    HAN_METHOD(
        "arena_open", arena_open, METH_VARARGS,
        "$module, fd, size, keep, touch=False, groups=(), /",
        "Open an arena in a sparse file; return NumPy's handle of it. The arena owns the file "
        "descriptor. It respects the memory limits of the control groups whose folders are given."),
    HAN_METHOD("room", arena_room, METH_O, "$module, folder, /",
               "Return the bytes that are left below the memory limit of a control group."),
    HAN_METHOD("arena_use", arena_use, METH_O, "$module, handler, /",
               "Make NumPy allocate in an arena in this context; return the handler used before."),
    HAN_METHOD("arena_holds", arena_holds, METH_VARARGS, "$module, arena, address, nbytes, /",
               "Return whether these bytes are in the arena."),
    HAN_METHOD("arena_take", arena_take, METH_VARARGS, "$module, arena, nbytes, bare=False, /",
               "Return the address of so many zeros; of memory to be filled, if it is bare. Raises "
               "OSError."),
    HAN_METHOD("arena_fill", arena_fill, METH_VARARGS, "$module, arena, address, nbytes, /",
               "Reserve memory for bytes that were taken bare. Raises OSError."),
    HAN_METHOD("arena_give", arena_give, METH_VARARGS, "$module, arena, address, /",
               "Give back what was taken."),
    HAN_METHOD("arena_tell", arena_tell, METH_O, "$module, arena, /",
               "Return base, size, bytes taken and kept; the number of refusals, and the bytes and "
               "errno of the last one."),
    {NULL, NULL, 0, NULL},
};
