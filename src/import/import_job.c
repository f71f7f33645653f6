/* The imported job as a file: the keys that were imported, without the defaults. */
#include "import/import_parts.h"

#include <string.h>

void ndp_import_mark(ndp_import *m, size_t offset) {
    for (int i = 0; i < ndp_option_count; i++)
        if (ndp_options[i].offset == offset)
            m->imported[i] = m->job.given[i] = true; /* an assignment of the user's does not replace it by a default */
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
        char name[NDP_KEY_NAME];
        ndp_config_key(i, name);
        wanted[i] = m->imported[i] || ndp_import_is_set(&m->notes, name) || has_own_default(o, &m->job) ||
                    !ndp_option_is_same(o, &m->job, o, defaults);
    }
}

ndp_status ndp_import_job(const ndp_import *m, char **job) {
    ndp_config defaults;
    bool wanted[NDP_MOST_OPTIONS];
    ndp_str s = {0};
    NDP_TRY(ndp_config_init(&defaults));
    mark_wanted(m, &defaults, wanted);
    ndp_config_release(&defaults);
    ndp_status st = ndp_config_write_keys(&m->job, wanted, &s);
    ndp_str_add(&s, "# All other keys have their defaults; `ndparallel config` lists them.\n");
    char *text = ndp_str_detach(&s);
    if (st == NDP_OK && !text)
        st = NDP_FAIL(NDP_ENOMEM, "not enough memory for the configuration");
    if (st == NDP_OK)
        *job = text;
    return st;
}
