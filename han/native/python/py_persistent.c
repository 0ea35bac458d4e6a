#include "python/py_persistent.h"

#include "python/py_copies.h"

/* Call the function with the addresses of the buffers, the size, the objects that own the buffers,
 * the sizes of blocks, and what packs and unpacks. */
static PyObject *make_request(const han_caller *self, PyObject *make, const han_call *c,
                              PyObject *begin) {
    PyObject *sizes = NULL;
    if (han_py_sizes_of(self, c, &sizes)) return NULL;
    PyObject *request = PyObject_CallFunction(
        make, "KKK(OO)OOO", (unsigned long long)(uintptr_t)c->send.data,
        (unsigned long long)(uintptr_t)c->recv.data, (unsigned long long)c->key.nbytes,
        han_py_or_none(c->send.owner), han_py_or_none(c->recv.owner), han_py_or_none(sizes),
        han_py_or_none(begin), han_py_or_none(c->end));
    Py_XDECREF(sizes);
    return request;
}

/* Make a request on copies. If there is no memory for them, the Python way raises the error, and
 * tells the other ranks. */
static PyObject *on_copies(const han_caller *self, PyObject *make, const han_call *c) {
    han_call copy;
    PyObject *begin = NULL, *answer;
    if (han_py_copy(self, c, &copy) && !han_py_packer_of_sent(self, c, &copy, &begin)) {
        answer = make_request(self, make, &copy, begin);
    } else {
        PyErr_Clear();
        answer = Py_NewRef(Py_False);
    }
    Py_XDECREF(begin);
    han_py_release_copy(&copy);
    return answer;
}

PyObject *han_py_persistent(const han_caller *self, PyObject *make, const han_call *c) {
    return han_py_needs_copies(c) ? on_copies(self, make, c) : make_request(self, make, c, NULL);
}
