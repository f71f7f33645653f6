/* libFuzzer: lists of hosts. A hostfile that is taken has every host once, and reads the same when it is written again;
 * so do Slurm's lists of nodes and tasks, which the first line end divides, and a name for each rank, as PBS and LSF
 * have them. No list has a name or a user that a program could take for an option, or a shell for more than a word. */
#include "launch/launch.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void want(bool ok) {
    if (!ok)
        __builtin_trap();
}

static bool same(const char *a, const char *b) { return a && b ? strcmp(a, b) == 0 : a == b; }

static bool is_harmless(const char *name) {
    bool ok = *name && *name != '-';
    for (const char *c = name; *c; c++)
        ok &= (*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') || (*c >= '0' && *c <= '9') || strchr("-_.:%", *c);
    return ok;
}

static void check_list(const ndp_host_list *list, bool again) {
    ndp_str text = {0};
    int64_t slots = 0;
    for (int i = 0; i < list->n; i++) {
        const ndp_host *h = &list->items[i];
        want(h->name && is_harmless(h->name) && (!h->user || is_harmless(h->user)) && h->slots >= 0 &&
             (i > 200 || ndp_host_find(list, h->name) == h));
        slots += h->slots;
        ndp_str_addf(&text, "%s%s%s slots=%d\n", h->user ? h->user : "", h->user ? "@" : "", h->name, h->slots);
    }
    want(slots <= INT_MAX && list->n <= NDP_MOST_HOSTS && !text.failed);
    ndp_host_list read = {0};
    if (again)
        want(ndp_hosts_parse(text.data ? text.data : "", text.length, "again", &read) == NDP_OK && read.n == list->n);
    for (int i = 0; i < read.n; i++)
        want(same(read.items[i].name, list->items[i].name) && same(read.items[i].user, list->items[i].user) &&
             read.items[i].slots == list->items[i].slots);
    ndp_host_list_release(&read);
    ndp_str_release(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char *text = malloc(size + 1);
    ndp_host_list list = {0};
    memcpy(text, data, size);
    text[size] = '\0';
    if (ndp_hosts_parse(text, size, "fuzz", &list) == NDP_OK) {
        check_list(&list, true);
        ndp_host_list_release(&list);
    }
    if (ndp_hosts_parse_ranks(text, "fuzz", &list) == NDP_OK) {
        check_list(&list, false);
        ndp_host_list_release(&list);
    }
    char *tasks = strchr(text, '\n');
    if (tasks)
        *tasks++ = '\0';
    if (ndp_hosts_parse_slurm(text, tasks, &list) == NDP_OK) {
        check_list(&list, false);
        ndp_host_list_release(&list);
    }
    free(text);
    return 0;
}
