/* Starting ranks as processes: on one host by launch/host_ranks.c, on several with mpirun.
 *
 * mpirun runs in a process group of its own, since it would answer a terminal's Ctrl-C by killing the ranks. The stop
 * flag is forwarded to it as SIGUSR1, which it passes on to every rank. Its exit code may be that of an ssh that
 * failed, so after a failure the hosts of the hostfile are tried (launch/hosts.c) to name the one that cannot be
 * reached.
 */
#include "launch/launch.h"
#include "base/child.h"
#include "base/log.h"
#include "base/text.h"
#include "launch/mpi_folder.h"
#include "launch/mpirun_watch.h"
#include "launch/rank_hosts.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- the command line of mpirun ---- */

static bool is_transport(const ndp_launch_opts *o, const char *name) {
    return o->transport && strcmp(o->transport, name) == 0;
}

static bool on_one_host(const ndp_launch_opts *o) { return !o->hostfile && ndp_allocation_is_here(); }

/* mpirun treats any argument ":" as the start of a second program. A shell script hides it from mpirun. */
static void add_program_words(const ndp_launch_opts *o, ndp_argv *w) {
    bool colon = false;
    for (char *const *a = o->argv; *a; a++)
        colon |= strcmp(*a, ":") == 0;
    if (!colon) {
        ndp_argv_add_all(w, (const char *const *)o->argv);
        return;
    }
    ndp_str script = {0};
    ndp_str_add(&script, "exec");
    for (char *const *a = o->argv; *a; a++) {
        ndp_str_add(&script, " '");
        for (const char *at = *a; *at; at++)
            ndp_str_addf(&script, *at == '\'' ? "'\\''" : "%c", *at);
        ndp_str_add(&script, "'");
    }
    w->failed |= script.failed;
    ndp_argv_add_all(w, (const char *const[]){"/bin/sh", "-c", script.failed ? "" : script.data, NULL});
    ndp_str_release(&script);
}

/* A batch system stops a job with SIGTERM to all of its processes, at its time limit as well. Ranks then finish their
 * step and save, and Open MPI's daemons would kill them in the middle of that, a second after the signal. It costs what
 * a failure takes: from a rank's end to that of mpirun twice this time passes, however soon the others have ended, so
 * it is not asked for where nothing sends such a signal. */
static void add_stop_seconds(int seconds, ndp_argv *w) {
    ndp_argv_add_all(w, (const char *const[]){"--mca", "odls_base_sigkill_timeout", NULL});
    ndp_argv_add(w, "%d", seconds);
}

static void add_ssh_args(ndp_argv *w) {
    char *args = ndp_ssh_args();
    if (args)
        ndp_argv_add_all(w, (const char *const[]){"--mca", "plm_rsh_args", args, NULL});
    free(args);
}

/* "BOOT-PID-TIME.N", for a lock (checkpoint/holder.h): this process, and how often it has started the ranks before. */
static void add_launcher(const ndp_launch_opts *o, ndp_argv *w) {
    ndp_process self = {0};
    char *boot = NULL;
    size_t n = 0;
    (void)!ndp_process_read(getpid(), &self);
    if (ndp_file_read("/proc/sys/kernel/random/boot_id", &boot, &n) != NDP_OK)
        ndp_error_set(NDP_OK, "");
    ndp_argv_add(w, "-x");
    ndp_argv_add(w, NDP_LAUNCHER "=%.36s-%d-%llu.%d", boot ? boot : "", (int)getpid(), (unsigned long long)self.started,
                 o->starts);
    free(boot);
}

/* On one host the only two components that are ever used are named, which saves Open MPI the search; between hosts Open
 * MPI chooses. Version 4 is told to hide its own help texts, since a rank reports what is wrong; 5 cannot. Variables
 * that begin with NDP_ or OMP_ are passed to all hosts. map: the file of ndp_rank_hosts_write, or NULL. stop: seconds,
 * 0 outside of a batch job. */
static void add_mpirun_words(const ndp_launch_opts *o, const char *folder, const char *map, int stop, ndp_argv *w) {
    static const char *const always[] = {"mpirun", "--bind-to",       "none", "--oversubscribe",
                                         "-x",     NDP_LAUNCHED "=1", NULL};
    static const char *const one_host[] = {"--mca", "orte_execute_quiet", "1", "--mca", "pml", "ob1", "--mca",
                                           "btl",   "self,vader",         NULL};
    static const char *const hosts[] = {"--mca", "btl_base_warn_component_unused", "0", NULL};
    ndp_argv_add_all(w, always);
    ndp_argv_add_all(w, on_one_host(o) || (o->hostfile && ndp_hosts_are_here(o->hostfile)) ? one_host : hosts);
    ndp_argv_add_all(w,
                     (const char *const[]){"--mca", "orte_tmpdir_base", folder, "--mca", "btl_vader_backing_directory",
                                           folder, "--mca", "btl_sm_backing_directory", folder, NULL});
    if (geteuid() == 0)
        ndp_argv_add(w, "--allow-run-as-root");
    if (!on_one_host(o))
        add_ssh_args(w);
    if (ndp_in_allocation())
        add_stop_seconds(stop, w);
    if (map)
        ndp_argv_add_all(w, (const char *const[]){"--map-by", "seq", NULL});
    if (map || o->hostfile) {
        ndp_argv_add(w, "--hostfile");
        ndp_argv_add(w, "%s", map ? map : o->hostfile);
    }
    add_launcher(o, w);
    for (char **e = environ; *e && !on_one_host(o); e++) {
        int length = (int)strcspn(*e, "=");
        if ((strncmp(*e, "NDP_", 4) == 0 && strncmp(*e, NDP_LAUNCHER "=", sizeof NDP_LAUNCHER) != 0) ||
            (strncmp(*e, "OMP_", 4) == 0 && !(o->threads && strncmp(*e, "OMP_NUM_THREADS=", 16) == 0))) {
            ndp_argv_add(w, "-x");
            ndp_argv_add(w, "%.*s", length, *e);
        }
    }
    if (o->threads) {
        ndp_argv_add(w, "-x");
        ndp_argv_add(w, "OMP_NUM_THREADS=%d", o->threads);
    }
    ndp_argv_add(w, "-n");
    ndp_argv_add(w, "%d", o->ranks);
    add_program_words(o, w);
}

/* If a name server does not answer, each of mpirun's own lookups would take 5 s. Open MPI 5 has names of its own for
 * what the daemons of 4 are told by variables, and here on the command line; each ignores the other's. */
static void add_mpirun_environment(const char *folder, ndp_argv *w) {
    static const char *const names[][2] = {{"OMPI_MCA_plm_rsh_", "PRTE_MCA_plm_ssh_"},
                                           {"OMPI_MCA_oob_", "PRTE_MCA_oob_"},
                                           {"OMPI_MCA_orte_", "PRTE_MCA_prte_"}};
    ndp_argv_add(w, "PRTE_MCA_prte_tmpdir_base=%s", folder);
    ndp_argv_add_all(w, (const char *const *)environ);
    for (char **e = environ; *e; e++)
        for (int i = 0; i < NDP_COUNT(names); i++)
            if (strncmp(*e, names[i][0], strlen(names[i][0])) == 0)
                ndp_argv_add(w, "%s%s", names[i][1], *e + strlen(names[i][0]));
    if (!getenv("RES_OPTIONS"))
        ndp_argv_add(w, "RES_OPTIONS=timeout:1 attempts:1");
    /* In place of memory shared with the ranks: mpirun would wait forever for a lock there that a killed rank holds. */
    if (!getenv("PMIX_MCA_gds"))
        ndp_argv_add(w, "PMIX_MCA_gds=hash");
}

/* ---- the process ---- */

/* mpirun inherits the lock of the folder, so the folder counts as in use until mpirun has ended. mpirun handles SIGUSR1
 * from its start to the ranks' end only: before and after that the signal would kill it, and the ranks' exit code would
 * be lost. */
static ndp_status start_mpirun(const ndp_argv *args, const ndp_argv *env, int lock, int errors, pid_t *out) {
    ndp_child child = {.argv = args->items,
                       .env = env->items,
                       .death_signal = SIGTERM,
                       .keep = lock,
                       .own_group = true,
                       .ignored = SIGUSR1,
                       .streams = {0, 0, errors}};
    int cause = args->failed || env->failed ? ENOMEM : ndp_child_start(&child, out);
    if (cause == ENOENT)
        return NDP_FAIL(
            NDP_ENOTSUP,
            "mpirun is not installed: install it (Debian: apt-get install openmpi-bin); on one host it is not "
            "needed (train.transport: shm, processes, or local, threads of one process)");
    return cause ? NDP_FAIL(NDP_EIO, "cannot start mpirun: %s", strerror(cause)) : NDP_OK;
}

static void warn_of_host_name(const ndp_launch_opts *o) {
    char name[256];
    if (o->say && !ndp_host_resolves(name, sizeof name))
        ndp_say(o->say, o->user,
                "warning: this host's name '%s' does not resolve, so starting ranks may take 10 s; add this line to "
                "/etc/hosts: 127.0.1.1 %s",
                name, name);
}

static void warn_of_hosts(const ndp_launch_opts *o) {
    char *line = o->say && o->hostfile ? ndp_hosts_unresolved(o->hostfile) : NULL;
    if (line)
        o->say(o->user, line);
    free(line);
}

/* mpirun exits with the code of the ssh that failed, which may be any, and a rank may fail because a host is gone,
 * which it or this process then names. mpirun of Open MPI 5 also says that a host is lost which it never reached. Code
 * 2 comes only from a rank, for an error of the user, so the hosts were reached. */
static bool hosts_may_be_unreachable(const ndp_launch_opts *o, const ndp_mpirun_watch *w, int code) {
    bool named = w->n_lost > 0 && (w->said || w->told);
    return o->hostfile && code != 0 && code != 2 && !named && !(o->stop && *o->stop);
}

/* Whether mpirun would find the program: by its path, or by its name in PATH. */
static bool can_run(const char *program) {
    const char *folder = getenv("PATH");
    if (strchr(program, '/'))
        return access(program, X_OK) == 0;
    for (int length; folder && *folder; folder += length + (folder[length] == ':')) {
        length = (int)strcspn(folder, ":");
        char *file = ndp_format("%.*s/%s", length, folder, program);
        bool found = file && access(file, X_OK) == 0;
        free(file);
        if (found)
            return true;
    }
    return false;
}

/* " (ranks 2-3)" of a host, if its ranks are known: they fill the hosts in their order. */
static void ranks_of_host(const ndp_launch_opts *o, const char *name, char out[48]) {
    ndp_host_list list;
    int first = 0;
    *out = '\0';
    if (o->rank_hosts || ndp_launch_hosts(o->hostfile, &list) != NDP_OK)
        return;
    for (int i = 0; i < list.n && list.items[i].stated; first += list.items[i++].slots) {
        int last = first + list.items[i].slots < o->ranks ? first + list.items[i].slots - 1 : o->ranks - 1;
        if (ndp_is_same_host(list.items[i].name, name) && last > first)
            snprintf(out, 48, " (ranks %d-%d)", first, last);
        else if (ndp_is_same_host(list.items[i].name, name) && last == first)
            snprintf(out, 48, " (rank %d)", first);
    }
    ndp_host_list_release(&list);
}

/* mpirun has lost its daemon on a host, and what ranks of other hosts say of it does not come through any more. At
 * once, since a batch system soon says something itself. */
static void report_lost(const void *user, const char *host) {
    const ndp_launch_opts *o = user;
    char text[400], ranks[48];
    ranks_of_host(o, host, ranks);
    snprintf(text, sizeof text, "host %.255s%s is lost: mpirun's daemon there has ended, or cannot be reached", host,
             ranks);
    if (o->report)
        o->report(o->user, text);
}

/* Reports how a rank ended if the rank could not do so itself. */
static void report_end(const ndp_launch_opts *o, const ndp_mpirun_watch *w, int code) {
    enum { SIGNALS = 64 }; /* higher codes are exit codes of mpirun or ssh */
    char text[320], who[64];
    bool said = code <= 2 && (code == 0 || w->printed);
    if (o->report && w->killed && w->left && w->stopped <= 0) {
        snprintf(text, sizeof text, "%s ended first; all ranks have ended, and mpirun hangs: it is killed",
                 ndp_mpirun_watch_first(w, who));
        o->report(o->user, text);
    } else if (o->report && w->killed && !w->said && !w->told && w->stopped <= 0)
        o->report(o->user, "mpirun has lost a host, as it says above, and did not end by itself: its ranks are killed");
    if (!o->report || w->killed || said || w->told || code == 128 + SIGINT || (o->stop && *o->stop && code <= 2))
        return;
    ndp_mpirun_watch_first(w, who);
    if (code > 128 && code <= 128 + SIGNALS)
        snprintf(text, sizeof text, "%s was killed by signal %d (%s)%s", who, code - 128, strsignal(code - 128),
                 code == 128 + SIGKILL  ? "; if you did not kill it, memory ran out: see `train --dry-run`"
                 : code == 128 + SIGILL ? ", or could not be started, if mpirun says so above" /* mpirun's code */
                                        : "");
    else
        snprintf(text, sizeof text,
                 "%s%s ended with code %d, and not by an error of ndparallel; what it printed, if "
                 "anything, says why",
                 who, w->first < 0 ? ", or mpirun itself," : "", code);
    o->report(o->user, text);
}

/* stderr of mpirun is a pipe, of which this process has the other end. */
static ndp_status start_watched(const ndp_launch_opts *o, const ndp_argv *args, const ndp_argv *env, int lock,
                                ndp_mpirun_watch *w) {
    int ends[2];
    pid_t mpirun;
    if (pipe2(ends, O_CLOEXEC))
        return NDP_FAIL(NDP_EIO, "cannot start mpirun: %s", strerror(errno));
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    ndp_status st = start_mpirun(args, env, lock, ends[1], &mpirun);
    close(ends[1]);
    if (st != NDP_OK) {
        close(ends[0]);
        return st;
    }
    ndp_mpirun_watch_begin(w, mpirun, o->ranks, on_one_host(o), ends[0]);
    return NDP_OK;
}

static ndp_status run_mpirun(const ndp_launch_opts *o, const ndp_mpi_folder *folder, ndp_mpirun_watch *w, int *code) {
    ndp_argv args = {0}, env = {0};
    char map[NDP_PATH];
    bool mapped = o->rank_hosts && !on_one_host(o);
    int stop = ndp_in_allocation() ? ndp_stop_seconds() : 0;
    if (mapped)
        NDP_TRY(ndp_rank_hosts_write(o, folder->path, map));
    add_mpirun_words(o, folder->path, mapped ? map : NULL, stop, &args);
    add_mpirun_environment(folder->path, &env);
    ndp_status st = start_watched(o, &args, &env, folder->lock, w);
    ndp_argv_release(&args);
    ndp_argv_release(&env);
    NDP_TRY(st);
    w->stop_seconds = stop;
    w->lose = report_lost;
    w->user = o;
    *code = ndp_mpirun_watch_wait(w, o->stop);
    close(w->errors);
    return NDP_OK;
}

static ndp_status launch_by_mpirun(const ndp_launch_opts *o, int *exit_code) {
    ndp_mpi_folder folder;
    ndp_mpirun_watch watch;
    int code;
    warn_of_host_name(o);
    warn_of_hosts(o);
    NDP_TRY(ndp_mpi_folder_create(&folder));
    ndp_status st = run_mpirun(o, &folder, &watch, &code);
    ndp_mpi_folder_remove(&folder);
    NDP_TRY(st);
    for (int i = 0; i < watch.n_lost && o->lost; i++)
        o->lost(o->user, watch.lost[i]);
    if (hosts_may_be_unreachable(o, &watch, code))
        NDP_TRY(ndp_hosts_reach(o->hostfile));
    report_end(o, &watch, code);
    if (o->unsaid && code == 128 + SIGINT && !watch.ours)
        *o->unsaid = true;
    *exit_code = code;
    return NDP_OK;
}

/* What mpirun would give two ranks a slot for. */
static ndp_status check_slots(const ndp_launch_opts *o) {
    ndp_host_list list;
    int slots = 0, n = 0, all;
    if (o->hostfile || !getenv("SLURM_JOB_ID"))
        return NDP_OK;
    NDP_TRY(ndp_launch_hosts(NULL, &list));
    for (n = 0; n < list.n && list.items[n].stated; n++)
        slots += list.items[n].slots;
    all = list.n;
    ndp_host_list_release(&list);
    NDP_CHECK(n == 0 || n < all || slots >= o->ranks,
              "the run has %d ranks, and Slurm has allocated %d task%s on %d node%s: ask for more (sbatch "
              "--ntasks=%d), or for a smaller layout",
              o->ranks, slots, slots == 1 ? "" : "s", n, n == 1 ? "" : "s", o->ranks);
    return NDP_OK;
}

/* Whether mpirun can start the ranks where it is to. */
static ndp_status check_hosts(const ndp_launch_opts *o) {
    NDP_TRY(ndp_hosts_check(o->hostfile));
    NDP_TRY(ndp_slurm_check_job());
    return check_slots(o);
}

ndp_status ndp_launch(const ndp_launch_opts *o, int *exit_code) {
    NDP_NOT_NULL(o, exit_code);
    NDP_CHECK(o->ranks >= 1 && o->argv && o->argv[0], "nothing to launch: %d ranks", o->ranks);
    NDP_CHECK(!is_transport(o, "shm") || !o->hostfile,
              "transport shm connects the processes of one host, but there is a hostfile, '%s': use `auto` or `mpi`",
              o->hostfile);
    NDP_CHECK(!on_one_host(o) || can_run(o->argv[0]),
              "cannot run '%s': there is no such program, or it is not executable; give a program that is not in PATH "
              "with its folder, as in ./%s",
              o->argv[0], strchr(o->argv[0], '/') ? "program" : o->argv[0]);
    NDP_TRY(ndp_rank_hosts_check(o));
    bool here = is_transport(o, "shm") || (on_one_host(o) && !is_transport(o, "mpi"));
    if (!here)
        NDP_TRY(check_hosts(o));
    return here ? ndp_launch_on_host(o, exit_code) : launch_by_mpirun(o, exit_code);
}
