/* data.mix: a number for each entry of data.files, in their order or by name. */
#include "config/config.h"

#include <stdlib.h>
#include <string.h>

/* The number in an entry of data.mix, "2" or "name: 2". *name: the length of its name; 0: it has none. */
static const char *mix_number(const char *entry, size_t *name) {
    const char *colon = NULL;
    for (const char *at = entry; (at = strstr(at, ": ")) != NULL; at++)
        colon = at;
    *name = colon ? (size_t)(colon - entry) : 0;
    return colon ? colon + 2 : entry;
}

static bool is_name(const char *entry, size_t n, const char *file) {
    return strlen(file) == n && memcmp(entry, file, n) == 0;
}

const char *ndp_config_mix(const ndp_config *c, int file) {
    const ndp_strings *mix = &c->data.mix;
    for (int i = 0; i < mix->n; i++) {
        size_t n;
        const char *number = mix_number(mix->items[i], &n);
        if (n ? is_name(mix->items[i], n, c->data.files.items[file]) : i == file)
            return number;
    }
    return NULL;
}

static ndp_status fail_mix_name(const ndp_config *c, const char *name, size_t n) {
    ndp_str files = {0};
    for (int i = 0; i < c->data.files.n; i++)
        ndp_str_addf(&files, "%s'%.60s'", i ? ", " : "", c->data.files.items[i]);
    ndp_status st = NDP_FAIL(NDP_EINVAL, "data.mix names '%.*s', which data.files does not have; it has %s", (int)n,
                             name, files.data ? files.data : "");
    ndp_str_release(&files);
    return st;
}

/* If one entry has a name, all have: each entry of data.files is named once. */
static ndp_status check_mix_names(const ndp_config *c) {
    const ndp_strings *mix = &c->data.mix, *files = &c->data.files;
    int named = 0;
    for (int i = 0; i < mix->n; i++) {
        size_t n;
        int found = 0;
        mix_number(mix->items[i], &n);
        named += n > 0;
        for (int k = 0; k < files->n; k++)
            found += n > 0 && is_name(mix->items[i], n, files->items[k]);
        if (n > 0 && found == 0)
            return fail_mix_name(c, mix->items[i], n);
        NDP_CHECK(found < 2, "data.mix names '%.*s', which is %d entries of data.files; give a list of numbers", (int)n,
                  mix->items[i], found);
    }
    NDP_CHECK(named == 0 || named == mix->n, "data.mix has %d entries with a name and %d without; name all or none",
              named, mix->n - named);
    for (int k = 0; named > 0 && k < files->n; k++)
        NDP_CHECK(ndp_config_mix(c, k), "data.mix does not name '%.60s' of data.files; add it, such as `%.60s: 1`",
                  files->items[k], files->items[k]);
    NDP_CHECK(named <= files->n, "data.mix has %d names for %d entries of data.files; name each once", named, files->n);
    return NDP_OK;
}

/* Weights of a mix: a number for each entry of data.files, not all 0. */
ndp_status ndp_config_check_mix(const ndp_config *c) {
    const ndp_strings *mix = &c->data.mix;
    double sum = 0;
    NDP_TRY(check_mix_names(c));
    NDP_CHECK(mix->n == 0 || mix->n == c->data.files.n,
              "data.mix has %d number%s, data.files has %d entr%s; give one per file (or folder, or pattern)", mix->n,
              mix->n == 1 ? "" : "s", c->data.files.n, c->data.files.n == 1 ? "y" : "ies");
    for (int i = 0; i < mix->n; i++) {
        const char *number = ndp_config_mix(c, i);
        char *end;
        double v = strtod(number, &end);
        NDP_CHECK(*number && !*end && strspn(number, "0123456789.eE+-") == strlen(number) && v >= 0 && v <= 1e6,
                  "data.mix has '%.60s', expected a number from 0 to 1000000: how often an epoch reads %s", number,
                  c->data.files.items[i]);
        sum += v;
    }
    NDP_CHECK(mix->n == 0 || sum > 0, "data.mix is 0 for all of data.files, so there is nothing to train on");
    return NDP_OK;
}
