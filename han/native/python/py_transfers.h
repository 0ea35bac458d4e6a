/* What a han._native.Mail sends and receives: transfers, which are han._native.Transfer. */
#ifndef HAN_PY_TRANSFERS_H
#define HAN_PY_TRANSFERS_H

#include "python/py_emit.h"

/* Messages of `step` bytes each with bytes [start, stop) of the message; the first `done` of their
 * requests are complete. No bytes are one message. */
typedef struct {
    PyObject_VAR_HEAD
    PyObject *mail; /* the Mail that has started it */
    RefObject place;
    uint64_t start, stop, step, done;
    uint64_t requests[];
} TransferObject;

typedef struct {
    PyObject_HEAD
    OperationsObject *stream;
    PyObject *ranks;   /* a tuple of int, by member */
    PyObject *request; /* called for a new request */
    uint64_t grain;
    uint64_t *free; /* requests that are complete; the last one is taken first */
    size_t n_free, room;
} MailObject;

typedef int start_message(OperationsObject *, const RefObject *, uint64_t, int32_t, uint64_t);

/* What a member sends or receives: bytes [start, stop), in messages of at most `most` bytes. */
typedef struct {
    uint64_t start, stop, member, most;
} letter;

/* 0, or -1 with an error for a Mail that is not made. */
int han_mail_ready(const MailObject *self);

/* Start the messages of a letter; `start` emits one. NULL with an error. */
PyObject *han_mail_start(MailObject *self, const RefObject *place, const letter *what,
                         start_message *start);

/* An argument that must be a transfer of this mail, borrowed; NULL with an error. */
TransferObject *han_transfer_of(const MailObject *self, PyObject *argument);

/* Wait for the messages of a transfer that begin before byte `until`; 0 or -1. */
int han_complete_until(MailObject *self, TransferObject *transfer, uint64_t until);

/* Wait for all messages of a transfer; 0 or -1. */
int han_complete_all(MailObject *self, TransferObject *transfer);

/* Add the class of transfers to the module. 0 or -1. */
int han_py_add_transfers(PyObject *module);

#endif
