#include "engine/sleep.h"

#include "engine/bell.h"
#include "engine/inspect.h"
#include "engine/queue.h"

enum {
    NAP_NS = 1000000, /* then the engine progresses MPI and checks for signals and dead peers */
    BRIEF_NS = 50000, /* the same if it also waits for messages, or for flags of other channels */
};

enum han_status han_sleep(han_engine *e, uint32_t most_ns, bool *slept) {
    bool brief;
    int channel = han_engine_awaits(e, &brief);
    *slept = false;
    if (channel < 0 || !(e->bells >> channel & 1)) return HAN_BLOCKED;
    const han_channel *ch = &e->channels[channel];
    uint32_t number = han_bell_enter(ch);
    enum han_status status = han_engine_step(e);
    if (status == HAN_BLOCKED) {
        *slept = true;
        uint32_t ns = brief ? BRIEF_NS : NAP_NS;
        han_bell_sleep(ch, number, ns < most_ns ? ns : most_ns);
    }
    han_bell_leave(ch);
    return status;
}
