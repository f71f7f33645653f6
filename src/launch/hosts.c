/* The hosts of a run: whether names resolve, whether mpirun can reach a host. */
#include "base/child.h"
#include "base/clock.h"
#include "base/text.h"
#include "launch/checkup.h"
#include "launch/launch.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <resolv.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { NAME = 512 }; /* of a user, and of a host */

/* ---- names ---- */

/* Whether a host name resolves to an address. Waits at most a second for a name server. */
static bool name_resolves(const char *name) {
    /* The resolver's state belongs to the thread. Its default is 5 s per attempt. */
    if (res_init() == 0) {
        _res.retrans = 1;
        _res.retry = 1;
    }
    struct addrinfo *found = NULL;
    bool ok = getaddrinfo(name, NULL, NULL, &found) == 0;
    if (ok)
        freeaddrinfo(found);
    (void)res_init();
    return ok;
}

bool ndp_host_resolves(char *name, size_t size) {
    snprintf(name, size, "?");
    if (gethostname(name, size))
        return false;
    name[size - 1] = '\0';
    return name_resolves(name);
}

char *ndp_hosts_unresolved(const char *hostfile) {
    ndp_host_list list;
    char *text = NULL;
    if (ndp_hosts_read(hostfile, &list) != NDP_OK)
        return NULL; /* ndp_hosts_check has reported errors */
    for (int i = 0; i < list.n && !text; i++)
        if (!name_resolves(list.items[i].name))
            text = ndp_format("warning: %s:%d: the host '%s' does not resolve; correct its name, or add its address to "
                              "/etc/hosts",
                              hostfile, list.items[i].line, list.items[i].name);
    ndp_host_list_release(&list);
    return text;
}

/* ---- reaching hosts ---- */

typedef struct host_probe {
    char host[NAME]; /* the name that mpirun uses */
    int at;          /* in the list */
    int line;
    bool cut; /* the name in the hostfile is longer */
    pid_t process;
    int output;   /* a descriptor of what it writes; -1: nothing is kept */
    int code;     /* its exit code; -1: it was killed for taking too long */
    double ended; /* seconds since 1970 */
} host_probe;

static bool is_address(const char *name) {
    unsigned char any[16];
    return inet_pton(AF_INET, name, any) == 1 || inet_pton(AF_INET6, name, any) == 1;
}

static const char *without_user(const char *name) {
    const char *at = strchr(name, '@');
    return at ? at + 1 : name;
}

/* mpirun cuts a name at its first dot by default. */
static bool cut_at_dot(char *name) {
    const char *keep = getenv("OMPI_MCA_orte_keep_fqdn_hostnames");
    char *dot = strchr(without_user(name), '.');
    if (!dot || is_address(without_user(name)) || (keep && strchr("1tyeTYE", *keep)))
        return false;
    *dot = '\0';
    return true;
}

static bool same_address(const struct sockaddr *a, const struct sockaddr *b) {
    if (!a || a->sa_family != b->sa_family)
        return false;
    if (a->sa_family == AF_INET)
        return memcmp(&((const struct sockaddr_in *)a)->sin_addr, &((const struct sockaddr_in *)b)->sin_addr, 4) == 0;
    return a->sa_family == AF_INET6 &&
           memcmp(&((const struct sockaddr_in6 *)a)->sin6_addr, &((const struct sockaddr_in6 *)b)->sin6_addr, 16) == 0;
}

bool ndp_is_here(const char *name) {
    struct ifaddrs *mine = NULL;
    struct addrinfo *found = NULL;
    bool here = false;
    if (getifaddrs(&mine) == 0 && getaddrinfo(name, NULL, NULL, &found) == 0)
        for (struct ifaddrs *i = mine; i; i = i->ifa_next)
            for (struct addrinfo *a = found; a; a = a->ai_next)
                here |= same_address(i->ifa_addr, a->ai_addr);
    if (mine)
        freeifaddrs(mine);
    if (found)
        freeaddrinfo(found);
    return here;
}

static bool share_address(const char *a, const char *b) {
    struct addrinfo *of[2] = {NULL, NULL};
    bool same = false;
    if (getaddrinfo(a, NULL, NULL, &of[0]) == 0 && getaddrinfo(b, NULL, NULL, &of[1]) == 0)
        for (struct addrinfo *x = of[0]; x; x = x->ai_next)
            for (struct addrinfo *y = of[1]; y; y = y->ai_next)
                same |= same_address(x->ai_addr, y->ai_addr);
    for (int i = 0; i < 2; i++)
        if (of[i])
            freeaddrinfo(of[i]);
    return same;
}

bool ndp_is_same_host(const char *a, const char *b) {
    if (is_address(a) || is_address(b))
        return strcmp(a, b) == 0 || share_address(a, b);
    size_t n = strcspn(a, ".");
    return strcmp(a, b) == 0 || (n == strcspn(b, ".") && strncmp(a, b, n) == 0 && (!a[n] || !b[n]));
}

bool ndp_hosts_are_here(const char *hostfile) {
    ndp_host_list list;
    if (ndp_hosts_read(hostfile, &list) != NDP_OK)
        return false;
    bool here = true;
    for (int i = 0; i < list.n && here; i++)
        here = ndp_is_here(list.items[i].name);
    ndp_host_list_release(&list);
    return here;
}

/* What mpirun starts its daemons with. */
typedef struct host_agent {
    char words[NAME]; /* the program, and options */
    char args[NAME];  /* mpirun's plm_rsh_args */
} host_agent;

/* The value in a line of ompi_info, which has quotes around one with a colon. */
static void copy_value(const char *line, const char *key, char out[NAME]) {
    const char *at = strstr(line, key);
    if (!at)
        return;
    at += strlen(key);
    at += strspn(at, "\" ");
    int length = (int)strcspn(at, "\"\n");
    snprintf(out, NAME, "%.*s", length, at);
}

/* As Open MPI is configured by its files and the environment. Of its list of agents, such as "ssh : rsh", the first. */
static host_agent find_agent(void) {
    host_agent a = {.words = "ssh"};
    char line[2 * NAME];
    const char *given = getenv("OMPI_MCA_plm_rsh_agent");
    if (given && given[strspn(given, " ")])
        snprintf(a.words, sizeof a.words, "%s", given + strspn(given, " "));
    FILE *info = popen("ompi_info --parsable --level 9 --param plm rsh 2>/dev/null", "r");
    while (info && fgets(line, sizeof line, info)) {
        copy_value(line, ":plm_rsh_agent:value:", a.words);
        copy_value(line, ":plm_rsh_args:value:", a.args);
    }
    if (info)
        pclose(info);
    size_t length = strcspn(a.words, ":");
    while (length > 0 && a.words[length - 1] == ' ')
        length--;
    a.words[length] = '\0';
    return a;
}

static bool is_ssh(const host_agent *a) {
    const char *end = a->words + strcspn(a->words, " "), *program = end;
    while (program > a->words && program[-1] != '/')
        program--;
    return end - program == 3 && memcmp(program, "ssh", 3) == 0;
}

char *ndp_ssh_args(void) {
    const host_agent a = find_agent();
    /* Grid Engine's and LoadLeveler's own agents come before that of plm_rsh_agent. */
    bool batch = getenv("PE_HOSTFILE") || getenv("LOADL_STEP_ID");
    return is_ssh(&a) && !batch ? ndp_format("%s%s--", a.args, *a.args ? " " : "") : NULL;
}

/* Starts AGENT HOST COMMAND, with options that keep ssh from prompting or waiting for minutes. False: no process. */
static bool start_probe(const host_agent *agent, const char *command, host_probe *p) {
    char *words = ndp_format("exec %s%s '%s' \"$0\"%s", agent->words,
                             is_ssh(agent) ? " -o BatchMode=yes -o ConnectTimeout=10 --" : "", p->host,
                             p->output < 0 ? " >/dev/null 2>&1" : "");
    char *argv[] = {"/bin/sh", "-c", words, (char *)(uintptr_t)command, NULL};
    ndp_child child = {.argv = argv, .env = environ, .keep = -1, .own_group = true};
    if (p->output >= 0)
        child.streams[1] = child.streams[2] = p->output;
    bool started = words && ndp_child_start(&child, &p->process) == 0;
    free(words);
    return started;
}

/* Waits until all probes have ended. One that takes more than so many seconds is killed. */
static void wait_for_probes(host_probe *probes, int n, double seconds) {
    const double start = ndp_now();
    const struct timespec nap = {.tv_nsec = 10000000};
    for (int i = 0; i < n; i++) {
        int status = 1;
        pid_t ended;
        while ((ended = waitpid(probes[i].process, &status, WNOHANG)) == 0 && ndp_now() - start < seconds)
            nanosleep(&nap, NULL);
        if (ended == 0) {
            kill(-probes[i].process, SIGKILL);
            waitpid(probes[i].process, NULL, 0);
        }
        probes[i].code = ended <= 0 ? -1 : ndp_child_code(status);
        probes[i].ended = ndp_time();
    }
}

static ndp_status fail_unreachable(const char *hostfile, const char *agent, const host_probe *probes, int n) {
    const host_probe *first = NULL;
    ndp_str names = {0};
    for (int i = 0; i < n; i++)
        if (probes[i].code) {
            ndp_str_addf(&names, "%s'%s' (%s:%d)", first ? ", " : "", probes[i].host, hostfile, probes[i].line);
            first = first ? first : &probes[i];
        }
    ndp_status st = NDP_FAIL(
        NDP_ECOMM,
        "cannot reach %s: `%s %s true` fails; run it by hand to see why. It has to work without a password%s",
        names.failed ? first->host : names.data, agent, first->host,
        first->cut ? ". mpirun cuts names at the first dot; OMPI_MCA_orte_keep_fqdn_hostnames=1 keeps them" : "");
    ndp_str_release(&names);
    return st;
}

/* A list's part: starts a probe for each host except this one. `keep`: what it writes is kept. */
static int start_probes(const host_agent *agent, const char *command, bool keep, const ndp_host *hosts, int n,
                        host_probe *probes) {
    int started = 0;
    for (int i = 0; i < n; i++) {
        host_probe *p = &probes[started];
        if (ndp_is_here(hosts[i].name))
            continue;
        snprintf(p->host, sizeof p->host, "%s%s%s", hosts[i].user ? hosts[i].user : "", hosts[i].user ? "@" : "",
                 hosts[i].name);
        p->at = i;
        p->line = hosts[i].line;
        p->cut = cut_at_dot(p->host);
        p->output = keep ? memfd_create("answer", MFD_CLOEXEC) : -1;
        if (start_probe(agent, command, p))
            started++;
        else if (p->output >= 0)
            close(p->output);
    }
    return started;
}

enum { AT_ONCE = 32 };

ndp_status ndp_hosts_reach(const char *hostfile) {
    host_probe probes[AT_ONCE];
    const host_agent agent = find_agent();
    ndp_host_list list;
    NDP_TRY(ndp_hosts_read(hostfile, &list));
    ndp_status st = NDP_OK;
    for (int first = 0; first < list.n && st == NDP_OK; first += AT_ONCE) {
        int here = list.n - first < AT_ONCE ? list.n - first : AT_ONCE;
        int n = start_probes(&agent, "true", false, list.items + first, here, probes);
        wait_for_probes(probes, n, 12);
        for (int i = 0; i < n && st == NDP_OK; i++)
            if (probes[i].code)
                st = fail_unreachable(hostfile, agent.words, probes, n);
    }
    ndp_host_list_release(&list);
    return st;
}

void ndp_hosts_try(const ndp_host *hosts, int n, bool *reached) {
    enum { SECONDS = 6 };
    host_probe probes[AT_ONCE];
    const host_agent agent = find_agent();
    for (int first = 0; first < n; first += AT_ONCE) {
        int part = n - first < AT_ONCE ? n - first : AT_ONCE;
        int started = start_probes(&agent, "true", false, hosts + first, part, probes);
        wait_for_probes(probes, started, SECONDS);
        for (int i = 0; i < part; i++)
            reached[first + i] = ndp_is_here(hosts[first + i].name);
        for (int i = 0; i < started; i++)
            reached[first + probes[i].at] = probes[i].code == 0;
    }
}

/* ---- asking them ---- */

void ndp_host_answers_release(ndp_host_answer *a, int n) {
    for (int i = 0; i < n; i++)
        free(a[i].text);
    free(a);
}

static ndp_status take_answer(const host_probe *p, double began, ndp_host_answer *out) {
    enum { MOST = 1 << 20 };
    size_t size;
    *out = (ndp_host_answer){.code = p->code, .began = began, .ended = p->ended};
    memcpy(out->host, p->host, sizeof out->host);
    if (p->output < 0 || lseek(p->output, 0, SEEK_SET) != 0)
        return NDP_FAIL(NDP_EIO, "%s: its answer cannot be read: %s", p->host, strerror(errno));
    return ndp_fd_read(p->output, p->host, MOST, &out->text, &size);
}

ndp_status ndp_hosts_ask(const char *hostfile, const char *command, int seconds, ndp_host_answer **out, int *n) {
    host_probe probes[AT_ONCE];
    const host_agent agent = find_agent();
    ndp_host_list list;
    NDP_TRY(ndp_hosts_read(hostfile, &list));
    ndp_host_answer *answers = calloc((size_t)list.n + 1, sizeof *answers);
    ndp_status st = NDP_MEMORY(answers, "for a list of hosts");
    int got = 0;
    for (int first = 0; first < list.n && st == NDP_OK; first += AT_ONCE) {
        int here = list.n - first < AT_ONCE ? list.n - first : AT_ONCE;
        double began = ndp_time();
        int started = start_probes(&agent, command, true, list.items + first, here, probes);
        wait_for_probes(probes, started, seconds);
        for (int i = 0; i < started; i++) {
            if (st == NDP_OK)
                st = take_answer(&probes[i], began, &answers[got++]);
            close(probes[i].output);
        }
    }
    ndp_host_list_release(&list);
    if (st != NDP_OK) {
        ndp_host_answers_release(answers, got);
        return st;
    }
    *out = answers;
    *n = got;
    return NDP_OK;
}
