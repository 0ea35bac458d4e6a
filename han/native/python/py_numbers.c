/* han/runtime/numbers.py compares these tables with its own when it is imported. */
#include "python/module.h"

#include <stddef.h>

#include "channel.h"
#include "engine.h"
#include "engine/board.h"
#include "engine/sizes.h"
#include "events.h"
#include "plan.h"
#include "program.h"
#include "python/py_eager.h"
#include "reductions.h"

#define NAMED(prefix, name) {#name, prefix##name}
#define AT(type, field) {#field, offsetof(type, field)}
#define SIZE(type) {"size", sizeof(type)}
#define CODE(name) NAMED(HAN_, name)
#define COLL(name) NAMED(HAN_C_, name)
#define BASE(name) NAMED(HAN_B_, name)
#define STATUS(name) NAMED(HAN_E_, name)
#define TERM(field) AT(han_term, field)
#define STRIDE(field) AT(han_stride, field)
#define CONTROL(field) AT(han_control, field)
#define EVENT(field) AT(han_event, field)

typedef struct {
    const char *name;
    unsigned long long value;
} number;

static const number codes[] = {
    CODE(COPY),   CODE(REDUCE), CODE(ACCUMULATE), CODE(REDUCE2), CODE(POST),
    CODE(WAIT),   CODE(ISEND),  CODE(IRECV),      CODE(TEST),    CODE(AWAIT),
    CODE(COLL),   CODE(PULL),   CODE(PUSH),       CODE(EXPECT),  CODE(PACK),
    CODE(UNPACK), CODE(TALLY),  CODE(CODES),      {NULL, 0},
};
static const number collectives[] = {
    COLL(BCAST),          COLL(REDUCE),  COLL(ALLREDUCE), COLL(BARRIER),
    COLL(GATHER),         COLL(SCATTER), COLL(ALLGATHER), COLL(ALLTOALL),
    COLL(REDUCE_SCATTER), COLL(GATHERV), COLL(SCATTERV),  COLL(ALLTOALLV),
    COLL(SCAN),           COLL(EXSCAN),  COLL(BLOCKING),  {NULL, 0},
};
static const number bases[] = {
    BASE(NONE),  BASE(SEND),    BASE(RECV), BASE(SCRATCH),
    BASE(TABLE), BASE(CHANNEL), BASE(PEER), {NULL, 0},
};
static const number areas[] = {
    BASE(SMALL), BASE(CELLS), BASE(FLAGS), BASE(PER_CHANNEL), {NULL, 0},
};
static const number writes[] = {{"SHOWN", HAN_W_SHOWN}, {"GIVEN", HAN_W_GIVEN}, {NULL, 0}};
static const number instruction[] = {
    AT(han_instr, code), AT(han_instr, stream), AT(han_instr, peer),
    AT(han_instr, base), AT(han_instr, off),    AT(han_instr, n),
    AT(han_instr, slot), AT(han_instr, task),   SIZE(han_instr),
    {NULL, 0},
};
static const number term[] = {
    TERM(offset), TERM(start), TERM(stop),  TERM(origin),   TERM(blocks),
    TERM(each),   TERM(block), TERM(count), SIZE(han_term), {NULL, 0},
};
/* A row of HAN_B_TABLE. */
static const number block[] = {
    AT(han_block, nbytes), AT(han_block, start), AT(han_block, rate), SIZE(han_block), {NULL, 0},
};
static const number stride[] = {
    STRIDE(off),      STRIDE(offset),     STRIDE(n),    STRIDE(start), STRIDE(origin),
    STRIDE(block),    STRIDE(task),       STRIDE(peer), STRIDE(base),  STRIDE(blocks),
    SIZE(han_stride), {"LOOP", HAN_LOOP}, {NULL, 0},
};
/* The fields of a base with the bit PEER: where they begin, and their largest values. */
static const number peer_base[] = {
    {"BUFFER_SHIFT", HAN_PEER_BUFFER_SHIFT},
    {"CHANNEL_SHIFT", HAN_PEER_CHANNEL_SHIFT},
    {"BUFFER_MOST", HAN_PEER_BUFFER(HAN_B_PEER - 1)},
    {"CHANNEL_MOST", HAN_PEER_CHANNEL(HAN_B_PEER - 1)},
    {"SLOT_MOST", HAN_PEER_SLOT(HAN_B_PEER - 1)},
    {NULL, 0},
};
static const number limits[] = {
    {"CHANNELS", HAN_MAX_CHANNELS},
    {"STREAMS", HAN_MAX_STREAMS},
    {"EPOCH_TAGS", HAN_EPOCH_TAGS},
    {"OWN_NBYTES", HAN_OWN_NBYTES},
    {"AT_MOST_BIT", HAN_AT_MOST_BIT},
    {"BRIEF", HAN_BRIEF},
    {NULL, 0},
};
static const number layout[] = {
    {"LINE", HAN_LINE},
    {"FLAG", sizeof(han_flag)},
    {"CALLS", HAN_CALLS_KEPT * sizeof(uint64_t)},
    {"FLAGS", HAN_RANK_FLAGS},
    {"SMALL", HAN_SMALL_SLOT},
    {"SMALL_BANKS", HAN_SMALL_BANKS},
    {"LENT_BANKS", HAN_LENT_BANKS},
    {"RING_LEAST", HAN_RING_LEAST},
    {"EPOCH_SHIFT", HAN_EPOCH_SHIFT},
    {"REASON", HAN_REASON},
    {NULL, 0},
};
static const number control[] = {
    CONTROL(done),  CONTROL(entered),    CONTROL(signature),     CONTROL(calls),
    CONTROL(pid),   CONTROL(pid_start),  CONTROL(pid_namespace), CONTROL(rank),
    CONTROL(erred), CONTROL(departures), CONTROL(gone),          CONTROL(cells),
    CONTROL(room),  CONTROL(closed),     CONTROL(nbytes),        SIZE(han_control),
    {NULL, 0},
};
static const number board[] = {{"SLOTS", HAN_BOARD_SLOTS}, {NULL, 0}};
static const number eager[] = {
    {"BLOCK", HAN_EAGER_BLOCK},  {"ROOM", HAN_EAGER_ROOM},
    AT(han_eager_head, nbytes),  AT(han_eager_head, call),
    AT(han_eager_head, root),    AT(han_eager_spread, most),
    AT(han_eager_spread, total), {NULL, 0},
};
static const number trace[] = {
    AT(han_trace, n),
    AT(han_trace, max),
    AT(han_trace, dropped),
    AT(han_trace, tsc),
    {"t0", offsetof(han_trace, first.ticks)},
    {"ns0", offsetof(han_trace, first.ns)},
    {"t1", offsetof(han_trace, last.ticks)},
    {"ns1", offsetof(han_trace, last.ns)},
    AT(han_trace, unused),
    SIZE(han_trace),
    {NULL, 0},
};
static const number event[] = {
    EVENT(epoch),  EVENT(plan), EVENT(nbytes),   EVENT(begin),
    EVENT(start),  EVENT(end),  EVENT(copying),  EVENT(reducing),
    EVENT(stream), EVENT(task), SIZE(han_event), {"ANCHOR", HAN_ANCHOR},
    {NULL, 0},
};
static const number statuses[] = {
    STATUS(MPI),       STATUS(TIMEOUT), STATUS(DEAD),   STATUS(NOTICE),
    STATUS(INTERRUPT), STATUS(FAILED),  STATUS(ATTACH), STATUS(MISMATCH),
    STATUS(GONE),      STATUS(SHORT),   STATUS(LONG),   {NULL, 0},
};
static const number dtypes[] = {
    {"bool", HAN_BOOL},     {"int8", HAN_I8},         {"int16", HAN_I16},     {"int32", HAN_I32},
    {"int64", HAN_I64},     {"uint8", HAN_U8},        {"uint16", HAN_U16},    {"uint32", HAN_U32},
    {"uint64", HAN_U64},    {"float16", HAN_F16},     {"float32", HAN_F32},   {"float64", HAN_F64},
    {"complex64", HAN_C64}, {"complex128", HAN_C128}, {"bfloat16", HAN_BF16}, {NULL, 0},
};
static const number ops[] = {
    {"sum", HAN_SUM},   {"prod", HAN_PROD}, {"max", HAN_MAX},   {"min", HAN_MIN},
    {"land", HAN_LAND}, {"lor", HAN_LOR},   {"lxor", HAN_LXOR}, {"band", HAN_BAND},
    {"bor", HAN_BOR},   {"bxor", HAN_BXOR}, {NULL, 0},
};

#define TABLE(name) {#name, name}
static const struct {
    const char *name;
    const number *rows;
} tables[] = {
    TABLE(codes),       TABLE(collectives), TABLE(bases),    TABLE(areas),  TABLE(writes),
    TABLE(instruction), TABLE(term),        TABLE(block),    TABLE(stride), TABLE(peer_base),
    TABLE(limits),      TABLE(layout),      TABLE(control),  TABLE(board),  TABLE(eager),
    TABLE(trace),       TABLE(event),       TABLE(statuses), TABLE(dtypes), TABLE(ops),
};

static PyObject *table_of(const number *rows) {
    PyObject *table = PyDict_New();
    for (; table && rows->name; rows++) {
        PyObject *value = PyLong_FromUnsignedLongLong(rows->value);
        if (!value || PyDict_SetItemString(table, rows->name, value)) Py_CLEAR(table);
        Py_XDECREF(value);
    }
    return table;
}

int han_py_add_numbers(PyObject *module) {
    PyObject *all = PyDict_New();
    for (size_t k = 0; all && k < sizeof tables / sizeof *tables; k++) {
        PyObject *table = table_of(tables[k].rows);
        if (!table || PyDict_SetItemString(all, tables[k].name, table)) Py_CLEAR(all);
        Py_XDECREF(table);
    }
    int rc = all ? PyModule_AddObjectRef(module, "NUMBERS", all) : -1;
    Py_XDECREF(all);
    return rc;
}
