/* What the simulator reads and keeps (tasks/simulate): programs as flat records, the machine, and the
 * state of every rank, flag, message and collective in virtual time. */
#ifndef HAN_SIMULATE_WORLD_H
#define HAN_SIMULATE_WORLD_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NEVER INFINITY

/* One operation of all ranks whose operations are alike (tasks/simulate/shapes.py: OPERATION). `name`
 * is one of the rank's names, or the stream of an AWAIT; `number` counts the messages of a name; for
 * data, `row` is that of the rates. */
typedef struct {
    uint8_t code, row, blocking, spare;
    int32_t name, number, slot;
    uint32_t task;
    int64_t n; /* bytes, a flag's value, or the position that an AWAIT waits for */
} sim_op;

/* What an operation names on one rank (loading.py: NAME). `what` is a flag, the first message from or
 * to a peer with some tag, or a collective; of messages and collectives, in one run. A message whose
 * level is not the innermost one of both ranks goes through adapters, also inside a node. */
typedef struct {
    int32_t what, peer, level;
} sim_name;

typedef struct {
    double latency, bandwidth, overhead, copying, eager, flag;
    double memory; /* above 0: copying takes of the memory's rate */
} sim_link;

typedef struct {
    double memory, injection, burst, operation, call, late, stripe;
} sim_node;

/* A collective of the MPI library: seconds without others, and the bytes of each message to and from the
 * root of its tree; -1: there are none. */
typedef struct {
    double seconds;
    int64_t up, down;
} sim_collective;

/* Everything that does not change. Lists of several ranks or domains are one behind the other: those
 * of item k begin at `first[k]`. */
typedef struct {
    int32_t size, runs, levels, channels, rails;
    int32_t flags, messages, meetings; /* of messages and meetings, the numbers of one run */
    const sim_op *ops;
    const int64_t *streams; /* where each stream of the operations starts and stops */
    const int32_t *shape;   /* by rank: which operations are its own */
    const int64_t *first_stream, *requests; /* by shape */
    const sim_name *names;
    const int64_t *first_name;                                   /* by rank */
    const int32_t *place, *node_of, *memory_of, *host_of, *rail; /* place[level * size + rank] */
    const sim_link *links;
    const double *copy, *reduce; /* bytes a second: own memory, then by level; the same in caches */
    const sim_node *node;
    const double *cores; /* by host */
    const uint8_t *crowded;
    const int32_t *needed;                         /* [run * channels + channel]: see `writes` */
    const uint8_t *writes;                         /* [rank * channels + channel]: bits of areas */
    const int32_t *home, *first_home, *home_ranks; /* home[channel * size + rank] */
    const sim_collective *collectives;             /* by meeting */
    const int32_t *first_member, *members;         /* the root of the tree first */
    int32_t banks;                                 /* of small slots */
    bool keep;                                     /* the spans of tasks */
    double *finish;                                /* results: [run * size + rank] */
    double *copying, *reducing, *messaging;        /* by rank */
    int64_t *level_messages, *level_bytes, *operations; /* by level; one number */
} sim_world;

/* The span of a task on a stream (tasks/simulate/simulator.py: SPAN). */
typedef struct {
    int32_t rank, run, stream;
    uint32_t task;
    double begin, end, copying, reducing, start;
} sim_span;

/* A message; times are NEVER until known. It reaches the receiver's adapter at `due`. */
typedef struct {
    int32_t src, dst, level, ends; /* ends: sides that have not tested it yet */
    int64_t nbytes;
    double sent, posted, due, arrival, gone, least; /* least: of the arrival */
} sim_message;

typedef struct {
    double time;
    int64_t what, order; /* a rank (or NETWORK) or a message; the order among equal times */
} sim_event;

typedef struct {
    sim_event *events;
    size_t length, room;
} sim_heap;

typedef struct {
    int32_t *items;
    size_t length, room;
} sim_list;

typedef struct {
    int64_t value;
    double time;
} sim_post;

/* The values posted in a flag and their times; both only grow. The last ones are here too, since most
 * ranks wait for those. */
typedef struct {
    sim_post last;
    int64_t before; /* the value before the last one */
    sim_post *posts;
    size_t length, room;
    int32_t rank;
    sim_list waiting;
} sim_flag;

typedef struct {
    double latest, over;
    int32_t entered;
} sim_meeting;

/* One direction of an adapter: a token bucket that is empty at first. */
typedef struct {
    double free, tokens, counted;
} sim_adapter;

typedef struct {
    double begin, start, copying, reducing;
    uint32_t task;
    bool open;
} sim_open;

typedef struct {
    int64_t *pcs; /* by stream */
    sim_open *open;
    int64_t *requests; /* by slot: 0 none, a message + 1, or minus (a meeting + 1) */
    double due, free;
    int32_t run, stream, turn;
    bool begun, working;
} sim_rank;

typedef struct {
    const sim_world *world;
    sim_rank *ranks;
    sim_flag *flags;
    sim_meeting *meetings;
    sim_adapter *out, *in; /* [node * rails + rail] */
    double *line;          /* until when a rank's messages occupy its bandwidth */
    int32_t *computing, *moving;
    sim_message *messages;
    size_t message_room, messages_made;
    int32_t *numbers; /* by number of a message: its place + 1, or 0 */
    sim_list spare;   /* places of messages that are over */
    sim_heap heap, coming;
    sim_list *gates; /* by run: the ranks that wait until it has ended somewhere */
    sim_span *spans;
    size_t span_count, span_room;
    int64_t started;
    void *memory; /* of all fixed arrays */
    bool failed;  /* no memory */
} sim_state;

enum { NETWORK = -1 };

/* The streams of a rank's operations, and how many there are. */
static inline const int64_t *sim_streams(const sim_world *w, int32_t rank) {
    return w->streams + 2 * w->first_stream[w->shape[rank]];
}

static inline int32_t sim_stream_count(const sim_world *w, int32_t rank) {
    const int64_t *first = w->first_stream + w->shape[rank];
    return (int32_t)(first[1] - first[0]);
}

static inline int64_t sim_requests(const sim_world *w, int32_t rank) {
    return w->requests[w->shape[rank]];
}

static inline const sim_name *sim_name_of(const sim_world *w, int32_t rank, const sim_op *op) {
    return &w->names[w->first_name[rank] + op->name];
}

static inline int sim_level(const sim_world *w, int32_t a, int32_t b) {
    for (int k = 0; k < w->levels; k++)
        if (w->place[(int64_t)k * w->size + a] == w->place[(int64_t)k * w->size + b]) return k;
    return w->levels - 1;
}

/* growing.c: arrays that grow, and heaps of events. A failed allocation sets `failed`, and nothing is added. */

/* Make room for one more item of `each` bytes behind `length` ones. */
bool sim_grow(sim_state *s, void **items, size_t *room, size_t length, size_t each);
void sim_append(sim_state *s, sim_list *list, int32_t item);
void sim_push(sim_state *s, sim_heap *heap, sim_event event);
sim_event sim_pop(sim_heap *heap); /* the earliest; of equal ones that of the lowest order */

/* network.c: messages, by the max-rate model: latency, bandwidth of a pair, adapters. */

/* Start a send, or post a receive, of message `number`. The message's place; -1: no memory. */
int64_t sim_send(sim_state *s, double now, int32_t src, const sim_name *to, int64_t number,
                 int64_t nbytes);
int64_t sim_receive(sim_state *s, double now, const sim_name *from, int32_t dst, int64_t number);

/* Let its adapter take the next message that is due by `now`. Its place; -1: there is none. */
int64_t sim_deliver(sim_state *s, double now);

/* Let the adapters pass bytes of the MPI library from a time on; when the last one has arrived. */
double sim_pass(sim_state *s, double now, int32_t src, int32_t dst, int64_t nbytes);

/* One side has completed the message. */
void sim_leave(sim_state *s, int64_t place);

/* ranks.c: the time of ranks: when they go on, what they share with others, and the spans of their tasks. */

/* Let a rank continue at a time, unless it does so earlier; not before its work is done. */
void sim_at(sim_state *s, double time, int32_t rank);

/* Wake a waiting rank, later if its node is oversubscribed. Nothing if the time is NEVER. */
void sim_wake(sim_state *s, double time, int32_t rank);

/* Occupy a core for some work, or a core and memory to move bytes; the time that it takes. */
double sim_compute(sim_state *s, int32_t rank, double seconds);
double sim_move(sim_state *s, int32_t rank, int64_t nbytes, double rate, bool memory);
void sim_release(sim_state *s, int32_t rank);

/* Begin the rank's run once its memory is free. Whether it has begun. */
bool sim_begin(sim_state *s, int32_t rank, double now);
void sim_finish(sim_state *s, int32_t rank, double now);
void sim_next_run(sim_state *s, int32_t rank);

/* A stream has come to a task, has left its task, or has done an operation that began at `now`. */
void sim_enter_task(sim_state *s, int32_t rank, uint32_t task, double now);
void sim_leave_task(sim_state *s, int32_t rank, double now);

/* operate.c: operations: one row for each code of a program. */

/* Carry out an operation of a rank. The time when it is done, or minus the time to retry it. */
double sim_operate(sim_state *s, int32_t rank, const sim_op *op, double now);

/* Let messages that are due by `now` pass the adapters, and wake their receivers. */
void sim_deliver_all(sim_state *s, double now);

/* Prepare a simulation; false without memory. In both cases sim_close frees it. */
bool sim_open_state(sim_state *s, const sim_world *world);
void sim_close(sim_state *s);

/* Go on until a rank has finished a run, or `most` steps are done. Whether there is more to do;
 * `finished` says whether a rank has finished a run. */
bool sim_go(sim_state *s, int64_t most, bool *finished);

#endif
