/* The data of a job: how its ranks make the token caches together, and open the rows. Called by rank.c. */
#include "base/log.h"
#include "checkpoint/agree.h"
#include "rank/working.h"

#include <stdlib.h>
#include <string.h>

static void say_tokenizing(void *user, uint64_t done, uint64_t total) {
    double seconds;
    char line[160];
    if (!ndp_working_due(user, &seconds))
        return;
    ndp_job_data_progress(done, total, seconds, line);
    ndp_working_say(user, line);
}

static ndp_status agree_on_status(void *world, ndp_status mine) { return ndp_agree(world, mine); }

static ndp_status gather_bytes(void *world, const void *mine, void *all, int64_t bytes) {
    ndp_work work;
    NDP_TRY(ndp_all_gather_begin(world, mine, all, bytes / 4, NDP_I32, &work));
    return ndp_wait(&work);
}

/* Collective: tokenizes the files, or finds their cache, and opens it. */
static ndp_status prepare_tokens(void *user, const ndp_strings *files, ndp_token_cache *out) {
    ndp_rank *r = user;
    ndp_working w = ndp_working_begin(r);
    int64_t left_out = 0;
    bool of_job = files == &r->job.config->data.files;
    char *path;
    const ndp_team team = {ndp_comm_rank(r->world), ndp_comm_size(r->world), agree_on_status, gather_bytes, r->world};
    ndp_dataset_options o = ndp_job_data_options(&r->data, files);
    o.threads = r->exec.threads;
    o.team = team.size > 1 ? &team : NULL;
    o.progress = say_tokenizing;
    o.progress_user = &w;
    o.left_out = &left_out;
    o.id_files = of_job ? &r->data.id_files : &r->data.held_id_files;
    o.content = of_job ? &r->data.content : &r->data.held_content;
    NDP_TRY(ndp_dataset_prepare(&o, &path));
    if (left_out > 0)
        ndp_info(&r->log, "ignored %lld file%s in the data folders, not named as text, records or ids",
                 (long long)left_out, left_out == 1 ? "" : "s");
    ndp_status st = ndp_token_cache_open(path, out);
    free(path);
    return st;
}

/* Of batches of the user's own: the exported model has it, if there is one. */
static ndp_status open_tokenizer(ndp_rank *r) {
    int steps = r->data.steps;
    NDP_TRY(ndp_agree(r->world, ndp_job_data_open(&r->job, &r->data)));
    r->data.steps = steps;
    return NDP_OK;
}

ndp_status ndp_rank_open_data(ndp_rank *r) {
    if (r->no_data) {
        r->data.steps = r->job.config->train.steps;
        return r->job.config->train.own_batches ? open_tokenizer(r) : NDP_OK;
    }
    NDP_TRY(ndp_agree(r->world, ndp_job_data_open(&r->job, &r->data)));
    NDP_TRY(ndp_rank_check_memory(r)); /* before tokenizing, which may take long */
    return ndp_job_data_rows(&r->data, r->forward_only, prepare_tokens, r);
}
