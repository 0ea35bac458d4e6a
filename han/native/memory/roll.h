/* Loops of a program: records of which groups repeat with constant strides are stored once. */
#ifndef HAN_ROLL_H
#define HAN_ROLL_H

#include <stdbool.h>
#include <stddef.h>

#include "program.h"

/* A program's records. An AWAIT counts records from the beginning of the code. */
typedef struct {
    han_instr *code;
    han_term *terms; /* NULL: the program is for one size */
    han_stride *strides;
    size_t length, n_strides;
    uint32_t n_streams;
    han_stream streams[HAN_MAX_STREAMS];
} han_records_of;

/* Write a program with loops into `rolled`, whose memory the caller frees. The program's streams
 * divide its code. Returns 1; 0 if loops would save less than half of the records, and `rolled` is
 * empty; -1 if there is no memory. */
int han_roll(const han_records_of *program, han_records_of *rolled);

/* Write the mark behind the `length` records of a loop; its strides are the next ones. */
void han_put_mark(han_records_of *, uint32_t length, uint64_t times);

void han_free_records(han_records_of *);

#endif
