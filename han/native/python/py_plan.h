/* han._native.Plan. */
#ifndef HAN_PY_PLAN_H
#define HAN_PY_PLAN_H

#include "python/objects.h"

extern PyTypeObject PlanType;

#endif
