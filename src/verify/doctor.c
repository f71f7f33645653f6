/* ndp_doctor: what runs need, on this machine and on those of a hostfile. The rules of a host are in
 * launch/checkup_rules.c; here are the checks that take a job: one step on each axis, compared with one rank as
 * ndp_verify does, the job itself, and its files on other hosts. */
#include "base/clock.h"
#include "data/cache/cache.h"
#include "launch/checkup.h"
#include "launch/launch.h"
#include "verify/copies.h"
#include "verify/run_doctor.h"
#include "verify/verify.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { REMOTE_SECONDS = 120 };

typedef struct doctor {
    const ndp_doctor_opts *opts;
    ndp_findings findings;
    char copy[NDP_HASH_DIGITS + 1]; /* of the job's files; "": there is none */
    int hosts;                      /* of the hostfile; 0: there is none */
    int ranks_here;                 /* of the job; 0: there is no job that can be understood */
} doctor;

static void say(const doctor *d, const char *line) { ndp_say(d->opts->say, d->opts->user, "%s", line); }

/* ---- one step on each axis ---- */

static const char model[] =
    "{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\", \"hidden_act\": \"silu\", \"hidden_size\": "
    "32,"
    " \"intermediate_size\": 64, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"num_hidden_layers\": 2,"
    " \"vocab_size\": 258, \"max_position_embeddings\": 64, \"rms_norm_eps\": 1e-5, \"tie_word_embeddings\": false,"
    " \"bos_token_id\": 256, \"eos_token_id\": 257}\n";

/* A job for it, with all its files in `folder`. */
static ndp_status write_job(const char *folder, ndp_config *c) {
    char config[NDP_PATH], text[NDP_PATH];
    ndp_str words = {0};
    for (int i = 0; i < 64; i++)
        ndp_str_addf(&words, "line %d has the numbers %d and %d\n", i, i * i, 7 * i);
    NDP_TRY(ndp_path_join(config, folder, "config.json"));
    NDP_TRY(ndp_path_join(text, folder, "text.txt"));
    ndp_status st = NDP_MEMORY(!words.failed, "for a text");
    if (st == NDP_OK)
        st = ndp_file_write_atomic(text, words.data, words.length);
    ndp_str_release(&words);
    NDP_TRY(st);
    NDP_TRY(ndp_file_write_atomic(config, model, sizeof model - 1));
    NDP_TRY(ndp_config_setf(c, "model.config=\"%s\"", config));
    NDP_TRY(ndp_config_set(c, "model.init=random"));
    NDP_TRY(ndp_config_setf(c, "data.files=[\"%s\"]", text));
    NDP_TRY(ndp_config_set(c, "data.tokenizer=bytes"));
    NDP_TRY(ndp_config_set(c, "data.sequence_length=32"));
    NDP_TRY(ndp_config_setf(c, "data.cache_dir=\"%s\"", folder));
    return ndp_config_set(c, "batch.global_batch_size=4");
}

static void try_axis(doctor *d, const ndp_config *c, ndp_axis axis) {
    static const char remedy[] = "`NDP_ISA=generic ndparallel doctor` tells whether kernels for this processor are the "
                                 "cause; please report it with the output of `ndparallel env`";
    char name[48], layout[48];
    const char *const layouts[] = {layout};
    ndp_verdict v = {0};
    ndp_verify_opts o = NDP_VERIFY_OPTS_INIT;
    snprintf(name, sizeof name, "axis %s", ndp_axis_name(axis));
    snprintf(layout, sizeof layout, "%s=2", ndp_axis_name(axis));
    o.layouts = layouts;
    o.n = 1;
    o.steps = 1;
    ndp_status st = ndp_verify(c, &o, &v);
    if (st != NDP_OK)
        ndp_findings_add(&d->findings, name, NDP_FINDING_PROBLEM, remedy, "a step on 2 ranks fails: %s",
                         ndp_error_message());
    else if (!v.agrees)
        ndp_findings_add(&d->findings, name, NDP_FINDING_PROBLEM, remedy,
                         "a step on 2 ranks computes something else than one rank: %s", v.words);
    else
        ndp_findings_add(&d->findings, name, NDP_FINDING_OK, NULL, "a step on 2 ranks is that of one rank (%.2f s)",
                         v.seconds);
}

/* Trains a step of the job in `folder` on two ranks that are processes, as `train` does by default. */
static void try_processes(doctor *d, const char *folder, const char *transport, bool needed) {
    char job[NDP_PATH], output[NDP_PATH + 32], name[48], *text;
    char *argv[] = {(char *)(uintptr_t)d->opts->remote[0],
                    "train",
                    job,
                    "--transport",
                    (char *)(uintptr_t)transport,
                    "--force-memory",
                    "--set",
                    output,
                    NULL};
    const char *line = "";
    snprintf(job, sizeof job, "%.4000s/job.yaml", folder);
    snprintf(output, sizeof output, "train.output_dir=\"%.4000s/%s\"", folder, transport);
    snprintf(name, sizeof name, "processes by %s", transport);
    double start = ndp_now();
    int code = ndp_program_output(argv, REMOTE_SECONDS, &text), n = text ? ndp_last_line(text, &line) : 0;
    if (code == 0)
        ndp_findings_add(&d->findings, name, NDP_FINDING_OK, NULL, "a step on 2 ranks (%.2f s)", ndp_now() - start);
    else
        ndp_findings_add(&d->findings, name, needed ? NDP_FINDING_PROBLEM : NDP_FINDING_NOTE,
                         "train.transport: local runs all ranks in one process; `ndparallel train JOB --transport "
                         "local` tells whether that works",
                         "a step on 2 ranks ends with %d: %.*s", code, n, line);
    free(text);
}

static ndp_status try_transports(doctor *d, const char *folder, ndp_config *c) {
    char job[NDP_PATH], *text, version[256];
    if (!d->opts->remote)
        return NDP_OK;
    NDP_TRY(ndp_path_join(job, folder, "job.yaml"));
    NDP_TRY(ndp_config_set(c, "parallelism.dp_shard_size=2"));
    NDP_TRY(ndp_config_set(c, "train.steps=1"));
    NDP_TRY(ndp_config_text(c, &text));
    ndp_status st = ndp_file_write_atomic(job, text, strlen(text));
    free(text);
    NDP_TRY(st);
    try_processes(d, folder, "shm", true);
    if (*ndp_mpirun_version(version))
        try_processes(d, folder, "mpi", d->opts->hostfile != NULL);
    return NDP_OK;
}

static void try_axes(doctor *d) {
    const char *parent = getenv("TMPDIR");
    char folder[NDP_PATH];
    ndp_config *c = NULL;
    snprintf(folder, sizeof folder, "%.3900s/ndparallel-doctor-XXXXXX", parent && *parent ? parent : "/tmp");
    if (!mkdtemp(folder)) {
        ndp_findings_add(&d->findings, "axes", NDP_FINDING_PROBLEM, "set TMPDIR to a folder that can be written to",
                         "no step can be tried: %s cannot be made", folder);
        return;
    }
    ndp_status st = ndp_config_create(&c);
    if (st == NDP_OK)
        st = write_job(folder, c);
    if (st == NDP_OK && d->opts->job)
        st = ndp_config_setf(c, "train.device=%s", ndp_device_names[d->opts->job->train.device]);
    for (int axis = 0; axis < NDP_AXES && st == NDP_OK; axis++)
        try_axis(d, c, (ndp_axis)axis);
    if (st == NDP_OK)
        st = try_transports(d, folder, c);
    if (st != NDP_OK)
        ndp_findings_add(&d->findings, "axes", NDP_FINDING_PROBLEM, "set TMPDIR to a folder with free space",
                         "no step can be tried: %s", ndp_error_message());
    ndp_config_destroy(c);
    (void)!ndp_folder_remove(folder);
}

/* ---- this host ---- */

static bool is_table(const ndp_strings *files) {
    for (int i = 0; i < files->n; i++)
        if (ndp_ends_with(files->items[i], ".parquet") || ndp_ends_with(files->items[i], ".arrow"))
            return true;
    return false;
}

/* What the job needs of this host. A job that cannot be understood is a finding of check_job. */
static void add_job_facts(doctor *d, ndp_host_facts *f) {
    const ndp_config *c = d->opts->job;
    ndp_job j;
    int64_t need = 0;
    f->wants_tables = is_table(&c->data.files) || is_table(&c->data.validation_files);
    f->threads = c->train.threads;
    if (ndp_job_init(c, 0, &j) == NDP_OK) {
        int hosts = d->hosts ? d->hosts : 1;
        f->ranks = d->opts->ranks_here ? d->opts->ranks_here : (j.world + hosts - 1) / hosts;
        d->ranks_here = f->ranks;
        /* A checkpoint has weights and two states of an optimizer in fp32, the model once more the weights. */
        need = c->adapter.type == NDP_ADAPTER_NONE ? j.spec.parameters * 16 : j.spec.parameters / 10;
        ndp_job_release(&j);
    }
    ndp_host_facts_disk(f, "train.output_dir", c->train.output_dir, need);
}

static void check_host(doctor *d) {
    const ndp_config *c = d->opts->job;
    ndp_host_facts *f = calloc(1, sizeof *f);
    char *cache = NULL;
    if (!f) {
        d->findings.failed = true;
        return;
    }
    ndp_host_facts_read("", f);
    f->several_hosts = d->opts->hostfile || d->opts->ranks_here;
    if (c)
        add_job_facts(d, f);
    else
        ndp_host_facts_disk(f, "this folder", ".", 0);
    if (ndp_cache_folder(c ? c->data.cache_dir : NULL, &cache) == NDP_OK)
        ndp_host_facts_disk(f, "data.cache_dir", cache, 0);
    free(cache);
    ndp_host_checkup(f, &d->findings);
    free(f);
}

/* ---- the job ---- */

/* The lines of a dry run that say what the run would lack. */
static void add_warnings(doctor *d, const char *text) {
    static const char word[] = "warning: ";
    for (const char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        int n = (int)strcspn(line, "\n");
        bool refused = memmem(line, (size_t)n, "would be refused", 16) != NULL;
        if (strncmp(line, word, sizeof word - 1) == 0)
            ndp_findings_add(&d->findings, refused ? "memory of the job" : "saves of the job",
                             refused ? NDP_FINDING_PROBLEM : NDP_FINDING_NOTE,
                             refused ? "lower batch.micro_batch_size or data.sequence_length, set train.recompute: "
                                       "block, shard more, or use more hosts; `ndparallel init` lists layouts"
                                     : "see `ndparallel train JOB --dry-run`",
                             "%.*s", n - (int)(sizeof word - 1), line + sizeof word - 1);
    }
}

static void check_job(doctor *d) {
    ndp_plan_opts o = NDP_PLAN_OPTS_INIT;
    char *text = NULL;
    o.data = true;
    o.as_run = true;
    o.ranks_per_node = d->ranks_here;
    if (ndp_plan(d->opts->job, &o, &text) == NDP_OK) {
        ndp_findings_add(&d->findings, "job", NDP_FINDING_OK, NULL, "its model, data and programs are in order");
        add_warnings(d, text);
    } else
        ndp_findings_add(&d->findings, "job", NDP_FINDING_PROBLEM,
                         "correct what the message names; `ndparallel train JOB --dry-run` checks it again", "%s",
                         ndp_error_message());
    free(text);
    (void)ndp_job_copy(d->opts->job, d->copy);
}

/* ---- other hosts ---- */

static void add_quoted(ndp_str *out, const char *word) {
    ndp_str_add(out, "'");
    for (; *word; word++)
        ndp_str_addf(out, *word == '\'' ? "'\\''" : "%c", *word);
    ndp_str_add(out, "' ");
}

/* The command that another host runs, in the folder of this process; the caller frees it. NULL: no memory. */
static char *remote_command(const doctor *d) {
    ndp_str out = {0};
    char folder[NDP_PATH];
    ndp_str_add(&out, "cd ");
    add_quoted(&out, getcwd(folder, sizeof folder) ? folder : ".");
    ndp_str_add(&out, "&& ");
    for (const char *const *word = d->opts->remote; *word; word++)
        add_quoted(&out, *word);
    if (d->ranks_here)
        ndp_str_addf(&out, "--ranks-here %d", d->ranks_here);
    return ndp_str_detach(&out);
}

static void check_hosts(doctor *d) {
    ndp_host_answer *answers;
    int n;
    char *command = remote_command(d);
    ndp_status st = command ? ndp_hosts_ask(d->opts->hostfile, command, REMOTE_SECONDS, &answers, &n)
                            : NDP_FAIL(NDP_ENOMEM, "not enough memory for a command");
    free(command);
    if (st != NDP_OK) {
        ndp_findings_add(&d->findings, "hostfile", NDP_FINDING_PROBLEM, "correct it", "%s", ndp_error_message());
        return;
    }
    for (int i = 0; i < n; i++)
        ndp_host_answer_checkup(&answers[i], ndp_build(), d->copy[0] ? d->copy : NULL, &d->findings);
    ndp_host_answers_release(answers, n);
}

static void count_hosts(doctor *d) {
    ndp_host_list list;
    if (d->opts->hostfile && ndp_hosts_read(d->opts->hostfile, &list) == NDP_OK) {
        d->hosts = list.n;
        ndp_host_list_release(&list);
    }
}

/* ---- all ---- */

static char *report_text(const doctor *d, int problems) {
    ndp_str text = {0};
    ndp_json_out json = {0};
    if (d->opts->json) {
        ndp_json_open(&json, NULL, '{');
        ndp_json_put_text(&json, "version", ndp_build());
        ndp_json_put_number(&json, "time", ndp_time());
        ndp_json_put_int(&json, "problems", problems);
        ndp_json_put_text(&json, "data", d->copy[0] ? d->copy : NULL);
        ndp_findings_put(&d->findings, &json);
        ndp_json_close(&json, '}');
        return ndp_str_detach(&json.text);
    }
    ndp_findings_print(&d->findings, &text);
    if (problems)
        ndp_str_addf(&text, "\n%d problem%s\n", problems, problems == 1 ? "" : "s");
    else
        ndp_str_add(&text, "\nno problem\n");
    return ndp_str_detach(&text);
}

static void check_all(doctor *d) {
    const ndp_doctor_opts *o = d->opts;
    count_hosts(d);
    say(d, "checking this host ...");
    check_host(d);
    if (o->axes) {
        say(d, "training a step on each axis ...");
        try_axes(d);
    }
    if (o->job) {
        say(d, "checking the job ...");
        check_job(d);
    }
    if (o->hostfile && o->remote) {
        say(d, "asking the other hosts ...");
        check_hosts(d);
    }
}

ndp_status ndp_doctor(const ndp_doctor_opts *o, char **text, int *problems) {
    NDP_NOT_NULL(o, text, problems);
    doctor d = {.opts = o};
    ndp_status st = NDP_OK;
    if (o->run)
        st = ndp_run_examine(o->run, &d.findings);
    else
        check_all(&d);
    int found = ndp_findings_problems(&d.findings);
    char *whole = d.findings.failed ? NULL : report_text(&d, found);
    ndp_findings_release(&d.findings);
    if (st != NDP_OK) {
        free(whole);
        return st;
    }
    NDP_CHECK_MEMORY(whole, "for the report");
    *text = whole;
    *problems = found;
    return NDP_OK;
}
