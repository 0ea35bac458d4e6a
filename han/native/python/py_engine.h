/* han._native.Engine. */
#ifndef HAN_PY_ENGINE_H
#define HAN_PY_ENGINE_H

#include "python/objects.h"

extern PyTypeObject EngineType;

#endif
