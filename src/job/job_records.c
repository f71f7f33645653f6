/* Lines for the user about the records of each source: which were skipped, and which known fields are not read. */
#include "job/job_data.h"

/* "2 not JSON, 1 too large", then the first of each on lines of their own. */
static void describe_skipped(const ndp_tally *t, int source, const char *name, ndp_str *out) {
    enum { MOST = 300 };
    int64_t n = ndp_tally_count(t, NDP_TALLY_SKIPPED, source);
    const char *before = ": ";
    if (n == 0)
        return;
    ndp_str_addf(out, "skipped: %lld record%s of %s", (long long)n, n == 1 ? "" : "s", name);
    for (int64_t i = 0; i < t->n; i++)
        if (t->rows[i].kind == NDP_TALLY_SKIPPED && t->rows[i].source == source) {
            ndp_str_addf(out, "%s%lld %s", before, (long long)t->rows[i].n, t->rows[i].what);
            before = ", ";
        }
    ndp_str_add(out, "\n");
    for (int64_t i = 0; i < t->n; i++)
        for (int k = 0; t->rows[i].kind == NDP_TALLY_SKIPPED && t->rows[i].source == source && k < t->rows[i].named.n;
             k++)
            ndp_str_addf(out, "  %s: %.*s\n", t->rows[i].what, MOST, t->rows[i].named.items[k]);
}

static void note_unread(const ndp_tally *t, int source, const char *name, ndp_str *out) {
    int64_t n = ndp_tally_count(t, NDP_TALLY_UNREAD, source);
    const char *before = "";
    if (n == 0)
        return;
    ndp_str_addf(out, "note: %s has known fields that are not read: ", name);
    for (int64_t i = 0; i < t->n; i++)
        if (t->rows[i].kind == NDP_TALLY_UNREAD && t->rows[i].source == source) {
            ndp_str_addf(out, "%s%s (%lld)", before, t->rows[i].what, (long long)t->rows[i].n);
            before = ", ";
        }
    ndp_str_add(out, "\n");
}

void ndp_job_data_describe_records(const ndp_token_cache *c, const ndp_strings *names, ndp_str *out) {
    for (int i = 0; i < c->n_sources && i < names->n; i++) {
        describe_skipped(&c->tally, i, names->items[i], out);
        note_unread(&c->tally, i, names->items[i], out);
    }
}
