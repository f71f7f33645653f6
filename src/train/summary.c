/* The first line of a run, and its last ones: what it did, where its time went, its best evaluation, its memory. */
#include "train/summary.h"

#include "base/human_time.h"
#include "plan/job_memory.h"
#include <ndparallel/ndparallel.h>

#include <math.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

void ndp_run_part_add(ndp_run_part *p, const ndp_metrics *m) {
    if (isfinite(m->step_seconds)) {
        p->steps++;
        p->first = p->first ? p->first : m->step;
        p->last = m->step;
        p->tokens += m->tokens;
        p->compute += m->compute_seconds;
        p->communication += m->communication_seconds;
        p->data += m->data_seconds;
    }
    p->evaluation += m->evaluation_seconds;
    p->saves += m->save_seconds;
    if (m->eval_tokens > 0 && isfinite(m->eval_loss) && (p->best_step == 0 || m->eval_loss < p->best)) {
        p->best = m->eval_loss;
        p->best_step = m->step;
    }
}

void ndp_run_introduce(char out[160]) {
    char host[65] = "", date[32] = "";
    time_t now = time(NULL);
    struct tm local;
    gethostname(host, sizeof host - 1);
    if (localtime_r(&now, &local))
        strftime(date, sizeof date, "%Y-%m-%d %H:%M:%S", &local);
    snprintf(out, 160, "ndparallel %s, host %s, process %ld, %s", ndp_build(), host, (long)getpid(), date);
}

/* "4.2 s", then as ndp_human_time. */
static const char *duration(double seconds, char out[16]) {
    if (seconds >= 10)
        return ndp_human_time(seconds, out);
    snprintf(out, 16, "%.1f s", seconds);
    return out;
}

/* The parts of the wall time, and what no part accounts for. */
static void add_times(const ndp_run_part *p, ndp_str *out) {
    double wall = p->ended - p->began, start = p->started - p->began;
    double known = start + p->compute + p->communication + p->data + p->evaluation + p->saves + p->log;
    const struct {
        const char *name;
        double seconds;
    } parts[] = {{"start", start},  {"compute", p->compute},       {"communication", p->communication},
                 {"data", p->data}, {"evaluation", p->evaluation}, {"saves", p->saves},
                 {"log", p->log},   {"other", wall - known}};
    ndp_str_add(out, "time:");
    for (int i = 0; i < NDP_COUNT(parts); i++)
        ndp_str_addf(out, "%s %s %.1f%%", i ? "," : "", parts[i].name, 100 * parts[i].seconds / wall);
    ndp_str_add(out, "\n");
}

char *ndp_run_summarize(const ndp_trainer *t, const ndp_run_part *p) {
    ndp_str s = {0};
    char wall[16], peak[16], planned[16];
    double steps = p->compute + p->communication + p->data;
    ndp_str_addf(&s, "steps: %lld of %d in %s", (long long)p->last, t->rank.data.steps,
                 duration(p->ended - p->began, wall));
    if (p->first > 1)
        ndp_str_addf(&s, ", here from step %lld on", (long long)p->first);
    ndp_str_addf(&s, "; %lld tokens, %.0f tokens/s\n", (long long)p->tokens, (double)p->tokens / steps);
    add_times(p, &s);
    if (p->best_step > 0)
        ndp_str_addf(&s, "best: eval_loss %.4f at step %lld\n", p->best, (long long)p->best_step);
    ndp_engine_memory own = ndp_engine_memory_of(t->engine), score = {0};
    if (t->score.engine)
        score = ndp_engine_memory_of(t->score.engine);
    ndp_str_addf(&s, "memory: %s planned per rank; the process of rank 0 used %s at most\n",
                 ndp_human_bytes((double)(own.device + score.device), planned),
                 ndp_human_bytes((double)t->newest.peak_memory_bytes, peak));
    return ndp_str_detach(&s);
}
