/* Starting ranks and giving them their cores. What needs mpirun is skipped where there is none. */
#include "base/clock.h"
#include "base/cpu.h"
#include "base/text.h"
#include "check.h"
#include "launch/launch.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static void need_mpirun(void) {
    if (system("command -v mpirun >/dev/null 2>&1") != 0) {
        print_message("skipped: no mpirun\n");
        skip();
    }
}

/* The ways to start ranks on this host: as children of this process, and with mpirun, where there is one. */
static const char *const ways[] = {"shm", "mpi"};

static int ways_here(void) {
    bool mpirun = system("command -v mpirun >/dev/null 2>&1") == 0;
    if (!mpirun)
        print_message("skipped in part: no mpirun\n");
    return mpirun ? 2 : 1;
}

static char told[512];
static bool unsaid;
static void listen(void *user, const char *line) {
    (void)user;
    snprintf(told, sizeof told, "%s", line);
}

/* Runs a shell script on each rank, where $R is its number and $N how many there are. */
static ndp_status launch(const char *way, int ranks, const char *script, const volatile sig_atomic_t *stop, int *code) {
    static const char numbers[] = "R=${NDP_RANK:-$OMPI_COMM_WORLD_RANK} N=$OMPI_COMM_WORLD_SIZE\n"
                                  "[ -z \"$NDP_WORLD\" ] || { N=${NDP_WORLD#*:}; N=${N%%:*}; }\n%s";
    char *whole = ndp_format(numbers, script), *argv[] = {"/bin/sh", "-c", whole, NULL};
    ndp_launch_opts o = NDP_LAUNCH_OPTS_INIT;
    o.ranks = ranks;
    o.argv = argv;
    o.stop = stop;
    o.threads = 3;
    o.transport = way;
    o.report = listen;
    o.unsaid = &unsaid;
    unsaid = false;
    told[0] = '\0';
    ndp_status st = ndp_launch(&o, code);
    free(whole);
    return st;
}

static void ranks_get_what_they_need(void **state) {
    (void)state;
    for (int w = 0; w < ways_here(); w++) {
        int code = -1;
        CHECK_OK(launch(ways[w], 2, "test \"$N.$OMP_NUM_THREADS.$NDP_LAUNCHED\" = 2.3.1 && ! read line", NULL, &code));
        assert_int_equal(code, 0);
        CHECK_OK(launch(ways[w], 2, "test $R -lt 2 && exit 0; exit 9", NULL, &code));
        assert_int_equal(code, 0);
    }
}

static void the_first_exit_code_counts(void **state) {
    (void)state;
    for (int w = 0; w < ways_here(); w++) {
        int code = -1;
        double start = ndp_now();
        CHECK_OK(launch(ways[w], 2, "test $R = 1 && exit 7; exec sleep 6000", NULL, &code));
        assert_int_equal(code, 7);
        assert_non_null(strstr(told, "ended with code 7"));
        CHECK_OK(launch(ways[w], 2, "test $R = 1 && kill -KILL $$; exec sleep 6000", NULL, &code));
        assert_int_equal(code, 128 + SIGKILL);
        assert_non_null(strstr(told, "was killed by signal 9 (Killed); if you did not kill it, memory ran out"));
        /* It does not listen to SIGTERM. */
        CHECK_OK(
            launch(ways[w], 2, "test $R = 1 && { sleep 0.3; exit 5; }; trap '' TERM; exec sleep 6000", NULL, &code));
        assert_int_equal(code, 5);
        assert_true(ndp_now() - start < HANGS); /* the sleeper was not waited for */
    }
}

/* On one host the launcher knows which one it was. */
static void a_dead_rank_is_named(void **state) {
    (void)state;
    int code, rank, pid;
    CHECK_OK(launch("shm", 3, "test $R = 2 && kill -KILL $$; exec sleep 6000", NULL, &code));
    assert_int_equal(sscanf(told, "rank %d (process %d) was killed", &rank, &pid), 2);
    assert_int_equal(rank, 2);
    assert_true(pid > 1);
    CHECK_OK(launch("shm", 3, "exit $R", NULL, &code)); /* 1 and 2: the rank has said why */
    assert_true(code == 1 || code == 2);
    assert_string_equal(told, "");
}

/* mpirun says it of none; its parent has seen which one ended first, and that it printed nothing. */
static void a_rank_of_mpirun_that_ends_is_named(void **state) {
    (void)state;
    static const char *const ends[][3] = {
        {"kill -KILL $$", "137", "was killed by signal 9"},
        {"exit 7", "7", "ended with code 7, and not by an error of ndparallel; what it printed"},
        {"exit 1", "1", "ended with code 1, and not by an error of ndparallel; what it printed"},
        {"echo why >&2; exit 1", "1", NULL}};
    need_mpirun();
    for (int i = 0; i < NDP_COUNT(ends); i++) {
        int code, rank = -1, pid;
        char *script = ndp_format("sleep 0.5; test $R = 1 && { %s; }; exec sleep 6000", ends[i][0]);
        CHECK_OK(launch("mpi", 2, script, NULL, &code));
        free(script);
        assert_int_equal(code, atoi(ends[i][1]));
        if (ends[i][2] &&
            (sscanf(told, "rank %d (process %d) ", &rank, &pid) != 2 || rank != 1 || !strstr(told, ends[i][2])))
            fail_msg("%s: %s", ends[i][0], told);
        assert_true(ends[i][2] || !*told);
    }
}

/* Two hosts, of which the first is this one. */
static ndp_status launch_on(const char *second, const char *script, int *code) {
    char file[] = "/tmp/ndp-hosts-XXXXXX", *argv[] = {"/bin/sh", "-c", (char *)(uintptr_t)script, NULL};
    int fd = mkstemp(file);
    assert_true(fd >= 0 && dprintf(fd, "# two hosts\nlocalhost slots=1\n%s slots=4\n", second) > 0);
    close(fd);
    ndp_launch_opts o = NDP_LAUNCH_OPTS_INIT;
    o.ranks = 2;
    o.argv = argv;
    o.hostfile = file;
    o.say = listen;
    told[0] = '\0';
    ndp_status st = ndp_launch(&o, code);
    unlink(file);
    return st;
}

/* Starts 2 ranks with a script in the place of mpirun, on `second` as well if it is not NULL. */
static ndp_status launch_with(const char *script, const char *second, int *code) {
    char folder[] = "/tmp/ndp-mpirun-XXXXXX", *before = strdup(getenv("PATH"));
    assert_non_null(mkdtemp(folder));
    char *program = ndp_format("%s/mpirun", folder), *path = ndp_format("%s:%s", folder, before);
    CHECK_OK(ndp_file_write_atomic(program, script, strlen(script)));
    assert_int_equal(chmod(program, 0755), 0);
    setenv("PATH", path, 1);
    ndp_status st = second ? launch_on(second, "exit 0", code) : launch("mpi", 2, "exit 0", NULL, code);
    setenv("PATH", before, 1);
    assert_int_equal(unlink(program) | rmdir(folder), 0); /* the launch's error is kept */
    free(program);
    free(path);
    free(before);
    return st;
}

/* Returns the exit code. */
static int launch_by(const char *script) {
    int code = -1;
    CHECK_OK(launch_with(script, NULL, &code));
    return code;
}

static void an_mpirun_that_does_not_end_is_killed(void **state) {
    (void)state;
    double start = ndp_now();
    assert_int_equal(launch_by("#!/bin/sh\necho 'ORTE has lost communication with a remote daemon.' >&2\n"
                               "exec sleep 6000\n"),
                     1);
    assert_true(ndp_now() - start >= 10 && ndp_now() - start < HANGS);
    assert_non_null(strstr(told, "mpirun has lost a host"));
}

/* On a busy host, mpirun has killed all ranks before its parent looks; their line has the number. */
static void a_rank_that_its_peers_saw_die_is_named(void **state) {
    (void)state;
    assert_int_equal(launch_by("#!/bin/sh\necho 'ndparallel: rank 2 (process 77) has died; its last operation was #1' "
                               ">&2\nexit 137\n"),
                     137);
    assert_non_null(strstr(told, "rank 2 (process 77) was killed by signal 9"));
    assert_int_equal(launch_by("#!/bin/sh\necho 'ndparallel: rank 2 (process 77) has failed' >&2\nexit 137\n"), 137);
    assert_non_null(strstr(told, "a rank was killed by signal 9"));
}

/* What version 5 says of a rank's end is not the rank's word, nor is the loss of a host that it never reached the end
 * of a run on it. */
static void words_of_open_mpi_5(void **state) {
    (void)state;
#define EDGE "--------------------------------------------------------------------------\n"
    assert_int_equal(launch_by("#!/bin/sh\ncat >&2 <<'END'\n" EDGE
                               "prterun detected that one or more processes exited with non-zero status,\n"
                               "thus causing the job to be terminated. The first process to do so was:\n\n"
                               "   Process name: [prterun-vm-77@1,1]\n   Exit code:    1\n" EDGE "END\nexit 1\n"),
                     1);
    assert_non_null(strstr(told, "ended with code 1, and not by an error of ndparallel"));
    assert_int_equal(launch_by("#!/bin/sh\nprintf '" EDGE "A word.\\n" EDGE "' >&2\nexit 1\n"), 1);
    assert_string_equal(told, "");
    int code = -1;
    CHECK_FAILS(launch_with("#!/bin/sh\ncat >&2 <<'END'\nPRTE has lost communication with a remote daemon.\n\n"
                            "  Remote daemon: [prterun-vm-77@0,1] on node nohost\nEND\nexit 1\n",
                            "nohost.invalid", &code),
                NDP_ECOMM, "cannot reach 'nohost' (/tmp/ndp-hosts-");
}

static volatile sig_atomic_t stop;
static void on_alarm(int signal_number) { stop = signal_number; }

static void a_stop_reaches_the_ranks(void **state) {
    (void)state;
    char listens[128];
    signal(SIGALRM, on_alarm);
    snprintf(listens, sizeof listens, "trap 'exit 9' USR1; kill -ALRM %d; for i in $(seq 6000); do sleep 0.1; done",
             (int)getpid());
    for (int w = 0; w < ways_here(); w++) {
        int code = -1;
        stop = 0;
        CHECK_OK(launch(ways[w], 1, listens, &stop, &code));
        assert_int_equal(code, 9);
        assert_false(unsaid);
        /* From before the beginning; no rank receives them. */
        CHECK_OK(launch(ways[w], 2, "exec sleep 6000", &stop, &code));
        assert_int_equal(code, 130);
        assert_string_equal(told, "");
        assert_true(unsaid);
    }
}

/* The stop is repeated, so some arrive while mpirun ends, when it no longer handles them. */
static void a_late_stop_leaves_the_exit_code(void **state) {
    (void)state;
    need_mpirun();
    int code = -1;
    CHECK_OK(launch("mpi", 1,
                    "trap '' USR1; export M=$PPID\n"
                    "setsid sh -c 'while kill -USR1 $M; do sleep 0.002; done' </dev/null >/dev/null 2>&1 &\n"
                    "sleep 0.1; exit 9",
                    NULL, &code));
    assert_int_equal(code, 9);
}

/* mpirun takes ":" for the beginning of a second program. */
static void a_colon_is_an_argument(void **state) {
    (void)state;
    for (int w = 0; w < ways_here(); w++) {
        char *argv[] = {"/bin/sh", "-c",  "test \"$#.$0.$1.$2.$3.$4\" = \"4.it's.:.-n.1.a b\" || exit 8",
                        "it's",    ":",   "-n",
                        "1",       "a b", NULL};
        ndp_launch_opts o = NDP_LAUNCH_OPTS_INIT;
        int code = -1;
        o.ranks = 2;
        o.argv = argv;
        o.transport = ways[w];
        CHECK_OK(ndp_launch(&o, &code));
        assert_int_equal(code, 0);
    }
}

static void what_cannot_be_launched_is_said(void **state) {
    (void)state;
    int code = -1;
    ndp_launch_opts o = NDP_LAUNCH_OPTS_INIT;
    CHECK_FAILS(ndp_launch(&o, &code), NDP_EINVAL, "nothing to launch");
    char *absent[] = {"no-such-program", NULL}, *elsewhere[] = {"/nowhere/program", NULL};
    o.argv = absent;
    CHECK_FAILS(ndp_launch(&o, &code), NDP_EINVAL, "cannot run 'no-such-program'");
    o.argv = elsewhere;
    CHECK_FAILS(ndp_launch(&o, &code), NDP_EINVAL, "cannot run '/nowhere/program'");
    char *argv[] = {"/bin/true", NULL};
    o.argv = argv;
    o.hostfile = "/nowhere/hosts";
    CHECK_FAILS(ndp_launch(&o, &code), NDP_EINVAL, "/nowhere/hosts");
    o.transport = "shm";
    CHECK_FAILS(ndp_launch(&o, &code), NDP_EINVAL, "transport shm connects the processes of one host");
    o.hostfile = NULL;
    o.transport = "mpi";
    char *path = strdup(getenv("PATH"));
    setenv("PATH", "/nowhere", 1);
    ndp_status st = ndp_launch(&o, &code);
    setenv("PATH", path, 1);
    free(path);
    CHECK_FAILS(st, NDP_ENOTSUP, "apt-get install openmpi-bin");
    assert_int_equal(code, -1);
}

static void a_host_that_cannot_be_reached_is_named(void **state) {
    (void)state;
    need_mpirun();
    int code = -1;
    CHECK_FAILS(launch_on("me@nohost.invalid", "exit 0", &code), NDP_ECOMM,
                "cannot reach 'me@nohost' (/tmp/ndp-hosts-");
    assert_non_null(strstr(ndp_error_message(), ":3): `ssh me@nohost true` fails"));
    assert_non_null(strstr(ndp_error_message(), "OMPI_MCA_orte_keep_fqdn_hostnames=1"));
    if (!strstr(told, ":3: the host 'nohost.invalid' does not resolve") || !strstr(told, "/etc/hosts"))
        fail_msg("told was '%s'", told);
    assert_int_equal(code, -1);
    /* Its agent's code is mpirun's: 1, which may be a rank's as well. */
    setenv("OMPI_MCA_plm_rsh_agent", "/bin/false : ssh", 1);
    ndp_status st = launch_on("127.0.0.77", "exit 0", &code);
    unsetenv("OMPI_MCA_plm_rsh_agent");
    CHECK_FAILS(st, NDP_ECOMM, "`/bin/false 127.0.0.77 true` fails");
    assert_string_equal(told, "");
}

/* A rank's exit code stays one, on a host that answers. All ranks have begun: mpirun of Open MPI 5.0.7 may hang where
 * one ends before. */
static void a_rank_that_fails_is_no_lost_host(void **state) {
    (void)state;
    need_mpirun();
    char agent[] = "/tmp/ndp-agent-XXXXXX";
    char *script = ndp_format("test $OMPI_COMM_WORLD_RANK = 1 || { : >/tmp/ndp-begun-%d; sleep 6000; }\n"
                              "until rm /tmp/ndp-begun-%d 2>/dev/null; do sleep 0.01; done; exit 7",
                              getpid(), getpid());
    int fd = mkstemp(agent), code = -1;
    assert_true(fd >= 0 && dprintf(fd, "#!/bin/sh\nshift\nexec sh -c \"$*\"\n") > 0 && fchmod(fd, 0700) == 0);
    close(fd);
    setenv("OMPI_MCA_plm_rsh_agent", agent, 1);
    ndp_status st = launch_on("127.0.0.77", script, &code);
    unsetenv("OMPI_MCA_plm_rsh_agent");
    unlink(agent);
    free(script);
    CHECK_OK(st);
    assert_int_equal(code, 7);
}

/* ---- names that ssh would take for options ---- */

/* A program by the name of ssh: it says what words it was given, and obeys -F as ssh would, of which the file may have
 * a command. */
static const char spy[] = "#!/bin/sh\necho \"$*\" >>%s/words\nfor w in \"$@\"; do\n"
                          "    case $w in --) break ;; -F*) touch %s/obeyed ;; esac\ndone\nexit 255\n";

static void want_no_obedience(const char *folder) {
    char *obeyed = ndp_format("%s/obeyed", folder);
    assert_true(access(obeyed, F_OK) != 0);
    free(obeyed);
}

/* What ssh is told, by mpirun and by the search for a host that fails, has "--" before the host. */
static void ssh_has_its_options_ended(const char *folder) {
    char *file = ndp_format("%s/words", folder), line[4096];
    FILE *words = fopen(file, "r");
    int n = 0;
    assert_non_null(words);
    for (; fgets(line, sizeof line, words); n++)
        if (!strstr(line, " -- far"))
            fail_msg("ssh was told %s", line);
    fclose(words);
    free(file);
    assert_int_equal(n, 2);
}

static void ssh_takes_no_name_for_an_option(void **state) {
    static const char *const attacks[] = {"-Fevil", "-Fevil@far", "far username=-Fevil", "-Fevil@far username=me"};
    (void)state;
    need_mpirun();
    char folder[] = "/tmp/ndp-spy-XXXXXX";
    assert_non_null(mkdtemp(folder));
    char *program = ndp_format("%s/ssh", folder), *path = strdup(getenv("PATH")),
         *first = ndp_format("%s:%s", folder, path);
    FILE *f = fopen(program, "w");
    assert_true(f && fprintf(f, spy, folder, folder) > 0 && fchmod(fileno(f), 0700) == 0 && fclose(f) == 0);
    setenv("PATH", first, 1);
    int code = -1;
    for (int i = 0; i < NDP_COUNT(attacks); i++) {
        CHECK_FAILS(launch_on(attacks[i], "exit 0", &code), NDP_EINVAL, "is not the name of a ");
        want_no_obedience(folder);
    }
    /* In an allocation mpirun itself reads the names. */
    setenv("SLURM_JOB_ID", "7", 1);
    setenv("SLURM_JOB_NODELIST", "far,-Fevil", 1);
    char *argv[] = {"/bin/true", NULL};
    ndp_launch_opts o = NDP_LAUNCH_OPTS_INIT;
    o.ranks = 2;
    o.argv = argv;
    ndp_status st = ndp_launch(&o, &code);
    unsetenv("SLURM_JOB_ID");
    unsetenv("SLURM_JOB_NODELIST");
    CHECK_FAILS(st, NDP_EINVAL, "SLURM_JOB_NODELIST: '-Fevil' is not the name of a host");
    CHECK_FAILS(launch_on("far", "exit 0", &code), NDP_ECOMM, "`ssh far true` fails");
    ssh_has_its_options_ended(folder);
    setenv("PATH", path, 1);
    free(program);
    free(first);
    free(path);
    CHECK_OK(ndp_folder_remove(folder));
}

/* ---- the time to save when a job is stopped ---- */

/* A program by the name of mpirun that says what words it was given; true if `words` are among them. */
static bool mpirun_is_told(const char *folder, const char *words, const char *const *variables) {
    char *argv[] = {"/bin/true", NULL}, *file = ndp_format("%s/words", folder), *text;
    ndp_launch_opts o = NDP_LAUNCH_OPTS_INIT;
    int code = -1;
    size_t size;
    o.argv = argv;
    o.transport = "mpi";
    for (int i = 0; variables[i]; i += 2)
        setenv(variables[i], variables[i + 1], 1);
    ndp_status st = ndp_launch(&o, &code);
    for (int i = 0; variables[i]; i += 2)
        unsetenv(variables[i]);
    CHECK_OK(st);
    CHECK_OK(ndp_file_read(file, &text, &size));
    bool has = strstr(text, words) != NULL;
    free(text);
    free(file);
    return has;
}
#define TOLD(WORDS, ...) mpirun_is_told(folder, WORDS, (const char *const[]){__VA_ARGS__, NULL})

/* Its daemons end ranks a second after they are told to stop, unless it is told otherwise (long_stop.sh). */
static void a_stopped_job_has_time_to_save(void **state) {
    static const char wait[] = " --mca odls_base_sigkill_timeout 20 ", any[] = "odls_base_sigkill_timeout";
    (void)state;
    char folder[] = "/tmp/ndp-spy-XXXXXX";
    assert_non_null(mkdtemp(folder));
    char *program = ndp_format("%s/mpirun", folder), *path = strdup(getenv("PATH")),
         *first = ndp_format("%s:%s", folder, path);
    FILE *f = fopen(program, "w");
    assert_true(f && fprintf(f, "#!/bin/sh\necho \"$*\" >%s/words\n", folder) > 0);
    assert_true(fchmod(fileno(f), 0700) == 0 && fclose(f) == 0);
    setenv("PATH", first, 1);
    assert_true(TOLD(wait, "SLURM_JOB_ID", "7"));
    assert_true(TOLD(wait, "PBS_JOBID", "7.server"));
    assert_true(TOLD(wait, "LSB_JOBID", "7"));
    assert_true(
        TOLD(" --mca odls_base_sigkill_timeout 90 ", "SLURM_JOB_ID", "7", "OMPI_MCA_odls_base_sigkill_timeout", "90"));
    assert_false(TOLD(any, "NDP_NO_JOB", "7")); /* it would be time lost after a failure */
    setenv("PATH", path, 1);
    free(program);
    free(first);
    free(path);
    CHECK_OK(ndp_folder_remove(folder));
}

/* ---- who launches ---- */

static const char facts[] =
    "{\"model_type\": \"llama\", \"hidden_act\": \"silu\", \"hidden_size\": 32, \"intermediate_size\": 64,"
    "\"num_attention_heads\": 2, \"num_hidden_layers\": 2, \"vocab_size\": 258, "
    "\"max_position_embeddings\": 512}";

static int launched_ranks(const char *transport, int shards) {
    char file[] = "/tmp/ndp-config-XXXXXX", set[128];
    int fd = mkstemp(file);
    ndp_launch_opts o;
    assert_true(fd >= 0 && write(fd, facts, strlen(facts)) == (ssize_t)strlen(facts));
    close(fd);
    ndp_config *c;
    CHECK_OK(ndp_config_create(&c));
    snprintf(set, sizeof set, "model.config=%s", file);
    CHECK_OK(ndp_config_set(c, set));
    CHECK_OK(ndp_config_set(c, "data.files=text.txt"));
    snprintf(set, sizeof set, "train.transport=%s", transport);
    CHECK_OK(ndp_config_set(c, set));
    snprintf(set, sizeof set, "parallelism.dp_shard_size=%d", shards);
    CHECK_OK(ndp_config_set(c, set));
    CHECK_OK(ndp_launch_opts_read(c, &o));
    assert_string_equal(o.transport, transport);
    ndp_config_destroy(c);
    unlink(file);
    return o.ranks;
}

static bool here(const char *const *variables) {
    for (int i = 0; variables[i]; i += 2)
        setenv(variables[i], variables[i + 1], 1);
    bool is = ndp_allocation_is_here();
    for (int i = 0; variables[i]; i += 2)
        unsetenv(variables[i]);
    return is;
}
#define HERE(...) here((const char *const[]){__VA_ARGS__, NULL})

/* Only hosts that are others need mpirun. */
static void a_batch_systems_host(void **state) {
    char one[] = "/tmp/ndp-nodes-XXXXXX", two[] = "/tmp/ndp-nodes-XXXXXX";
    int a = mkstemp(one), b = mkstemp(two);
    (void)state;
    assert_true(dprintf(a, "n1\nn1\n") > 0 && dprintf(b, "n1\nn1\nn2\n") > 0);
    assert_true(ndp_allocation_is_here());
    assert_true(HERE("SLURM_JOB_ID", "7", "SLURM_JOB_NUM_NODES", "1", "SLURMD_NODENAME", "n1"));
    assert_false(HERE("SLURM_JOB_ID", "7", "SLURM_JOB_NUM_NODES", "2", "SLURMD_NODENAME", "n1"));
    assert_false(HERE("SLURM_JOB_ID", "7", "SLURM_JOB_NUM_NODES", "1")); /* salloc's shell on a login node */
    assert_true(HERE("PBS_NODEFILE", one));
    assert_false(HERE("PBS_NODEFILE", two));
    assert_false(HERE("PBS_NODEFILE", "/nowhere/nodes"));
    assert_true(HERE("LSB_HOSTS", "n1 n1"));
    assert_false(HERE("LSB_HOSTS", "n1 n2"));
    close(a);
    close(b);
    unlink(one);
    unlink(two);
}

/* ---- ranks on hosts by a map ---- */

/* An agent in place of ssh that runs everything here, and tells the ranks for which host: $FAR. Each host has a folder
 * of its own for Open MPI's files: daemons that make the same one at the same time fail. */
static const char far_agent[] = "#!/bin/sh\nFAR=$1\nexport FAR\nshift\n"
                                "exec sh -c \"$(echo \"$*\" | sed \"s|rte_tmpdir_base [^ ]*|&/$FAR|g\")\"\n";
static const char map_hosts[] = "localhost slots=2\nfar-1 slots=1\nme@far-2 slots=2\nfar-3 slots=2\n";

static void file_of(char *path, const char *text, mode_t mode) {
    int fd = mkstemp(path);
    assert_true(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text) && fchmod(fd, mode) == 0);
    close(fd);
}

static ndp_status launch_by_map(const char *const *map, int ranks, const char *hostfile, const char *script,
                                int *code) {
    char *argv[] = {"/bin/sh", "-c", (char *)(uintptr_t)script, NULL};
    ndp_launch_opts o = NDP_LAUNCH_OPTS_INIT;
    o.ranks = ranks;
    o.argv = argv;
    o.hostfile = hostfile;
    o.rank_hosts = map;
    return ndp_launch(&o, code);
}

/* Ranks of one host are not neighbours, hosts have more of them than slots or cores, one has none. */
static void ranks_run_where_the_map_says(void **state) {
    static const char *const map[] = {"far-1", "localhost", "far-2", "far-1", "far-1", "localhost", "far-1", "far-2"};
    static const char expected[] = "far-1 0,here 0,me@far-2 0,far-1 1,far-1 2,here 1,far-1 3,me@far-2 1,";
    (void)state;
    need_mpirun();
    char agent[] = "/tmp/ndp-agent-XXXXXX", hosts[] = "/tmp/ndp-hosts-XXXXXX", said[] = "/tmp/ndp-said-XXXXXX",
         text[512];
    int code = -1;
    file_of(agent, far_agent, 0700);
    file_of(hosts, map_hosts, 0600);
    file_of(said, "", 0600);
    /* Ranks wait for their turn, so the file has them in order. */
    char *script = ndp_format("until [ $(tr -cd , <%s | wc -c) = $OMPI_COMM_WORLD_RANK ]; do sleep 0.01; done\n"
                              "printf '%%s %%s,' ${FAR:-here} $OMPI_COMM_WORLD_LOCAL_RANK >>%s",
                              said, said);
    setenv("OMPI_MCA_plm_rsh_agent", agent, 1);
    ndp_status st = launch_by_map(map, NDP_COUNT(map), hosts, script, &code);
    unsetenv("OMPI_MCA_plm_rsh_agent");
    FILE *f = fopen(said, "r");
    assert_true(f && fgets(text, sizeof text, f));
    fclose(f);
    free(script);
    unlink(agent);
    unlink(hosts);
    unlink(said);
    CHECK_OK(st);
    assert_int_equal(code, 0);
    assert_string_equal(text, expected);
}

static void what_is_not_a_map(void **state) {
    (void)state;
    char hosts[] = "/tmp/ndp-hosts-XXXXXX", wrong[] = "/tmp/ndp-hosts-XXXXXX";
    int code = -1;
    file_of(hosts, map_hosts, 0600);
    file_of(wrong, "far-1 slots=2\nfar-2 slots=two\n", 0600);
    static const char *const unknown[] = {"far-1", "far-9"}, *const none[] = {"far-1", NULL};
    ndp_status st[] = {launch_by_map(unknown, 2, hosts, "exit 0", &code), NDP_OK, NDP_OK, NDP_OK};
    assert_non_null(
        strstr(ndp_error_message(), "rank 1 is to run on 'far-9', which is not among the 4 hosts of /tmp/"));
    st[1] = launch_by_map(none, 2, hosts, "exit 0", &code);
    assert_non_null(strstr(ndp_error_message(), "rank 1 has no host"));
    st[2] = launch_by_map(unknown, 2, NULL, "exit 0", &code);
    assert_non_null(strstr(ndp_error_message(), "ranks can only be placed on hosts of a hostfile or an allocation"));
    st[3] = launch_by_map(unknown, 2, wrong, "exit 0", &code);
    assert_non_null(strstr(ndp_error_message(), ":2: 'slots' needs a number"));
    for (int i = 0; i < NDP_COUNT(st); i++)
        assert_int_equal(st[i], NDP_EINVAL);
    assert_int_equal(code, -1);
    unlink(hosts);
    unlink(wrong);
}

static void who_has_to_be_launched(void **state) {
    (void)state;
    assert_int_equal(launched_ranks("auto", 4), 4);
    assert_int_equal(launched_ranks("mpi", 4), 4);
    assert_int_equal(launched_ranks("shm", 4), 4);
    assert_int_equal(launched_ranks("local", 4), 0);
    assert_int_equal(launched_ranks("auto", 1), 0);
    setenv("PMI_SIZE", "4", 1);
    setenv("PMI_RANK", "3", 1);
    int ranks = launched_ranks("auto", 4), rank = ndp_world_launched_rank();
    unsetenv("PMI_SIZE");
    unsetenv("PMI_RANK");
    assert_int_equal(ranks, 0);
    assert_int_equal(rank, 3);
    assert_int_equal(ndp_world_launched_rank(), 0);
}

/* ---- cores ---- */

/* Cores that a process of its own has after binding itself; -1 when binding failed. */
static int cores_after(int rank, int ranks, int threads, cpu_set_t *set) {
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        CPU_ZERO(set);
        bool ok = ndp_bind_rank(rank, ranks, threads) == NDP_OK && sched_getaffinity(0, sizeof *set, set) == 0;
        _exit(ok && write(ends[1], set, sizeof *set) == sizeof *set ? 0 : 1);
    }
    int status;
    close(ends[1]);
    bool got = read(ends[0], set, sizeof *set) == sizeof *set;
    close(ends[0]);
    waitpid(child, &status, 0);
    return got && status == 0 ? CPU_COUNT(set) : -1;
}

static void ranks_share_out_the_cores(void **state) {
    (void)state;
    int cores = ndp_cpu_cores();
    cpu_set_t all, one, both;
    assert_int_equal(cores_after(0, 1, 1, &all), cores);         /* alone: as it is */
    assert_int_equal(cores_after(0, cores + 1, 1, &all), cores); /* not enough: as it is */
    if (cores < 2) {
        print_message("skipped in part: one core\n");
        return;
    }
    CPU_ZERO(&all);
    int sum = 0;
    for (int r = 0; r < 2; r++) {
        int n = cores_after(r, 2, cores / 2, &one);
        assert_true(n >= cores / 2 && n < cores);
        CPU_AND(&both, &all, &one);
        assert_int_equal(CPU_COUNT(&both), 0);
        CPU_OR(&all, &all, &one);
        sum += n;
    }
    assert_int_equal(sum, cores);
    assert_int_equal(cores_after(1, 2, cores, &one), cores);
    CHECK_FAILS(ndp_bind_rank(2, 2, 1), NDP_EINVAL, "rank 2 of 2");
}

static void environment_names_what_matters(void **state) {
    (void)state;
    static const char *const words[] = {"ndparallel", "processor", "cores", "memory", "huge pages",
                                        "oneDNN",     "json-c",    "hwloc", "mpirun", "transports    self, local"};
    char *text, name[256], host[256];
    CHECK_OK(ndp_env(&text));
    for (int i = 0; i < NDP_COUNT(words); i++)
        if (!strstr(text, words[i]))
            fail_msg("'%s' is missing in\n%s", words[i], text);
    if (access("/sys/kernel/mm/transparent_hugepage/enabled", R_OK) == 0) /* not in a bare chroot */
        assert_null(strstr(text, "unknown"));
    free(text);
    ndp_host_resolves(name, sizeof name);
    assert_int_equal(gethostname(host, sizeof host), 0);
    assert_string_equal(name, host);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(ranks_get_what_they_need),
                                       cmocka_unit_test(the_first_exit_code_counts),
                                       cmocka_unit_test(a_dead_rank_is_named),
                                       cmocka_unit_test(a_rank_of_mpirun_that_ends_is_named),
                                       cmocka_unit_test(an_mpirun_that_does_not_end_is_killed),
                                       cmocka_unit_test(a_rank_that_its_peers_saw_die_is_named),
                                       cmocka_unit_test(words_of_open_mpi_5),
                                       cmocka_unit_test(a_stop_reaches_the_ranks),
                                       cmocka_unit_test(a_late_stop_leaves_the_exit_code),
                                       cmocka_unit_test(a_colon_is_an_argument),
                                       cmocka_unit_test(a_batch_systems_host),
                                       cmocka_unit_test(what_cannot_be_launched_is_said),
                                       cmocka_unit_test(a_host_that_cannot_be_reached_is_named),
                                       cmocka_unit_test(a_rank_that_fails_is_no_lost_host),
                                       cmocka_unit_test(ssh_takes_no_name_for_an_option),
                                       cmocka_unit_test(a_stopped_job_has_time_to_save),
                                       cmocka_unit_test(ranks_run_where_the_map_says),
                                       cmocka_unit_test(what_is_not_a_map),
                                       cmocka_unit_test(who_has_to_be_launched),
                                       cmocka_unit_test(ranks_share_out_the_cores),
                                       cmocka_unit_test(environment_names_what_matters)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
