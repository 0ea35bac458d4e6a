/* What is known about the types of elements: a table that Python fills in. An element type is found
 * by what stands for it in an argument: NumPy's type number, a handle of MPI, a format of Python's
 * buffers, a type code, or the type fields of a DLPack tensor. */
#ifndef HAN_ELEMENTS_H
#define HAN_ELEMENTS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct {
    uint64_t size;   /* bytes, without gaps; 0: not known */
    uint64_t handle; /* of MPI's type */
    int32_t kind;    /* the number of its NumPy name, as Python counts them; -1: none */
} han_element;

/* As han/message/reader.py names them. */
enum han_element_source {
    HAN_BY_ARRAY = 'a',
    HAN_BY_HANDLE = 'h',
    HAN_BY_FORMAT = 'f',
    HAN_BY_CODE = 'c',
    HAN_BY_TENSOR = 't',
    HAN_WITH_GAPS = 'g', /* by MPI's handle; `size` is then the extent */
};

enum {
    HAN_ARRAY_TYPES = 24, /* NumPy's own type numbers are below this */
    HAN_ELEMENT_SLOTS = 256,
    HAN_MOST_ELEMENTS = HAN_ELEMENT_SLOTS * 3 / 4
};

typedef struct {
    uint64_t key;
    enum han_element_source source;
    han_element element; /* of size 0: an empty slot */
} han_element_slot;

typedef struct {
    han_element arrays[HAN_ARRAY_TYPES];
    han_element_slot slots[HAN_ELEMENT_SLOTS];
    uint32_t used;
} han_elements;

/* The element type, or NULL. It stays where it is. */
const han_element *han_element_find(const han_elements *, enum han_element_source, uint64_t key);
/* Enter an element type; a full table stays as it is. */
void han_element_learn(han_elements *, enum han_element_source, uint64_t key, const han_element *);

/* The key of a format or a type code of 1 to 7 characters, for elements of at most 255 bytes; 0 for
 * others. */
uint64_t han_text_key(const char *text, int64_t size);
/* The key of a tensor's type fields. */
uint64_t han_tensor_key(uint8_t code, uint8_t bits, uint16_t lanes);

#endif
