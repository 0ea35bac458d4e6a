/* Cross-memory attach: reading and writing the memory of another process. */
#ifndef HAN_CROSS_MEMORY_H
#define HAN_CROSS_MEMORY_H

#include <stddef.h>
#include <stdint.h>

/* Read n bytes at `src` of a process, or write them at `dst`. Return 0 or errno. */
int han_pull(int64_t pid, void *dst, uint64_t src, size_t n);
int han_push(int64_t pid, uint64_t dst, const void *src, size_t n);

/* Allow the other ranks to access this process's memory. */
void han_let_attach(void);

#endif
