/* ndparallel verify: compares layouts with one rank, or a step of another trainer with ours, and prints a table or
 * JSON.
 */
#include "cli/commands.h"
#include "cli/print_against.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- arguments ---- */

typedef struct verify_arguments {
    cli_job job;
    cli_list layouts;
    const char *against, *dump;
    int steps;
    bool json;
} verify_arguments;

static const cli_option options[] = {
    {"layout", 'l', "AXIS=SIZE,...",
     "A layout to compare with one rank, such as dp_shard=4,tp=2: sizes of `parallelism` without '_size'; may be "
     "repeated",
     CLI_LIST(verify_arguments, layouts)},
    {"steps", 0, "N", "Training steps per run, 1 to 20; default: 20",
     CLI_INT(verify_arguments, steps, 1, NDP_VERIFY_STEPS)},
    {"against", 0, "DUMP",
     "Compare a step of any trainer, in the folder DUMP, with the same step here on one rank, and say what it is like "
     "where it differs",
     CLI_TEXT(verify_arguments, against)},
    {"dump", 0, "DIR", "Write the job's first step to the new folder DIR, for --against",
     CLI_TEXT(verify_arguments, dump)},
    CLI_JOB_DEVICE,
    CLI_JSON(verify_arguments, json),
    {0},
};

static void check_arguments(void *arguments, struct argp_state *state) {
    const verify_arguments *a = arguments;
    if ((a->layouts.n > 0) + !!a->against + !!a->dump > 1)
        cli_refuse(state, "--layout, --against and --dump are three different checks; give one of them");
    if (a->layouts.n == 0 && !a->against && !a->dump)
        cli_refuse(state, "no layout; give at least one, such as --layout dp_shard=4,tp=2, or --against a dump");
}

/* On stderr, since stdout contains only the result. */
static void say(void *user, const char *line) {
    (void)user;
    fprintf(stderr, "%s\n", line);
}

/* ---- the table ---- */

/* The measures in the table: those with a bound (proof 3). */
static const ndp_measure shown[] = {NDP_MEASURE_FIRST_GRADIENT, NDP_MEASURE_LAST_GRADIENT, NDP_MEASURE_GRAD_NORM,
                                    NDP_MEASURE_LOSS, NDP_MEASURE_EVAL_LOSS};
enum { SHOWN = sizeof shown / sizeof shown[0] };

/* Nothing may be held out. */
static bool is_shown(const ndp_verdict *v, int m) {
    return shown[m] != NDP_MEASURE_EVAL_LOSS || v->of[NDP_MEASURE_EVAL_LOSS].worst.bound > 0;
}

static double share_of(const ndp_deviation *d) { return d->worst.off == 0 ? 0 : d->worst.off / d->worst.bound; }

static int longest(const verify_arguments *a, const ndp_verdict *v, bool tensors) {
    size_t most = tensors ? strlen("of tensor") : strlen("layout");
    for (int i = 0; i < a->layouts.n; i++) {
        size_t n = strlen(tensors ? v[i].of[NDP_MEASURE_FIRST_GRADIENT].worst.where : a->layouts.items[i]);
        most = n > most ? n : most;
    }
    return (int)most;
}

static void add_table(const verify_arguments *a, const ndp_verdict *v, ndp_str *out) {
    int layouts = longest(a, v, false), tensors = longest(a, v, true);
    static const int widths[SHOWN] = {8, 9, 6, 6, 6}; /* of the shares, to align with the headings */
    char share[16], last[32];
    snprintf(last, sizeof last, "gradient, step %d", a->steps);
    ndp_str_addf(out, "%-*s  %-16s  %-*s  %-17s  %-14s  %-14s  %s%sverdict\n", layouts, "layout", "gradient, step 1",
                 tensors, "of tensor", last, "grad_norm", "loss", is_shown(v, SHOWN - 1) ? "eval_loss       " : "",
                 v->choices ? "flips              " : "");
    for (int i = 0; i < a->layouts.n; i++) {
        ndp_str_addf(out, "%-*s", layouts, a->layouts.items[i]);
        for (int m = 0; m < SHOWN; m++) {
            const ndp_deviation *d = &v[i].of[shown[m]];
            if (!is_shown(v, m))
                continue;
            cli_share_text(share_of(d), share);
            ndp_str_addf(out, "  %.1e %*s", d->worst.off, widths[m], share);
            if (shown[m] == NDP_MEASURE_FIRST_GRADIENT)
                ndp_str_addf(out, "  %-*s", tensors, d->worst.where);
        }
        if (v->choices) {
            snprintf(last, sizeof last, "%lld of %lld", (long long)v[i].flips, (long long)v[i].choices);
            ndp_str_addf(out, "  %-17s", last);
        }
        ndp_str_addf(out, "  %s\n", v[i].agrees ? "agrees" : "DISAGREES");
    }
}

/* The choices of mixtures that a layout would make otherwise. */
static void add_flips(const char *layout, const ndp_verdict *v, ndp_str *out) {
    if (v->flips == 0)
        return;
    ndp_str_addf(out, "\n%s would make %lld of %lld choices of experts otherwise%s:\n", layout, (long long)v->flips,
                 (long long)v->choices, v->flips > v->n_listed ? "; those with the largest gaps" : "");
    for (int i = 0; i < v->n_listed; i++) {
        const ndp_flip *f = &v->listed[i];
        ndp_str_addf(out, "  step %d, %s, row %lld: expert %d instead of %d, whose probabilities differ by %.1e\n",
                     f->step, f->unit, (long long)f->row, f->chosen, f->instead_of, f->gap);
    }
}

/* Says which layout comes closest to a bound, and to which. */
static void add_agreement(const verify_arguments *a, const ndp_verdict *v, ndp_str *out) {
    char text[16];
    double most = -1;
    int layout = 0;
    ndp_measure measure = shown[0];
    for (int i = 0; i < a->layouts.n; i++)
        for (int m = 0; m < SHOWN; m++) {
            double share = share_of(&v[i].of[shown[m]]);
            if (share > most) {
                most = share;
                layout = i;
                measure = shown[m];
            }
        }
    cli_share_text(most, text);
    ndp_str_addf(out, "\n%s with one rank; the closest to its bound, at %s, is the %s of %s\n",
                 a->layouts.n > 1 ? "All agree" : "It agrees", text, ndp_measure_name(measure),
                 a->layouts.items[layout]);
}

static void print_words(const verify_arguments *a, const ndp_verdict *v) {
    bool agree = true;
    ndp_str text = {0}, *out = &text;
    add_table(a, v, out);
    for (int i = 0; i < a->layouts.n; i++) {
        add_flips(a->layouts.items[i], &v[i], out);
        if (!v[i].agrees)
            ndp_str_addf(out, "\n%s disagrees: %s\n", a->layouts.items[i], v[i].words);
        agree &= v[i].agrees;
    }
    if (agree)
        add_agreement(a, v, out);
    cli_print_fitting(out);
}

/* ---- JSON ---- */

static void put_deviation(ndp_json_out *o, const char *key, const ndp_deviation *d) {
    ndp_json_open(o, key, '{');
    ndp_json_put_number(o, "off", d->worst.off);
    ndp_json_put_number(o, "bound", d->worst.bound);
    ndp_json_put_text(o, "where", d->worst.where);
    ndp_json_put_int(o, "beyond", d->beyond);
    ndp_json_put_text(o, "first", d->first.where);
    ndp_json_put_text(o, "unit", d->first.unit);
    ndp_json_close(o, '}');
}

static void put_flips(ndp_json_out *o, const ndp_verdict *v) {
    ndp_json_put_int(o, "choices", v->choices);
    ndp_json_put_int(o, "flips", v->flips);
    ndp_json_open(o, "listed", '[');
    for (int i = 0; i < v->n_listed; i++) {
        const ndp_flip *f = &v->listed[i];
        ndp_json_open(o, NULL, '{');
        ndp_json_put_int(o, "step", f->step);
        ndp_json_put_text(o, "unit", f->unit);
        ndp_json_put_int(o, "row", f->row);
        ndp_json_put_int(o, "expert", f->chosen);
        ndp_json_put_int(o, "instead_of", f->instead_of);
        ndp_json_put_number(o, "gap", f->gap);
        ndp_json_close(o, '}');
    }
    ndp_json_close(o, ']');
}

static void print_json(const verify_arguments *a, const ndp_verdict *v) {
    static const char *const keys[NDP_MEASURES] = {
        [NDP_MEASURE_TOKENS] = "tokens",       [NDP_MEASURE_FIRST_GRADIENT] = "first_gradient",
        [NDP_MEASURE_GRAD_NORM] = "grad_norm", [NDP_MEASURE_LAST_GRADIENT] = "last_gradient",
        [NDP_MEASURE_LOSS] = "loss",           [NDP_MEASURE_EVAL_LOSS] = "eval_loss",
        [NDP_MEASURE_WEIGHTS] = "weights",     [NDP_MEASURE_FLIP_GAP] = "flip_gap",
        [NDP_MEASURE_FLIPS] = "flip_share"};
    ndp_json_out o = {0};
    ndp_json_open(&o, NULL, '{');
    ndp_json_put_int(&o, "steps", a->steps);
    ndp_json_open(&o, "layouts", '[');
    for (int i = 0; i < a->layouts.n; i++) {
        ndp_json_open(&o, NULL, '{');
        ndp_json_put_text(&o, "layout", a->layouts.items[i]);
        ndp_json_put_int(&o, "ranks", v[i].ranks);
        ndp_json_put_bool(&o, "agrees", v[i].agrees);
        ndp_json_put_number(&o, "seconds", v[i].seconds);
        for (int m = 0; m < NDP_MEASURES; m++)
            put_deviation(&o, keys[m], &v[i].of[m]);
        put_flips(&o, &v[i]);
        ndp_json_put_text(&o, "words", v[i].words);
        ndp_json_close(&o, '}');
    }
    ndp_json_close(&o, ']');
    ndp_json_close(&o, '}');
    cli_print_json(&o);
}

/* ---- the command ---- */

static int verify_against(const verify_arguments *a) {
    ndp_against result;
    ndp_status st = ndp_verify_against(a->job.config, &(ndp_against_opts){.folder = a->against, .say = say}, &result);
    if (st != NDP_OK)
        return cli_fail(st, a->job.debug);
    (a->json ? cli_print_against_json : cli_print_against)(&result, a->against);
    bool agrees = result.agrees;
    ndp_against_release(&result);
    return cli_end_output(!agrees);
}

static int dump(const verify_arguments *a) {
    ndp_status st = ndp_verify_dump(a->job.config, &(ndp_dump_opts){.folder = a->dump, .say = say});
    return st == NDP_OK ? 0 : cli_fail(st, a->job.debug);
}

static int verify_layouts(const verify_arguments *a) {
    ndp_verdict *verdicts = calloc((size_t)a->layouts.n, sizeof *verdicts);
    if (!verdicts)
        return cli_error(1, "not enough memory for %d layouts", a->layouts.n);
    ndp_verify_opts o = NDP_VERIFY_OPTS_INIT;
    o.layouts = a->layouts.items;
    o.n = a->layouts.n;
    o.steps = a->steps;
    o.say = say;
    ndp_status st = ndp_verify(a->job.config, &o, verdicts);
    bool agree = true;
    if (st == NDP_OK) {
        (a->json ? print_json : print_words)(a, verdicts);
        for (int i = 0; i < a->layouts.n; i++)
            agree &= verdicts[i].agrees;
    }
    free(verdicts);
    return st == NDP_OK ? cli_end_output(!agree) : cli_fail(st, a->job.debug);
}

static int run(const cli_command *c, int argc, char **argv) {
    verify_arguments a = {.steps = NDP_VERIFY_STEPS};
    cli_parse(c, argc, argv, &a);
    ndp_status st = cli_job_load(&a.job);
    int code = st != NDP_OK ? cli_fail(st, a.job.debug)
               : a.against  ? verify_against(&a)
               : a.dump     ? dump(&a)
                            : verify_layouts(&a);
    cli_job_release(&a.job);
    free(a.layouts.items);
    return code;
}

const cli_command cmd_verify = {
    .name = "verify",
    .about = "check that layouts compute the same gradients and losses as one rank",
    .usage = "JOB.YAML",
    .help = "Check layouts: train a job for a few steps on one rank and on every --layout, and compare all "
            "gradients, gradient norms and losses. Ranks are threads of this process. Exit code 0: all layouts "
            "agree; 1: at least one does not."
            "\v"
            "--against judges any trainer by one step: the folder DUMP has batch.safetensors (input_ids and labels "
            "of all rows, not shifted; position_ids or document_starts; loss, the mean over all tokens that are "
            "predicted, and their number as tokens; optionally logits and lr), gradients*.safetensors (names of "
            "Hugging Face, summed over "
            "ranks, before clipping) and, optionally, weights*.safetensors (after the update by the job's "
            "optimizer). The job names the model; precision.compute is what the trainer computed in: our step is "
            "in fp32 (or fp64), and with bf16 the bounds are 4 times what our own bf16 is off by. Exit code 0: it "
            "agrees; 1: it does not.",
    .options = options,
    .takes_job = true,
    .check = check_arguments,
    .examples = {"ndparallel verify job.yaml --layout dp_shard=2,tp=2",
                 "ndparallel verify job.yaml --layout cp=2 --layout pp=2 --steps 5 --json"},
    .run = run};
