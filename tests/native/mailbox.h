/* A message layer inside one process: what the executor's tests use in place of an MPI library. */
#ifndef MAILBOX_H
#define MAILBOX_H

#include <stddef.h>

#include "mpi_table.h"

typedef struct mailbox mailbox;

/* A place for `ranks` ranks to exchange messages in; large ones wait for their receiver. */
mailbox *mailbox_new(int ranks);
void mailbox_free(mailbox *);

/* What stands for the communicator in `rank`'s engine. */
han_handle mailbox_comm(mailbox *, int rank);

/* Fill in the table of functions; the notice tag is what mailbox_notify sends on. */
void mailbox_table(han_mpi *);

/* Leave a message for `rank` that only Iprobe can see; take it away again. */
void mailbox_notify(mailbox *, int rank);
void mailbox_unnotify(mailbox *, int rank);

/* Let every call by `rank` return `code` from now on. */
void mailbox_break(mailbox *, int rank, int code);

/* Posted receives and unreceived messages. */
size_t mailbox_pending(mailbox *);

#endif
