/* A sparse file that holds an arena: its mapping, and the memory of its parts. A part without
 * memory is a hole, which reads as zeros. */
#ifndef HAN_SPARSE_FILE_H
#define HAN_SPARSE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    HAN_PAGE = 4096,
    HAN_HUGE_PAGES = 512, /* pages of a huge page */
};

typedef struct {
    int fd;
    uint8_t *base;
    char **groups; /* folders of control groups whose limits count, NULL at the end; or NULL */
    bool touch;    /* only a write, not fallocate, makes the system use huge pages */
} han_sparse_file;

/* Map a file from its beginning, at an address where huge pages are possible; or MAP_FAILED. */
void *han_map_file(int fd, size_t size, int protection);

/* Reserve memory for holes, so that no access to them can fail: 0, or errno with nothing reserved.
 * EDQUOT: the limit of a control group leaves no room. */
int han_file_reserve(const han_sparse_file *, size_t page, size_t pages);
/* Give the memory of pages back to the system: they are holes then. */
void han_file_punch(const han_sparse_file *, size_t page, size_t pages);

#endif
