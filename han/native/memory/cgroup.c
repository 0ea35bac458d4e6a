#include "memory/cgroup.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { PATH = 1024, LINE = 256 };

static FILE *open_in(const char *folder, const char *name) {
    char path[PATH];
    int n = snprintf(path, sizeof path, "%s/%s", folder, name);
    return n > 0 && n < PATH ? fopen(path, "re") : NULL;
}

/* Read the number at the start of a file; false if there is none, as in "max" for no limit. */
static bool read_number(const char *folder, const char *name, uint64_t *value) {
    FILE *file = open_in(folder, name);
    bool found = file && fscanf(file, "%" SCNu64, value) == 1;
    if (file) fclose(file);
    return found;
}

/* Bytes that the kernel takes back before it kills a process: cached file contents and its own
 * records of files. Version 1 lists the group's own values and, as `total_...`, those of the groups
 * below it too, which its limit covers. */
static uint64_t reclaimable(const char *folder) {
    char line[LINE], name[LINE];
    uint64_t value, own = 0, total = 0;
    bool totals = false;
    FILE *file = open_in(folder, "memory.stat");
    while (file && fgets(line, sizeof line, file)) {
        if (sscanf(line, "%255s %" SCNu64, name, &value) != 2) continue;
        if (!strcmp(name, "inactive_file") || !strcmp(name, "active_file") ||
            !strcmp(name, "slab_reclaimable"))
            own += value;
        if (!strcmp(name, "total_inactive_file") || !strcmp(name, "total_active_file"))
            total += value, totals = true;
    }
    if (file) fclose(file);
    return totals ? total : own;
}

uint64_t han_room(const char *folder, uint64_t enough) {
    uint64_t limit, used;
    bool known = (read_number(folder, "memory.max", &limit) &&
                  read_number(folder, "memory.current", &used)) ||
                 (read_number(folder, "memory.limit_in_bytes", &limit) &&
                  read_number(folder, "memory.usage_in_bytes", &used));
    if (!known) return UINT64_MAX;
    if (limit > used && limit - used >= enough) return limit - used;
    uint64_t files = reclaimable(folder), fixed = used > files ? used - files : 0;
    return limit > fixed ? limit - fixed : 0;
}
