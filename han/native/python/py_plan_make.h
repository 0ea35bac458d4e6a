/* How native plans are made. */
#ifndef HAN_PY_PLAN_MAKE_H
#define HAN_PY_PLAN_MAKE_H

#include "python/objects.h"

/* Engine.plan: make a Plan from a program's records. */
PyObject *han_py_plan(EngineObject *, PyObject *args, PyObject *kwargs);

#endif
