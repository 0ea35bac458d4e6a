#!/bin/sh
# Binds a rank to a rail, then runs its program: rail.sh VARIABLE ADAPTERS COMMAND...
# VARIABLE tells the MPI library its adapter. ADAPTERS has one for each local rank, as in eth0,eth1.
variable=$1
adapters=$2
shift 2
local=${OMPI_COMM_WORLD_LOCAL_RANK:-$MPI_LOCALRANKID}  # of Open MPI; of MPICH and Intel MPI
export "$variable=$(echo "$adapters" | cut -d, -f$((local + 1)))"
exec "$@"
