/* What other hosts answered to a doctor, as findings about them. */
#include "base/json.h"
#include "launch/checkup.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A counter of a lock, times in logs, certificates: more than this is seen by none of them. */
enum { SECONDS_APART = 2 };

/* The line of the answer that is the report; banners of ssh may be around it. NULL: there is none. */
static struct json_object *find_report(const char *text) {
    struct json_object *report = NULL;
    for (const char *line = text; line && !report; line = strchr(line, '\n')) {
        line += *line == '\n';
        size_t n = strcspn(line, "\n");
        if (*line == '{' && ndp_json_parse(line, n, "an answer", &report) != NDP_OK)
            report = NULL;
        if (report && !json_object_object_get_ex(report, "checks", NULL)) {
            json_object_put(report);
            report = NULL;
        }
    }
    return report;
}

static const char *text_of(struct json_object *o, const char *key) {
    struct json_object *value;
    return json_object_object_get_ex(o, key, &value) ? ndp_json_text(value) : NULL;
}

int ndp_last_line(const char *text, const char **begin) {
    size_t n = strlen(text);
    while (n && text[n - 1] == '\n')
        n--;
    const char *start = text + n;
    while (start > text && start[-1] != '\n')
        start--;
    *begin = start;
    return (int)(text + n - start);
}

static void add_silent(const ndp_host_answer *a, ndp_findings *out) {
    char name[600], remedy[700];
    const char *line;
    int n = ndp_last_line(a->text ? a->text : "", &line);
    bool reached = a->code != 255 && a->code != -1;
    snprintf(name, sizeof name, "%s: ssh", a->host);
    snprintf(remedy, sizeof remedy,
             reached ? "install the same build under the same path on %s, and start from a folder that it has too"
                     : "try `ssh %s true`; it has to work without a password",
             a->host);
    if (a->code == -1)
        ndp_findings_add(out, name, NDP_FINDING_PROBLEM, remedy, "no answer in time");
    else
        ndp_findings_add(out, name, NDP_FINDING_PROBLEM, remedy, "%s: exit code %d%s%.*s",
                         reached ? "ndparallel does not run there" : "cannot be reached", a->code, n ? ": " : "", n,
                         line);
}

static void compare(const ndp_host_answer *a, struct json_object *report, const char *version, const char *data,
                    ndp_findings *out) {
    char name[600];
    const char *theirs = text_of(report, "version"), *copy = text_of(report, "data");
    bool same = theirs && strcmp(theirs, version) == 0;
    snprintf(name, sizeof name, "%s: version", a->host);
    ndp_findings_add(out, name, same ? NDP_FINDING_OK : NDP_FINDING_PROBLEM,
                     same ? NULL : "install the same build on all hosts", same ? "%s" : "%s, here %s",
                     theirs ? theirs : "not known", version);
    struct json_object *time;
    double at = json_object_object_get_ex(report, "time", &time) ? json_object_get_double(time) : 0;
    /* The report was written between the two; how far its clock is off at least decides. It is written at the end. */
    double off = at < a->began ? at - a->began : at > a->ended ? at - a->ended : 0;
    snprintf(name, sizeof name, "%s: clock", a->host);
    if (fabs(off) > SECONDS_APART)
        ndp_findings_add(out, name, NDP_FINDING_PROBLEM, "apt install chrony on every host, or `chronyc makestep`",
                         "about %.0f s %s this host's", fabs(at - a->ended), off > 0 ? "ahead of" : "behind");
    else
        ndp_findings_add(out, name, NDP_FINDING_OK, NULL, "agrees with this host's within %.1f s",
                         fabs(off) + a->ended - a->began);
    if (!data || !copy)
        return;
    same = strcmp(data, copy) == 0;
    snprintf(name, sizeof name, "%s: data", a->host);
    ndp_findings_add(out, name, same ? NDP_FINDING_OK : NDP_FINDING_PROBLEM,
                     same ? NULL : "copy the files of this host there (rsync --checksum), or put them on a shared disk",
                     same ? "the same files as here"
                          : "other files of the model or the data than here, under the same "
                            "names");
}

/* Its own findings, but for those that are fine. */
static void add_theirs(const ndp_host_answer *a, struct json_object *report, ndp_findings *out) {
    struct json_object *checks = json_object_object_get(report, "checks");
    for (size_t i = 0; json_object_is_type(checks, json_type_array) && i < json_object_array_length(checks); i++) {
        struct json_object *one = json_object_array_get_idx(checks, i);
        const char *name = text_of(one, "name"), *found = text_of(one, "found");
        ndp_finding_state state;
        char whole[700];
        if (!name || !found || !ndp_finding_state_parse(text_of(one, "state"), &state) || state == NDP_FINDING_OK)
            continue;
        snprintf(whole, sizeof whole, "%s: %s", a->host, name);
        ndp_findings_add(out, whole, state, text_of(one, "remedy"), "%s", found);
    }
}

void ndp_host_answer_checkup(const ndp_host_answer *a, const char *version, const char *data, ndp_findings *out) {
    struct json_object *report = find_report(a->text);
    if (!report) {
        add_silent(a, out);
        return;
    }
    compare(a, report, version, data, out);
    add_theirs(a, report, out);
    json_object_put(report);
}
