/* The imported job as a file: the keys that were imported, without the defaults. */
#include "config/import_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

ndp_status ndp_import_mark(ndp_import *m, size_t offset) {
    if (!m->imported && !(m->imported = calloc((size_t)ndp_option_count, sizeof *m->imported)))
        return NDP_FAIL(NDP_ENOMEM, "not enough memory for the configuration");
    for (int i = 0; i < ndp_option_count; i++)
        m->imported[i] |= ndp_options[i].offset == offset;
    return NDP_OK;
}

static bool is_default(const ndp_option *o, const ndp_config *c, const ndp_config *defaults) {
    ndp_str ours = {0}, theirs = {0};
    ndp_option_write(o, c, &ours);
    ndp_option_write(o, defaults, &theirs);
    bool same = !ours.failed && !theirs.failed && strcmp(ours.data, theirs.data) == 0;
    ndp_str_release(&ours);
    ndp_str_release(&theirs);
    return same;
}

/* An optimizer's own default is not the table's: what a job without the key gets depends on optimizer.name. */
static bool has_own_default(const ndp_option *o, const ndp_config *c) {
    const ndp_optimizer_option *own = ndp_optimizer_reads(ndp_optimizers[c->optimizer.name], o->key);
    return strcmp(o->section, "optimizer") == 0 && own && own->value;
}

/* Marks the file's keys, the user's, and all values that are not the default, so that the job reads back the same. */
static void mark_wanted(const ndp_import *m, const ndp_config *defaults, bool *wanted) {
    for (int i = 0; i < ndp_option_count; i++) {
        const ndp_option *o = &ndp_options[i];
        char name[128];
        snprintf(name, sizeof name, "%s.%s", o->section, o->key);
        wanted[i] = (m->imported && m->imported[i]) || ndp_import_is_set(&m->notes, name) ||
                    has_own_default(o, &m->job) || !is_default(o, &m->job, defaults);
    }
}

ndp_status ndp_import_job(const ndp_import *m, char **job) {
    ndp_config defaults;
    NDP_TRY(ndp_config_init(&defaults));
    bool *wanted = calloc((size_t)ndp_option_count, sizeof *wanted);
    ndp_str s = {0};
    ndp_status st = wanted ? NDP_OK : NDP_FAIL(NDP_ENOMEM, "not enough memory for the configuration");
    if (st == NDP_OK) {
        mark_wanted(m, &defaults, wanted);
        st = ndp_config_write_keys(&m->job, wanted, &s);
    }
    ndp_str_add(&s, "# All other keys have their defaults; `ndparallel config` lists them.\n");
    free(wanted);
    ndp_config_release(&defaults);
    char *text = st == NDP_OK ? ndp_str_detach(&s) : NULL;
    ndp_str_release(&s);
    if (st == NDP_OK && !text)
        return NDP_FAIL(NDP_ENOMEM, "not enough memory for the configuration");
    *job = text;
    return st;
}
