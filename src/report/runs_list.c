/* ndp_runs_list: the run folders below a folder, a line each. */
#include "base/json_write.h"
#include "report/run.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LEVELS = 3, LINE = 79 };

/* ---- finding them ---- */

typedef struct run_search {
    ndp_strings found;
    int level; /* of the folder whose entries are visited */
} run_search;

static ndp_status look_at(run_search *s, const char *folder);

static ndp_status visit(void *user, const char *folder, const char *name) {
    run_search *s = user;
    char path[NDP_PATH];
    if (name[0] == '.')
        return NDP_OK;
    if (strcmp(folder, ".") == 0 ? snprintf(path, sizeof path, "%s", name) >= NDP_PATH
                                 : ndp_path_join(path, folder, name) != NDP_OK)
        return NDP_OK;
    return ndp_path_is_folder(path) ? look_at(s, path) : NDP_OK;
}

/* What is inside of a run is its own, so a search ends there; and at a folder that cannot be read. */
static ndp_status look_at(run_search *s, const char *folder) {
    if (ndp_run_is_there(folder))
        return ndp_strings_add(&s->found, folder);
    if (s->level == LEVELS)
        return NDP_OK;
    s->level++;
    ndp_status st = ndp_folder_visit(folder, visit, s);
    s->level--;
    return st == NDP_ENOMEM ? st : NDP_OK;
}

static int by_path(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

/* ---- a line ---- */

/* The columns of a line after the path; the first is at the left, the others at the right. */
enum { STATE, STEP, LOSS, EVAL_LOSS, SPEED, AGE, CELLS, CELL = 48 };
static const char *const headings[CELLS] = {"state", "step", "loss", "eval", "tokens/s", "age"};

typedef struct run_row {
    char *path; /* without control characters */
    char cells[CELLS][CELL];
} run_row;

static void put(char cell[CELL], int decimals, double x, const char *unit) {
    if (isnan(x))
        snprintf(cell, CELL, "-");
    else
        snprintf(cell, CELL, fabs(x) < 1e6 ? "%.*f%s" : "%.*g%s", decimals, x, unit);
}

static void put_speed(char cell[CELL], double x) {
    bool mega = x >= 999.95e3, kilo = !mega && x >= 999.5;
    put(cell, mega ? 2 : kilo ? 1 : 0, mega ? x / 1e6 : kilo ? x / 1e3 : x, mega ? "M" : kilo ? "k" : "");
}

static void put_age(char cell[CELL], double s) {
    static const struct {
        double below, seconds;
        const char *unit;
    } units[] = {{100, 1, "s"}, {6000, 60, "m"}, {360e3, 3600, "h"}, {INFINITY, 86400, "d"}};
    int i = 0;
    while (s >= units[i].below)
        i++;
    put(cell, 0, floor(s / units[i].seconds), units[i].unit);
}

static double newest_eval(const ndp_run_view *r) { return r->metrics.n_evals ? r->metrics.evals[0].loss : NAN; }

static ndp_status fill(run_row *w, const ndp_run_view *r) {
    bool lines = r->metrics.lines > 0;
    w->path = strdup(r->folder);
    NDP_CHECK_MEMORY(w->path, "for a list of runs");
    for (char *p = w->path; *p; p++)
        if ((unsigned char)*p < ' ' || *p == 0x7f)
            *p = '?';
    snprintf(w->cells[STATE], CELL, "%s", ndp_run_state_word(r->state));
    if (r->steps > 0)
        snprintf(w->cells[STEP], CELL, "%lld/%lld", (long long)r->step, (long long)r->steps);
    else
        snprintf(w->cells[STEP], CELL, "%lld", (long long)r->step);
    put(w->cells[LOSS], 4, lines ? r->metrics.loss : NAN, "");
    put(w->cells[EVAL_LOSS], 4, newest_eval(r), "");
    put_speed(w->cells[SPEED], lines ? r->metrics.tokens_per_second : NAN);
    put_age(w->cells[AGE], r->age);
    return NDP_OK;
}

/* Characters, or bytes of what is not UTF-8. */
static int count(const char *text) {
    int n = 0;
    for (; *text; text++)
        n += ((unsigned char)*text & 0xc0) != 0x80;
    return n;
}

/* The end of a path where it is longer than `width`. */
static void add_path(ndp_str *out, const char *path, int width) {
    int n = count(path), dots = n > width ? 3 : 0;
    for (int skipped = 0; dots && *path && (skipped < n - width + dots || ((unsigned char)*path & 0xc0) == 0x80);
         path++)
        skipped += ((unsigned char)*path & 0xc0) != 0x80;
    ndp_str_addf(out, "%.*s%s", dots, "...", path);
    ndp_str_addf(out, "%*s", n < width ? width - n : 0, "");
}

static void add_rows(ndp_str *out, const run_row *rows, int n) {
    int width[CELLS] = {0}, path = 3, all = LINE;
    for (int c = 0; c < CELLS; c++) {
        for (int i = 0; i < n; i++)
            width[c] = (int)fmax(width[c], (double)strlen(rows[i].cells[c]));
        all -= 2 + width[c];
    }
    for (int i = 0; i < n; i++)
        path = count(rows[i].path) > path ? count(rows[i].path) : path;
    path = path < all ? path : all > 8 ? all : 8;
    for (int i = 0; i < n; i++) {
        add_path(out, rows[i].path, path);
        ndp_str_addf(out, "  %-*s", width[STATE], rows[i].cells[STATE]);
        for (int c = STEP; c < CELLS; c++)
            ndp_str_addf(out, "  %*s", width[c], rows[i].cells[c]);
        ndp_str_add(out, "\n");
    }
}

static void put_run(ndp_json_out *o, const ndp_run_view *r) {
    bool lines = r->metrics.lines > 0;
    ndp_json_open(o, NULL, '{');
    ndp_json_put_text(o, "path", r->folder);
    ndp_json_put_text(o, "state", ndp_run_state_word(r->state));
    ndp_json_put_int(o, "step", r->step);
    if (r->steps > 0)
        ndp_json_put_int(o, "steps", r->steps);
    else
        ndp_json_put_null(o, "steps");
    ndp_json_put_number(o, "loss", lines ? r->metrics.loss : NAN);
    ndp_json_put_number(o, "eval_loss", newest_eval(r));
    ndp_json_put_number(o, "tokens_per_second", lines ? r->metrics.tokens_per_second : NAN);
    ndp_json_put_number(o, "age_seconds", r->age);
    ndp_json_close(o, '}');
}

/* ---- the list ---- */

/* Row 0 is the heading. A run that was removed since it was found, or whose files cannot be read, is left out. */
static ndp_status read_all(const ndp_strings *found, run_row *rows, int *n, ndp_json_out *json) {
    rows[0].path = strdup("run");
    for (int c = 0; c < CELLS; c++)
        snprintf(rows[0].cells[c], CELL, "%s", headings[c]);
    *n = 1;
    for (int i = 0; i < found->n; i++) {
        ndp_run_view r;
        ndp_status st = ndp_run_read(found->items[i], true, &r);
        if (st == NDP_OK) {
            put_run(json, &r);
            st = fill(&rows[(*n)++], &r);
        }
        ndp_run_release(&r);
        if (st == NDP_ENOMEM)
            return st;
    }
    return NDP_MEMORY(rows[0].path, "for a list of runs");
}

static ndp_status write_list(const char *folder, const ndp_strings *found, bool json, char **text) {
    run_row *rows = calloc((size_t)found->n + 1, sizeof *rows);
    ndp_json_out o = {0};
    ndp_str out = {0};
    int n = 0;
    ndp_json_open(&o, NULL, '{');
    ndp_json_open(&o, "runs", '[');
    ndp_status st = rows ? read_all(found, rows, &n, &o) : NDP_FAIL(NDP_ENOMEM, "not enough memory for a list of runs");
    ndp_json_close(&o, ']');
    ndp_json_close(&o, '}');
    if (st == NDP_OK && n > 1)
        add_rows(&out, rows, n);
    else if (st == NDP_OK)
        ndp_str_addf(&out, "no runs in '%s' and %d levels below it\n", folder, LEVELS);
    if (st == NDP_OK && (out.failed || o.text.failed))
        st = NDP_FAIL(NDP_ENOMEM, "not enough memory for a list of runs");
    if (st == NDP_OK)
        *text = ndp_str_detach(json ? &o.text : &out);
    for (int i = 0; rows && i < n; i++)
        free(rows[i].path);
    free(rows);
    ndp_str_release(&out);
    ndp_str_release(&o.text);
    return st;
}

ndp_status ndp_runs_list(const char *folder, bool json, char **text) {
    NDP_NOT_NULL(folder, text);
    run_search s = {0};
    const char *why = ndp_path_why_no_folder(folder);
    NDP_CHECK(!why, "cannot list runs in '%s': %s", folder, why);
    ndp_status st = look_at(&s, folder);
    if (st == NDP_OK && s.found.n)
        qsort(s.found.items, (size_t)s.found.n, sizeof *s.found.items, by_path);
    if (st == NDP_OK)
        st = write_list(folder, &s.found, json, text);
    ndp_strings_release(&s.found);
    return st;
}
