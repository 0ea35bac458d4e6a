/* han._native.Plan. */
#ifndef HAN_PY_PLAN_H
#define HAN_PY_PLAN_H

#include "python/objects.h"

extern PyTypeObject PlanType;

/* Engine.plan: make a Plan from a program's records. */
PyObject *han_py_plan(EngineObject *, PyObject *args, PyObject *kwargs);

#endif
