/* Where the data of a derived type is, as the functions that made the type tell. */
#ifndef HAN_DATATYPES_H
#define HAN_DATATYPES_H

#include "grid.h"
#include "mpi_table.h"

/* The grid of one element of a type, and the extent of the type. Some types are no grids to this, although
 * their data is one: those of several types with gaps of their own, or of many blocks. */
han_grid han_grid_of_type(const han_mpi *, han_handle, int64_t *extent);

#endif
