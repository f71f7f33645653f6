/* Tables of angles, from config.json. */
#include "model/read.h"

#include <math.h>
#include <string.h>

/* One table's settings: where they stand, and the head they are for. */
typedef struct rope_config {
    struct json_object *config, *rope; /* all; the object of this table (NULL: none) */
    const char *what, *key;            /* of that object */
    const ndp_family *family;
    const ndp_facts *f;
    int head_dim;
} rope_config;

static const char partial[] = "partial_rotary_factor";

/* original_max_position_embeddings: of the configuration (where it has one table), else of the table, else as long as
 * the model's. */
static ndp_status read_original(const rope_config *c, ndp_rope *r) {
    static const char key[] = "original_max_position_embeddings";
    r->original_positions = c->f->max_positions;
    NDP_TRY(ndp_config_count(c->rope, c->what, key, 1, INT32_MAX, &r->original_positions));
    return c->f->n_ropes == NDP_ROPES ? NDP_OK
                                      : ndp_config_count(c->config, c->what, key, 1, INT32_MAX, &r->original_positions);
}

static ndp_status need(const rope_config *c, const char *type, const char *key) {
    return ndp_config_member(c->rope, key)
               ? NDP_OK
               : NDP_FAIL(NDP_EFORMAT, "%s: rope type %s without \"%s\"", c->what, type, key);
}

static ndp_status read_linear(const rope_config *c, ndp_rope *r) {
    NDP_TRY(need(c, "linear", "factor"));
    return ndp_config_positive(c->rope, c->what, "factor", &r->factor);
}

static ndp_status read_llama3(const rope_config *c, ndp_rope *r) {
    static const char *const keys[] = {"factor", "low_freq_factor", "high_freq_factor"};
    double *const to[] = {&r->factor, &r->low_freq_factor, &r->high_freq_factor};
    for (int i = 0; i < NDP_COUNT(keys); i++) {
        NDP_TRY(need(c, "llama3", keys[i]));
        NDP_TRY(ndp_config_positive(c->rope, c->what, keys[i], to[i]));
    }
    if (r->high_freq_factor <= r->low_freq_factor)
        return NDP_FAIL(NDP_EFORMAT, "%s: high_freq_factor %g is not above low_freq_factor %g", c->what,
                        r->high_freq_factor, r->low_freq_factor);
    return read_original(c, r);
}

/* transformers reads `truncate` beside a model's two tables, not in them; only its default is the same in both places.
 */
static ndp_status read_truncate(const rope_config *c, struct json_object *from, bool *out) {
    static const char key[] = "truncate";
    *out = true;
    NDP_TRY(ndp_config_bool(from, c->what, key, out));
    return *out || c->f->n_ropes < NDP_ROPES
               ? NDP_OK
               : ndp_config_refuse(c->what, key, ndp_config_member(from, key), " for a model of two tables");
}

static double yarn_amplitude(double factor, double mscale) { return factor <= 1 ? 1 : 0.1 * mscale * log(factor) + 1; }

static ndp_status read_yarn(const rope_config *c, ndp_rope *r) {
    double mscale = 0, mscale_all = 0;
    NDP_TRY(read_original(c, r));
    r->beta_fast = 32, r->beta_slow = 1;
    if (!json_object_object_get_ex(c->rope, "factor", NULL)) /* null: the ratio of the lengths */
        return NDP_FAIL(NDP_EFORMAT, "%s: rope type yarn without \"factor\"", c->what);
    r->factor = (double)c->f->max_positions / (double)r->original_positions;
    NDP_TRY(ndp_config_optional(c->rope, c->what, "factor", &r->factor));
    NDP_TRY(ndp_config_optional(c->rope, c->what, "beta_fast", &r->beta_fast));
    NDP_TRY(ndp_config_optional(c->rope, c->what, "beta_slow", &r->beta_slow));
    NDP_TRY(read_truncate(c, c->rope, &r->truncate));
    NDP_TRY(ndp_json_double(c->rope, c->what, "mscale", &mscale));
    NDP_TRY(ndp_json_double(c->rope, c->what, "mscale_all_dim", &mscale_all));
    r->amplitude = mscale != 0 && mscale_all != 0
                       ? yarn_amplitude(r->factor, mscale) / yarn_amplitude(r->factor, mscale_all)
                       : yarn_amplitude(r->factor, 1);
    if (r->theta <= 1 || !(r->amplitude > 0) || !isfinite(r->amplitude))
        return NDP_FAIL(NDP_EFORMAT, "%s: rope type yarn with theta %g, mscale %g and mscale_all_dim %g", c->what,
                        r->theta, mscale, mscale_all);
    return ndp_config_optional(c->rope, c->what, "attention_factor", &r->amplitude);
}

static ndp_status read_factors(const rope_config *c, const char *key, int n, double *out) {
    NDP_TRY(need(c, "longrope", key));
    struct json_object *list = ndp_config_member(c->rope, key);
    if (!json_object_is_type(list, json_type_array) || json_object_array_length(list) != (size_t)n)
        return NDP_FAIL(NDP_EFORMAT, "%s: \"%s\" is not a list of %d numbers, one for each pair of columns that turns",
                        c->what, key, n);
    for (int i = 0; i < n; i++) {
        struct json_object *value = json_object_array_get_idx(list, (size_t)i);
        bool number = json_object_is_type(value, json_type_int) || json_object_is_type(value, json_type_double);
        out[i] = json_object_get_double(value);
        if (!number || !(out[i] > 0) || !isfinite(out[i]))
            return NDP_FAIL(NDP_EFORMAT, "%s: \"%s\" holds %.40s, expected positive numbers", c->what, key,
                            json_object_to_json_string(value));
    }
    return NDP_OK;
}

static ndp_status read_longrope(const rope_config *c, ndp_rope *r) {
    int pairs = r->dim / 2;
    NDP_TRY(read_original(c, r));
    if (strcmp(c->f->family, "phi3") == 0 && !ndp_config_member(c->config, "original_max_position_embeddings"))
        r->original_positions = 4096; /* the default of its class goes before what rope_scaling says */
    if (pairs > NDP_LONG_FACTORS)
        return NDP_FAIL(NDP_ENOTSUP, "%s: longrope over %d pairs of columns is not supported; supported: up to %d",
                        c->what, pairs, NDP_LONG_FACTORS);
    NDP_TRY(read_factors(c, "short_factor", pairs, r->short_factor));
    NDP_TRY(read_factors(c, "long_factor", pairs, r->long_factor));
    r->factor = (double)c->f->max_positions / (double)r->original_positions;
    NDP_TRY(ndp_config_optional(c->rope, c->what, "factor", &r->factor));
    if (r->factor > 1 && r->original_positions < 2)
        return NDP_FAIL(NDP_EFORMAT, "%s: longrope from %lld positions", c->what, (long long)r->original_positions);
    r->amplitude = r->factor <= 1 ? 1 : sqrt(1 + log(r->factor) / log((double)r->original_positions));
    return ndp_config_optional(c->rope, c->what, "attention_factor", &r->amplitude);
}

static ndp_status read_proportional(const rope_config *c, ndp_rope *r) {
    double part = 1;
    NDP_TRY(ndp_config_positive(c->rope, c->what, partial, &part));
    NDP_TRY(ndp_config_positive(c->rope, c->what, "factor", &r->factor));
    if (part > 1)
        return NDP_FAIL(NDP_EFORMAT, "%s: \"%s\" is %g, expected at most 1", c->what, partial, part);
    r->turning = (int)(part * r->dim / 2);
    return NDP_OK;
}

typedef struct rope_scaling {
    const char *type;
    ndp_rope_scaling scaling;
    ndp_status (*read)(const rope_config *c, ndp_rope *r);
} rope_scaling;

static const rope_scaling scalings[] = {
    {"default", NDP_ROPE_PLAIN, NULL},          {"linear", NDP_ROPE_LINEAR, read_linear},
    {"llama3", NDP_ROPE_LLAMA3, read_llama3},   {"yarn", NDP_ROPE_YARN, read_yarn},
    {"longrope", NDP_ROPE_LONG, read_longrope}, {0}};
/* Of models whose heads differ by kind of layer. */
static const rope_scaling scalings_of_gemma4[] = {
    {"default", NDP_ROPE_PLAIN, NULL}, {"proportional", NDP_ROPE_PROPORTIONAL, read_proportional}, {0}};
/* Phi-3's class knows longrope alone, also by two older names. */
static const rope_scaling scalings_of_phi3[] = {{"default", NDP_ROPE_PLAIN, NULL},
                                                {"longrope", NDP_ROPE_LONG, read_longrope},
                                                {"su", NDP_ROPE_LONG, read_longrope},
                                                {"yarn", NDP_ROPE_LONG, read_longrope},
                                                {0}};

static ndp_status read_scaling(const rope_config *c, ndp_rope *r) {
    static const char *const keys[] = {"type", "rope_type"}; /* the later one wins */
    const char *type = "default";
    bool phi3 = strcmp(c->f->family, "phi3") == 0, gemma4 = c->f->full.dim > 0;
    for (int i = 0; i < NDP_COUNT(keys); i++) {
        NDP_TRY(ndp_config_not_null(c->rope, c->what, keys[i]));
        NDP_TRY(ndp_json_string(c->rope, c->what, keys[i], &type));
    }
    if (c->family->mrope == NDP_MROPE_SECTIONS && strcmp(type, "mrope") == 0)
        type = "default";
    for (const rope_scaling *s = phi3 ? scalings_of_phi3 : gemma4 ? scalings_of_gemma4 : scalings; s->type; s++) {
        if (strcmp(type, s->type) != 0)
            continue;
        r->scaling = s->scaling;
        return s->read ? s->read(c, r) : NDP_OK;
    }
    return NDP_FAIL(NDP_ENOTSUP, "%s: rope type '%.64s' in \"%s\" is not supported; supported%s: %s", c->what, type,
                    c->key, phi3 || gemma4 ? " for this family" : "",
                    gemma4 ? "default, proportional"
                    : phi3 ? "default, longrope"
                           : "default, linear, llama3, yarn, longrope");
}

static bool is_proportional(const rope_config *c) {
    const char *type = ndp_json_text(ndp_config_member(c->rope, "rope_type"));
    return c->f->full.dim > 0 && type && strcmp(type, "proportional") == 0;
}

/* The columns of a head that turn. */
static ndp_status read_dim(const rope_config *c, ndp_rope *r) {
    const char *const key = partial;
    const char *own = c->family->keys->rotary;
    double part = c->family->rotary > 0 ? c->family->rotary : 1;
    if (c->family->partial)
        NDP_TRY(ndp_config_positive(c->config, c->what, own ? own : key, &part));
    else if (!is_proportional(c) && !ndp_config_is_neutral(ndp_config_member(c->rope, key), 1))
        return ndp_config_refuse(c->what, key, ndp_config_member(c->rope, key), "");
    if (!is_proportional(c))
        NDP_TRY(ndp_config_positive(c->rope, c->what, key, &part));
    if (part > 1)
        return NDP_FAIL(NDP_EFORMAT, "%s: \"%s\" is %g, expected at most 1", c->what, key, part);
    int dim = c->head_dim - c->f->nope_dim;
    r->dim = (int)(dim * part);
    if (r->dim % 2 != 0 || r->dim == 0)
        return NDP_FAIL(NDP_EFORMAT, "%s: RoPE turns pairs, and %d columns of a head_dim of %d is odd", c->what, r->dim,
                        dim);
    return NDP_OK;
}

/* Sections have all pairs, or transformers fails. */
static ndp_status check_sections(const rope_config *c, const ndp_rope *r) {
    struct json_object *list = ndp_config_member(c->rope, "mrope_section");
    int64_t pairs = list ? 0 : 64; /* its default */
    for (size_t i = 0; json_object_is_type(list, json_type_array) && i < json_object_array_length(list); i++)
        pairs += json_object_get_int64(json_object_array_get_idx(list, i));
    return c->family->mrope != NDP_MROPE_SECTIONS || pairs == r->dim / 2
               ? NDP_OK
               : NDP_FAIL(NDP_EFORMAT, "%s: \"mrope_section\", given or by default, has %lld pairs of columns, not %d",
                          c->what, (long long)pairs, r->dim / 2);
}

/* What fp32 cannot follow: beyond a whole turn a position the angles soon have no digits left. */
static ndp_status check_table(const rope_config *c, const ndp_rope *r) {
    double fastest = ndp_rope_fastest(r);
    if (r->theta > 1e38) /* the powers of an infinity are infinite */
        return NDP_FAIL(NDP_EFORMAT, "%s: \"rope_theta\" is %g, expected at most 1e38, the largest that fp32 has",
                        c->what, r->theta);
    if (!(fastest <= 2 * M_PI))
        return NDP_FAIL(NDP_EFORMAT,
                        "%s: RoPE would turn a pair of columns by %g radians a position, more than a whole turn: "
                        "\"rope_theta\" is %g, and a factor of its scaling may be too small",
                        c->what, fastest, r->theta);
    if (!(r->amplitude <= 1000))
        return NDP_FAIL(NDP_EFORMAT, "%s: \"attention_factor\", given or computed, is %g, expected at most 1000",
                        c->what, r->amplitude);
    return NDP_OK;
}

static ndp_status read_table(const rope_config *c, ndp_rope *r) {
    r->factor = r->amplitude = 1;
    NDP_TRY(ndp_config_positive(c->rope, c->what, "rope_theta", &r->theta));
    NDP_TRY(read_dim(c, r));
    NDP_TRY(read_scaling(c, r));
    NDP_TRY(check_sections(c, r));
    return check_table(c, r);
}

/* What transformers reads as something else than it says: without rope_type, `type` is not read; and a rope_theta that
 * is not the default is that of both tables of olmo3 in some versions, of the first in others. */
static ndp_status check_two(const rope_config *c, bool is_scaling, const ndp_facts *f) {
    struct json_object *parameters = c->rope, *local = ndp_config_member(parameters, "sliding_attention");
    double theta = f->ropes[1].theta;
    bool olmo3 = strcmp(f->family, "olmo3") == 0;
    if (is_scaling && ndp_config_member(parameters, "type") && !ndp_config_member(parameters, "rope_type"))
        return ndp_config_refuse(c->what, "type", ndp_config_member(parameters, "type"),
                                 " for a model of two tables; name the key rope_type");
    NDP_TRY(ndp_json_double(c->config, c->what, "rope_theta", &theta));
    if (olmo3 && theta != f->ropes[1].theta && !ndp_config_member(local, "rope_theta"))
        return ndp_config_refuse(c->what, "rope_theta", ndp_config_member(c->config, "rope_theta"),
                                 ": versions of transformers differ in whether layers with a window have it; give each "
                                 "table in \"rope_parameters\" its own");
    return NDP_OK;
}

/* Gemma 4 reads rope_parameters alone, where both tables say what they are; without them the first one is a quarter. */
static ndp_status read_gemma4(rope_config *c, ndp_facts *f) {
    static const char *const kinds[NDP_ROPES] = {"full_attention", "sliding_attention"};
    static const char *const others[] = {"rope_theta", "rope_scaling"};
    struct json_object *parameters = ndp_config_member(c->config, "rope_parameters");
    for (int i = 0; i < NDP_COUNT(others); i++)
        if (ndp_config_member(c->config, others[i]))
            return ndp_config_refuse(c->what, others[i], ndp_config_member(c->config, others[i]),
                                     " for this family; supported: rope_parameters");
    for (int i = 0; i < NDP_ROPES; i++) {
        c->rope = ndp_config_member(parameters, kinds[i]);
        c->head_dim = i == 0 ? f->full.dim : f->head_dim;
        if (parameters && (!ndp_config_member(c->rope, "rope_type") || !ndp_config_member(c->rope, "rope_theta")))
            return NDP_FAIL(NDP_EFORMAT, "%s: \"rope_parameters\" without rope_type and rope_theta of %s", c->what,
                            kinds[i]);
        NDP_TRY(read_table(c, &f->ropes[i]));
    }
    if (!parameters)
        f->ropes[0].scaling = NDP_ROPE_PROPORTIONAL, f->ropes[0].turning = f->full.dim / 8;
    return NDP_OK;
}

/* Two tables: rope_parameters {full_attention, sliding_attention}, or rope_theta with rope_scaling (of the first) and,
 * of gemma3, rope_local_base_freq. */
static ndp_status read_two(rope_config *c, ndp_facts *f) {
    static const char *const kinds[NDP_ROPES] = {"full_attention", "sliding_attention"};
    struct json_object *parameters = c->rope;
    bool is_scaling = strcmp(c->key, "rope_scaling") == 0, truncate;
    if (is_scaling && !ndp_config_is_neutral(ndp_config_member(c->config, "rope_parameters"), 0))
        return NDP_FAIL(NDP_EFORMAT, "%s: both \"rope_scaling\" and \"rope_parameters\"; leave out one", c->what);
    NDP_TRY(check_two(c, is_scaling, f));
    if (strcmp(f->family, "gemma3_text") == 0)
        NDP_TRY(ndp_config_positive(c->config, c->what, "rope_local_base_freq", &f->ropes[1].theta));
    NDP_TRY(read_truncate(c, parameters, &truncate));
    for (int i = 0; i < NDP_ROPES; i++) {
        struct json_object *own = ndp_config_member(parameters, kinds[i]);
        if (own && (is_scaling || !json_object_is_type(own, json_type_object)))
            return NDP_FAIL(NDP_EFORMAT, "%s: \"%s\" in \"%s\" is not %s", c->what, kinds[i], c->key,
                            is_scaling ? "read; tables for kinds of layers are in \"rope_parameters\"" : "an object");
        c->rope = own ? own : is_scaling && i == 0 ? parameters : NULL;
        NDP_TRY(read_table(c, &f->ropes[i]));
    }
    return NDP_OK;
}

/* Queries have a table of their own: that of keys, with rows that grow. */
ndp_status ndp_more_ministral3(struct json_object *config, const char *what, ndp_facts *f) {
    static const char beta[] = "llama_4_scaling_beta";
    bool is_scaling = !ndp_config_is_neutral(ndp_config_member(config, "rope_scaling"), 0);
    struct json_object *rope = ndp_config_member(config, is_scaling ? "rope_scaling" : "rope_parameters");
    if (f->ropes[0].scaling != NDP_ROPE_YARN)
        return NDP_FAIL(NDP_ENOTSUP, "%s: RoPE without yarn is not supported for this family", what);
    if (!ndp_config_member(rope, beta))
        return NDP_FAIL(NDP_EFORMAT, "%s: RoPE without \"%s\", by which queries grow", what, beta);
    f->ropes[1] = f->ropes[0];
    NDP_TRY(ndp_json_double(rope, what, beta, &f->ropes[1].growth));
    if (!(f->ropes[1].growth >= 0 && f->ropes[1].growth <= 100))
        return NDP_FAIL(NDP_EFORMAT, "%s: \"%s\" is %g, expected 0 to 100", what, beta, f->ropes[1].growth);
    f->n_ropes = NDP_ROPES, f->query_rope = 1;
    return NDP_OK;
}

ndp_status ndp_config_ropes(struct json_object *config, const char *what, const ndp_family *family, ndp_facts *f) {
    if (f->n_ropes == 0)
        return NDP_OK;
    bool is_scaling = !ndp_config_is_neutral(ndp_config_member(config, "rope_scaling"), 0);
    const char *key = is_scaling ? "rope_scaling" : "rope_parameters";
    rope_config c = {config, ndp_config_member(config, key), what, key, family, f, f->head_dim};
    if (f->full.dim > 0)
        return read_gemma4(&c, f);
    const char *theta = family->keys->theta;
    NDP_TRY(ndp_config_positive(config, what, theta ? theta : "rope_theta", &f->ropes[0].theta));
    if (c.rope && !json_object_is_type(c.rope, json_type_object))
        return NDP_FAIL(NDP_EFORMAT, "%s: \"%s\" is not an object", what, key);
    if (f->n_ropes == NDP_ROPES)
        return read_two(&c, f);
    if (c.rope) {
        json_object_object_foreach(c.rope, name, value) {
            if (json_object_is_type(value, json_type_object)) /* one for each kind of layer */
                return ndp_config_refuse(what, name, value, "");
        }
    }
    return read_table(&c, &f->ropes[0]);
}
