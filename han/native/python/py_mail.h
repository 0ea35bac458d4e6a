/* Messages that carry parts of a task's data: han._native.Mail. */
#ifndef HAN_PY_MAIL_H
#define HAN_PY_MAIL_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

/* Add Mail and Transfer to the module. 0 or -1. */
int han_py_add_mail(PyObject *module);

#endif
