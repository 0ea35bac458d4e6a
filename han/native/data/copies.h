/* Copies of memory, for small sizes without a call, and for large sizes with the kind of stores
 * that suits the ranks that wrote or read the data. Ranges must not overlap, unless they are
 * equal. */
#ifndef HAN_COPIES_H
#define HAN_COPIES_H

#include <stddef.h>

#ifndef HAN_WALK_PAGE
#define HAN_WALK_PAGE 4096
#endif
#ifndef HAN_WALK_LEAST
#define HAN_WALK_LEAST 65536 /* bytes; below, han_copy_paged is not faster */
#endif
#ifndef HAN_WALK_STEP
#define HAN_WALK_STEP 1024 /* bytes of one page that a reduction takes before the next page */
#endif
enum { HAN_WALK = 4 * HAN_WALK_PAGE }; /* bytes of the pages that are copied in turn */

#ifndef HAN_STRING_LEAST
#define HAN_STRING_LEAST 2048 /* bytes; below, starting `rep movsb` takes longer than it saves */
#endif

/* As memcpy. Up to 64 bytes are copied inline: a call of memcpy would be most of the cost. */
void han_copy(void *dst, const void *src, size_t n);

/* Copy data that a peer has written. Loads are aligned to cache lines: a load that spans two
 * lines would wait for both. */
void han_copy_in(void *dst, const void *src, size_t n);

/* Copy parts of four pages in turn, for processors on whose mesh lines move slowly between
 * cores. */
void han_copy_paged(void *dst, const void *src, size_t n);

/* Copy past the caches where the machine can, for data that no rank reads soon. A fence follows, so
 * that a flag posted later orders these stores. */
void han_copy_streaming(void *dst, const void *src, size_t n);

/* Copy to memory that peers have read or will read: where `rep movsb` is fast, lines that peers
 * hold are overwritten without fetching them first. */
void han_copy_out(void *dst, const void *src, size_t n);

#endif
