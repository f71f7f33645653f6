/* Tables as CSV files, in the formats of torch.distributed.pipelining (_PipelineScheduleRuntime._load_csv).
 *
 * "compute_only" has the actions that compute, and empty cells. "compute_comms" has no empty cells, but those of
 * messages and of sharding. Reading drops all cells that do not compute: messages follow from the order and the stage
 * map. Nothing is assumed about the bytes; a table that was read has passed ndp_pipeline_check. */
#include "base/arena.h"
#include "pipeline/pipeline.h"
#include "pipeline/row.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* A cell that is being read; `at` is what of it has not been read. */
typedef struct csv_cell {
    const char *file;
    int row, column;
    ndp_span text, at;
} csv_cell;

static ndp_status bad_cell(const csv_cell *c, const char *rule) {
    enum { LONGEST = 60 };
    return NDP_FAIL(NDP_EFORMAT, "%s: row %d, column %d, '%.*s'%s: %s", c->file, c->row, c->column,
                    c->text.n > LONGEST ? LONGEST : (int)c->text.n, c->text.data, c->text.n > LONGEST ? "..." : "",
                    rule);
}

static bool accept(csv_cell *c, const char *word) {
    size_t n = strlen(word);
    if (c->at.n < n || memcmp(c->at.data, word, n) != 0)
        return false;
    c->at = (ndp_span){c->at.data + n, c->at.n - n};
    return true;
}

/* A number below 1,000,000; -1: there is none. */
static int accept_number(csv_cell *c) {
    enum { MOST_DIGITS = 6 };
    int value = 0;
    size_t n = 0;
    for (; n < c->at.n && n <= MOST_DIGITS && isdigit((unsigned char)c->at.data[n]); n++)
        value = value * 10 + (c->at.data[n] - '0');
    if (n == 0 || n > MOST_DIGITS)
        return -1;
    c->at = (ndp_span){c->at.data + n, c->at.n - n};
    return value;
}

static ndp_span accept_word(csv_cell *c) {
    ndp_span word = {c->at.data, 0};
    while (word.n < c->at.n && (isupper((unsigned char)word.data[word.n]) || word.data[word.n] == '_'))
        word.n++;
    c->at = (ndp_span){c->at.data + word.n, c->at.n - word.n};
    return word;
}

static bool is_one_of(ndp_span word, const char *const *words, int n) {
    bool found = false;
    for (int i = 0; i < n; i++)
        found |= strlen(words[i]) == word.n && memcmp(words[i], word.data, word.n) == 0;
    return found;
}

/* <stage><letter><micro-batch>. One of communication or sharding has a word instead, and `*computes` is false. */
static ndp_status read_action(csv_cell *c, ndp_stage_action *out, bool *computes) {
    static const char *const messages[] = {"SEND_F", "SEND_B", "RECV_F", "RECV_B", "WAIT_SEND_F", "WAIT_SEND_B"};
    static const char *const sharding[] = {"UNSHARD", "RESHARD", "REDUCE_GRAD", "WAIT_REDUCE_GRAD"};
    *out = (ndp_stage_action){.stage = accept_number(c), .action = NDP_ACTIONS, .column = c->column};
    ndp_span word = accept_word(c);
    for (ndp_action a = 0; a < NDP_ACTIONS; a++)
        if (word.n == 1 && word.data[0] == ndp_action_letter(a))
            out->action = a;
    *computes = out->action < NDP_ACTIONS;
    bool message = is_one_of(word, messages, NDP_COUNT(messages));
    bool known = *computes || message || is_one_of(word, sharding, NDP_COUNT(sharding));
    out->micro_batch = *computes || message ? accept_number(c) : 0;
    if (out->stage < 0 || out->micro_batch < 0 || !known)
        return bad_cell(
            c, "expected an action such as 0F3: a stage, one of F, B, I and W, a micro-batch (numbers of at most 6 "
               "digits)");
    return NDP_OK;
}

/* The actions of a cell, `*n` of them. */
static ndp_status read_cell(csv_cell *c, ndp_stage_action out[2], int *n) {
    bool computes = false, pair = accept(c, "(");
    *n = 0;
    if (c->text.n == 0)
        return NDP_OK;
    NDP_TRY(read_action(c, &out[0], &computes));
    *n = computes;
    if (pair) {
        bool second = false;
        if (!computes || !accept(c, ";"))
            return bad_cell(c, "expected a pair such as (0F7;7B3)OVERLAP_F_B");
        NDP_TRY(read_action(c, &out[1], &second));
        if (!second || !accept(c, ")OVERLAP_F_B"))
            return bad_cell(c, "expected a pair such as (0F7;7B3)OVERLAP_F_B");
        out[0].paired = true;
        *n = 2;
    }
    return c->at.n == 0 ? NDP_OK : bad_cell(c, "expected one action, and nothing after it");
}

static ndp_span trim(ndp_span s) {
    while (s.n && isspace((unsigned char)s.data[0]))
        s = (ndp_span){s.data + 1, s.n - 1};
    while (s.n && isspace((unsigned char)s.data[s.n - 1]))
        s.n--;
    return s;
}

static ndp_status read_row(ndp_span line, const char *file, int number, ndp_pipeline_row *out) {
    int64_t room = 0;
    csv_cell c = {.file = file, .row = number};
    const char *at = line.data, *end = line.data + line.n;
    for (bool more = true; more; c.column++) {
        const char *comma = memchr(at, ',', (size_t)(end - at));
        ndp_stage_action actions[2];
        int n;
        c.text = c.at = trim((ndp_span){at, (size_t)((comma ? comma : end) - at)});
        NDP_TRY(read_cell(&c, actions, &n));
        NDP_TRY(ndp_array_reserve(&out->actions, &room, out->n + n, sizeof *out->actions));
        for (int i = 0; i < n; i++)
            out->actions[out->n++] = actions[i];
        more = comma != NULL;
        at = more ? comma + 1 : end;
    }
    NDP_CHECK(out->n > 0, "%s: row %d has no action: there is one row per rank, and each rank has a stage", file,
              number);
    return NDP_OK;
}

static ndp_status read_rows(const char *text, size_t size, ndp_pipeline *s) {
    int64_t room = 0;
    for (const char *at = text, *end = text + size; at < end;) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        ndp_span line = {at, (size_t)((newline ? newline : end) - at)};
        NDP_CHECK(s->ranks < NDP_MOST_STAGES, "%s: more than %d rows", s->name, (int)NDP_MOST_STAGES);
        NDP_TRY(ndp_array_reserve(&s->rows, &room, s->ranks + 1, sizeof *s->rows));
        s->rows[s->ranks] = (ndp_pipeline_row){0};
        s->ranks++;
        NDP_TRY(read_row(line, s->name, s->ranks - 1, &s->rows[s->ranks - 1]));
        at = newline ? newline + 1 : end;
    }
    NDP_CHECK(s->ranks > 0, "%s: the file has no rows: there is one per rank", s->name);
    return NDP_OK;
}

/* Sizes and stage map, read off the rows. */
static ndp_status find_stages(ndp_pipeline *s) {
    for (int rank = 0; rank < s->ranks; rank++)
        for (int i = 0; i < s->rows[rank].n; i++) {
            const ndp_stage_action *a = &s->rows[rank].actions[i];
            s->stages = a->stage < s->stages ? s->stages : a->stage + 1;
            s->micro_batches = a->micro_batch < s->micro_batches ? s->micro_batches : a->micro_batch + 1;
        }
    s->rank_of = malloc((size_t)s->stages * sizeof *s->rank_of);
    NDP_CHECK_MEMORY(s->rank_of, "for the %d stages of %s", s->stages, s->name);
    for (int stage = 0; stage < s->stages; stage++)
        s->rank_of[stage] = -1;
    for (int rank = s->ranks - 1; rank >= 0; rank--) /* the first row with a stage has it */
        for (int i = 0; i < s->rows[rank].n; i++)
            s->rank_of[s->rows[rank].actions[i].stage] = rank;
    return NDP_OK;
}

ndp_status ndp_pipeline_parse(const char *text, size_t size, const char *name, int micro_batches, ndp_pipeline *out) {
    ndp_pipeline s = {.name = strdup(name)};
    ndp_status st = s.name ? read_rows(text, size, &s) : NDP_FAIL(NDP_ENOMEM, "not enough memory to read %s", name);
    if (st == NDP_OK)
        st = find_stages(&s);
    if (st == NDP_OK)
        st = ndp_pipeline_check(&s, micro_batches);
    if (st == NDP_OK)
        *out = s;
    else
        ndp_pipeline_release(&s);
    return st;
}

ndp_status ndp_pipeline_read(const char *path, int micro_batches, ndp_pipeline *out) {
    char *text;
    size_t size;
    NDP_TRY(ndp_file_read(path, &text, &size));
    ndp_status st = ndp_pipeline_parse(text, size, path, micro_batches, out);
    free(text);
    return st;
}

/* ---- writing ---- */

static void add_action(ndp_str *out, const ndp_stage_action *a) {
    ndp_str_addf(out, "%d%c%d", a->stage, ndp_action_letter(a->action), a->micro_batch);
}

static void add_row(ndp_str *out, const ndp_pipeline_row *row, const ndp_action_time *times) {
    int column = 0;
    for (int i = 0; i < row->n; i++) {
        for (; column < (int)times[i].start; column++)
            ndp_str_add(out, ",");
        const ndp_stage_action *a = &row->actions[i];
        ndp_str_add(out, a->paired ? "(" : "");
        add_action(out, a);
        if (a->paired) {
            ndp_str_add(out, ";");
            add_action(out, &row->actions[++i]);
            ndp_str_add(out, ")OVERLAP_F_B");
        }
    }
    ndp_str_add(out, "\n");
}

ndp_status ndp_pipeline_text(const ndp_pipeline *s, ndp_str *out) {
    double *ones = malloc((size_t)s->stages * sizeof *ones);
    ndp_pipeline_times t;
    for (int stage = 0; ones && stage < s->stages; stage++)
        ones[stage] = 1;
    ndp_status st = ones ? ndp_pipeline_replay(s, &(ndp_pipeline_costs){ones, ones, ones, 0}, &t)
                         : NDP_FAIL(NDP_ENOMEM, "not enough memory to write the schedule %s", s->name);
    free(ones);
    NDP_TRY(st);
    for (int rank = 0; rank < s->ranks; rank++)
        add_row(out, &s->rows[rank], t.rows[rank]);
    ndp_pipeline_times_release(&t);
    return NDP_MEMORY(!out->failed, "to write the schedule %s", s->name);
}

ndp_status ndp_pipeline_write(const ndp_pipeline *s, const char *path) {
    ndp_str text = {0};
    ndp_status st = ndp_pipeline_text(s, &text);
    if (st == NDP_OK)
        st = ndp_file_write_atomic(path, text.data, text.length);
    ndp_str_release(&text);
    return st;
}
