/* config.json as bytes: parse, and what was accepted must be a model that can be laid out. */
#include "base/json.h"
#include "model/facts.h"
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void use_rope(const ndp_rope *r) {
    double *frequencies = malloc((size_t)r->dim / 2 * sizeof *frequencies);
    if (!frequencies)
        return;
    ndp_rope_frequencies(r, 1 << 20, frequencies);
    for (int i = 0; i < r->dim / 2; i++)
        if (!(frequencies[i] >= 0))
            abort();
    free(frequencies);
}

/* Never more than a dry reader would do: the counts must be positive and the frequencies finite numbers. */
static void use(const ndp_facts *f) {
    for (int i = 0; i < f->n_ropes; i++)
        use_rope(&f->ropes[i]);
    for (int i = 0; i < f->layers; i++)
        if (f->kind_of[i] >= f->n_kinds)
            abort();
    if (ndp_facts_parameters(f) <= 0 || f->heads % f->kv_heads != 0 || !(f->attention_scale > 0))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct json_object *config;
    ndp_facts facts;
    if (ndp_json_parse((const char *)data, size, "fuzz", &config) != NDP_OK)
        return 0;
    if (ndp_facts_parse(config, "fuzz", &facts) == NDP_OK)
        use(&facts);
    json_object_put(config);
    return 0;
}
