/* What follows from a configuration before data or weights are loaded. */
#include "job/job.h"

#include "base/hub.h"
#include "checkpoint/folder.h"
#include "job/folder_facts.h"
#include "model/tensors.h"
#include "ops/devices.h"
#include <stdio.h>
#include <string.h>

ndp_status ndp_job_find_model(ndp_job *j) {
    const ndp_config *c = j->config;
    if (!c->model.path) {
        if (c->model.config && ndp_path_is_folder(c->model.config))
            return NDP_FAIL(
                NDP_EINVAL,
                "model.config: %s is a folder, not a config.json; set model.path: %s, or for random weights "
                "model.config: %s/config.json",
                c->model.config, c->model.config, c->model.config);
        snprintf(j->facts_path, sizeof j->facts_path, "%s", c->model.config);
        return NDP_OK;
    }
    NDP_TRY(ndp_hub_find(NDP_HUB_MODEL, c->model.path, j->model_folder));
    if (ndp_ends_with(c->model.path, "config.json") && ndp_path_exists(j->model_folder)) {
        int folder = (int)(strlen(c->model.path) - strlen("config.json"));
        return NDP_FAIL(NDP_EINVAL,
                        "model.path: %s is a file; set model.path: %.*s, the folder, or for random weights "
                        "model.config: %s",
                        c->model.path, folder ? folder : 2, folder ? c->model.path : "./", c->model.path);
    }
    if (c->model.init == NDP_INIT_PRETRAINED)
        NDP_TRY(ndp_model_folder_refuse(j->model_folder));
    if (!ndp_path_is_folder(j->model_folder))
        return NDP_FAIL(NDP_EINVAL,
                        "model.path: %s is not a folder (%s); it names a Hugging Face model folder with config.json "
                        "and safetensors, or a model in the Hub cache",
                        c->model.path, ndp_path_why_no_folder(c->model.path));
    return ndp_path_join(j->facts_path, j->model_folder, "config.json");
}

static ndp_status read_spec(ndp_job *j) {
    const ndp_config *c = j->config;
    NDP_TRY(ndp_job_find_model(j));
    bool weights =
        c->model.path && c->model.init == NDP_INIT_PRETRAINED; /* otherwise the weights of the folder are not used */
    ndp_status st = weights ? ndp_folder_facts(j->model_folder, &c->own, &j->spec)
                            : ndp_model_spec_read(j->facts_path, &c->own, &j->spec);
    NDP_TRY(c->model.path ? ndp_hub_explain(NDP_HUB_MODEL, c->model.path, j->model_folder, st) : st);
    int64_t longest = j->spec.positions, length = c->data.sequence_length;
    if (length > longest && j->spec.learned_positions)
        return NDP_FAIL(NDP_EINVAL,
                        "data.sequence_length %lld is longer than the %lld learned positions of the model (%s); "
                        "lower it",
                        (long long)length, (long long)longest, j->facts_path);
    if (length > longest && !c->model.allow_longer)
        return NDP_FAIL(NDP_EINVAL,
                        "data.sequence_length %lld is longer than the model's max_position_embeddings %lld (%s); lower "
                        "it, or set model.allow_longer: true",
                        (long long)length, (long long)longest, j->facts_path);
    return NDP_OK;
}

/* The limit of the options train.ranks and *_size. */
enum { MOST_RANKS = 1 << 20 };

static ndp_status resolve_layout(ndp_job *j, int world) {
    const ndp_config *c = j->config;
    const int *sizes = c->parallelism.size;
    int product = 1, automatic = 0;
    memcpy(j->layout.size, sizes, sizeof j->layout.size);
    for (int a = 0; a < NDP_AXES; a++) {
        automatic += sizes[a] == 0;
        NDP_CHECK(sizes[a] <= MOST_RANKS / product, "parallelism: the sizes multiply to more than %d ranks",
                  MOST_RANKS);
        product *= sizes[a] ? sizes[a] : 1;
    }
    if (world == 0)
        world = automatic && c->train.ranks ? c->train.ranks : product;
    if (c->train.ranks && c->train.ranks != world && !automatic)
        world = c->train.ranks;
    NDP_TRY(ndp_layout_resolve(&j->layout, world, &j->spec.layout));
    j->world = world;
    return NDP_OK;
}

/* Borrows the configuration. */
static ndp_adapter adapter_of(const ndp_config *c) {
    if (c->adapter.type == NDP_ADAPTER_NONE)
        return (ndp_adapter){0};
    return (ndp_adapter){.r = c->adapter.r,
                         .scale = ndp_adapter_scale(c->adapter.alpha, c->adapter.r, c->adapter.rslora),
                         .dropout = c->adapter.dropout,
                         .form = c->adapter.dora ? NDP_DORA : NDP_LORA,
                         .random_b = c->adapter.init == NDP_ADAPTER_RANDOM,
                         .targets = (const char *const *)c->adapter.targets.items,
                         .n_targets = c->adapter.targets.n,
                         .save = (const char *const *)c->adapter.modules_to_save.items,
                         .n_save = c->adapter.modules_to_save.n};
}

void ndp_job_choose_model(ndp_job *j) {
    const ndp_config *c = j->config;
    ndp_dtype compute = j->planned.fp8 ? NDP_BF16 : c->precision.compute;
    int64_t length = c->data.sequence_length;
    j->model = (ndp_model_opts){
        .mode = NDP_MODEL_TRAIN,
        .rows = length * j->batch.micro_batch,
        .keys = 0,
        .positions = length,
        .compute = compute,
        .master = ndp_wide(compute),
        .weights = c->precision.weights,
        .states = c->precision.states,
        .window = c->model.sliding_window,
        .preference = ndp_config_preference(c),
        .token_weight = {c->loss.token_weight, c->loss.entropy_k, c->loss.entropy_alpha, c->loss.entropy_unit},
        .samples = j->batch.micro_batch,
        .own_rows = c->train.own_batches,
        .row_loss = c->train.own_logits,
        .router = {c->moe.balance, c->moe.balance_coef, c->moe.z_loss, c->moe.bias_rate},
        .frozen = (const char *const *)c->model.frozen.items,
        .n_frozen = c->model.frozen.n,
        .trained = (const char *const *)c->model.trained.items,
        .n_trained = c->model.trained.n,
        .adapter = adapter_of(c),
        .routes = c->moe.routes ? NDP_ROUTES_GIVEN : 0,
        .base = c->adapter.type == NDP_ADAPTER_QLORA ? c->adapter.base : NDP_PACKING_NONE};
    j->model.documents = ndp_preference_documents(&j->model.preference, j->batch.micro_batch);
}

ndp_status ndp_job_init(const ndp_config *c, int world, ndp_job *out) {
    NDP_TRY(ndp_config_check(c));
    return ndp_job_init_planned(c, world, false, out);
}

/* What kernels of GPUs do not have, of which `sim` has the same. */
static ndp_status check_heads(const ndp_job *j) {
    enum { MOST = 256 }; /* columns of a head in bf16 (ops/cuda/cuda_attention.cu) */
    const char *device = ndp_device_names[j->config->train.device];
    bool gpu = strcmp(device, "cuda") == 0 || strcmp(device, "sim") == 0;
    NDP_CHECK(!gpu || j->model.compute != NDP_BF16 || j->spec.head_dim <= MOST,
              "the model has heads of %d columns; attention in bf16 on train.device %s has %d at most: set "
              "precision.compute: fp32, or train.device: cpu",
              j->spec.head_dim, device, MOST);
    return NDP_OK;
}

/* All that follows from the configuration and what config.json says. Releases the job if it fails. */
static ndp_status resolve(ndp_job *j, int world) {
    const ndp_config *c = j->config;
    int rows = c->batch.micro_batch_size ? c->batch.micro_batch_size : ndp_config_least_rows(c);
    ndp_status st = resolve_layout(j, world);
    if (st == NDP_OK)
        st = ndp_batch_resolve(&j->layout, c->batch.global_batch_size, rows, &j->batch);
    if (st == NDP_OK) {
        ndp_job_choose_model(j);
        st = ndp_job_find_groups(j);
    }
    if (st == NDP_OK)
        st = check_heads(j);
    if (st == NDP_OK)
        st = ndp_job_cut(j);
    if (st != NDP_OK)
        ndp_job_release(j);
    return st;
}

ndp_status ndp_job_init_planned(const ndp_config *c, int world, bool cluster, ndp_job *out) {
    ndp_job j = {.config = c,
                 .planned = {.fp8 = c->precision.compute == NDP_COMPUTE_FP8,
                             .reduce_bf16 = c->precision.reduce == NDP_BF16,
                             .tp_reduce_bf16 = c->precision.tp_reduce == NDP_BF16}};
    NDP_TRY(ndp_config_check_planned(c, cluster));
    ndp_status st = read_spec(&j);
    if (st != NDP_OK)
        ndp_job_release(&j);
    NDP_TRY(st);
    NDP_TRY(resolve(&j, world));
    *out = j;
    return NDP_OK;
}

ndp_status ndp_job_init_like(const ndp_job *of, const ndp_config *c, int world, ndp_job *out) {
    ndp_job j = {.config = c, .planned = of->planned, .spec = of->spec, .borrows_spec = true};
    memcpy(j.model_folder, of->model_folder, sizeof j.model_folder);
    memcpy(j.facts_path, of->facts_path, sizeof j.facts_path);
    NDP_TRY(resolve(&j, world));
    j.model.routes |= of->model.routes;
    *out = j;
    return NDP_OK;
}

ndp_status ndp_job_change(ndp_job *j, const ndp_config *c) {
    ndp_job changed;
    NDP_TRY(ndp_job_init_like(j, c, j->world, &changed));
    changed.borrows_spec = j->borrows_spec;
    j->borrows_spec = true;
    ndp_job_release(j);
    *j = changed;
    return NDP_OK;
}

void ndp_job_release(ndp_job *j) {
    if (!j->borrows_spec)
        ndp_model_spec_release(&j->spec);
    free(j->first_unit);
    ndp_job_release_groups(j);
    ndp_pipeline_release(&j->pipeline);
    ndp_pipeline_release(&j->forward);
    *j = (ndp_job){0};
}

static void note_states(const ndp_job *j, ndp_str *out) {
    const int *size = j->layout.size, heads = j->spec.layout.state_heads;
    if (heads > 0 && heads / size[NDP_TP] % size[NDP_SP] != 0)
        ndp_str_addf(out,
                     "note: layers with a state have %d key heads, which tp %d x sp %d do not divide: each rank of sp "
                     "gathers all rows that its rank of cp has, and computes them\n",
                     heads, size[NDP_TP], size[NDP_SP]);
}

void ndp_job_notes(const ndp_job *j, ndp_str *out) {
    if (ndp_head_note(&j->spec) && !ndp_preference_scores(j->model.preference.kind))
        ndp_str_addf(out, "%s\n", ndp_head_note(&j->spec));
    const ndp_model_spec *s = &j->spec;
    if (ndp_preference_scores(j->model.preference.kind) && !s->rewards)
        ndp_str_addf(out,
                     "note: loss.name reward: the head of the model is left out; in its place comes score.weight "
                     "[1, %d], drawn by train.seed\n",
                     s->hidden);
    if (s->dropout > 0 && s->dropout_lacks)
        ndp_str_addf(out,
                     "note: a %s whose config.json lacks \"%s\" has dropout %g in training, which is not applied\n",
                     s->type, s->dropout_lacks, s->dropout);
    else if (s->dropout > 0)
        ndp_str_addf(out, "note: config.json asks for dropout in training (up to %g), which is not applied\n",
                     s->dropout);
    if (s->carried > 0 && j->config->model.path && j->config->model.init != NDP_INIT_RANDOM)
        ndp_str_addf(out,
                     "note: the %s that config.json puts behind the last layer, for more tokens, %s not trained; where "
                     "the model folder has tensors of them, exports copy these as they are\n",
                     s->carried == 1 ? "module" : "modules", s->carried == 1 ? "is" : "are");
    if (s->composite && j->config->model.path && j->config->model.init != NDP_INIT_RANDOM)
        ndp_str_addf(out,
                     "note: of the %s in the model folder the text is trained; exports copy the tensors of its other "
                     "parts as they are\n",
                     s->composite);
    else if (s->composite)
        ndp_str_addf(out, "note: of the %s the text is trained; its other parts have no weights, and exports none\n",
                     s->composite);
    if (s->packed && j->config->model.path && j->config->model.init != NDP_INIT_RANDOM)
        ndp_str_addf(out, "note: %s are dequantised where they are read; %s\n", s->packed,
                     j->model.base == NDP_PACKING_NONE
                         ? "the run trains and exports them as any weights"
                         : "adapter.base packs them again, and nf4 keeps the codes of nf4");
    note_states(j, out);
    ndp_job_note_bubble(j, out);
}

/* "lora", "qlora (nf4) with dora" */
static void name_adapter(const ndp_job *j, ndp_str *out) {
    ndp_adapter_form form = j->model.adapter.form;
    if (j->model.base == NDP_PACKING_NONE)
        ndp_str_add(out, ndp_form_rules[form].name);
    else
        ndp_str_addf(out, "qlora (%s)%s%s", ndp_packing_name(j->model.base), form == NDP_LORA ? "" : " with ",
                     form == NDP_LORA ? "" : ndp_form_rules[form].name);
}

/* "adapter: dora of rank 16, scale 2, dropout 0.05, beside q_proj, v_proj" */
static void describe_adapter(const ndp_job *j, const ndp_model *m, ndp_str *out) {
    const ndp_adapter *a = &j->model.adapter;
    if (a->r == 0)
        return;
    ndp_str_add(out, "adapter: ");
    name_adapter(j, out);
    ndp_str_addf(out, " of rank %d, scale %g, ", a->r, a->scale);
    if (a->dropout > 0)
        ndp_str_addf(out, "dropout %g, ", a->dropout);
    ndp_str_add(out, "beside ");
    ndp_adapter_describe(m, out);
    for (int i = 0; i < a->n_save; i++)
        ndp_str_addf(out, "%s %s", i ? "," : "; trained whole:", a->save[i]);
    ndp_str_add(out, "\n");
}

/* Lines on what depends on names of tensors. */
static void describe_tensors(const ndp_job *j, ndp_str *out) {
    ndp_model m;
    if ((j->model.adapter.r == 0 && !j->groups) || ndp_model_build(&j->spec, &j->model, &m) != NDP_OK)
        return;
    describe_adapter(j, &m, out);
    ndp_job_describe_groups(j, &m, out);
    ndp_model_release(&m);
}

void ndp_job_describe(const ndp_job *j, ndp_str *out) {
    char layout[128];
    double millions = (double)j->spec.parameters * 1e-6;
    const ndp_model_spec *s = &j->spec;
    ndp_str_addf(out, "model: %s, %d layers, hidden %d, ", s->type, s->layout.layers, s->hidden);
    if (s->layout.heads)
        ndp_str_addf(out, "heads %d (%d kv), ", s->layout.heads, s->layout.kv_heads);
    ndp_str_addf(out, "vocabulary %lld, %.*f M parameters\n", (long long)s->vocab, millions < 10 ? 2 : 1, millions);
    describe_tensors(j, out);
    ndp_job_notes(j, out);
    ndp_str_addf(out, "layout: %s on %d rank%s, compute %s%s\n", ndp_layout_text(&j->layout, layout, sizeof layout),
                 j->world, j->world == 1 ? "" : "s", ndp_dtype_name(j->model.compute),
                 j->planned.fp8 ? ", products in fp8" : "");
    ndp_str_addf(
        out, "batch: global batch %d samples = micro batch %d x %d data rank%s x accumulation %d; %d tokens a sample\n",
        j->batch.global_batch, j->batch.micro_batch, j->batch.data_ranks, j->batch.data_ranks == 1 ? "" : "s",
        j->batch.accumulation, j->config->data.sequence_length);
    ndp_str_add(out, j->chosen);
}

/* What follows from the model's config.json alone. */
static ndp_status read_model(const ndp_config *c, ndp_job *j) {
    *j = (ndp_job){.config = c};
    NDP_CHECK(c->model.path || c->model.config, "no model: set model.path, or model.config and model.init: random");
    ndp_status st = ndp_job_find_model(j);
    if (st == NDP_OK)
        st = ndp_model_spec_read(j->facts_path, &c->own, &j->spec);
    if (st == NDP_OK && c->model.path && c->model.init == NDP_INIT_PRETRAINED)
        st = ndp_weights_check_files(j->model_folder);
    if (st != NDP_OK && c->model.path)
        st = ndp_hub_explain(NDP_HUB_MODEL, c->model.path, j->model_folder, st);
    return st;
}

ndp_status ndp_model_summarize(const ndp_config *c, ndp_model_summary *out) {
    NDP_NOT_NULL(c, out);
    ndp_job j;
    ndp_status st = read_model(c, &j);
    if (st == NDP_OK) {
        const ndp_model_spec *s = &j.spec;
        *out = (ndp_model_summary){.layers = s->layout.layers,
                                   .heads = s->layout.heads,
                                   .parameters = s->parameters,
                                   .positions = s->positions,
                                   .vocabulary = s->vocab};
        snprintf(out->family, sizeof out->family, "%s", s->type);
    }
    ndp_job_release(&j);
    return st;
}

static ndp_status list_tensors(const ndp_model_spec *spec, char **names) {
    ndp_model_opts o = {.rows = 1, .positions = 1, .samples = 1, .compute = NDP_F32, .master = NDP_F32};
    ndp_model m;
    ndp_str out = {0};
    NDP_TRY(ndp_model_build(spec, &o, &m));
    for (ndp_tensor_walk w = {.segments.model = &m}; ndp_tensor_next(&w);)
        ndp_str_addf(&out, "%s\n", w.tensor.name);
    ndp_model_release(&m);
    char *whole = ndp_str_detach(&out);
    ndp_str_release(&out);
    *names = whole ? whole : *names;
    return NDP_MEMORY(whole, "for the names of the model's tensors");
}

ndp_status ndp_model_tensors(const ndp_config *c, char **names) {
    NDP_NOT_NULL(c, names);
    ndp_job j;
    ndp_status st = read_model(c, &j);
    if (st == NDP_OK)
        st = list_tensors(&j.spec, names);
    ndp_job_release(&j);
    return st;
}
