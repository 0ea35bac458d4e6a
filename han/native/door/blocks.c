#include "door/blocks.h"

#include "door/library.h"

/* The neighbours of a communicator, as its topology tells them; none without one. */
static han_blocks neighbours_of(intptr_t comm) {
    enum { DIST_GRAPH = 3 };
    const int cart = han_wide() ? 1 : 2, graph = han_wide() ? 2 : 1;
    int kind = 0, n = 0, rank = 0, weighted;
    han_blocks b = {0, 0};
    (void)HAN_MPIS(Topo_test, (intptr_t, int *), comm, &kind);
    if (kind == DIST_GRAPH)
        (void)HAN_MPIS(Dist_graph_neighbors_count, (intptr_t, int *, int *, int *), comm, &b.in,
                       &b.out, &weighted);
    if (kind == cart && !HAN_MPIS(Cartdim_get, (intptr_t, int *), comm, &n)) b.in = b.out = 2 * n;
    if (kind == graph && !HAN_MPIS(Comm_rank, (intptr_t, int *), comm, &rank) &&
        !HAN_MPIS(Graph_neighbors_count, (intptr_t, int, int *), comm, rank, &n))
        b.in = b.out = n;
    return b;
}

han_blocks han_blocks_of(intptr_t comm, enum han_partners partners) {
    int size = 0, inter = 0;
    if (partners == HAN_NEIGHBOURS) return neighbours_of(comm);
    (void)HAN_MPIS(Comm_test_inter, (intptr_t, int *), comm, &inter);
    if (inter && partners == HAN_ALL_RANKS)
        (void)HAN_MPIS(Comm_remote_size, (intptr_t, int *), comm, &size);
    else
        (void)HAN_MPIS(Comm_size, (intptr_t, int *), comm, &size);
    return (han_blocks){size, size};
}
