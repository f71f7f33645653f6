/* Lists of findings, and how they are written. */
#include "launch/checkup.h"

#include <stdlib.h>
#include <string.h>

#define NAME_OF(NAME, name) #name,
static const char *const names[] = {NDP_FINDING_STATES_LIST(NAME_OF)};

const char *ndp_finding_state_name(ndp_finding_state h) { return names[h]; }

bool ndp_finding_state_parse(const char *name, ndp_finding_state *out) {
    for (int h = 0; name && h < NDP_FINDING_STATES; h++)
        if (strcmp(names[h], name) == 0) {
            *out = (ndp_finding_state)h;
            return true;
        }
    return false;
}

void ndp_findings_add(ndp_findings *f, const char *name, ndp_finding_state state, const char *remedy, const char *fmt,
                      ...) {
    va_list args;
    ndp_finding *grown = realloc(f->items, ((size_t)f->n + 1) * sizeof *grown);
    if (!grown) {
        f->failed = true;
        return;
    }
    f->items = grown;
    va_start(args, fmt);
    ndp_finding *one = &grown[f->n++];
    *one = (ndp_finding){state, strdup(name), ndp_vformat(fmt, args), remedy ? strdup(remedy) : NULL};
    va_end(args);
    f->failed |= !one->name || !one->found || (remedy && !one->remedy);
}

void ndp_findings_release(ndp_findings *f) {
    for (int i = 0; i < f->n; i++) {
        free(f->items[i].name);
        free(f->items[i].found);
        free(f->items[i].remedy);
    }
    free(f->items);
    *f = (ndp_findings){0};
}

int ndp_findings_problems(const ndp_findings *f) {
    int n = 0;
    for (int i = 0; i < f->n; i++)
        n += f->items[i].state == NDP_FINDING_PROBLEM;
    return n;
}

void ndp_findings_print(const ndp_findings *f, ndp_str *out) {
    for (int i = 0; i < f->n && !f->failed; i++) {
        const ndp_finding *one = &f->items[i];
        ndp_str_addf(out, "%-8s %s: %s\n", ndp_finding_state_name(one->state), one->name, one->found);
        if (one->remedy)
            ndp_str_addf(out, "         -> %s\n", one->remedy);
    }
}

void ndp_findings_put(const ndp_findings *f, ndp_json_out *out) {
    ndp_json_open(out, "checks", '[');
    for (int i = 0; i < f->n && !f->failed; i++) {
        const ndp_finding *one = &f->items[i];
        ndp_json_open(out, NULL, '{');
        ndp_json_put_text(out, "name", one->name);
        ndp_json_put_text(out, "state", ndp_finding_state_name(one->state));
        ndp_json_put_text(out, "found", one->found);
        ndp_json_put_text(out, "remedy", one->remedy);
        ndp_json_close(out, '}');
    }
    ndp_json_close(out, ']');
}
