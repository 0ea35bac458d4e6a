/* How many yields come before a sleep in the kernel, after waits of different lengths. */
#include <stdio.h>
#include <stdlib.h>

#include "engine/stepping.h"

static const uint64_t US = 1000;

static void require(bool holds, const char *what, uint32_t patience) {
    if (holds) return;
    printf("FAILED: %s: %u yields\n", what, patience);
    exit(1);
}

int main(void) {
    uint32_t patience = SLEEP_YIELDS;
    patience = han_next_patience(patience, 90 * US, 0);
    require(patience == SLEEP_YIELDS, "a wait without a sleep changes nothing", patience);
    patience = han_next_patience(patience, 900 * US, 800 * US);
    require(patience == SLEEP_YIELDS, "nor does a sleep that was worth it", patience);
    for (int k = 0; k < 40; k++) {
        uint32_t before = patience;
        patience = han_next_patience(before, 120 * US, 40 * US);
        require(patience >= before, "brief sleeps come later", patience);
    }
    uint32_t most = patience;
    require(most >= 16 * SLEEP_YIELDS, "and much later in the end", most);
    require(han_next_patience(most, 120 * US, 40 * US) == most, "within a limit", most);
    for (int k = 0; k < 40; k++)
        patience = han_next_patience(patience, 3000 * US, k % 2 ? 0 : 100 * US);
    require(patience == SLEEP_YIELDS, "long waits, slept through or not, undo that", patience);
    return 0;
}
