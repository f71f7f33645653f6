/* A model that no family has, on every layout: blocks in which a causal convolution and attention read the same rows
 * side by side, and a gated MLP.
 *
 *     own_model DATA FOLDER
 *
 * DATA is text, or JSONL; FOLDER is made and gets config.json, the runs and the trained model. The program
 *
 * 1. proves that dp_shard, tp and pp compute what one rank does (`ndp_verify`), and shows why cp is refused;
 * 2. trains on dp_shard 2 x tp 2, saves a checkpoint, and resumes it on pp 2 x dp_replicate 2.
 *
 * Another layout is another call of configure(): the model says nothing of ranks. */
#include <ndparallel/model.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- the model ---- */

/* What config.json says of one. No pointers: the library copies it. */
typedef struct facts {
    int64_t vocab, hidden, blocks, heads, kv_heads, taps, width;
} facts;

static void read_facts(ndp_model_json *config, void *out) {
    facts *f = out;
    f->vocab = ndp_model_json_int(config, "vocab_size", 1, 1 << 24);
    f->hidden = ndp_model_json_int(config, "hidden_size", 1, 1 << 20);
    f->blocks = ndp_model_json_int(config, "blocks", 1, 1000);
    f->heads = ndp_model_json_int(config, "heads", 1, 1000);
    f->kv_heads = ndp_model_json_int(config, "kv_heads", 1, 1000);
    f->taps = ndp_model_json_int(config, "taps", 1, 64);
    f->width = ndp_model_json_int(config, "width", 1, 1 << 20);
    if (f->heads > 0 && f->hidden % (2 * f->heads) != 0)
        ndp_model_json_fail(config, "hidden_size %lld is no even multiple of heads %lld", (long long)f->hidden,
                            (long long)f->heads);
}

static int norm(ndp_model_builder *b, int x, const char *name) {
    return ndp_build_norm(b, x, NDP_OPTS(ndp_norm_opts, .name = name));
}

static int linear(ndp_model_builder *b, int x, const char *name, int64_t columns, bool cut) {
    return ndp_build_linear(b, x, NDP_OPTS(ndp_linear_opts, .name = name, .columns = columns, .cut = cut));
}

/* n = norm(x);  y = x + attention(n) + conv(n);  y + down(silu(gate norm(y)) * up norm(y)) */
static int block(ndp_model_builder *b, const facts *f, int x) {
    int n = norm(b, x, "norm");
    int seen = ndp_build_attention(b, n,
                                   NDP_OPTS(ndp_attention_opts, .name = "attention", .heads = (int)f->heads,
                                            .kv_heads = (int)f->kv_heads, .head_dim = (int)(f->hidden / f->heads),
                                            .rope_theta = 1e4));
    /* Tensor parallelism cuts the columns here, each of which the convolution filters by itself, on all rows. */
    int mixed = ndp_build_causal_conv(b, linear(b, n, "conv.in", f->hidden, true),
                                      NDP_OPTS(ndp_conv_opts, .name = "conv.filter", .taps = (int)f->taps));
    int y = ndp_build_add(b, x, linear(b, seen, "attention.out", f->hidden, false));
    y = ndp_build_add(b, y, linear(b, ndp_build_gelu(b, mixed), "conv.out", f->hidden, false));
    int gated = ndp_build_gated(b, norm(b, y, "mlp.norm"),
                                NDP_OPTS(ndp_gated_opts, .gate = "mlp.gate", .up = "mlp.up", .columns = f->width));
    return ndp_build_add(b, y, linear(b, gated, "mlp.down", f->hidden, false));
}

static void build(const void *of, ndp_model_builder *b) {
    const facts *f = of;
    ndp_build_unit(b, 0, "embed");
    int x =
        ndp_build_embedding(b, NDP_OPTS(ndp_embedding_opts, .name = "tokens", .rows = f->vocab, .columns = f->hidden));
    for (int i = 0; i < f->blocks; i++)
        x = block(b, f, ndp_build_unit(b, x, "blocks.%d", i));
    x = ndp_build_unit(b, x, "head");
    ndp_build_head(b, norm(b, x, "norm"), NDP_OPTS(ndp_head_opts, .name = NULL)); /* tied to the embedding */
}

/* Norms begin as 1, filters pass the row itself, all else is small. */
static void draw(const void *of, const ndp_drawn *d, float *out) {
    (void)of;
    ndp_draw_normal(d, d->dimensions == 2 ? 0.05 : 0, out);
    for (int64_t i = 0; i < d->count; i++)
        if (d->dimensions == 1 || (strstr(d->name, ".filter.") && d->first + i < d->shape[1]))
            out[i] += 1;
}

static const ndp_architecture mixer = {sizeof mixer, "mixer", sizeof(facts), read_facts, build, draw};

static const char config_json[] =
    "{\"model_type\": \"mixer\", \"vocab_size\": 258, \"hidden_size\": 32, \"blocks\": 4, \"heads\": 4,\n"
    " \"kv_heads\": 2, \"taps\": 4, \"width\": 64, \"max_position_embeddings\": 128, \"eos_token_id\": 257}\n";

/* ---- the runs ---- */

typedef struct job {
    const char *data, *folder;
} job;

/* The caller destroys it. NULL: an error. */
static ndp_config *configure(const job *j, const char *layout) {
    ndp_config *c = NULL;
    char axis[32];
    int size, used;
    ndp_status st = ndp_config_create(&c);
    if (st == NDP_OK)
        st = ndp_config_add_architecture(c, &mixer);
    if (st == NDP_OK)
        st = ndp_config_setf(c, "model.config=\"%s/config.json\"", j->folder);
    if (st == NDP_OK)
        st = ndp_config_setf(c, "data.files=[\"%s\"]", j->data);
    if (st == NDP_OK)
        st = ndp_config_setf(c, "train.output_dir=\"%s/run\"", j->folder);
    const char *const rest[] = {"data.tokenizer=bytes",      "data.sequence_length=64", "train.steps=20",
                                "batch.global_batch_size=8", "optimizer.lr=3e-3",       "train.log_every=1",
                                "batch.micro_batch_size=2"};
    for (size_t i = 0; i < sizeof rest / sizeof *rest && st == NDP_OK; i++)
        st = ndp_config_set(c, rest[i]);
    for (; layout && st == NDP_OK && sscanf(layout, "%31[a-z_]=%d%n", axis, &size, &used) == 2;
         layout += *layout == ',') {
        st = ndp_config_setf(c, "parallelism.%s_size=%d", axis, size);
        layout += used;
    }
    if (st == NDP_OK)
        return c;
    fprintf(stderr, "own_model: %s\n", ndp_error_message());
    ndp_config_destroy(c);
    return NULL;
}

/* Compares layouts with one rank, one at a time: one of them is refused. */
static bool verify(const job *j) {
    static const char *const layouts[] = {"dp_shard=2", "tp=2", "pp=2", "dp_shard=2,tp=2,pp=2", "cp=2"};
    bool agree = true;
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        ndp_config *c = configure(j, NULL);
        ndp_verify_opts o = NDP_VERIFY_OPTS_INIT;
        ndp_verdict v;
        o.layouts = &layouts[i], o.n = 1, o.steps = 3;
        ndp_status st = c ? ndp_verify(c, &o, &v) : NDP_EINVAL;
        const char *words = st == NDP_OK ? v.words : ndp_error_message();
        printf("%-21s %s%s%s\n", layouts[i], st == NDP_OK ? (v.agrees ? "agrees" : "DISAGREES") : "refused",
               *words ? ": " : "", words);
        agree &= st == NDP_OK ? v.agrees : st == NDP_ENOTSUP;
        ndp_config_destroy(c);
    }
    return agree;
}

typedef struct part {
    ndp_config *config;
    int last;  /* steps of the run so far, at its end */
    bool save; /* else it resumes, and exports the model */
} part;

static ndp_status steps(ndp_trainer *t, const part *p, bool first) {
    int64_t step = 0;
    ndp_status st = p->save ? NDP_OK : ndp_trainer_resume(t, NULL, &step);
    if (step > 0 && first)
        printf("resumed after step %lld\n", (long long)step);
    for (; step < p->last && st == NDP_OK; step++) {
        ndp_metrics m;
        st = ndp_trainer_step(t, &m);
        if (st == NDP_OK && first && (step + 1) % 5 == 0)
            printf("step %2lld  loss %.4f\n", (long long)m.step, m.loss);
    }
    if (st == NDP_OK && p->save)
        st = ndp_trainer_save(t, NULL);
    return st == NDP_OK && !p->save ? ndp_trainer_export(t, NULL) : st;
}

/* What each rank does. */
static ndp_status train(ndp_world *world, void *arg) {
    const part *p = arg;
    ndp_trainer *t = NULL;
    bool first = ndp_world_rank(world) == 0;
    ndp_status st = ndp_trainer_create(p->config, world, &t);
    if (st == NDP_OK && first)
        printf("training on %d ranks\n", ndp_world_size(world));
    if (st == NDP_OK)
        st = steps(t, p, first);
    ndp_trainer_destroy(t);
    return st;
}

static bool run(const job *j, const char *layout, int last, bool save) {
    part p = {configure(j, layout), last, save};
    ndp_status st = p.config ? ndp_world_run(p.config, train, &p) : NDP_EINVAL;
    if (st != NDP_OK)
        fprintf(stderr, "own_model: %s\n", ndp_error_message());
    ndp_config_destroy(p.config);
    return st == NDP_OK;
}

int main(int argc, char **argv) {
    if (argc != 3) {
        fprintf(stderr, "usage: own_model DATA FOLDER\n");
        return 2;
    }
    job j = {argv[1], argv[2]};
    char path[4096];
    snprintf(path, sizeof path, "%s/config.json", j.folder);
    mkdir(j.folder, 0777);
    FILE *f = fopen(path, "w");
    if (!f || fputs(config_json, f) < 0 || fclose(f) != 0) {
        perror(path);
        return 1;
    }
    return verify(&j) && run(&j, "dp_shard=2,tp=2", 10, true) && run(&j, "pp=2,dp_replicate=2", 20, false) ? 0 : 1;
}
