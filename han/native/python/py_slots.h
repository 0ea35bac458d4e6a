/* Methods of han._native.Operations that emit the operations of parcels: data/slots.h. */
#ifndef HAN_PY_SLOTS_H
#define HAN_PY_SLOTS_H

#include "python/py_batches.h"

han_method han_emit_pack, han_emit_unpack, han_emit_tally;

#endif
