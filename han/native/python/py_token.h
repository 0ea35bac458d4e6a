/* Tokens: the generalized requests by which the MPI library knows han's requests.
 *
 * MPI_Wait, MPI_Testsome and so on accept them. Where the library lets itself be extended, it steps
 * han's engines while it waits for one (MPICH: MPIX_Grequest_start) or for anything (Open MPI:
 * opal_progress_register). Elsewhere the helper does.
 *
 * A token that MPI has not seen complete goes back into a pool, so that most calls make no
 * generalized request. Functions need the lock of the interpreter if they do not say otherwise. */
#ifndef HAN_PY_TOKEN_H
#define HAN_PY_TOKEN_H

#include "python/py_token_list.h"

/* What a token calls, with the lock of the interpreter held, when MPI completes its request. It
 * returns MPI's error code. */
typedef int (*han_ended)(PyObject *owner);

/* Prepare for a library: once a process. */
void han_tokens_open(const han_mpi *, han_status_fields, han_ended);

/* A token for the request `owner`, at rest: MPI finds it complete. NULL: MPI made no request. */
han_token *han_token_take(PyObject *owner, EngineObject *, han_run *);
uint64_t han_token_handle(const han_token *);
/* A run is under way. False if MPI has completed the request: the token cannot be used again. */
bool han_token_arm(han_token *);
/* Arm a token, so that MPI finds its request. False as above. Needs no lock. */
bool han_token_resume(han_token *);
/* Whether MPI has completed and freed the request. Needs no lock. */
bool han_token_gone(const han_token *);
/* The owner needs the token no more. */
void han_token_give(han_token *);
/* The owner is freed, but MPI may still be asked about the request: it is complete for ever. */
void han_token_drop(han_token *);
/* Tell MPI about runs that have finished. Needs no lock, and MPI_THREAD_MULTIPLE in a thread that
 * is not the program's. */
void han_tokens_collect(void);
/* MPI is about to be finalized: tokens call it no more. */
void han_tokens_close(void);

#endif
