/* A program that is linked to Python may initialize and finalize it, while han uses it from the first
 * communicator on until MPI is finalized. The program's Python is the same one. */
#define _GNU_SOURCE
#include <dlfcn.h>

#include "door/interpreter.h"
#include "door/library.h"

static bool given; /* the program has initialized Python after han */
static int held;   /* then its thread has Python's lock, as after the first initialization */

/* Python's own function. A part of the program may have loaded Python for itself alone. */
static void *pythons(const char *name) {
    void *shown = dlsym(RTLD_NEXT, name);
    return shown ? shown : han_symbol_in("libpython", name);
}

HAN_PUBLIC void Py_InitializeEx(int signals) {
    if (!han_door_has_python())
        ((void (*)(int))pythons("Py_InitializeEx"))(signals);
    else if (!given) {
        given = true;
        held = ((int (*)(void))pythons("PyGILState_Ensure"))();
    }
}

HAN_PUBLIC void Py_Initialize(void) { Py_InitializeEx(1); }

HAN_PUBLIC int Py_FinalizeEx(void) {
    if (!han_door_has_python()) return ((int (*)(void))pythons("Py_FinalizeEx"))();
    if (given) ((void (*)(int))pythons("PyGILState_Release"))(held);
    given = false;
    return 0;
}

HAN_PUBLIC void Py_Finalize(void) { (void)Py_FinalizeEx(); }
