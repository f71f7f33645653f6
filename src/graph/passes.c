/* The list of passes as text, and the note of what each did. */
#include "graph/passes.h"

#include <stdio.h>
#include <string.h>

static const struct pass_text {
    const char *name, *when, *writes, *does;
} rows[] = {
#define ROW(name, when, writes, does) {#name, #when, writes, does},
    NDP_PASSES(ROW)
#undef ROW
};

/* Where each list begins, and how often it runs. */
static const struct pass_list {
    int first;
    const char *of;
} lists[] = {{NDP_PASS_rows, "the model, once a rank"},
             {NDP_PASS_forward, "its graphs, once each"},
             {NDP_PASS_homes, "their lists of calls, once each"},
             {NDP_PASS_own, "the step, once a rank"}};

_Static_assert(NDP_PASS_COUNT <= 64, "ndp_pass_trace.ran has a bit for each pass");

void ndp_pass_note(ndp_pass_trace *t, int pass, int first, int64_t wrote) {
    t->disordered |= pass != first && pass < t->last;
    t->last = pass + 1;
    t->ran |= (uint64_t)1 << pass;
    t->wrote[pass] += wrote;
}

void ndp_pass_add(ndp_pass_trace *to, const ndp_pass_trace *from) {
    to->disordered |= from->disordered;
    to->ran |= from->ran;
    for (int i = 0; i < NDP_PASS_COUNT; i++)
        to->wrote[i] += from->wrote[i];
}

/* Nodes, calls and instructions are counted; of what else passes write, only that they did. */
static bool is_counted(const struct pass_text *r) {
    static const char *const counted[] = {"nodes", "calls", "instructions"};
    for (int i = 0; i < 3; i++)
        if (strcmp(r->writes, counted[i]) == 0)
            return true;
    return false;
}

static void print_row(int pass, const ndp_pass_trace *did, ndp_str *out) {
    const struct pass_text *r = &rows[pass];
    char wrote[24] = "no";
    if (did && is_counted(r) && did->wrote[pass] != 0)
        snprintf(wrote, sizeof wrote, "%+lld", (long long)did->wrote[pass]);
    else if (did && !is_counted(r) && did->ran >> pass & 1)
        snprintf(wrote, sizeof wrote, "yes");
    ndp_str_addf(out, "  %-21s %-9s ", r->name, r->when);
    if (did)
        ndp_str_addf(out, "%6s ", wrote);
    ndp_str_addf(out, "%-13s %s\n", r->writes, r->does);
}

void ndp_passes_print(const ndp_pass_trace *did, ndp_str *out) {
    const struct pass_list *next = lists, *end = lists + sizeof lists / sizeof *lists;
    ndp_str_addf(out, "%-23s %-9s %s%-13s %s\n", "pass", "when", did ? " wrote " : "", did ? "" : "writes", "does");
    for (int i = 0; i < NDP_PASS_COUNT; i++) {
        if (next < end && i == next->first)
            ndp_str_addf(out, "%s\n", next++->of);
        print_row(i, did, out);
    }
}
