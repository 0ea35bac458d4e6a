/* Each mapping has a capsule, which unmaps it when it is freed. */
#include "python/module.h"

#include <errno.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <unistd.h>

#include "memory/sparse_file.h"

static const char CAPSULE[] = "han.mapping";

static void release(PyObject *capsule) {
    void *address = PyCapsule_GetPointer(capsule, CAPSULE);
    (void)munmap(address, (size_t)(uintptr_t)PyCapsule_GetContext(capsule));
}

/* (capsule, address): the capsule owns the mapping from now on, also if this fails. */
static PyObject *owned(void *mapping, size_t size, uint64_t at) {
    if (mapping == MAP_FAILED) return PyErr_SetFromErrno(PyExc_OSError);
    PyObject *capsule = PyCapsule_New(mapping, CAPSULE, NULL);
    if (!capsule || PyCapsule_SetContext(capsule, (void *)(uintptr_t)size) ||
        PyCapsule_SetDestructor(capsule, release)) {
        Py_XDECREF(capsule);
        (void)munmap(mapping, size);
        return NULL;
    }
    return Py_BuildValue("(NK)", capsule, (unsigned long long)at);
}

static PyObject *map_file(PyObject *Py_UNUSED(module), PyObject *args) {
    int fd;
    Py_ssize_t size;
    int writes = false;
    if (!PyArg_ParseTuple(args, "in|p", &fd, &size, &writes)) return NULL;
    void *mapping = han_map_file(fd, (size_t)size, writes ? PROT_READ | PROT_WRITE : PROT_READ);
    return owned(mapping, (size_t)size, (uint64_t)(uintptr_t)mapping);
}

/* Map shared memory a second time (mremap with an old length of 0), so that it stays mapped when
 * MPI unmaps it. The mapping consists of whole pages. */
static PyObject *map_again(PyObject *Py_UNUSED(module), PyObject *args) {
    unsigned long long address, bytes;
    if (!PyArg_ParseTuple(args, "KK", &address, &bytes)) return NULL;
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), first = address / page * page;
    size_t size = (size_t)((address + bytes + page - 1) / page * page - first);
    void *mapping = mremap((void *)(uintptr_t)first, 0, size, MREMAP_MAYMOVE);
    return owned(mapping, size, (uint64_t)(uintptr_t)mapping + (address - first));
}

static PyObject *load_word(PyObject *Py_UNUSED(module), PyObject *address) {
    const _Atomic uint64_t *word = PyLong_AsVoidPtr(address);
    if (!word) return NULL;
    return PyLong_FromUnsignedLongLong(atomic_load_explicit(word, memory_order_acquire));
}

static PyObject *store_word(PyObject *Py_UNUSED(module), PyObject *args) {
    unsigned long long address, value;
    if (!PyArg_ParseTuple(args, "KK", &address, &value)) return NULL;
    _Atomic uint64_t *word = (_Atomic uint64_t *)(uintptr_t)address;
    atomic_store_explicit(word, value, memory_order_release);
    Py_RETURN_NONE;
}

PyMethodDef han_mapping_functions[] = {
    HAN_METHOD("map_file", map_file, METH_VARARGS, "$module, fd, size, writes=False, /",
               "Map a file, for reading only unless it `writes`; return (owner, address)."),
    HAN_METHOD("map_again", map_again, METH_VARARGS, "$module, address, nbytes, /",
               "Map shared memory a second time; return (owner, address)."),
    HAN_METHOD("load_word", load_word, METH_O, "$module, address, /",
               "Load 8 bytes of this process's memory, with acquire order."),
    HAN_METHOD("store_word", store_word, METH_VARARGS, "$module, address, value, /",
               "Store 8 bytes in this process's memory, with release order."),
    {NULL, NULL, 0, NULL},
};
