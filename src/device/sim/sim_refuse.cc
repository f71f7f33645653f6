/* The list is read at each call: tests change it. */
#include "device/sim/sim_refuse.hpp"

#include <cstdlib>
#include <cstring>

int ndp_sim_answer(const char *name, int otherwise) {
    const char *at = getenv("NDP_SIM_REFUSES");
    size_t n = strlen(name);
    while (at && *at) {
        size_t length = strcspn(at, ",");
        if (length >= n && strncmp(at, name, n) == 0 && (length == n || at[n] == '='))
            return length == n ? otherwise : strncmp(at + n, "=absent", 7) == 0 ? NDP_SIM_ABSENT : atoi(at + n + 1);
        at += length + (at[length] == ',');
    }
    return NDP_SIM_EXECUTES;
}
