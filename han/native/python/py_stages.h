/* Methods of han._native.Mail: the steps of an exchange. */
#ifndef HAN_PY_STAGES_H
#define HAN_PY_STAGES_H

#include "python/py_transfers.h"

/* combine(work, own, start, stop, step, before, after, sends) */
PyObject *han_mail_combine(MailObject *self, PyObject *const *args, Py_ssize_t given);
/* stage(room, mine, own, work, start, most, step, arriving, leaving, folds): the data of this member
 * is at `mine`, the operand of the call at `own`; operands arrive behind `room`. */
PyObject *han_mail_stage(MailObject *self, PyObject *const *args, Py_ssize_t given);
/* exchange(room, own, work, most, step, turns, tasks) */
PyObject *han_mail_exchange(MailObject *self, PyObject *const *args, Py_ssize_t given);
/* gather(work, start, most, steps) */
PyObject *han_mail_gather(MailObject *self, PyObject *const *args, Py_ssize_t given);

#endif
