#include "engine/judge.h"

#include <string.h>

enum {
    LEAST = 32,      /* runs from one trial to the next at least */
    MOST = 512,      /* the same, if trials cost little */
    NEVER = 1 << 20, /* the same at most */
    MARGIN = 16,     /* the plan in use is replaced if the other one is faster by a sixteenth */
    SHARE = 100,     /* trials may cost a hundredth of the time of all runs */
    ENOUGH = 3,      /* known times of a burst that suffice for a decision */
};

/* The times from run to run of one burst, sorted; returns how many are known. */
static int periods(const uint64_t *finished, uint64_t *sorted) {
    int n = 0;
    for (int k = 1; k < HAN_BURST; k++) {
        uint64_t before = finished[k - 1], after = finished[k];
        if (!before || after <= before) continue;
        int at = n++;
        for (; at && sorted[at - 1] > after - before; at--) sorted[at] = sorted[at - 1];
        sorted[at] = after - before;
    }
    return n;
}

bool han_medians(const han_trial *t, uint64_t *median) {
    bool enough = true;
    for (int way = 0; way < 2; way++) {
        uint64_t sorted[HAN_BURST];
        int n = periods(t->finished[way], sorted);
        median[way] = n ? sorted[(n - 1) / 2] : 0;
        enough = enough && n >= ENOUGH;
    }
    return enough;
}

/* Wait for the next trial; `change`: keep the other plan. */
static void restart(han_trial *t, bool change, uint64_t rest) {
    t->rival = t->rival != change;
    t->rest = rest < NEVER ? (uint32_t)rest : NEVER;
    t->runs = 0;
    memset(t->finished, 0, sizeof t->finished);
}

void han_judge(han_trial *t, const uint64_t *median, uint32_t tries, uint64_t took) {
    if (!median) { /* this program's calls may yield no times */
        restart(t, false, t->rest ? 4 * (uint64_t)t->rest : MOST);
        return;
    }
    uint64_t usual = median[0], tried = median[1];
    uint64_t rest = !t->rest ? LEAST : t->rest < MOST ? 2 * t->rest : MOST;
    bool change = tried < usual - usual / MARGIN;
    uint64_t lost = (tried > usual ? (tried - usual) * tries : 0) + took;
    uint64_t kept = change ? tried : usual;
    if (lost * SHARE / kept > rest) rest = lost * SHARE / kept;
    restart(t, change, rest);
}
