/* Events of a run as JSON (events.h). An object is one write, so that a reader of a pipe sees whole lines. */
#include "cli/events.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

void cli_events_init(cli_events *e) {
    *e = (cli_events){0};
    signal(SIGPIPE, SIG_IGN); /* print sees the error instead */
}

static void print(cli_events *e, const char *line) {
    bool written = printf("%s\n", line) >= 0 && fflush(stdout) == 0;
    if (!written && !e->unwritable)
        cli_error(0, "cannot write the output: %s; the run continues. Its numbers are in metrics.jsonl of its folder",
                  strerror(errno));
    e->unwritable |= !written;
}

static void open_event(ndp_json_out *o, const char *event) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    ndp_json_open(o, NULL, '{');
    ndp_json_put_text(o, "event", event);
    ndp_json_put_number(o, "time", (double)now.tv_sec + (double)(now.tv_nsec / 1000000) * 1e-3);
}

static void print_event(cli_events *e, ndp_json_out *o) {
    ndp_json_close(o, '}');
    if (!o->text.failed)
        print(e, o->text.data);
    ndp_str_release(&o->text);
}

void cli_events_step(void *events, const ndp_metrics *m, int64_t steps) {
    cli_events *e = events;
    char *line;
    if (ndp_metrics_line(m, e->before.step ? &e->before : NULL, &line) == NDP_OK) {
        print(e, line);
        free(line);
    }
    e->before = *m;
    if (m->eval_tokens <= 0)
        return;
    ndp_json_out o = {0};
    open_event(&o, "evaluation");
    ndp_json_put_int(&o, "step", m->step);
    ndp_json_put_int(&o, "steps", steps);
    ndp_json_put_number(&o, "eval_loss", m->eval_loss);
    print_event(e, &o);
}

/* "checkpoint: RUN/checkpoints/step-00000100  1.9 MiB in 0.1 s": where it is, and its step. */
static bool put_checkpoint(ndp_json_out *o, const char *line) {
    static const char begin[] = "checkpoint: ", step[] = "/checkpoints/step-";
    const char *at = strstr(line, step);
    if (strncmp(line, begin, sizeof begin - 1) != 0 || !at)
        return false;
    size_t digits = strspn(at + sizeof step - 1, "0123456789");
    ndp_str path = {0};
    ndp_str_add_bytes(&path, line + sizeof begin - 1, (size_t)(at + sizeof step - line) - sizeof begin + digits);
    open_event(o, "checkpoint");
    ndp_json_put_int(o, "step", atoll(at + sizeof step - 1));
    ndp_json_put_text(o, "folder", path.data);
    ndp_str_release(&path);
    return true;
}

/* "plan: 0.62 s, measured 0.66 s; communication differs most, +0.03 s": the last part may lack. */
static bool put_plan(const cli_events *e, ndp_json_out *o, const char *line) {
    double planned, measured, difference;
    char part[32];
    int n =
        sscanf(line, "plan: %lf s, measured %lf s; %31s differs most, %lf s", &planned, &measured, part, &difference);
    if (n != 2 && n != 4)
        return false;
    open_event(o, "plan");
    ndp_json_put_int(o, "step", e->before.step);
    ndp_json_put_number(o, "planned_seconds", planned);
    ndp_json_put_number(o, "measured_seconds", measured);
    ndp_json_put_text(o, "part", n == 4 ? part : NULL);
    ndp_json_put_number(o, "part_difference", n == 4 ? difference : __builtin_nan(""));
    return true;
}

void cli_events_say(void *events, const char *line) {
    cli_events *e = events;
    ndp_json_out o = {0};
    if (!put_checkpoint(&o, line) && !put_plan(e, &o, line))
        open_event(&o, e->begun ? "message" : "start");
    ndp_json_put_text(&o, "message", line);
    e->begun = true;
    print_event(e, &o);
}

void cli_events_end(cli_events *e, ndp_status st) {
    ndp_json_out o = {0};
    if (!e->begun)
        return;
    open_event(&o, "end");
    ndp_json_put_text(&o, "status", st == NDP_OK ? "done" : st == NDP_EINTR ? "stopped" : "failed");
    ndp_json_put_int(&o, "code", ndp_exit_code(st));
    ndp_json_put_int(&o, "step", e->before.step);
    ndp_json_put_text(&o, "message", st == NDP_OK ? NULL : ndp_error_message());
    print_event(e, &o);
}
