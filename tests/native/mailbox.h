/* A message layer inside one process, which tests of the executor use as an MPI library. */
#ifndef MAILBOX_H
#define MAILBOX_H

#include <stddef.h>

#include "mpi_table.h"

typedef struct mailbox mailbox;

/* Make a mailbox for `ranks` ranks; large messages wait for their receive (rendezvous). */
mailbox *mailbox_new(int ranks);
void mailbox_free(mailbox *);

/* The handle of the communicator for `rank`'s engine. */
han_handle mailbox_comm(mailbox *, int rank);

/* Fill in the table of functions; notices of mailbox_notify have its notice tag. */
void mailbox_table(han_mpi *);

/* Leave a message for `rank` that only Iprobe can see; remove it again. */
void mailbox_notify(mailbox *, int rank);
void mailbox_unnotify(mailbox *, int rank);

/* Let every call by `rank` return `code` from now on. */
void mailbox_break(mailbox *, int rank, int code);

/* The number of posted receives and unreceived messages. */
size_t mailbox_pending(mailbox *);

#endif
