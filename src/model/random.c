/* The random weights that a decoder starts from. */
#include "model/decoder.h"
#include "model/families.h"

#include "base/rng.h"
#include <math.h>
#include <string.h>

/* Whether `name` is that of a block's tensor `within`, less ".weight". NULL: the family has none. */
static bool is_weight_of(const char *name, const char *within) {
    static const char suffix[] = ".weight";
    size_t n = strlen(name), m = within ? strlen(within) : 0, s = sizeof suffix - 1;
    return within && n > m + s && name[n - m - s - 1] == '.' && strncmp(name + n - m - s, within, m) == 0;
}

static double matrix_std(const ndp_facts *f, const char *name) {
    bool to_stream = is_weight_of(name, f->names->o) || is_weight_of(name, f->names->down);
    return f->depth_init && to_stream ? f->init_std / sqrt(2.0 * f->layers) : f->init_std;
}

void ndp_decoder_random(const ndp_facts *f, uint64_t seed, const ndp_segment *s, int64_t first, int64_t count,
                        float *out) {
    size_t n = strlen(s->name);
    bool bias = n >= 5 && (strcmp(s->name + n - 5, ".bias") == 0 || strcmp(s->name + n - 5, "_bias") == 0);
    bool scalar = f->names->layer_scalar && ndp_ends_with(s->name, f->names->layer_scalar);
    bool drawn = f->names->sinks && (ndp_ends_with(s->name, f->names->sinks) || ndp_ends_with(s->name, "router.bias"));
    if (ndp_ends_with(s->name, ".A_log")) { /* logarithms of what is even between 0.01 and 16 */
        for (int64_t i = 0; i < count; i++)
            out[i] = (float)log(0.01 + 15.99 * ndp_rng_uniform(seed, ndp_rng_stream(s->name), (uint64_t)(first + i)));
        return;
    }
    if (s->ndim == 2 || drawn) {
        ndp_rng_normal(seed, ndp_rng_stream(s->name), (uint64_t)first, count, matrix_std(f, s->name), out);
        return;
    }
    bool ones =
        f->delta.heads > 0 && (ndp_ends_with(s->name, ".dt_bias") || is_weight_of(s->name, f->names->delta_norm));
    for (int64_t i = 0; i < count; i++)
        out[i] = !ones && (bias || (s->no_grad && !scalar) || f->norm.offset) ? 0.0f : 1.0f;
}
