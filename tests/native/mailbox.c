#include "mailbox.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { NOTICE_TAG = 1 << 20, EAGER = 4096, SUCCESS = 0, TRUNCATED = 15, PENDING_IS_LATE = 3 };

typedef struct {
    mailbox *box;
    int rank, broken;
    bool notified;
    unsigned luck;
} member;

/* One operation under way. A send that is complete but not received stays as a message. */
typedef struct request {
    struct request *next;
    member *owner;
    bool is_send, done, eager;
    int peer, tag, size, got, error; /* got: bytes that a receive was sent */
    void *memory;
} request;

struct mailbox {
    pthread_mutex_t lock;
    request *first, **last; /* unmatched sends and receives, oldest first */
    int ranks;
    member members[];
};

mailbox *mailbox_new(int ranks) {
    mailbox *box = calloc(1, sizeof *box + (size_t)ranks * sizeof(member));
    if (!box) abort();
    pthread_mutex_init(&box->lock, NULL);
    box->last = &box->first;
    box->ranks = ranks;
    for (int r = 0; r < ranks; r++)
        box->members[r] = (member){.box = box, .rank = r, .luck = 2463534242u + (unsigned)r};
    return box;
}

static void drop(request *r) {
    if (r->is_send && r->eager) free(r->memory);
    free(r);
}

void mailbox_free(mailbox *box) {
    for (request *r = box->first, *next; r; r = next) {
        next = r->next;
        drop(r);
    }
    pthread_mutex_destroy(&box->lock);
    free(box);
}

han_handle mailbox_comm(mailbox *box, int rank) { return (han_handle)(void *)&box->members[rank]; }

static bool matches(const request *a, const request *b) {
    return a->is_send != b->is_send && a->tag == b->tag && a->peer == b->owner->rank &&
           b->peer == a->owner->rank;
}

static void transfer(request *send, request *receive) {
    receive->error = send->size > receive->size ? TRUNCATED : SUCCESS;
    if (!receive->error && send->size) memcpy(receive->memory, send->memory, (size_t)send->size);
    receive->got = send->size;
    receive->done = true;
    if (send->eager)
        drop(send);
    else
        send->done = true;
}

static void unlink_request(mailbox *box, request **link) {
    request *r = *link;
    *link = r->next;
    if (box->last == &r->next) box->last = link;
    r->next = NULL;
}

/* Match with the oldest operation that fits, or append to the queue. */
static void post(mailbox *box, request *r) {
    for (request **link = &box->first; *link; link = &(*link)->next) {
        request *other = *link;
        if (!matches(r, other)) continue;
        unlink_request(box, link);
        transfer(r->is_send ? r : other, r->is_send ? other : r);
        return;
    }
    *box->last = r;
    box->last = &r->next;
}

static request *new_request(request content) {
    request *r = malloc(sizeof *r);
    if (!r) abort();
    *r = content;
    return r;
}

static int mailbox_isend(const void *data, int n, void *type, int peer, int tag, void *comm,
                         void **handle) {
    member *m = comm;
    request content = {.is_send = true, .owner = m, .peer = peer, .tag = tag, .size = n};
    (void)type;
    if (m->broken) return m->broken;
    content.eager = n <= EAGER;
    content.memory = (void *)(uintptr_t)data;
    if (content.eager) { /* the send is complete at once */
        content.memory = malloc((size_t)n + 1);
        if (!content.memory) abort();
        if (n) memcpy(content.memory, data, (size_t)n);
    }
    request *r = new_request(content);
    *handle = content.eager ? NULL : r;
    pthread_mutex_lock(&m->box->lock);
    post(m->box, r);
    pthread_mutex_unlock(&m->box->lock);
    return SUCCESS;
}

static int mailbox_irecv(void *data, int n, void *type, int peer, int tag, void *comm,
                         void **handle) {
    member *m = comm;
    (void)type;
    if (m->broken) return m->broken;
    request *r =
        new_request((request){.owner = m, .peer = peer, .tag = tag, .size = n, .memory = data});
    *handle = r;
    pthread_mutex_lock(&m->box->lock);
    post(m->box, r);
    pthread_mutex_unlock(&m->box->lock);
    return SUCCESS;
}

static bool late(const request *r) {
    member *m = r->owner;
    m->luck = m->luck * 1664525u + 1013904223u;
    return (m->luck >> 16) % PENDING_IS_LATE == 0;
}

static int mailbox_test(void **handle, int *flag, void *status) {
    request *r = *handle;
    memset(status, 0xee, 64); /* as large as the status of MPI libraries */
    *flag = 1;
    if (!r) return SUCCESS;
    pthread_mutex_lock(&r->owner->box->lock);
    *flag = r->done && !late(r);
    pthread_mutex_unlock(&r->owner->box->lock);
    if (!*flag) return SUCCESS;
    int error = r->error;
    memcpy(status, &r->got, sizeof r->got);
    free(r);
    *handle = NULL;
    return error;
}

static int mailbox_get_count(const void *status, void *type, int *n) {
    (void)type;
    memcpy(n, status, sizeof *n);
    return SUCCESS;
}

static int mailbox_error_class(int code, int *class) {
    *class = code;
    return SUCCESS;
}

static int mailbox_cancel(void **handle) {
    request *r = *handle;
    mailbox *box = r->owner->box;
    pthread_mutex_lock(&box->lock);
    for (request **link = &box->first; !r->done && *link; link = &(*link)->next)
        if (*link == r) {
            unlink_request(box, link);
            break;
        }
    r->done = true;
    pthread_mutex_unlock(&box->lock);
    return SUCCESS;
}

static int mailbox_finalized(int *flag) {
    *flag = 0;
    return SUCCESS;
}

static int mailbox_iprobe(int source, int tag, void *comm, int *flag, void *status) {
    member *m = comm;
    (void)source, (void)tag;
    memset(status, 0xee, 64);
    pthread_mutex_lock(&m->box->lock);
    *flag = m->notified;
    pthread_mutex_unlock(&m->box->lock);
    return m->broken;
}

static void set_notified(mailbox *box, int rank, bool notified) {
    pthread_mutex_lock(&box->lock);
    box->members[rank].notified = notified;
    pthread_mutex_unlock(&box->lock);
}

void mailbox_notify(mailbox *box, int rank) { set_notified(box, rank, true); }
void mailbox_unnotify(mailbox *box, int rank) { set_notified(box, rank, false); }
void mailbox_break(mailbox *box, int rank, int code) { box->members[rank].broken = code; }

size_t mailbox_pending(mailbox *box) {
    size_t n = 0;
    pthread_mutex_lock(&box->lock);
    for (const request *r = box->first; r; r = r->next) n++;
    pthread_mutex_unlock(&box->lock);
    return n;
}

void mailbox_table(han_mpi *mpi) {
    *mpi =
        (han_mpi){.wide = 1, .any_source = -1, .notice_tag = NOTICE_TAG, .err_truncate = TRUNCATED};
    mpi->fn[HAN_F_MPI_Isend] = (han_anyfn)mailbox_isend;
    mpi->fn[HAN_F_MPI_Irecv] = (han_anyfn)mailbox_irecv;
    mpi->fn[HAN_F_MPI_Test] = (han_anyfn)mailbox_test;
    mpi->fn[HAN_F_MPI_Get_count] = (han_anyfn)mailbox_get_count;
    mpi->fn[HAN_F_MPI_Error_class] = (han_anyfn)mailbox_error_class;
    mpi->fn[HAN_F_MPI_Iprobe] = (han_anyfn)mailbox_iprobe;
    mpi->fn[HAN_F_MPI_Cancel] = (han_anyfn)mailbox_cancel;
    mpi->fn[HAN_F_MPI_Finalized] = (han_anyfn)mailbox_finalized;
}
