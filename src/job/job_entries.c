/* How the records of a job are read: by its options in data, and by those that an entry of data.files has of its own.
 */
#include "job/job_data.h"

#include <stdlib.h>

ndp_record_format ndp_job_format(const ndp_job_data *d, const ndp_config *c) {
    return (ndp_record_format){.kind = c->data.format,
                               .text = c->data.text_field,
                               .messages = c->data.messages_field,
                               .prompt = c->data.prompt_field,
                               .input = c->data.input_field,
                               .response = c->data.response_field,
                               .separator = c->data.input_separator,
                               .role = c->data.role_field,
                               .content = c->data.content_field,
                               .train = c->data.train_field,
                               .chosen = c->data.chosen_field,
                               .rejected = c->data.rejected_field,
                               .roles = &c->data.roles,
                               .chat = &d->chat,
                               .skip = c->data.bad_records == NDP_BAD_RECORDS_SKIP,
                               .single = ndp_preference_table[ndp_config_preference(c).kind].single,
                               .train_all = c->data.train_on == NDP_TRAIN_ON_ALL,
                               .drop_system = c->data.drop_system,
                               .train_turn = c->data.train_on == NDP_TRAIN_ON_TURN};
}

static ndp_status open_entry(const ndp_job_data *d, const char *own, int i, ndp_job_entries *e) {
    NDP_TRY(ndp_config_entry(d->job->config, own, &e->configs[i], &e->splits[i]));
    e->n = i + 1;
    e->formats[i] = ndp_job_format(d, &e->configs[i]);
    bool pairs = e->formats[i].kind == NDP_RECORD_PREFERENCE;
    NDP_CHECK(
        pairs == (d->job->config->data.format == NDP_RECORD_PREFERENCE),
        "entry %d of data.files, or of data.validation_files, %s preference data, where data.format %s; pairs and "
        "other records cannot be mixed",
        i + 1, pairs ? "has" : "has not", pairs ? "is another" : "is preference");
    return NDP_OK;
}

static ndp_status open_entries(const ndp_job_data *d, const ndp_strings *files, const ndp_strings *own,
                               ndp_job_entries *e) {
    bool any = false;
    for (int i = 0; i < files->n; i++)
        any |= *ndp_config_own(own, i) != '\0';
    if (!any)
        return NDP_OK;
    e->configs = calloc((size_t)files->n, sizeof *e->configs);
    e->formats = calloc((size_t)files->n, sizeof *e->formats);
    e->splits = calloc((size_t)files->n, sizeof *e->splits);
    NDP_CHECK_MEMORY(e->configs && e->formats && e->splits, "for %d files", files->n);
    for (int i = 0; i < files->n; i++)
        NDP_TRY(open_entry(d, ndp_config_own(own, i), i, e));
    return NDP_OK;
}

ndp_status ndp_job_entries_open(ndp_job_data *d) {
    const ndp_config *c = d->job->config;
    NDP_TRY(open_entries(d, &c->data.files, &c->data.files_own, &d->entries));
    return open_entries(d, &c->data.validation_files, &c->data.validation_own, &d->held_entries);
}

void ndp_job_entries_close(ndp_job_entries *e) {
    for (int i = 0; i < e->n; i++) {
        ndp_config_release(&e->configs[i]);
        free(e->splits[i]);
    }
    free(e->configs);
    free(e->formats);
    free(e->splits);
    *e = (ndp_job_entries){0};
}
