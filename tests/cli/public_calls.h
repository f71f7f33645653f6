/* What tests of the whole public API share: the functions that its headers declare, as they are, and a row for each of
 * them with arguments that fit. */
#ifndef TESTS_CLI_PUBLIC_CALLS_H
#define TESTS_CLI_PUBLIC_CALLS_H

#include "cli/job.h"

#include <errno.h>
#include <math.h>
#include <ndparallel/model.h>
#include <ndparallel/ndparallel.h>

/* ---- what is declared ---- */

enum { MOST_FUNCTIONS = 256, MOST_ARGUMENTS = 10, NAME = 64 };

typedef struct declared {
    char name[NAME];
    char pointers[MOST_ARGUMENTS][NAME];
    int n;
    bool collective; /* its comment says so */
} declared;

/* Comments and lines of the preprocessor become blanks. */
static void blank_out(char *text) {
    for (char *p; (p = strstr(text, "/*"));) {
        char *end = strstr(p, "*/") + 2;
        memset(p, ' ', (size_t)(end - p));
    }
    for (char *line = text; *line; line += strcspn(line, "\n"), line += *line == '\n') {
        bool goes_on = line[strspn(line, " ")] == '#';
        for (; goes_on; line += *line == '\n') {
            size_t n = strcspn(line, "\n");
            goes_on = n && line[n - 1] == '\\';
            memset(line, ' ', n);
            line += n;
            if (!goes_on)
                break;
        }
    }
}

static bool is_name(char c) { return c == '_' || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); }

/* The name that an argument declares, "bool (*emit)(void *user)" among them, if it is a pointer. */
static void read_argument(const char *begin, const char *end, declared *d) {
    const char *star = memchr(begin, '*', (size_t)(end - begin)), *call = begin;
    while (call < end && strncmp(call, "(*", 2) != 0)
        call++;
    const char *name = end, *stop;
    if (call < end)
        name = call + 2;
    else
        while (name > begin && is_name(name[-1]))
            name--;
    for (stop = name; is_name(*stop);)
        stop++;
    if (star)
        snprintf(d->pointers[d->n++], NAME, "%.*s", (int)(stop - name), name);
}

/* Reads the declaration whose arguments begin at `p`, which is past the bracket. */
static const char *read_arguments(const char *p, declared *d) {
    const char *begin = p;
    for (int depth = 1; depth > 0; p++) {
        depth += (*p == '(') - (*p == ')');
        if (depth == 0 || (depth == 1 && *p == ',')) {
            read_argument(begin, p, d);
            begin = p + 1;
        }
    }
    return p;
}

/* Functions are what has a name that begins with ndp_ before a bracket, outside of structs; extern "C" has a brace. */
static int read_header(const char *name, declared *out, int n) {
    char *path = ndp_format("%s/include/ndparallel/%s", getenv("NDP_SOURCE_DIR"), name), *text;
    size_t size;
    int depth = -1;
    bool collective = false;
    CHECK_OK(ndp_file_read(path, &text, &size));
    free(path);
    char *said = strdup(text);
    blank_out(text);
    for (const char *p = text; *p; p++) {
        depth += (*p == '{') - (*p == '}');
        collective = *p != ';' && (collective || strncmp(said + (p - text), "Collective.", 11) == 0);
        size_t length =
            strncmp(p, "ndp_", 4) == 0 && !is_name(p[-1]) ? strspn(p, "abcdefghijklmnopqrstuvwxyz0123456789_") : 0;
        if (depth != 0 || !length || p[length] != '(')
            continue;
        assert_true(n < MOST_FUNCTIONS);
        out[n] = (declared){0};
        snprintf(out[n].name, NAME, "%.*s", (int)length, p);
        out[n].collective = collective;
        p = read_arguments(p + length + 1, &out[n++]) - 1;
    }
    free(said);
    free(text);
    return n;
}

/* All of them; returns how many. */
static int read_headers(declared out[MOST_FUNCTIONS]) {
    static const char *const headers[] = {"ndparallel.h", "loop.h", "plan.h", "runs.h", "verify.h", "model.h"};
    int n = 0;
    for (int i = 0; i < NDP_COUNT(headers); i++)
        n = read_header(headers[i], out, n);
    return n;
}

/* ---- what is called ---- */

/* What arguments are that are not NULL, and what a function returned. */
typedef struct calling {
    const char *null; /* the argument that is NULL */
    bool met;         /* the row has it */
    bool as_it_is;    /* the trainer is not brought into the state that the call is for */
    int needs;        /* that state, which the row sets: 1: an update is begun, 2: and has a call */
    char job[80], model[80], run[80], seen[80], checkpoints[96], data[96], prompts[80], hosts[80], cluster[80];
    ndp_config *config, *loop_config, *other;
    ndp_world *world;
    ndp_trainer *trainer, *trainer_out, *loop; /* loop: of own batches */
    ndp_dialog *dialog, *dialog_out;
    ndp_watch *watch, *watch_out;
    ndp_watch_state watched;
    char *text[2], **names;
    ndp_evaluation evaluation, *files;
    ndp_metrics metrics;
    ndp_replay_opts replay;
    ndp_world *joined;
    ndp_launch_opts launch;
    ndp_machine machine;
    ndp_model_summary summary;
    ndp_data_guess guess;
    ndp_proposal proposal;
    ndp_verdict verdict;
    ndp_against against;
    ndp_restart restart;
    ndp_reply reply;
    ndp_generated generated;
    double *numbers, number;
    const void *bytes;
    ndp_loop_shape shape;
    ndp_call_info call;
    ndp_update_info update;
    ndp_token_values values;
    ndp_packed_batch packed;
    ndp_config *own; /* whose model is one of `blank` */
    ndp_model_json *json;
    ndp_model_builder *builder;
    void (*inside)(struct calling *it); /* what is called while that is read and built */
    int64_t count, steps[1];
    int32_t ids[512];
    int n;
} calling;

static void *given(calling *it, const char *name, const void *value) {
    bool null = strcmp(it->null, name) == 0;
    it->met |= null;
    return null ? NULL : (void *)(uintptr_t)value;
}

static bool on_token(void *user, int32_t id, const char *text) { return (void)user, (void)id, (void)text, false; }
static bool on_line(void *user, const char *line, size_t n) { return (void)user, (void)line, (void)n, true; }
static void on_entry(void *user, const ndp_checkpoint_entry *e) { (void)user, (void)e; }
static void on_step(void *user, const ndp_metrics *m, int64_t steps) { (void)user, (void)m, (void)steps; }
static ndp_status on_rank(ndp_world *w, void *arg) { return (void)w, (void)arg, NDP_OK; }

static ndp_status on_logits(void *user, const ndp_logit_rows *rows) {
    (void)user;
    (void)rows;
    return NDP_OK;
}
static ndp_status on_logp(void *user, const double *logp, int64_t samples, int64_t length, double *slopes,
                          double *loss) {
    return (void)user, (void)logp, (void)samples, (void)length, (void)slopes, *loss = 0, NDP_OK;
}

static const int32_t ids[64];
static const ndp_batch batch = {.ids = ids, .samples = 1, .length = 8, .global = true};
static int32_t text_ids[8];
static int64_t text_lengths[] = {1};
static const ndp_texts texts = {text_ids, text_lengths, NULL, 1, 8, true};
static const ndp_named_number own_number = {"own", 1};
static double token_values[64 * 64];

/* The trainer with an update that may have a call, or has had it, or is made. */
static ndp_trainer *begun(calling *it) {
    it->needs = 1;
    if (!it->as_it_is)
        CHECK_OK(ndp_trainer_begin(it->loop, &(ndp_update_opts){NDP_DIVIDE_NUMBER, 1, NAN, NAN, 1}));
    return it->loop;
}
static ndp_trainer *called(calling *it) {
    if (!it->as_it_is)
        CHECK_OK(ndp_trainer_forward_backward(begun(it), &batch, 1, NULL));
    it->needs = 2;
    return it->loop;
}
static ndp_trainer *updated(calling *it) {
    if (!it->as_it_is)
        CHECK_OK(ndp_trainer_update(called(it), NULL));
    return it->loop;
}
/* An architecture that does nothing but the call in question. */
static calling *reading;
static void call_inside(ndp_model_json *json, ndp_model_builder *b) {
    if (!reading->inside)
        return;
    reading->json = json, reading->builder = b;
    reading->inside(reading);
}
static void read_blank(ndp_model_json *json, void *facts) { (void)facts, call_inside(json, NULL); }
static void build_blank(const void *facts, ndp_model_builder *b) { (void)facts, call_inside(NULL, b); }
static const ndp_architecture blank = {sizeof blank, "blank", 0, read_blank, build_blank, NULL};

static const char *const words[] = {"word"};
static char *const truth[] = {"/bin/true", NULL};
static const char *const layouts[] = {"tp=1"};

#define IMPORT (&(ndp_import_opts)NDP_IMPORT_OPTS_INIT)
#define LAUNCH (&(ndp_launch_opts){.ranks = 1, .argv = truth})
#define TRAIN (&(ndp_train_opts)NDP_TRAIN_OPTS_INIT)
#define UPDATE (&(ndp_update_opts)NDP_UPDATE_OPTS_INIT)
#define CONTINUE (&(ndp_continue_opts){.max_tokens = 1, .top_p = 1})
#define PLAN (&(ndp_plan_opts)NDP_PLAN_OPTS_INIT)
#define DATA (&(ndp_data_opts)NDP_DATA_OPTS_INIT)
#define PROPOSE (&(ndp_propose_opts)NDP_PROPOSE_OPTS_INIT)
#define DOCTOR (&(ndp_doctor_opts){.axes = false})
#define GGUF (&(ndp_gguf_opts){.model = it->model, .file = it->data})
#define MERGE (&(ndp_merge_opts){.model = it->model, .adapter = it->model, .folder = it->data})
#define SCREEN (&(ndp_screen_opts){.columns = 80, .rows = 24})
#define TOPOLOGY (&(ndp_topology_opts)NDP_TOPOLOGY_OPTS_INIT)
#define VERIFY (&(ndp_verify_opts){.layouts = layouts, .n = 1, .steps = 1})
#define DUMP (&(ndp_dump_opts){.folder = it->run})
#define RESTART (&(ndp_restart_opts){.hostfile = it->hosts})
#define AGAINST (&(ndp_against_opts){.folder = it->run})
#define EVALUATE                                                                                                       \
    (&(ndp_evaluate_opts){.model = it->model,                                                                          \
                          .data = (const char *[]){it->data},                                                          \
                          .data_count = 1,                                                                             \
                          .device = "cpu",                                                                             \
                          .threads = 1,                                                                                \
                          .force_memory = true})
#define GENERATE                                                                                                       \
    (&(ndp_generate_opts){.model = it->model,                                                                          \
                          .prompt = "",                                                                                \
                          .max_tokens = 1,                                                                             \
                          .top_p = 1,                                                                                  \
                          .threads = 1,                                                                                \
                          .device = "cpu",                                                                             \
                          .force_memory = true,                                                                        \
                          .chat_template = "chatml"})
#define TOKENIZE (&(ndp_tokenize_opts){.tokenizer = "bytes", .text = "text"})

/* P(NAME, VALUE): a pointer, which is NULL when it is its turn. S: functions that return a status, with the arguments
 * for which the header says what NULL means; `user` and `arg` are passed on. V: functions that return none. */
#define P(name, value) (given(it, #name, (value)))
#define F(name, value) (given(it, #name, (const void *)(uintptr_t)(value)))
#define ROWS(S, V, B)                                                                                                  \
    V(ndp_nearest, P(word, "wrod"), P(candidates, words), 1)                                                           \
    V(ndp_nearest_names, P(word, "wrod"), P(candidates, words), 1, 1, P(out, (const char *[1]){NULL}))                 \
    S(ndp_config_create, "", P(out, &it->other))                                                                       \
    V(ndp_config_destroy, P(c, it->config))                                                                            \
    S(ndp_config_read, "", P(c, it->config), P(path, it->job))                                                         \
    S(ndp_config_set, "", P(c, it->config), P(assignment, "train.steps=2"))                                            \
    S(ndp_config_setf, "", P(c, it->config), P(format, "train.steps=%d"), 2)                                           \
    S(ndp_config_get, "", P(c, it->config), P(key, "train.steps"), P(value, &it->text[0]))                             \
    S(ndp_config_check, "", P(c, it->config))                                                                          \
    S(ndp_config_text, "", P(c, it->config), P(yaml, &it->text[0]))                                                    \
    S(ndp_config_keys, "", P(text, &it->text[0]))                                                                      \
    S(ndp_config_describe, "", P(names, words), 1, NDP_KEYS_TEXT, P(text, &it->text[0]))                               \
    S(ndp_config_import, "", P(c, it->config), P(path, it->job), P(o, IMPORT), P(job, &it->text[0]),                   \
      P(notes, &it->text[1]))                                                                                          \
    S(ndp_config_import_keys, "part", P(program, "axolotl"), P(part, "imported"), P(markdown, &it->text[0]))           \
    S(ndp_config_ranks, "", P(c, it->config), P(ranks, &it->n))                                                        \
    V(ndp_world_launched, P(ranks, &it->n))                                                                            \
    S(ndp_world_run, "", P(c, it->config), F(body, on_rank), P(arg, it))                                               \
    V(ndp_world_transport, P(w, it->world))                                                                            \
    V(ndp_world_rank, P(w, it->world))                                                                                 \
    V(ndp_world_size, P(w, it->world))                                                                                 \
    S(ndp_world_join, "", P(c, it->config), P(out, &it->joined))                                                       \
    V(ndp_world_leave, P(w, it->world), NDP_OK)                                                                        \
    V(ndp_world_fail, P(w, it->world))                                                                                 \
    S(ndp_world_barrier, "", P(w, it->world))                                                                          \
    S(ndp_launch_opts_read, "", P(c, it->config), P(out, &it->launch))                                                 \
    S(ndp_launch, "", P(o, LAUNCH), P(exit_code, &it->n))                                                              \
    S(ndp_trainer_create, "", P(c, it->config), P(w, it->world), P(out, &it->trainer_out))                             \
    V(ndp_trainer_destroy, P(t, it->trainer))                                                                          \
    S(ndp_trainer_step, "out", P(t, it->trainer), P(out, &it->metrics))                                                \
    S(ndp_trainer_evaluate, "loss tokens", P(t, it->trainer), P(loss, &it->number), P(tokens, &it->count))             \
    V(ndp_trainer_updates, P(t, it->trainer))                                                                          \
    S(ndp_trainer_save, "folder", P(t, it->trainer), P(folder, it->checkpoints))                                       \
    S(ndp_trainer_resume, "folder step", P(t, it->trainer), P(folder, it->checkpoints), P(step, &it->count))           \
    S(ndp_trainer_resume_from, "folder step", P(t, it->trainer), P(folder, it->checkpoints), -1, P(step, &it->count))  \
    S(ndp_trainer_export, "folder", P(t, it->trainer), P(folder, it->checkpoints))                                     \
    S(ndp_trainer_describe, "", P(t, it->trainer), P(text, &it->text[0]))                                              \
    V(ndp_trainer_tensors, P(t, it->trainer))                                                                          \
    V(ndp_trainer_tensor, P(t, it->trainer), 0, P(elements, &it->count))                                               \
    S(ndp_trainer_read, "", P(t, it->trainer), NDP_WEIGHT, 0, P(out, it->numbers))                                     \
    V(ndp_trainer_find, P(t, it->trainer), P(name, "word"))                                                            \
    S(ndp_trainer_write, "", P(t, it->trainer), NDP_WEIGHT, 0, P(in, it->numbers))                                     \
    S(ndp_trainer_shape, "", P(t, it->loop), P(out, &it->shape))                                                       \
    S(ndp_trainer_sample, "labels positions documents", P(t, it->loop), 0, P(ids, it->ids), P(labels, it->ids),        \
      P(positions, it->ids), P(documents, it->ids))                                                                    \
    S(ndp_pack, "", P(samples, &batch), 8, P(out, &it->packed))                                                        \
    V(ndp_packed_batch_release, P(p, &it->packed))                                                                     \
    S(ndp_trainer_begin, "o", P(t, it->loop), P(o, UPDATE))                                                            \
    S(ndp_trainer_forward_backward, "info", P(t, begun(it)), P(batches, &batch), 1, P(info, &it->call))                \
    S(ndp_trainer_forward_backward_with, "info", P(t, begun(it)), P(batches, &batch), 1, F(loss, on_logp),             \
      P(user, it), P(info, &it->call))                                                                                 \
    S(ndp_trainer_forward_backward_logits, "info", P(t, begun(it)), P(batches, &batch), 1, F(loss, on_logits),         \
      P(user, it), P(info, &it->call))                                                                                 \
    S(ndp_trainer_norm, "", P(t, called(it)), P(norm, &it->number))                                                    \
    S(ndp_trainer_update, "info", P(t, called(it)), P(info, &it->update))                                              \
    S(ndp_trainer_forward, "", P(t, it->loop), P(batches, &batch), 1, P(out, &it->values))                             \
    S(ndp_trainer_generate, "", P(t, it->loop), P(texts, &texts), P(o, CONTINUE))                                      \
    S(ndp_trainer_text, "", P(t, it->loop), P(ids, ids), 1, P(text, &it->text[0]))                                     \
    S(ndp_trainer_reduce, "", P(t, it->loop), P(values, &it->number), 1, NDP_REDUCE_SUM, true)                         \
    S(ndp_trainer_gather, "", P(t, it->loop), P(values, &it->number), 1, P(out, &it->number))                          \
    S(ndp_trainer_broadcast, "", P(t, it->loop), P(data, &it->number), 8, 0)                                           \
    S(ndp_trainer_barrier, "", P(t, it->loop))                                                                         \
    S(ndp_trainer_log, "", P(t, updated(it)), P(numbers, &own_number), 1)                                              \
    S(ndp_trainer_set_state, "", P(t, it->loop), P(data, &it->number), 8)                                              \
    S(ndp_trainer_state, "", P(t, it->loop), P(data, &it->bytes), P(bytes, &it->count))                                \
    S(ndp_train, "", P(c, it->config), P(w, it->world), P(o, TRAIN))                                                   \
    S(ndp_replay, "", P(c, it->config), P(w, it->world), P(o, &it->replay), P(different, &it->count))                  \
    S(ndp_metrics_line, "before", P(m, &it->metrics), P(before, &it->metrics), P(line, &it->text[0]))                  \
    S(ndp_run_folder_check, "", P(c, it->config))                                                                      \
    S(ndp_run_folder_file, "", P(c, it->config), P(name, "file"), P(path, &it->text[0]))                               \
    S(ndp_run_folder_newest, "", P(c, it->config), P(step, &it->count))                                                \
    S(ndp_device_check, "", P(c, it->config))                                                                          \
    S(ndp_checkpoints_examine, "", P(run, it->run), P(steps, it->steps), 1, false, F(each, on_entry), P(user, it))     \
    S(ndp_checkpoints_remove, "", P(run, it->run), P(names, words), 1, false)                                          \
    S(ndp_checkpoint_export, "", P(run, it->run), 0, P(folder, it->data), P(exported, &it->count))                     \
    S(ndp_gguf_export, "", P(o, GGUF), P(tensors, &it->count))                                                         \
    S(ndp_runs_list, "", P(folder, it->run), false, P(text, &it->text[0]))                                             \
    S(ndp_record_show, "", P(run, it->run), NDP_RECORD_AS_TEXT, P(text, &it->text[0]), P(differences, &it->n))         \
    S(ndp_runs_report, "", P(runs, words), 1, P(path, it->checkpoints))                                                \
    S(ndp_watch_create, "state", P(run, it->seen), P(state, &it->watched), P(out, &it->watch_out))                     \
    S(ndp_watch_read, "row user state", P(w, it->watch), F(row, on_step), P(user, it), P(state, &it->watched))         \
    S(ndp_watch_screen, "", P(w, it->watch), P(o, SCREEN), P(text, &it->text[0]))                                      \
    S(ndp_watch_serve, "", P(w, it->watch), P(address, "0"), false, P(url, &it->text[0]))                              \
    S(ndp_adapter_merge, "", P(model, it->model), P(adapter, it->model), P(folder, it->data), P(changed, &it->count))  \
    S(ndp_adapter_merge_with, "", P(o, MERGE), P(changed, &it->count))                                                 \
    S(ndp_config_use_adapter, "", P(c, it->config), P(adapter, it->model))                                             \
    S(ndp_data, "", P(c, it->config), P(o, DATA), P(text, &it->text[0]))                                               \
    S(ndp_plan, "", P(c, it->config), P(o, PLAN), P(text, &it->text[0]))                                               \
    S(ndp_plan_passes, "c", P(c, it->config), P(o, PLAN), P(text, &it->text[0]))                                       \
    S(ndp_topology, "", P(w, it->world), P(o, TOPOLOGY), P(text, &it->text[0]))                                        \
    S(ndp_topology_ranks, "hostfile", P(hostfile, it->hosts), P(ranks, &it->n))                                        \
    S(ndp_place_ranks, "hostfile cluster", P(c, it->config), P(hostfile, it->hosts), P(cluster, it->cluster),          \
      P(hosts, &it->names), P(text, &it->text[0]))                                                                     \
    V(ndp_rank_hosts_free, P(hosts, it->names))                                                                        \
    S(ndp_restart_find, "", P(c, it->config), P(o, RESTART), P(out, &it->restart))                                     \
    V(ndp_restart_release, P(r, &it->restart))                                                                         \
    S(ndp_cluster_help, "", P(text, &it->text[0]))                                                                     \
    S(ndp_verify, "", P(c, it->config), P(o, VERIFY), P(verdicts, &it->verdict))                                       \
    S(ndp_verify_dump, "", P(c, it->config), P(o, DUMP))                                                               \
    S(ndp_verify_against, "", P(c, it->config), P(o, AGAINST), P(out, &it->against))                                   \
    V(ndp_against_release, P(a, &it->against))                                                                         \
    V(ndp_bits_per_byte, P(e, &it->evaluation))                                                                        \
    S(ndp_evaluate, "files", P(o, EVALUATE), P(all, &it->evaluation), P(files, &it->files))                            \
    S(ndp_is_run_folder, "folder", P(folder, it->run))                                                                 \
    S(ndp_evaluate_job, "run files", P(c, it->config), P(w, it->world), P(run, it->run), 0, P(all, &it->evaluation),   \
      P(files, &it->files), P(n, &it->n))                                                                              \
    S(ndp_generate, "", P(o, GENERATE), F(emit, on_token), P(user, it))                                                \
    S(ndp_generate_file, "", P(o, GENERATE), P(file, it->prompts), 1, F(emit, on_line), P(user, it),                   \
      P(out, &it->generated))                                                                                          \
    S(ndp_dialog_create, "system", P(o, GENERATE), P(system, "Be kind."), 0, P(out, &it->dialog_out))                  \
    V(ndp_watch_destroy, P(w, it->watch))                                                                              \
    V(ndp_dialog_destroy, P(d, it->dialog))                                                                            \
    S(ndp_dialog_ask, "", P(d, it->dialog), P(message, "Yes"), F(emit, on_token), P(user, it), P(out, &it->reply))     \
    V(ndp_dialog_reset, P(d, it->dialog))                                                                              \
    S(ndp_tokenize, "", P(o, TOKENIZE), F(emit, on_line), P(user, it))                                                 \
    S(ndp_machine_read, "", P(out, &it->machine))                                                                      \
    S(ndp_model_summarize, "", P(c, it->config), P(out, &it->summary))                                                 \
    S(ndp_model_tensors, "", P(c, it->config), P(names, &it->text[0]))                                                 \
    S(ndp_data_guess_of, "", P(name, it->prompts), P(out, &it->guess))                                                 \
    S(ndp_propose_layouts, "", P(c, it->config), P(o, PROPOSE), P(out, &it->proposal), 1, P(n, &it->n))                \
    S(ndp_doctor, "", P(o, DOCTOR), P(text, &it->text[0]), P(problems, &it->n))                                        \
    S(ndp_env, "", P(text, &it->text[0]))                                                                              \
    S(ndp_env_json, "", P(json, &it->text[0]))                                                                         \
    S(ndp_config_add_architecture, "", P(c, it->config), P(a, &blank))                                                 \
    S(ndp_architecture_export, "", P(a, &blank), P(run, it->run), 0, P(folder, it->data), P(exported, &it->count))     \
    V(ndp_draw_normal, P(d, &(ndp_drawn){.name = "x"}), 1, P(out, &(float){0}))                                        \
    B(ndp_model_json_int, P(config, it->json), P(key, "width"), 1, 8)                                                  \
    B(ndp_model_json_number, P(config, it->json), P(key, "width"), 1, 8)                                               \
    B(ndp_model_json_flag, P(config, it->json), P(key, "flag"))                                                        \
    B(ndp_model_json_word, P(config, it->json), P(key, "word"), P(words, words), 1)                                    \
    B(ndp_model_json_has, P(config, it->json), P(key, "width"))                                                        \
    B(ndp_model_json_fail, P(config, it->json), P(format, "%d"), 1)                                                    \
    B(ndp_build_unit, P(b, it->builder), 0, P(format, "unit%d"), 1)                                                    \
    B(ndp_build_embedding, P(b, it->builder), P(o, NDP_OPTS(ndp_embedding_opts, .name = "x")))                         \
    B(ndp_build_norm, P(b, it->builder), 1, P(o, NDP_OPTS(ndp_norm_opts, .name = "x")))                                \
    B(ndp_build_linear, P(b, it->builder), 1, P(o, NDP_OPTS(ndp_linear_opts, .name = "x")))                            \
    B(ndp_build_gated, P(b, it->builder), 1, P(o, NDP_OPTS(ndp_gated_opts, .columns = 1)))                             \
    B(ndp_build_attention, P(b, it->builder), 1, P(o, NDP_OPTS(ndp_attention_opts, .heads = 1)))                       \
    B(ndp_build_causal_conv, P(b, it->builder), 1, P(o, NDP_OPTS(ndp_conv_opts, .taps = 1)))                           \
    B(ndp_build_gelu, P(b, it->builder), 1)                                                                            \
    B(ndp_build_add, P(b, it->builder), 1, 1)                                                                          \
    B(ndp_build_scale, P(b, it->builder), 1, 1)                                                                        \
    B(ndp_build_head, P(b, it->builder), 1, P(o, NDP_OPTS(ndp_head_opts, .name = NULL)))                               \
    B(ndp_build_fail, P(b, it->builder), P(format, "%d"), 1)

#define CALL_S(NAME, MEANS, ...)                                                                                       \
    static ndp_status call_##NAME(calling *it) { return NAME(__VA_ARGS__); }
#define CALL_V(NAME, ...)                                                                                              \
    static ndp_status call_##NAME(calling *it) { return (void)NAME(__VA_ARGS__), NDP_OK; }
#pragma GCC diagnostic ignored "-Wformat-nonliteral" /* of ndp_config_setf, whose format is NULL once */
/* B: of a model that is read and built. */
#define CALL_B(NAME, ...)                                                                                              \
    static void inside_##NAME(calling *it) { (void)NAME(__VA_ARGS__); }                                                \
    static ndp_status call_##NAME(calling *it) {                                                                       \
        it->inside = inside_##NAME;                                                                                    \
        (void)!ndp_model_summarize(it->own, &it->summary);                                                             \
        it->inside = NULL;                                                                                             \
        return NDP_OK;                                                                                                 \
    }
ROWS(CALL_S, CALL_V, CALL_B)

typedef struct row {
    const char *name;
    ndp_status (*call)(calling *it);
    const char *means; /* arguments of which NULL means something; NULL: all, since there is no status */
} row;
#define ROW_S(NAME, MEANS, ...) {#NAME, call_##NAME, MEANS " user arg"},
#define ROW_V(NAME, ...) {#NAME, call_##NAME, NULL},
static const row rows[] = {ROWS(ROW_S, ROW_V, ROW_V)};

static void release_results(calling *it) {
    text_lengths[0] = 1;
    for (int i = 0; i < NDP_COUNT(it->text); i++) {
        free(it->text[i]);
        it->text[i] = NULL;
    }
    free(it->files);
    it->files = NULL;
    ndp_watch_destroy(it->watch_out);
    it->watch_out = NULL;
    ndp_dialog_destroy(it->dialog_out);
    it->dialog_out = NULL;
}

static const row *row_of(const char *name) {
    for (int i = 0; i < NDP_COUNT(rows); i++)
        if (strcmp(rows[i].name, name) == 0)
            return &rows[i];
    return NULL;
}

/* ---- values ---- */

/* `ranks` are threads. */
static ndp_config *configure(const calling *it, int ranks) {
    static const char *const sets[] = {"data.validation_fraction=0.2", "train.steps=2", "checkpoint.every=0"};
    ndp_config *c;
    CHECK_OK(ndp_config_create(&c));
    CHECK_OK(ndp_config_read(c, it->job));
    CHECK_OK(ndp_config_setf(c, "parallelism.dp_shard_size=%d", ranks));
    CHECK_OK(ndp_config_set(c, ranks > 1 ? "train.transport=local" : "train.transport=self"));
    for (int i = 0; i < NDP_COUNT(sets); i++)
        CHECK_OK(ndp_config_set(c, sets[i]));
    return c;
}

static void make_values(calling *it, const char *folder, int ranks) {
    snprintf(it->job, sizeof it->job, "%s/job.yaml", folder);
    snprintf(it->model, sizeof it->model, "%s/model", folder);
    snprintf(it->run, sizeof it->run, "%s/run", folder);
    snprintf(it->seen, sizeof it->seen, "%s", folder);
    snprintf(it->checkpoints, sizeof it->checkpoints, "%s/run/checkpoints", folder);
    snprintf(it->prompts, sizeof it->prompts, "%s/prompts", folder);
    snprintf(it->cluster, sizeof it->cluster, "%s/cluster", folder);
    snprintf(it->data, sizeof it->data, "%s/data/corpus.jsonl", folder);
    snprintf(it->hosts, sizeof it->hosts, "%s/hosts", folder);
    tiny_write(folder, "hosts", "one slots=1\nother slots=1\n");
    tiny_write(folder, "metrics.jsonl", "{\"step\": 1, \"loss\": 2}\n");
    tiny_write(folder, "prompts", "{\"prompt\": \"\"}\n");
    tiny_write(folder, "cluster", "nodes: 2\nhosts: [one, other]\nnode: {device: h100-sxm}\n");
    setenv("LSB_HOSTS", "one other", 1); /* what no hostfile means */
    it->steps[0] = 1;
    tiny_write(folder, "blank.json", "{\"model_type\": \"blank\", \"max_position_embeddings\": 8, \"width\": 3}\n");
    reading = it;
    CHECK_OK(ndp_config_create(&it->own));
    CHECK_OK(ndp_config_add_architecture(it->own, &blank));
    CHECK_OK(ndp_config_setf(it->own, "model.config=\"%s/blank.json\"", folder));
    it->config = configure(it, ranks);
    it->loop_config = configure(it, ranks);
    CHECK_OK(ndp_config_set(it->loop_config, "train.own_batches=true"));
    CHECK_OK(ndp_config_set(it->loop_config, "train.own_logits=true"));
    CHECK_OK(ndp_config_set(it->loop_config, "train.own_generate=1"));
    char *text;
    CHECK_OK(ndp_config_text(it->config, &text));
    assert_true(mkdir(it->run, 0700) == 0 || errno == EEXIST);
    tiny_write(it->run, "job.yaml", text);
    free(text);
    CHECK_OK(ndp_dialog_create(GENERATE, NULL, 0, &it->dialog));
    CHECK_OK(ndp_watch_create(it->seen, NULL, &it->watch));
}

static void release_values(calling *it) {
    ndp_watch_destroy(it->watch);
    ndp_dialog_destroy(it->dialog);
    ndp_config_destroy(it->config);
    ndp_config_destroy(it->loop_config);
    ndp_config_destroy(it->own);
}

static void open_trainers(calling *it, ndp_world *w) {
    int64_t elements;
    it->world = w;
    CHECK_OK(ndp_trainer_create(it->config, w, &it->trainer));
    assert_non_null(ndp_trainer_tensor(it->trainer, 0, &elements));
    it->numbers = calloc((size_t)elements, sizeof *it->numbers);
    CHECK_OK(ndp_trainer_create(it->loop_config, w, &it->loop));
    it->values.logp = token_values;
}

static void close_trainers(calling *it) {
    free(it->numbers);
    ndp_trainer_destroy(it->loop);
    ndp_trainer_destroy(it->trainer);
}

#endif
