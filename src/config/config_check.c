/* Rules that several keys of a configuration keep together, or that a type cannot say. */
#include "config/config.h"

#include "base/full_match.h"
#include "base/hub.h"
#include "config/table.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static ndp_status check_date(const char *date) {
    int year, month, day, end = 0;
    NDP_CHECK(!date || (sscanf(date, "%4d-%2d-%2d%n", &year, &month, &day, &end) == 3 && strlen(date) == 10 &&
                        end == 10 && month >= 1 && month <= 12 && day >= 1 && day <= 31),
              "data.template_date is '%.60s', expected a date such as 2024-07-26", date);
    return NDP_OK;
}

static ndp_status check_urls(const char *key, const ndp_strings *names) {
    for (int i = 0; i < names->n; i++)
        NDP_TRY(ndp_hub_refuse_url(key, names->items[i]));
    return NDP_OK;
}

static ndp_status check_role(const char *item) {
    const char *role = strstr(item, ": ");
    ndp_role known;
    ndp_str roles = {0};
    if (role && role > item && ndp_role_of(role + 2, &known))
        return NDP_OK;
    for (int r = 0; r < NDP_ROLES; r++)
        ndp_str_add_choice(&roles, r, NDP_ROLES, ndp_role_name((ndp_role)r));
    ndp_status st = NDP_FAIL(NDP_EINVAL, "data.roles has '%.60s', expected NAME: ROLE, where the role is %s", item,
                             roles.failed ? "" : roles.data);
    ndp_str_release(&roles);
    return st;
}

static ndp_status check_steps(const ndp_config *c) {
    NDP_CHECK(c->train.epochs == 0 || !c->given[ndp_option_find("train", "steps") - ndp_options],
              "train.steps %d and train.epochs %g are both set; remove one of them, or set train.epochs: 0",
              c->train.steps, c->train.epochs);
    NDP_CHECK(c->schedule.warmup_ratio == 0 || !c->given[ndp_option_find("schedule", "warmup_steps") - ndp_options],
              "schedule.warmup_steps %d and schedule.warmup_ratio %g are both set; set one of them",
              c->schedule.warmup_steps, c->schedule.warmup_ratio);
    return NDP_OK;
}

/* What a run has to have, and a plan need not. */
static ndp_status check_files(const ndp_config *c) {
    bool files = c->data.files.n > 0;
    NDP_CHECK(files || c->train.own_batches,
              "data.files is empty; name a text or JSONL file: data: {files: [corpus.txt]}");
    NDP_CHECK(files || c->train.epochs == 0,
              "train.epochs is %g, but data.files is empty: epochs of your own batches are not known; set train.steps",
              c->train.epochs);
    return NDP_OK;
}

/* Rows of the user's own have one loss. */
static ndp_status check_own_batches(const ndp_config *c) {
    NDP_CHECK(
        !c->train.own_batches || c->loss.name == NDP_LOSS_XENT,
        "train.own_batches is for loss.name xent, not %s: a loss of your own is made of weights, or of a function of "
        "log-probabilities (ndp_trainer_forward_backward)",
        ndp_option_find("loss", "name")->words[c->loss.name]);
    NDP_CHECK(!c->train.own_logits || c->loss.name == NDP_LOSS_XENT,
              "train.own_logits is for loss.name xent, the loss of single tokens, not %s",
              ndp_option_find("loss", "name")->words[c->loss.name]);
    NDP_CHECK(c->train.own_generate == 0 || c->train.own_batches,
              "train.own_generate is %d, but only a program of your own continues texts: set train.own_batches: true",
              c->train.own_generate);
    return NDP_OK;
}

static ndp_status check_data(const ndp_config *c) {
    NDP_TRY(check_date(c->data.template_date));
    NDP_TRY(check_own_batches(c));
    NDP_TRY(check_urls("data.files", &c->data.files));
    NDP_TRY(check_urls("data.validation_files", &c->data.validation_files));
    NDP_TRY(ndp_config_check_mix(c));
    for (int i = 0; i < c->data.roles.n; i++)
        NDP_TRY(check_role(c->data.roles.items[i]));
    NDP_CHECK(c->data.validation_fraction == 0 || c->data.validation_files.n == 0,
              "data.validation_fraction %g and data.validation_files are both set; set one of them",
              c->data.validation_fraction);
    NDP_CHECK(
        c->train.eval_every == 0 || c->data.validation_fraction > 0 || c->data.validation_files.n > 0,
        "train.eval_every is %d, but there is no held-out data; set data.validation_fraction or data.validation_files",
        c->train.eval_every);
    NDP_CHECK((c->train.sample_every > 0) == (c->train.sample_prompts.n > 0),
              "train.%s is set without train.%s; set both, or neither",
              c->train.sample_every ? "sample_every" : "sample_prompts",
              c->train.sample_every ? "sample_prompts" : "sample_every");
    NDP_CHECK(c->train.eval_every > 0 || !(c->train.keep_best || c->train.stop_after),
              "train.%s is set, but nothing is evaluated before the end; set train.eval_every, and "
              "data.validation_fraction or data.validation_files",
              c->train.keep_best ? "keep_best" : "stop_after");
    return NDP_OK;
}

static ndp_status check_trained(const ndp_config *c) {
    const ndp_strings *names = &c->model.trained;
    NDP_CHECK(names->n == 0 || c->model.frozen.n == 0,
              "model.trained names what is trained, and all else is frozen: leave model.frozen empty");
    NDP_CHECK(
        names->n == 0 || c->adapter.type == NDP_ADAPTER_NONE,
        "model.trained is set beside an adapter, whose factors are what is trained; adapter.modules_to_save names "
        "modules that are trained with them");
    for (int i = 0; i < names->n; i++) {
        const char *regex = ndp_regex_of(names->items[i]);
        ndp_status st = regex ? ndp_full_match_check(regex) : NDP_OK;
        if (st != NDP_OK)
            return NDP_FAIL(st, "model.trained: %s", ndp_error_message());
    }
    return NDP_OK;
}

/* Keys of an adapter without one would be ignored. */
static ndp_status check_adapter(const ndp_config *c) {
    ndp_config defaults;
    NDP_TRY(ndp_config_init(&defaults));
    ndp_status st = NDP_OK;
    bool none = c->adapter.type == NDP_ADAPTER_NONE, lora = c->adapter.type == NDP_ADAPTER_LORA;
    for (int i = 0; i < ndp_option_count && st == NDP_OK; i++) {
        const ndp_option *o = &ndp_options[i];
        bool unread = strcmp(o->key, "type") != 0 && (none || (lora && strcmp(o->key, "base") == 0));
        if (strcmp(o->section, "adapter") == 0 && unread && !ndp_option_is_same(o, c, o, &defaults))
            st = NDP_FAIL(NDP_EINVAL, "adapter.%s is set, but adapter.type is %s; set adapter.type: %s", o->key,
                          none ? "none" : "lora, whose base is stored in precision.compute",
                          none ? "lora or qlora, or remove the section" : "qlora");
    }
    ndp_config_release(&defaults);
    for (int i = 0; i < c->adapter.targets.n && st == NDP_OK; i++) {
        const char *target = c->adapter.targets.items[i], *regex = ndp_regex_of(target);
        if (regex && (st = ndp_full_match_check(regex)) != NDP_OK)
            st = NDP_FAIL(st, "adapter.targets: %s", ndp_error_message());
        else if (!regex && ndp_pattern_repeats(target))
            st = NDP_FAIL(
                NDP_EINVAL,
                "adapter.targets: '%.100s' has a * or + inside of a group that repeats, which may take forever "
                "to compare; name the projections, or patterns such as *.@(q|v)_proj",
                target);
    }
    return st;
}

/* An option that only losses with a flag read, a member of ndp_preference_row: names these. */
static ndp_status refuse_loss_option(const char *key, double value, size_t flag) {
    const ndp_preference_row *rows[NDP_PREFERENCE_KINDS], *r = ndp_preference_table;
    int n = 0;
    ndp_str names = {0};
    for (int k = 0; k < NDP_PREFERENCE_KINDS; k++)
        if (*(const bool *)((const char *)&r[k] + flag))
            rows[n++] = &r[k];
    for (int i = 0; i < n; i++) {
        bool varies = strcmp(rows[i]->variant, ndp_option_find("loss", "variant")->words[0]) != 0;
        ndp_str_add_choice(&names, i, n, rows[i]->name);
        if (varies)
            ndp_str_addf(&names, " (variant %s)", rows[i]->variant);
    }
    ndp_status st = NDP_FAIL(NDP_EINVAL, "loss.%s is %g, which only loss.name %s reads; remove it", key, value,
                             names.failed ? "" : names.data);
    ndp_str_release(&names);
    return st;
}

/* An option of the losses that the one of the job does not read. */
static ndp_status check_loss_options(const ndp_config *c, const ndp_preference_row *row) {
    if (c->loss.label_smoothing != 0 && !(row && row->smoothed))
        return refuse_loss_option("label_smoothing", c->loss.label_smoothing, offsetof(ndp_preference_row, smoothed));
    if (c->loss.gamma != strtod(ndp_option_find("loss", "gamma")->value, NULL) && !(row && row->margin))
        return refuse_loss_option("gamma", c->loss.gamma, offsetof(ndp_preference_row, margin));
    const bool scores = row && ndp_preference_scores(ndp_preference_find(c->loss.name, c->loss.variant));
    NDP_CHECK(c->loss.center == 0 || scores, "loss.center is %g, which only loss.name reward reads; remove it",
              c->loss.center);
    NDP_CHECK(!scores ||
                  (c->loss.beta == strtod(ndp_option_find("loss", "beta")->value, NULL) && c->loss.sft_weight == 0),
              "loss.beta is %g and loss.sft_weight %g, which loss.name reward does not read: a reward model has "
              "rewards, and no log-probabilities; remove them",
              c->loss.beta, c->loss.sft_weight);
    NDP_CHECK(c->loss.sft_weight == 0 || row,
              "loss.sft_weight is %g, but loss.name is xent, which is the loss of all tokens; remove it",
              c->loss.sft_weight);
    NDP_CHECK((c->loss.desirable_weight == 1 && c->loss.undesirable_weight == 1) || (row && row->single),
              "loss.desirable_weight is %g and loss.undesirable_weight %g, which only loss.name kto reads; remove them",
              c->loss.desirable_weight, c->loss.undesirable_weight);
    return NDP_OK;
}

/* A pair is two rows that stay together; a single answer is compared with what the whole update says. */
static ndp_status check_batch_of_answers(const ndp_config *c, const ndp_preference_row *row) {
    const int micro = c->batch.micro_batch_size, global = c->batch.global_batch_size;
    if (row->single) {
        NDP_CHECK(
            global >= 2 || row->single != NDP_SINGLE_TO_POINT,
            "batch.global_batch_size is 1, but loss.name %s needs other answers in the update: it pairs each with "
            "the next prompt to estimate the KL divergence; set it to 2 or more",
            row->name);
        return NDP_OK;
    }
    NDP_CHECK(micro % 2 == 0,
              "batch.micro_batch_size is %d, but a pair is two rows, which stay together; set it to an even number, "
              "such as %d",
              micro, micro + 1);
    NDP_CHECK(global % 2 == 0,
              "batch.global_batch_size is %d rows, but a pair is two rows; set it to an even number, such as %d",
              global, global + 1);
    return NDP_OK;
}

static ndp_status check_token_weight(const ndp_config *c) {
    const char *word = ndp_option_find("loss", "token_weight")->words[c->loss.token_weight];
    static const char *const keys[] = {"entropy_k", "entropy_alpha", "entropy_unit"};
    const double values[] = {c->loss.entropy_k, c->loss.entropy_alpha, c->loss.entropy_unit};
    bool weighted = c->loss.token_weight != NDP_TOKEN_WEIGHT_NONE;
    NDP_CHECK(!weighted || c->loss.name == NDP_LOSS_XENT,
              "loss.token_weight is %s, but loss.name is %s, a loss of whole answers; remove it", word,
              ndp_option_find("loss", "name")->words[c->loss.name]);
    NDP_CHECK(
        !weighted || !c->train.own_logits,
        "loss.token_weight is %s, but train.own_logits has a loss of yours, which weights tokens itself; remove it",
        word);
    for (int i = 0; i < NDP_COUNT(keys); i++)
        NDP_CHECK(c->loss.token_weight == NDP_TOKEN_WEIGHT_ENTROPY ||
                      values[i] == strtod(ndp_option_find("loss", keys[i])->value, NULL),
                  "loss.%s is %g, which only loss.token_weight entropy reads; remove it", keys[i], values[i]);
    return NDP_OK;
}

/* Pairs without a loss of pairs. */
static ndp_status refuse_loss_of_tokens(void) {
    const ndp_option *o = ndp_option_find("loss", "name");
    ndp_str ways = {0};
    for (int i = NDP_LOSS_XENT + 1; i < NDP_LOSS_COUNT; i++) {
        char way[40];
        snprintf(way, sizeof way, "{name: %s}", o->words[i]);
        ndp_str_add_choice(&ways, i - NDP_LOSS_XENT - 1, NDP_LOSS_COUNT - NDP_LOSS_XENT - 1, way);
    }
    ndp_status st =
        NDP_FAIL(NDP_EINVAL, "data.format is preference, but loss.name is xent, a loss of tokens; set loss: %s",
                 ways.failed ? "" : ways.data);
    ndp_str_release(&ways);
    return st;
}

/* Preference data and its losses need each other. */
static ndp_status check_preference(const ndp_config *c) {
    bool pairs = c->data.format == NDP_RECORD_PREFERENCE, loss = c->loss.name != NDP_LOSS_XENT;
    ndp_preference_kind kind = ndp_preference_find(c->loss.name, c->loss.variant);
    if (pairs && !loss)
        return refuse_loss_of_tokens();
    NDP_CHECK(pairs || !loss,
              "loss.name is a loss of preference data, but data.format is not preference; set data.format: "
              "preference, or loss.name: xent");
    NDP_CHECK(c->loss.variant == 0 || kind != NDP_PREFERENCE_NONE,
              "loss.variant is %s, which loss.name %s does not have; remove it",
              ndp_option_find("loss", "variant")->words[c->loss.variant],
              ndp_option_find("loss", "name")->words[c->loss.name]);
    NDP_TRY(check_token_weight(c));
    NDP_TRY(check_loss_options(c, loss ? &ndp_preference_table[kind] : NULL));
    if (!pairs)
        return NDP_OK;
    NDP_CHECK(c->data.train_on != NDP_TRAIN_ON_ALL,
              "data.train_on is all, but of preference data the answers are compared; remove it");
    NDP_CHECK(!c->data.packing, "data.packing is true, but a document of preference data has a row for itself; set "
                                "data.packing: false");
    NDP_CHECK(c->data.overlong != NDP_OVERLONG_CUT,
              "data.overlong is cut, but a document of preference data is one row; set data.overlong: truncate, drop "
              "or error");
    return check_batch_of_answers(c, &ndp_preference_table[kind]);
}

ndp_status ndp_config_check(const ndp_config *c) {
    NDP_NOT_NULL(c);
    NDP_TRY(ndp_config_check_planned(c, false));
    return check_files(c);
}

void ndp_config_planned_only(const ndp_config *c, bool instead, ndp_str *out) {
    const struct {
        bool planned;
        const char *value, *instead;
    } rows[] = {{c->precision.compute == NDP_COMPUTE_FP8, "precision.compute: fp8", "precision.compute: bf16"},
                {c->precision.reduce == NDP_BF16, "precision.reduce: bf16", "precision.reduce: fp32"},
                {c->precision.tp_reduce == NDP_BF16, "precision.tp_reduce: bf16", "precision.tp_reduce: fp32"}};
    for (int i = 0, n = 0; i < NDP_COUNT(rows); i++)
        if (rows[i].planned)
            ndp_str_addf(out, "%s%s", n++ ? ", " : "", instead ? rows[i].instead : rows[i].value);
}

static ndp_status refuse_planned_only(const ndp_config *c) {
    ndp_str values = {0}, instead = {0};
    ndp_config_planned_only(c, false, &values);
    ndp_config_planned_only(c, true, &instead);
    ndp_status st = !values.length ? NDP_OK
                                   : NDP_FAIL(NDP_EINVAL, "%s: only planned, by `plan --cluster`; to run, set %s",
                                              values.data, instead.data ? instead.data : "");
    ndp_str_release(&values);
    ndp_str_release(&instead);
    return st;
}

ndp_status ndp_config_check_planned(const ndp_config *c, bool cluster) {
    if (!cluster)
        NDP_TRY(refuse_planned_only(c));
    NDP_CHECK(c->model.path || c->model.config,
              "no model: set model.path (a Hugging Face folder) or model.config (a config.json, random weights)");
    NDP_CHECK(!c->model.path || !c->model.config, "model.path '%s' and model.config '%s' are both set; set one of them",
              c->model.path, c->model.config);
    NDP_TRY(ndp_hub_refuse_url("model.path", c->model.path));
    NDP_TRY(ndp_hub_refuse_url("data.tokenizer", c->data.tokenizer));
    NDP_CHECK(c->model.path || c->model.init == NDP_INIT_RANDOM,
              "model.init is pretrained, but model.config '%s' has no weights; set init: random, or set model.path",
              c->model.config);
    NDP_TRY(check_trained(c));
    NDP_TRY(check_adapter(c));
    NDP_TRY(check_steps(c));
    NDP_TRY(check_data(c));
    NDP_TRY(check_preference(c));
    bool file = c->pipeline.schedule == NDP_PIPELINE_FILE;
    NDP_CHECK(!file || c->pipeline.file, "pipeline.schedule is file: set pipeline.file to a CSV, a row per rank");
    NDP_CHECK(file || !c->pipeline.file, "pipeline.file is '%s', but pipeline.schedule is %s; set schedule: file",
              c->pipeline.file, ndp_pipeline_table[c->pipeline.schedule].name);
    const ndp_device_row *device = &ndp_device_table[c->train.device];
    NDP_CHECK(c->precision.compute != NDP_F64 || device->fp64,
              "precision.compute fp64 is for train.device ref only; set device: ref, or compute: fp32 or bf16");
    NDP_CHECK(c->precision.weights != NDP_BF16 || c->precision.compute == NDP_BF16 ||
                  c->precision.compute == NDP_COMPUTE_FP8,
              "precision.weights is bf16, but kernels compute in another type; set precision.compute: bf16, or "
              "weights: fp32");
    NDP_CHECK(c->train.matmul == NDP_MATMUL_FP32 || device->tf32,
              "train.matmul tf32 is for train.device cuda only; this job's device is %s", device->name);
    NDP_CHECK(c->batch.micro_batch_size <= c->batch.global_batch_size,
              "batch.micro_batch_size %d is more than batch.global_batch_size %d", c->batch.micro_batch_size,
              c->batch.global_batch_size);
    const ndp_option *open = NULL;
    for (int i = 0; i < ndp_option_count; i++) {
        const ndp_option *o = &ndp_options[i];
        bool size = o->open && strcmp(o->section, "parallelism") == 0;
        if (!size || *(const int *)((const char *)c + o->offset) != 0)
            continue;
        NDP_CHECK(!open,
                  "parallelism.%s and parallelism.%s are both auto; set one of them to a number "
                  "(dp_shard_size is auto unless set)",
                  open->key, o->key);
        open = o;
    }
    return NDP_OK;
}
