/* The roles of messages, by name. */
#include "text/chat/chat.h"

#include <string.h>

const char *ndp_role_name(ndp_role r) {
    static const char *const names[NDP_ROLES] = {"system", "user", "assistant", "tool"};
    return names[r];
}

bool ndp_role_of(const char *name, ndp_role *out) {
    static const struct {
        const char *name;
        ndp_role role;
    } roles[] = {{"system", NDP_ROLE_SYSTEM},       {"user", NDP_ROLE_USER},     {"human", NDP_ROLE_USER},
                 {"assistant", NDP_ROLE_ASSISTANT}, {"gpt", NDP_ROLE_ASSISTANT}, {"tool", NDP_ROLE_TOOL}};
    for (int i = 0; i < NDP_COUNT(roles); i++)
        if (!strcmp(name, roles[i].name)) {
            *out = roles[i].role;
            return true;
        }
    return false;
}
