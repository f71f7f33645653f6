/* The check of links before a run reads anything: measured, written to links.json, and judged. Rank 0 writes and
 * warns; all ranks return the same status, so a run either starts everywhere or nowhere. */
#include "train/links.h"

#include "base/log.h"
#include "checkpoint/agree.h"
#include "cluster/cluster.h"
#include "job/job.h"
#include "measure/link_check.h"

#include <string.h>

static ndp_status write_file(const ndp_config *c, const ndp_link_check *check) {
    char path[NDP_PATH];
    ndp_json_out out = {0};
    NDP_TRY(ndp_path_join(path, c->train.output_dir, "links.json"));
    ndp_json_open(&out, NULL, '{');
    ndp_link_check_put(check, &out);
    ndp_json_close(&out, '}');
    ndp_str_add(&out.text, "\n");
    ndp_status st = out.text.failed ? NDP_FAIL(NDP_ENOMEM, "not enough memory for %s", path)
                                    : ndp_file_write_atomic(path, out.text.data, out.text.length);
    ndp_str_release(&out.text);
    return st;
}

/* Every line of a text: as warnings of rank 0. */
static void warn(const char *lines) {
    const ndp_log log = {NDP_LOG_INFO, 0};
    for (const char *at = lines, *end; at && *at; at = end + (*end == '\n')) {
        end = at + strcspn(at, "\n");
        ndp_warn(&log, "%.*s", (int)(end - at), at);
    }
}

/* The lines of a text in one, for an error. */
static ndp_status fail_with(const char *lines) {
    ndp_str all = {0};
    for (const char *at = lines; *at; at++)
        ndp_str_add_bytes(&all, *at != '\n' ? at : at[1] ? "; " : "", *at != '\n' ? 1 : at[1] ? 2 : 0);
    ndp_status st = NDP_FAIL(NDP_EINVAL, "train.check_links: %s", all.failed ? "a link is slow" : all.data);
    ndp_str_release(&all);
    return st;
}

static void say_summary(const ndp_link_check *c, void (*say)(void *, const char *), void *user) {
    char low[NDP_RATE_TEXT], high[NDP_RATE_TEXT];
    double slowest = 0, fastest = 0, latency = 0;
    int between = 0;
    for (int i = 0; i < c->n; i++) {
        const ndp_used_link *l = &c->links[i];
        if (l->host_a == l->host_b)
            continue;
        double rate = l->probe.to_a < l->probe.to_b ? l->probe.to_a : l->probe.to_b;
        slowest = between++ && slowest < rate ? slowest : rate;
        fastest = fastest > rate ? fastest : rate;
        latency = latency > l->probe.latency ? latency : l->probe.latency;
    }
    if (between)
        ndp_say(say, user, "links: %d between %d hosts, %s to %s, up to %.0f us; measured in %.2f s%s", between,
                c->hosts.n, ndp_rate_text(slowest, low), ndp_rate_text(fastest, high), latency * 1e6, c->seconds,
                c->unsure ? "; hosts are busy, so what looks slow is not judged" : "");
}

static ndp_status measure(const ndp_config *c, ndp_comm *world, ndp_link_check *check) {
    ndp_job j;
    NDP_TRY(ndp_job_init(c, ndp_comm_size(world), &j));
    const ndp_mesh_facts facts = {j.spec.layout.kv_heads, j.ties};
    ndp_status st = ndp_link_check_run(world, &j.layout, &facts, check);
    ndp_job_release(&j);
    return st;
}

static ndp_status check_hosts(const ndp_config *c, ndp_comm *world, ndp_link_check *check,
                              void (*say)(void *, const char *), void *user) {
    if (c->train.check_links != NDP_CHECK_LINKS_OFF)
        NDP_TRY(measure(c, world, check));
    NDP_TRY(ndp_agree(world, ndp_is_first(world) ? write_file(c, check) : NDP_OK));
    say_summary(check, say, user);
    if (!check->warnings.length)
        return NDP_OK;
    if (c->train.check_links == NDP_CHECK_LINKS_FAIL)
        return ndp_agree(world, ndp_is_first(world) ? fail_with(check->warnings.data) : NDP_OK);
    if (ndp_is_first(world))
        warn(check->warnings.data);
    return NDP_OK;
}

ndp_status ndp_links_check(const ndp_config *c, ndp_comm *world, void (*say)(void *user, const char *line),
                           void *user) {
    ndp_link_check check = {0};
    if (ndp_comm_size(world) == 1)
        return NDP_OK;
    NDP_TRY(ndp_world_hosts_read(world, &check.hosts));
    ndp_status st = check.hosts.n > 1 ? check_hosts(c, world, &check, say, user) : NDP_OK;
    ndp_link_check_release(&check);
    return st;
}
