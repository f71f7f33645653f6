/* adapter_config.json as bytes: what was accepted has values in their ranges and, written again, is accepted as the
 * same. */
#include "weights/adapter_config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool same_text(const char *a, const char *b) { return a && b ? strcmp(a, b) == 0 : a == b; }

static bool same_list(const ndp_strings *a, const ndp_strings *b) {
    bool same = a->n == b->n;
    for (int i = 0; same && i < a->n; i++)
        same = strcmp(a->items[i], b->items[i]) == 0;
    return same;
}

static void same(const ndp_adapter_config *a, const ndp_adapter_config *b) {
    if (a->r != b->r || a->alpha != b->alpha || a->dropout != b->dropout || a->rslora != b->rslora ||
        a->form != b->form || a->fan_in_fan_out != b->fan_in_fan_out || a->tied != b->tied ||
        !same_text(a->base, b->base) || !same_text(a->pattern, b->pattern) || !same_list(&a->targets, &b->targets) ||
        !same_list(&a->parameters, &b->parameters) || !same_list(&a->save, &b->save))
        abort();
}

static void check(const ndp_adapter_config *c) {
    if (c->r < 1 || c->r > NDP_ADAPTER_RANK_MOST || !isfinite(c->alpha) || !isfinite(ndp_adapter_config_scale(c)) ||
        !(c->dropout >= 0 && c->dropout < 1) || (c->pattern && (!*c->pattern || c->targets.n)))
        abort();
    for (int i = 0; i < c->targets.n; i++)
        if (!*c->targets.items[i] || !ndp_adapter_config_targets(c, c->targets.items[i]))
            abort();
    for (int i = 0; i < c->parameters.n; i++)
        if (!*c->parameters.items[i] || !ndp_adapter_config_has_parameter(c, c->parameters.items[i]))
            abort();
    for (int i = 0; i < c->save.n; i++)
        if (!*c->save.items[i] || !ndp_adapter_config_saves(c, c->save.items[i]))
            abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    ndp_adapter_config c, again;
    ndp_str text = {0};
    if (ndp_adapter_config_parse((const char *)data, size, "fuzz", &c) != NDP_OK)
        return 0;
    check(&c);
    ndp_adapter_config_text(&c, &text);
    if (text.failed || ndp_adapter_config_parse(text.data, text.length, "again", &again) != NDP_OK)
        abort();
    same(&c, &again);
    ndp_str_release(&text);
    ndp_adapter_config_release(&again);
    ndp_adapter_config_release(&c);
    return 0;
}
