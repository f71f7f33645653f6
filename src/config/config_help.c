/* All keys of a configuration as text: type, range, default, a line of help, what a resume may change. */
#include "config/config.h"
#include "config/option.h"

#include <string.h>

/* "adamw, lion: " for a key that not every optimizer reads. */
static void add_readers(const ndp_option *o, ndp_str *out) {
    bool any = false;
    for (int i = 0; i < NDP_OPTIMIZER_COUNT && strcmp(o->section, "optimizer") == 0; i++)
        if (ndp_optimizer_reads(ndp_optimizers[i], o->key)) {
            ndp_str_addf(out, "%s%s", any ? ", " : "", ndp_optimizers[i]->name);
            any = true;
        }
    ndp_str_add(out, any ? ": " : "");
}

/* "default [0.9, 0.95], lion [0.9, 0.99]" */
static void add_defaults(const ndp_option *o, ndp_str *out) {
    ndp_str_addf(out, "default %s", o->value ? o->value : "null");
    for (int i = 0; i < NDP_OPTIMIZER_COUNT && strcmp(o->section, "optimizer") == 0; i++) {
        const ndp_optimizer_option *own = ndp_optimizer_reads(ndp_optimizers[i], o->key);
        if (own && own->value)
            ndp_str_addf(out, ", %s %s", ndp_optimizers[i]->name, own->value);
    }
}

void ndp_config_help(ndp_str *out) {
    for (int i = 0; i < ndp_option_count; i++) {
        const ndp_option *o = &ndp_options[i];
        if (ndp_option_opens_section(i))
            ndp_str_addf(out, "%s%s:\n", i ? "\n" : "", o->section);
        ndp_str_addf(out, "  %-22s ", o->key);
        add_readers(o, out);
        ndp_str_addf(out, "%s\n  %-22s ", o->help, "");
        ndp_option_expects(o, out);
        ndp_str_add(out, "; ");
        add_defaults(o, out);
        ndp_str_add(out, o->role == NDP_KEY_FREE ? "; may change on --resume\n" : "\n");
    }
}
