/* ndparallel init: asks for a model, data and machines, tries layouts, and writes a job file. Every question is a row
 * of ANSWERS and has an option; nothing is written before the whole job has been checked. */
#include "cli/ask.h"
#include "cli/commands.h"
#include "cli/draft.h"
#include "cli/exit_codes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SHOWN = 8, ANSWER = 256 };
static const char own_template[] = "the tokenizer's own";

/* The questions in their order: X(name, option, letter, value, help, question, fallback, applies). take_NAME takes an
 * answer, `fallback` gives the default (NULL: no default), and `applies` says whether it is asked. */
#define ANSWERS(X)                                                                                                     \
    X(model, "model", 0, "MODEL", "A model folder, a name on the Hub, or a config.json, for random weights",           \
      "Model (a folder, a name on the Hub, or a config.json for random weights)", no_fallback, always)                 \
    X(tokenizer, "tokenizer", 0, "NAME", "With a config.json: bytes, a folder or a tokenizer.json",                    \
      "Tokenizer (bytes, a folder or a tokenizer.json)", default_tokenizer, asks_tokenizer)                            \
    X(data, "data", 0, "NAME", "A file, folder, pattern, or data set on the Hub (org/name:train)",                     \
      "Data (a file, folder, pattern, or org/name:split on the Hub)", no_fallback, always)                             \
    X(format, "format", 0, "WORD", "Format of its records (data.format); default: as they look",                       \
      "Format of its records (auto: by their fields)", default_format, asks_format)                                    \
    X(chat_template, "chat-template", 0, "NAME",                                                                       \
      "Chat template of conversations; default: the tokenizer's own, else chatml", "Chat template", default_template,  \
      asks_template)                                                                                                   \
    X(adapter, "adapter", 0, "KIND",                                                                                   \
      "Train the whole model (none), or factors beside it (lora, qlora); default: none",                               \
      "Adapter (none: train the whole model, lora, qlora)", default_adapter, asks_adapter)                             \
    X(sequence_length, "sequence-length", 0, "N",                                                                      \
      "Tokens in a row; default: 1024, or fewer if the model has fewer positions", "Tokens in a row", default_length,  \
      always)                                                                                                          \
    X(device, "device", 0, "NAME", "cpu or cuda; default: cuda where there are GPUs", "Device (cpu, cuda)",            \
      default_device, asks_device)                                                                                     \
    X(precision, "precision", 0, "TYPE", "Type of activations: fp32 or bf16; default: bf16 on GPUs",                   \
      "Precision (fp32, bf16)", default_precision, always)                                                             \
    X(hosts, "hosts", 0, "N|FILE", "Number of hosts, or a hostfile (node-1 slots=8); default: 1",                      \
      "Number of hosts, or a hostfile", default_hosts, always)                                                         \
    X(devices, "devices", 0, "N", "Ranks on each host; default: its GPUs, its slots, or one for 8 cores",              \
      "Ranks on each host", default_devices, always)                                                                   \
    X(memory, "memory", 0, "GIB", "Memory of a host, or of a GPU; default: what is available here",                    \
      "Memory of a host, or of a GPU, in GiB", default_memory, always)                                                 \
    X(batch, "batch", 0, "N", "Rows in an update; default: 16, or the next number that the ranks divide",              \
      "Rows in an update", default_batch, always)                                                                      \
    X(layout, "layout", 0, "SIZES", "Such as dp_shard=4,tp=2; default: the best of those that fit",                    \
      "Layout (a number, or sizes such as dp_shard=2,tp=2)", default_layout, always)                                   \
    X(epochs, "epochs", 0, "N", "Passes over the data; default: 1", "Passes over the data", default_epochs, always)    \
    X(output_dir, "output-dir", 0, "DIR", "Run folder; default: runs/NAME", "Run folder", default_output_dir, always)  \
    X(output, "output", 'o', "FILE", "The job file; default: job.yaml", "Job file", default_output, always)

#define ANSWER_MEMBER(name, ...) const char *name;
typedef struct init_arguments {
    ANSWERS(ANSWER_MEMBER)
    bool force, yes;
    cli_draft draft;
    ndp_machine machine;
    ndp_model_summary model_is;
    ndp_data_guess data_is;
    ndp_proposal proposals[SHOWN];
    int n_proposals, n_hosts, per_host;
    bool gpu, from_config, listed, pairs;
    bool here; /* the memory is that of this machine */
    const char *template_works;
    double gib;                         /* of a host or a GPU */
    const char *chosen_hosts, *written; /* the hostfile, or NULL; the job file */
    char no_layout[CLI_WHY];            /* why no layout fits; "" if one does */
    char fallback[ANSWER], run_name[ANSWER], hostfile[4096], path[4096];
} init_arguments;

#define ANSWER_OPTION(name, option, letter, value, help, ...)                                                          \
    {option, letter, value, help, CLI_TEXT(init_arguments, name)},
static const cli_option options[] = {
    ANSWERS(ANSWER_OPTION){"force", 0, NULL, "Replace a job file that exists", CLI_FLAG(init_arguments, force)},
    {"yes", 'y', NULL, "Ask only what has no default", CLI_FLAG(init_arguments, yes)},
    {0},
};

static int64_t ranks_of(const init_arguments *a) { return (int64_t)a->n_hosts * a->per_host; }

static bool refuse(char why[CLI_WHY], const char *words) {
    snprintf(why, CLI_WHY, "%s", words);
    return false;
}

/* A whole number from 1 to `most`; 0 for anything else. */
static int number(const char *text, int most) {
    char *end;
    long n = strtol(text, &end, 10);
    return end == text || *end || n < 1 || n > most ? 0 : (int)n;
}

/* Tries the draft as it is by `what`. */
static bool draft_passes(const init_arguments *a, ndp_status (*what)(const ndp_config *, void *), void *user,
                         char why[CLI_WHY]) {
    ndp_config *c = NULL;
    ndp_status st = cli_draft_config(&a->draft, &c);
    if (st == NDP_OK && what)
        st = what(c, user);
    ndp_config_destroy(c);
    return st == NDP_OK || cli_why_failed(why);
}

static const char *no_fallback(init_arguments *a) { return (void)a, NULL; }
static bool always(init_arguments *a) { return (void)a, true; }

/* ---- the model ---- */

static ndp_status summarize(const ndp_config *c, void *out) { return ndp_model_summarize(c, out); }

static const char *default_length(init_arguments *a) {
    snprintf(a->fallback, ANSWER, "%lld", a->model_is.positions < 1024 ? (long long)a->model_is.positions : 1024);
    return a->fallback;
}

/* A run is called as its model: the last part of the path, without a revision. */
static void name_run(init_arguments *a, const char *model) {
    size_t n = strlen(model);
    while (n && model[n - 1] == '/')
        n--;
    const char *begin = model + n;
    while (begin > model && begin[-1] != '/')
        begin--;
    snprintf(a->run_name, ANSWER, "%.*s", (int)strcspn(begin, "@/"), begin);
    if (a->from_config || !a->run_name[0] || a->run_name[0] == '.')
        snprintf(a->run_name, ANSWER, "new");
}

static bool take_model(void *user, const char *answer, char why[CLI_WHY]) {
    init_arguments *a = user;
    size_t n = strlen(answer);
    struct stat info;
    a->from_config = n > 5 && strcmp(answer + n - 5, ".json") == 0 && stat(answer, &info) == 0 && S_ISREG(info.st_mode);
    cli_draft_drop(&a->draft, "model.");
    cli_draft_set_text(&a->draft, a->from_config ? "model.config" : "model.path", NULL, answer);
    if (a->from_config)
        cli_draft_set(&a->draft, "model.init", NULL, "random");
    if (!draft_passes(a, summarize, &a->model_is, why))
        return false;
    name_run(a, answer);
    const ndp_model_summary *m = &a->model_is;
    cli_draft_set(&a->draft, "data.files", NULL, "[]"); /* they come first in the file */
    cli_draft_set(&a->draft, "data.sequence_length", NULL, "%s", default_length(a));
    printf("  %s, %d layers, %.4g M parameters, rows of up to %lld tokens\n", m->family, m->layers,
           (double)m->parameters * 1e-6, (long long)m->positions);
    return true;
}

static bool asks_tokenizer(init_arguments *a) { return a->from_config || a->tokenizer; }
static const char *default_tokenizer(init_arguments *a) { return a->model_is.vocabulary == 258 ? "bytes" : NULL; }
static bool take_tokenizer(void *user, const char *answer, char why[CLI_WHY]) {
    init_arguments *a = user;
    cli_draft_set_text(&a->draft, "data.tokenizer", NULL, answer);
    return draft_passes(a, NULL, NULL, why);
}

/* ---- the data ---- */

/* The line "data: ..." of what a dry run says about the data. */
static ndp_status look_at_data(const ndp_config *c, void *out) {
    ndp_data_opts o = NDP_DATA_OPTS_INIT;
    char *text = NULL;
    o.head = true;
    o.show = 0;
    ndp_status st = ndp_data(c, &o, &text);
    const char *line = st == NDP_OK ? strstr(text, "data: ") : NULL;
    if (line && out)
        printf("  %.*s\n", (int)strcspn(line, "\n"), line);
    free(text);
    return st;
}

static void set_format(init_arguments *a, const char *format) {
    bool pairs = strcmp(format, "preference") == 0;
    cli_draft_drop(&a->draft, "data.format");
    cli_draft_drop(&a->draft, "loss.");
    cli_draft_drop(&a->draft, "batch.micro_batch_size");
    if (strcmp(format, "auto") != 0)
        cli_draft_set_text(&a->draft, "data.format", NULL, format);
    if (pairs) {
        cli_draft_set(&a->draft, "loss.name", "or orpo, simpo, kto, ...", "dpo");
        cli_draft_set(&a->draft, "batch.micro_batch_size", "a pair is two rows", "2");
    }
    a->pairs = pairs;
}

static void set_template(init_arguments *a, const char *name) {
    cli_draft_drop(&a->draft, "data.chat_template");
    if (strcmp(name, own_template) != 0)
        cli_draft_set_text(&a->draft, "data.chat_template", NULL, name);
}

/* Reads the beginning of the data as the options and its looks say. Conversations that the tokenizer's own template
 * cannot render are tried with chatml. */
static bool read_data(init_arguments *a, char why[CLI_WHY]) {
    set_format(a, a->format ? a->format : a->data_is.format);
    set_template(a, a->chat_template ? a->chat_template : own_template);
    a->template_works = own_template;
    if (draft_passes(a, look_at_data, a, why))
        return true;
    if (a->chat_template || !a->data_is.conversations)
        return false;
    char first[CLI_WHY];
    memcpy(first, why, sizeof first);
    set_template(a, a->template_works = "chatml");
    if (draft_passes(a, look_at_data, a, why))
        return true;
    memcpy(why, first, sizeof first);
    return false;
}

static bool take_data(void *user, const char *answer, char why[CLI_WHY]) {
    init_arguments *a = user;
    if (ndp_data_guess_of(answer, &a->data_is) != NDP_OK)
        return cli_why_failed(why);
    cli_draft_set_list(&a->draft, "data.files", NULL, answer);
    cli_draft_drop(&a->draft, "data.text_field");
    if (a->data_is.text_field[0])
        cli_draft_set_text(&a->draft, "data.text_field", NULL, a->data_is.text_field);
    printf("  %s%s%s\n", a->data_is.kind, a->data_is.text_field[0] ? ", the text in " : "", a->data_is.text_field);
    return read_data(a, why);
}

static bool asks_format(init_arguments *a) {
    return a->format || (strcmp(a->data_is.kind, "text") != 0 && strcmp(a->data_is.kind, "token ids") != 0);
}
static const char *default_format(init_arguments *a) { return a->data_is.format; }
static bool take_format(void *user, const char *answer, char why[CLI_WHY]) {
    init_arguments *a = user;
    set_format(a, answer);
    return draft_passes(a, look_at_data, NULL, why);
}

static bool asks_template(init_arguments *a) { return a->chat_template || a->data_is.conversations; }
static const char *default_template(init_arguments *a) { return a->template_works; }
static bool take_chat_template(void *user, const char *answer, char why[CLI_WHY]) {
    init_arguments *a = user;
    set_template(a, answer);
    return draft_passes(a, look_at_data, NULL, why);
}

/* ---- the training ---- */

static bool asks_adapter(init_arguments *a) { return a->adapter || !a->from_config; }
static const char *default_adapter(init_arguments *a) { return (void)a, "none"; }
static bool take_adapter(void *user, const char *answer, char why[CLI_WHY]) {
    init_arguments *a = user;
    cli_draft_drop(&a->draft, "adapter.");
    bool none = strcmp(answer, "none") == 0;
    if (!none)
        cli_draft_set_text(&a->draft, "adapter.type", NULL, answer);
    cli_draft_set(&a->draft, "optimizer.lr", NULL, "%s",
                  a->from_config     ? "3.0e-4"
                  : none && a->pairs ? "1.0e-6"
                  : none             ? "1.0e-5"
                                     : "2.0e-4");
    return draft_passes(a, NULL, NULL, why);
}

static bool take_sequence_length(void *user, const char *answer, char why[CLI_WHY]) {
    init_arguments *a = user;
    cli_draft_set(&a->draft, "data.sequence_length", "tokens in a row", "%s", answer);
    if (!draft_passes(a, NULL, NULL, why))
        return false;
    if (number(answer, 1 << 24) > a->model_is.positions)
        return refuse(why, "the model was made for fewer positions than that");
    bool known = strcmp(answer, default_length(a)) == 0; /* it has been printed */
    return draft_passes(a, look_at_data, known ? NULL : user, why);
}

/* ---- the machines ---- */

static bool asks_device(init_arguments *a) { return a->device || a->machine.gpus > 0; }
static const char *default_device(init_arguments *a) { return a->machine.gpus ? "cuda" : "cpu"; }
static bool take_device(void *user, const char *answer, char why[CLI_WHY]) {
    init_arguments *a = user;
    a->gpu = strcmp(answer, "cuda") == 0;
    cli_draft_set_text(&a->draft, "train.device", NULL, answer);
    return draft_passes(a, NULL, NULL, why);
}

static const char *default_precision(init_arguments *a) { return a->gpu ? "bf16" : "fp32"; }
static bool take_precision(void *user, const char *answer, char why[CLI_WHY]) {
    init_arguments *a = user;
    if (strcmp(answer, "fp32") != 0 && strcmp(answer, "bf16") != 0) { /* the key has more, which do not train */
        snprintf(why, CLI_WHY, "precision.compute: '%s' is neither fp32 nor bf16", answer);
        return false;
    }
    cli_draft_set_text(&a->draft, "precision.compute", NULL, answer);
    return draft_passes(a, NULL, NULL, why);
}

/* Lines of a hostfile that name a host. */
static int count_hosts(const char *path) {
    char line[512];
    int n = 0;
    FILE *f = fopen(path, "r");
    while (f && fgets(line, sizeof line, f))
        n += line[strspn(line, " \t\r\n")] != '\0' && line[strspn(line, " \t\r\n")] != '#';
    if (f)
        fclose(f);
    return n;
}

static const char *default_hosts(init_arguments *a) { return (void)a, "1"; }
static bool take_hosts(void *user, const char *answer, char why[CLI_WHY]) {
    init_arguments *a = user;
    int slots;
    a->per_host = 0;
    a->chosen_hosts = NULL;
    a->n_hosts = number(answer, 1 << 17);
    if (a->n_hosts)
        return true;
    if (ndp_topology_ranks(answer, &slots) != NDP_OK)
        return cli_why_failed(why);
    a->n_hosts = count_hosts(answer);
    if (a->n_hosts == 0)
        return refuse(why, "the hostfile names no host");
    a->per_host = slots / a->n_hosts;
    snprintf(a->hostfile, sizeof a->hostfile, "%s", answer);
    a->chosen_hosts = a->hostfile;
    return true;
}

static const char *default_devices(init_arguments *a) {
    int cores = a->machine.cores / 8;
    snprintf(a->fallback, ANSWER, "%d", a->per_host > 0 ? a->per_host : a->gpu ? a->machine.gpus : cores ? cores : 1);
    return a->fallback;
}
static bool take_devices(void *user, const char *answer, char why[CLI_WHY]) {
    init_arguments *a = user;
    a->per_host = number(answer, 16383);
    if (!a->per_host)
        return refuse(why, "a host has a whole number of ranks, from 1 to 16383");
    return ranks_of(a) <= 1 << 20 || refuse(why, "a run has at most 1048576 ranks");
}

static const char *default_memory(init_arguments *a) {
    double bytes = (double)(a->gpu ? a->machine.gpu_memory : a->machine.memory);
    if (bytes <= 0)
        return NULL;
    snprintf(a->fallback, ANSWER, "%.1f", bytes / (1 << 30));
    return a->fallback;
}
static bool take_memory(void *user, const char *answer, char why[CLI_WHY]) {
    init_arguments *a = user;
    char *end;
    a->gib = strtod(answer, &end);
    if (end == answer || *end || !(a->gib > 0 && a->gib < 1e6))
        return refuse(why, "a number of GiB above 0, such as 80");
    const char *available = default_memory(a);
    a->here = a->n_hosts == 1 && available && strcmp(answer, available) == 0;
    return true;
}

/* ---- the batch and the layout ---- */

static const char *default_batch(init_arguments *a) {
    int64_t step = ranks_of(a) * (a->pairs ? 2 : 1);
    snprintf(a->fallback, ANSWER, "%lld", (long long)((15 + step) / step * step));
    return a->fallback;
}
static bool take_batch(void *user, const char *answer, char why[CLI_WHY]) {
    init_arguments *a = user;
    cli_draft_set(&a->draft, "batch.global_batch_size", "rows in an update", "%s", answer);
    return draft_passes(a, NULL, NULL, why);
}

static ndp_status propose(const ndp_config *c, void *user) {
    init_arguments *a = user;
    ndp_propose_opts o = NDP_PROPOSE_OPTS_INIT;
    o.ranks = (int)ranks_of(a);
    o.ranks_per_node = a->per_host;
    o.memory = (int64_t)(a->gib * (1 << 30));
    return ndp_propose_layouts(c, &o, a->proposals, SHOWN, &a->n_proposals);
}

static void print_proposals(const init_arguments *a) {
    printf("\n     %-34s  memory of a rank       a step  waits  bound by\n", "layout");
    for (int i = 0; i < a->n_proposals; i++) {
        const ndp_proposal *p = &a->proposals[i];
        char need[16], has[16], memory[48], cost[16] = "-";
        snprintf(memory, sizeof memory, "%s of %s", ndp_human_bytes((double)p->rank_memory, need),
                 ndp_human_bytes((double)p->limit, has));
        if (p->fits)
            snprintf(cost, sizeof cost, "%.2f", p->cost);
        printf("  %d  %-34s  %-21s  %6s  %4.0f%%  %s%s\n", i + 1, p->layout, memory, cost, 100 * p->waits, p->bound_by,
               p->recompute ? ", recomputes blocks" : "");
    }
    printf("A step is simulated at assumed rates, the fastest is 1; `ndparallel plan JOB` has the details.\n\n");
}

/* Tries the layouts before the question about them. */
static const char *default_layout(init_arguments *a) {
    if (a->layout)
        return NULL;
    printf("trying layouts of %lld rank%s ...\n", (long long)ranks_of(a), ranks_of(a) == 1 ? "" : "s");
    fflush(stdout);
    a->listed = draft_passes(a, propose, a, a->no_layout);
    if (!a->listed) {
        printf("  %s\n", a->no_layout);
        return NULL;
    }
    print_proposals(a);
    return "1";
}

/* "dp_shard=4,tp=2" */
static bool take_sizes(init_arguments *a, const char *answer, char why[CLI_WHY]) {
    char text[ANSWER], key[64], *rest = text;
    snprintf(text, sizeof text, "%s", answer);
    for (char *part; (part = strsep(&rest, ","));) {
        char *equals = strchr(part, '=');
        if (!equals)
            return refuse(why, "a number of the table, or sizes such as dp_shard=4,tp=2");
        *equals = '\0';
        snprintf(key, sizeof key, "parallelism.%.40s_size", part + strspn(part, " "));
        cli_draft_set(&a->draft, key, NULL, "%s", equals + 1);
    }
    return true;
}

/* "dp_shard_size: 4, tp_size: 2" */
static void take_proposal(init_arguments *a, const ndp_proposal *p) {
    char text[sizeof p->keys], key[64], *rest = text;
    memcpy(text, p->keys, sizeof text);
    for (char *part; (part = strsep(&rest, ","));) {
        char *colon = strchr(part, ':');
        snprintf(key, sizeof key, "parallelism.%.*s", (int)(colon - part - strspn(part, " ")),
                 part + strspn(part, " "));
        cli_draft_set(&a->draft, key, NULL, "%s", colon + 2);
    }
    if (p->recompute)
        cli_draft_set(&a->draft, "train.recompute", "else it does not fit", "block");
}

static ndp_status count_ranks(const ndp_config *c, void *ranks) { return ndp_config_ranks(c, ranks); }

static bool take_layout(void *user, const char *answer, char why[CLI_WHY]) {
    init_arguments *a = user;
    int chosen = number(answer, a->listed ? a->n_proposals : 0);
    int ranks;
    cli_draft_drop(&a->draft, "parallelism.");
    cli_draft_drop(&a->draft, "train.recompute");
    if (chosen)
        take_proposal(a, &a->proposals[chosen - 1]);
    else if (!take_sizes(a, answer, why))
        return false;
    if (!draft_passes(a, count_ranks, &ranks, why))
        return false;
    if (ranks == ranks_of(a))
        return true;
    snprintf(why, CLI_WHY, "the sizes have to multiply to %lld ranks", (long long)ranks_of(a));
    return false;
}

/* ---- the run ---- */

static const char *default_epochs(init_arguments *a) { return (void)a, "1"; }
static bool take_epochs(void *user, const char *answer, char why[CLI_WHY]) {
    init_arguments *a = user;
    cli_draft_set(&a->draft, "train.epochs", "passes over the data; or `steps: N`", "%s", answer);
    return strtod(answer, NULL) > 0 ? draft_passes(a, NULL, NULL, why) : refuse(why, "a number above 0");
}

static const char *default_output_dir(init_arguments *a) {
    snprintf(a->fallback, ANSWER, "runs/%.200s", a->run_name);
    for (int i = 2; ndp_path_exists(a->fallback) && i < 1000; i++) /* a run folder holds one run */
        snprintf(a->fallback, ANSWER, "runs/%.200s-%d", a->run_name, i);
    return a->fallback;
}
static bool take_output_dir(void *user, const char *answer, char why[CLI_WHY]) {
    init_arguments *a = user;
    cli_draft_set_text(&a->draft, "train.output_dir", "checkpoints, metrics, the trained model", answer);
    return draft_passes(a, NULL, NULL, why);
}

static const char *default_output(init_arguments *a) { return (void)a, "job.yaml"; }
static bool take_output(void *user, const char *answer, char why[CLI_WHY]) {
    init_arguments *a = user;
    if (ndp_path_exists(answer) && !a->force) {
        snprintf(why, CLI_WHY, "'%.900s' exists; name another file, or replace it with --force", answer);
        return false;
    }
    snprintf(a->path, sizeof a->path, "%s", answer);
    a->written = a->path;
    return ndp_output_check(answer) == NDP_OK || cli_why_failed(why);
}

/* ---- all questions ---- */

typedef struct init_step {
    const char *option, *text;
    size_t given; /* offset of the option's value */
    cli_take *take;
    const char *(*fallback)(init_arguments *a);
    bool (*applies)(init_arguments *a);
} init_step;
#define ANSWER_STEP(name, option, letter, value, help, question, fallback, applies)                                    \
    {option, question, offsetof(init_arguments, name), take_##name, fallback, applies},
static const init_step steps[] = {ANSWERS(ANSWER_STEP)};

static int ask_all(init_arguments *a) {
    bool asks = cli_can_ask();
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        const init_step *s = &steps[i];
        if (!s->applies(a))
            continue;
        cli_question q = {.option = s->option,
                          .text = s->text,
                          .given = *(const char **)((char *)a + s->given),
                          .fallback = s->fallback(a),
                          .take = s->take};
        q.lacks = a->no_layout[0] && !q.fallback ? a->no_layout : q.text;
        int code = cli_ask(&q, asks && !(a->yes && q.fallback), a);
        if (code)
            return code;
    }
    return 0;
}

/* ---- the end ---- */

static ndp_status check_all(const ndp_config *c, void *user) {
    const init_arguments *a = user;
    ndp_plan_opts o = NDP_PLAN_OPTS_INIT;
    char *text = NULL;
    o.data = true;
    o.as_run = a->n_hosts == 1 && a->machine.gpus > 0;
    o.ranks_per_node = a->per_host;
    ndp_status st = ndp_plan(c, &o, &text);
    for (const char *line = text; line && st == NDP_OK; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, "warning: ", 9) == 0 && a->here)
            printf("%.*s\n", (int)strcspn(line, "\n"), line);
    }
    if (st == NDP_OK)
        printf("checked: the model, the beginning of the data, and the programs of %lld rank%s\n",
               (long long)ranks_of(a), ranks_of(a) == 1 ? "" : "s");
    free(text);
    return st;
}

static int write_job(init_arguments *a) {
    char why[CLI_WHY];
    if (!draft_passes(a, check_all, a, why))
        return cli_error(CLI_EXIT_MISTAKE, "%s; nothing was written", why);
    ndp_str text = {0};
    ndp_str_addf(&text, "# Written by `ndparallel init`. `ndparallel config` lists all keys with their defaults.\n");
    cli_draft_text(&a->draft, &text);
    ndp_status st = text.failed ? NDP_ENOMEM : ndp_file_write_atomic(a->written, text.data, text.length);
    ndp_str_release(&text);
    if (st != NDP_OK)
        return cli_fail(st, false);
    const char *with = a->n_hosts == 1 ? "" : " --hostfile ", *hosts = a->chosen_hosts ? a->chosen_hosts : "hosts.txt";
    printf("%s written. Next:\n  ndparallel data %s\n  ndparallel train %s%s%s\n", a->written, a->written, a->written,
           with, *with ? hosts : "");
    return cli_end_output(0);
}

static int run(const cli_command *c, int argc, char **argv) {
    init_arguments a = {0};
    cli_parse(c, argc, argv, &a);
    ndp_status st = ndp_machine_read(&a.machine);
    int code = st == NDP_OK ? ask_all(&a) : cli_fail(st, false);
    if (code == 0)
        code = write_job(&a);
    cli_draft_release(&a.draft);
    return code;
}

const cli_command cmd_init = {
    .name = "init",
    .about = "ask for model, data and machines, and write a job file",
    .usage = "",
    .help = "Ask for a model, data, hosts, devices and memory, try the layouts that are legal by dry runs, and write a "
            "job file that has been checked. On a terminal each question has its default in brackets, and an answer "
            "that is not possible is asked again; an option answers its question. Elsewhere nothing is asked: options "
            "and defaults are the answers. An existing file is only replaced with --force.",
    .options = options,
    .examples = {"ndparallel init", "ndparallel init --model org/name --data chats.jsonl --devices 8"},
    .run = run};
