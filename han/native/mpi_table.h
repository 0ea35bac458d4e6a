/* Calls into the MPI library. Its functions are looked up at run time, so that one build of han
 * works with every MPI library and needs no mpi.h. */
#ifndef HAN_MPI_TABLE_H
#define HAN_MPI_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A symbol of the library that C programs preload (door.h). Where it is there, han's own calls of MPI must
 * not go through MPI's public names. */
#define HAN_DOOR_OPEN "han_door_open"

/* An MPI handle: a sign-extended int or a pointer, as han_mpi.wide says. */
typedef intptr_t han_handle;

/* The functions of the library. From MPIX_Grequest_start on they are not in every library. In MPICH
 * that one lets it call back while it waits; opal_progress_register is the same in Open MPI for any
 * waiting; MPI_Type_get_envelope_c and MPI_Type_get_contents_c of MPI 4 also know types made with large
 * counts. */
/* clang-format off */
#define HAN_MPI_FUNCTIONS(X)                                                           \
    X(MPI_Isend) X(MPI_Irecv) X(MPI_Test) X(MPI_Get_count) X(MPI_Iprobe) X(MPI_Cancel) \
    X(MPI_Finalized) X(MPI_Ibcast) X(MPI_Ireduce) X(MPI_Iallreduce) X(MPI_Ibarrier)    \
    X(MPI_Bcast) X(MPI_Reduce) X(MPI_Allreduce) X(MPI_Barrier) X(MPI_Reduce_local)     \
    X(MPI_Error_class) X(MPI_Wait) X(MPI_Grequest_start) X(MPI_Grequest_complete)      \
    X(MPI_Status_set_elements) X(MPI_Status_set_cancelled) X(MPI_Type_size)            \
    X(MPI_Type_get_extent) X(MPI_Type_get_true_extent) X(MPI_Type_get_envelope)        \
    X(MPI_Type_get_contents) X(MPI_Type_dup) X(MPI_Type_free) X(MPI_Pack)              \
    X(MPI_Unpack) X(MPI_Type_create_keyval) X(MPI_Type_set_attr)                       \
    X(MPIX_Grequest_start) X(opal_progress_register) X(MPI_Type_get_envelope_c)        \
    X(MPI_Type_get_contents_c)
/* clang-format on */

#define HAN_FN(NAME) HAN_F_##NAME,
enum han_mpi_fn { HAN_MPI_FUNCTIONS(HAN_FN) HAN_F_COUNT, HAN_F_NEEDED = HAN_F_MPIX_Grequest_start };

typedef void (*han_anyfn)(void);

/* How a derived type is made, as han/message/reader.py orders them. Those from HAN_DARRAY on are not looked
 * into. */
enum han_combiner {
    HAN_DUP,
    HAN_CONTIGUOUS,
    HAN_VECTOR,
    HAN_HVECTOR,
    HAN_INDEXED,
    HAN_HINDEXED,
    HAN_INDEXED_BLOCK,
    HAN_HINDEXED_BLOCK,
    HAN_STRUCT,
    HAN_SUBARRAY,
    HAN_RESIZED,
    HAN_DARRAY,
    HAN_COMBINERS
};

typedef struct {
    int wide; /* 1: handles are pointers (Open MPI, MPI 5 ABI); 0: ints (MPICH, Intel MPI) */
    int any_source, notice_tag;
    int err_truncate; /* the class of the error of a message that is longer than its receive */
    int err_no_mem;   /* the class of the error of memory that is used up */
    void *in_place;
    han_handle byte;
    int combiners[HAN_COMBINERS], order_c; /* MPI's numbers of these, and that of row-major order */
    han_anyfn fn[HAN_F_COUNT];
} han_mpi;

typedef struct {
    const void *send;
    void *recv;
    int count, root;
    han_handle dtype, op, comm;
} han_coll_args;

/* The callbacks of a generalized request. `poll` and `wait` are for MPIX_Grequest_start. */
typedef struct {
    int (*query)(void *state, void *status);
    int (*free)(void *state);
    int (*cancel)(void *state, int complete);
    int (*poll)(void *state, void *status);
    int (*wait)(int n, void **states, double timeout, void *status);
} han_grequest_fns;

/* Where the elements of a type are, in bytes: `extent` apart, each with `size` bytes of data
 * between `first` and `behind` after its address. */
typedef struct {
    int64_t size, extent, first, behind;
    bool derived; /* from other types; else predefined */
} han_type_facts;

/* How a type was made: MPI's number of its combiner, how many inner types it has, and numbers of each kind. A
 * predefined one has no inner types. */
typedef struct {
    int combiner;
    int64_t integers, addresses, counts, types;
} han_envelope;
enum { HAN_TYPE_NUMBERS = 32 }; /* the most that are read of one type */

/* Where the fields of a status are, in bytes, and the values for "any". */
typedef struct {
    int source, tag, error;
    int any_source, any_tag;
} han_status_fields;

/* Look up every function: first among global symbols, which include preloaded profilers, then in
 * `library`. Returns NULL, or the name of a needed function that was not found. */
const char *han_mpi_load(han_mpi *mpi, const char *library);

/* Each returns MPI's error code. A request takes 8 bytes whatever the size of a handle. */
int han_isend(const han_mpi *, const void *, int n, int peer, int tag, han_handle comm,
              uint64_t *req);
int han_irecv(const han_mpi *, void *, int n, int peer, int tag, han_handle comm, uint64_t *req);
int han_test(const han_mpi *, uint64_t *req, int *flag);
/* The same for a receive; `n`: the bytes that the message had, set once it is complete. */
int han_test_receive(const han_mpi *, uint64_t *req, int *flag, int *n);
bool han_truncated(const han_mpi *, int rc);    /* whether that is what an error code means */
int han_cancel(const han_mpi *, uint64_t *req); /* the caller must still test the request */
bool han_mpi_finalized(const han_mpi *);
int han_iprobe(const han_mpi *, int source, int tag, han_handle comm, int *flag);
int han_collective(const han_mpi *, unsigned kind, const han_coll_args *, uint64_t *req);
int han_reduce_local(const han_mpi *, const void *in, void *inout, int n, han_handle dtype,
                     han_handle op);
int han_wait(const han_mpi *, uint64_t *req);
/* Make a generalized request, one that the library polls if it can. */
int han_grequest_start(const han_mpi *, const han_grequest_fns *, void *state, uint64_t *req);
int han_grequest_complete(const han_mpi *, uint64_t req);
/* Make a status empty in the sense of the MPI standard. */
void han_status_empty(const han_mpi *, const han_status_fields *, void *status);
/* A handle of an array of them. */
static inline han_handle han_handle_at(const han_mpi *m, const void *handles, int32_t k) {
    return m->wide ? ((const intptr_t *)handles)[k] : ((const int *)handles)[k];
}
int han_type_facts_of(const han_mpi *, han_handle, han_type_facts *);
int han_type_extent(const han_mpi *, han_handle, int64_t *extent);
int han_type_envelope(const han_mpi *, han_handle, han_envelope *);
/* The combiner with a number of MPI's; HAN_COMBINERS: an unknown one. */
enum han_combiner han_combiner_of(const han_mpi *, int combiner);
/* Read the numbers that a type was made with, in the order of parameters of the function that makes it, and
 * the inner types, which the caller drops. -1 if there are too many of either. */
int han_type_contents(const han_mpi *, han_handle, const han_envelope *, int64_t *numbers,
                      han_handle *inner);
/* Give back the handle of an inner type. */
int han_type_drop(const han_mpi *, han_handle);
/* Make a type of its own that is like another one, and free one. */
int han_type_dup(const han_mpi *, han_handle, han_handle *made);
int han_type_free(const han_mpi *, han_handle);
/* Make a key of attributes of types: MPI calls `drop` when it frees a type, and none is copied. */
typedef int han_drop_attribute(intptr_t type, int key, void *value, void *extra);
int han_type_key(const han_mpi *, han_drop_attribute *drop, int *key);
int han_type_set(const han_mpi *, han_handle, int key, void *value);
/* Copy `count` elements of a type to dense bytes, or back. */
int han_pack(const han_mpi *, const void *data, int count, han_handle, void *packed, int n,
             han_handle comm);
int han_unpack(const han_mpi *, const void *packed, int n, void *data, int count, han_handle,
               han_handle comm);
/* Let the library call `callback` whenever it progresses. False if it cannot. */
bool han_progress_register(const han_mpi *, int (*callback)(void));

#endif
