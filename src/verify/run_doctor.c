/* What happened to a run: its lock, its lines of metrics, its checkpoints, and the journals that its ranks or those
 * that saw them end have left (comm/watch/journal.h). */
#include "verify/run_doctor.h"
#include "base/clock.h"
#include "base/human_time.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/holder.h"
#include "report/run.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

typedef struct examined_run {
    const char *folder;
    ndp_run_view view;
    int64_t whole; /* the newest checkpoint that can be resumed; 0: none */
    ndp_findings *out;
} examined_run;

static bool path_of(const examined_run *r, const char *name, char path[NDP_PATH]) {
    return ndp_path_join(path, r->folder, name) == NDP_OK;
}

/* ---- its state ---- */

static void find_state(const examined_run *r, bool failed) {
    const ndp_run_view *v = &r->view;
    char path[NDP_PATH], steps[64], age[48] = "", resume[NDP_PATH + 64];
    ndp_holder h;
    bool there = path_of(r, "lock", path) && ndp_holder_read(path, &h, &there) == NDP_OK && there;
    snprintf(steps, sizeof steps, v->steps ? "step %lld of %lld" : "step %lld", (long long)v->step,
             (long long)v->steps);
    if (!isnan(v->age))
        snprintf(age, sizeof age, ", its newest line %.0f s ago", v->age);
    snprintf(resume, sizeof resume, "ndparallel train %s/job.yaml --resume", r->folder);
    if (v->state == NDP_RUN_DONE)
        ndp_findings_add(r->out, "run", NDP_FINDING_OK, NULL, "done: all steps are there, %s", steps);
    else if (v->state == NDP_RUN_RUNNING)
        ndp_findings_add(r->out, "run", NDP_FINDING_OK, NULL, "running: process %lld, %s%s",
                         there ? (long long)h.pid : 0LL, steps, age);
    else if (v->state == NDP_RUN_ELSEWHERE)
        ndp_findings_add(r->out, "run", NDP_FINDING_NOTE,
                         "look on that host; `train --resume` takes over if its lock stands still for 30 s",
                         "process %lld of %s writes here, which this host does not see; %s%s",
                         there ? (long long)h.pid : 0LL, there ? h.host : "another host", steps, age);
    else if (v->state == NDP_RUN_DIED)
        ndp_findings_add(r->out, "run", NDP_FINDING_PROBLEM, resume,
                         "died: process %lld of %s is gone and has not released its lock; %s%s",
                         there ? (long long)h.pid : 0LL, there ? h.host : "this host", steps, age);
    else
        ndp_findings_add(r->out, "run", failed ? NDP_FINDING_PROBLEM : NDP_FINDING_NOTE, resume, "%s after %s%s",
                         failed ? "failed" : "stopped in order", steps, age);
}

/* ---- its metrics ---- */

static void find_metrics(const examined_run *r) {
    const ndp_run_metrics *m = &r->view.metrics;
    if (m->no_loss > 0)
        ndp_findings_add(r->out, "metrics", NDP_FINDING_PROBLEM,
                         "a lower optimizer.lr, or clipping (optimizer.clip_norm); resume before that step",
                         "the loss is not a number in %lld lines, first in step %lld", (long long)m->no_loss,
                         (long long)m->first_no_loss);
    else if (m->damaged > 0)
        ndp_findings_add(r->out, "metrics", NDP_FINDING_NOTE, "nothing: a resumed run writes these lines again",
                         "%lld of %lld lines are damaged", (long long)m->damaged, (long long)(m->lines + m->damaged));
    else
        ndp_findings_add(r->out, "metrics", NDP_FINDING_OK, NULL, "%lld lines, the newest of step %lld, loss %.4f",
                         (long long)m->lines, (long long)m->step, m->loss);
}

/* ---- its checkpoints ---- */

static ndp_status find_checkpoints(examined_run *r) {
    char path[NDP_PATH], remedy[128];
    int64_t *steps = NULL;
    int n = 0, whole = 0;
    if (!path_of(r, "checkpoints", path))
        return NDP_OK;
    NDP_TRY(ndp_checkpoint_steps(path, &steps, &n));
    ndp_status st = NDP_OK;
    for (int i = 0; i < n && st == NDP_OK; i++) {
        ndp_examined x;
        st = ndp_checkpoint_examine(NULL, path, steps[i], false, 1, &x);
        bool good = st == NDP_OK && x.state != NDP_CHECKPOINT_DAMAGED;
        whole += good;
        r->whole = good && r->whole == 0 ? steps[i] : r->whole;
        if (st == NDP_OK && !good)
            ndp_findings_add(r->out, "checkpoints", NDP_FINDING_PROBLEM, "check the disk; a resume goes back by itself",
                             "that of step %lld is damaged: %s", (long long)steps[i], x.words);
    }
    free(steps);
    int64_t lost = r->view.metrics.step - r->whole;
    bool ended = r->view.state == NDP_RUN_DIED || r->view.state == NDP_RUN_STOPPED;
    snprintf(remedy, sizeof remedy, "checkpoint.minutes or checkpoint.every lower what a death costs");
    if (r->whole == 0)
        ndp_findings_add(r->out, "checkpoints", ended ? NDP_FINDING_PROBLEM : NDP_FINDING_NOTE, remedy,
                         "none can be resumed: a run that died begins again");
    else if (ended && lost > 0)
        ndp_findings_add(r->out, "checkpoints", NDP_FINDING_NOTE, remedy,
                         "%d, the newest of step %lld: %lld steps are taken again", whole, (long long)r->whole,
                         (long long)lost);
    else
        ndp_findings_add(r->out, "checkpoints", NDP_FINDING_OK, NULL, "%d, the newest of step %lld", whole,
                         (long long)r->whole);
    return st;
}

/* ---- its ranks ---- */

/* What such an end asks for. */
static const char *remedy_of(const char *why) {
    static const char *const remedies[][2] = {
        {"signal 9", "memory: `dmesg`, and `ndparallel train JOB --dry-run`; or the batch system's log"},
        {"has died", "memory: `dmesg`, and `ndparallel train JOB --dry-run`; or the batch system's log"},
        {"stopped", "who stopped that process: a debugger, Ctrl-Z, a batch system that suspends jobs"},
        {"no sign of life", "that host and its link; without it, train on the others: a hostfile without it"},
        {"exit of its own", "what the program of that rank has printed"},
        {"not by an error of ndparallel", "what the program of that rank has printed"},
        {"has not arrived", "what that rank does: the line of it below; a slow disk, a debugger, a broken GPU"},
        {"on its device", "the GPU: `dmesg`, `nvidia-smi`"}};
    for (int i = 0; i < NDP_COUNT(remedies); i++)
        if (strstr(why, remedies[i][0]))
            return remedies[i][1];
    return "docs/guide/troubleshooting.md has the words of errors";
}

/* The journal of a rank: FOLDER/journal.rankN. NULL: this start of the run wrote none. */
static char *read_journal(const examined_run *r, int rank) {
    char name[32], path[NDP_PATH], job[NDP_PATH], *text;
    struct stat own, started;
    size_t size;
    snprintf(name, sizeof name, "journal.rank%d", rank);
    if (!path_of(r, name, path) || !path_of(r, "job.yaml", job) || stat(path, &own) || stat(job, &started) ||
        own.st_mtime < started.st_mtime || ndp_file_read(path, &text, &size) != NDP_OK)
        return NULL;
    return text;
}

/* "rank 1 of 2 failed: WHY" in the first line; the cause is that of a rank that repeats no other's. */
static void find_rank(const examined_run *r, int rank, char *text) {
    char name[32], *end = strchr(text, '\n');
    const char *why = strstr(text, " failed: "), *last = strrchr(text, '\n');
    if (!end || !why || !last)
        return;
    bool own = strncmp(why + 9, "rank ", 5) != 0 || !strstr(why + 9, " failed: ") || strstr(why + 9, " failed: ") > end;
    snprintf(name, sizeof name, "rank %d", rank);
    *end = '\0';
    while (last > end && last[1] == '\0')
        for (*(char *)(uintptr_t)last = '\0'; last > end && *last != '\n';)
            last--;
    ndp_findings_add(r->out, name, own ? NDP_FINDING_PROBLEM : NDP_FINDING_OK, own ? remedy_of(why) : NULL,
                     "%s%slast: %s", own ? why + 9 : "", own ? "; " : "", last > end ? last + 1 : "nothing");
}

static bool find_ranks(const examined_run *r) {
    enum { SHOWN = 64 };
    bool found = false;
    for (int rank = 0; rank < SHOWN; rank++) {
        char *text = read_journal(r, rank);
        if (text)
            find_rank(r, rank, text);
        found |= text != NULL;
        free(text);
    }
    return found;
}

ndp_status ndp_run_examine(const char *folder, ndp_findings *out) {
    examined_run r = {.folder = folder, .out = out};
    ndp_findings ranks = {0};
    ndp_status st = ndp_run_read(folder, false, &r.view);
    if (st == NDP_OK) {
        r.out = &ranks;
        bool ended = r.view.state == NDP_RUN_DIED || r.view.state == NDP_RUN_STOPPED, failed = ended && find_ranks(&r);
        r.out = out;
        find_state(&r, failed);
        find_metrics(&r);
        st = find_checkpoints(&r);
        for (int i = 0; i < ranks.n; i++)
            ndp_findings_add(out, ranks.items[i].name, ranks.items[i].state, ranks.items[i].remedy, "%s",
                             ranks.items[i].found);
        out->failed |= ranks.failed;
    }
    ndp_findings_release(&ranks);
    ndp_run_release(&r.view);
    return st;
}
