/* A new folder beside others of the same name: by processes at work, and by processes that were killed. */
#include "base/fault.h"
#include "checkpoint/files.h"
#include "checkpoint/holder.h"
#include "checkpoint/new_folder.h"

#include <signal.h>
#include <sys/wait.h>

/* Makes FOLDER/merged with a file `by` that says who made it. */
static ndp_new_folder begin(const char *folder) {
    char path[512];
    ndp_new_folder f;
    CHECK_OK(ndp_new_folder_begin(in(folder, "merged", path), &f));
    return f;
}

static void write_by(const ndp_new_folder *f, const char *who) {
    char path[NDP_PATH];
    CHECK_OK(ndp_path_join(path, f->beside, "by"));
    put_file(path, who, strlen(who));
}

static ndp_status count_hidden(void *user, const char *folder, const char *name) {
    (void)folder;
    *(int *)user += strstr(name, ".tmp-folder") != NULL;
    return NDP_OK;
}

static int hidden_in(const char *folder) {
    int n = 0;
    CHECK_OK(ndp_folder_visit(folder, count_hidden, &n));
    return n;
}

static void made_by(const char *folder, const char *who) {
    char path[512], *text;
    size_t size;
    CHECK_OK(ndp_file_read(in(folder, "merged/by", path), &text, &size));
    assert_int_equal(size, strlen(who));
    assert_memory_equal(text, who, size);
    free(text);
}

static const char taken[] = "merged' was made by another process meanwhile, and nothing is overwritten";

/* Each process has its own folder; in either order, the second one to end changes nothing. */
static void two_of_one_name(void **state) {
    for (int order = 0; order < 2; order++) {
        ndp_new_folder of[2];
        for (int i = 0; i < 2; i++)
            of[i] = begin(*state);
        write_by(&of[0], "one");
        write_by(&of[1], "other");
        assert_int_equal(hidden_in(*state), 2);
        CHECK_OK(ndp_new_folder_end(&of[order], NDP_OK));
        CHECK_FAILS(ndp_new_folder_end(&of[!order], NDP_OK), NDP_EINVAL, taken);
        made_by(*state, order ? "other" : "one");
        assert_int_equal(hidden_in(*state), 0);
        CHECK_OK(ndp_folder_remove(of[0].place));
    }
}

static void an_empty_folder_is_no_obstacle(void **state) {
    char path[512];
    for (int early = 0; early < 2; early++) {
        if (early)
            assert_int_equal(mkdir(in(*state, "merged", path), 0777), 0);
        ndp_new_folder f = begin(*state);
        write_by(&f, "one");
        if (!early)
            assert_int_equal(mkdir(in(*state, "merged", path), 0777), 0);
        CHECK_OK(ndp_new_folder_end(&f, NDP_OK));
        made_by(*state, "one");
        CHECK_OK(ndp_folder_remove(f.place));
    }
}

/* A file in its place, one that appeared while it was made, and a failure of the writer. */
static void what_is_there_stays(void **state) {
    char path[512];
    ndp_new_folder f = begin(*state);
    put_file(in(*state, "merged", path), "mine", 4);
    CHECK_FAILS(ndp_new_folder_end(&f, NDP_OK), NDP_EINVAL, taken);
    CHECK_FAILS(ndp_new_folder_begin(in(*state, "merged", path), &f), NDP_EINVAL, "exists and is not a folder");
    assert_int_equal(unlink(path), 0);
    f = begin(*state);
    assert_int_equal(ndp_new_folder_end(&f, NDP_ECOMM), NDP_ECOMM);
    assert_false(ndp_path_exists(path));
    assert_int_equal(hidden_in(*state), 0);
}

/* ---- processes ---- */

/* A process that begins the folder, says so, and ends it when it is told to, with the status as its exit code. */
typedef struct other_process {
    pid_t pid;
    int began, go;
} other_process;

static other_process start_other(const char *folder) {
    int began[2], go[2];
    char byte = 0;
    assert_true(pipe(began) == 0 && pipe(go) == 0);
    pid_t pid = fork();
    if (pid == 0) {
        ndp_new_folder f = begin(folder);
        close(go[1]);
        write_by(&f, "other");
        bool told = write(began[1], &byte, 1) == 1 && read(go[0], &byte, 1) == 1;
        _exit(told ? (int)ndp_new_folder_end(&f, NDP_OK) : 99);
    }
    close(began[1]);
    close(go[0]);
    assert_int_equal(read(began[0], &byte, 1), 1);
    return (other_process){pid, began[0], go[1]};
}

static int end_other(const other_process *p, int signal_number) {
    int status;
    assert_true(signal_number ? kill(p->pid, signal_number) == 0 : write(p->go, "", 1) == 1);
    assert_int_equal(waitpid(p->pid, &status, 0), p->pid);
    close(p->began);
    close(p->go);
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

/* What a process at work has is left alone by one that begins later; of one that was killed nothing stays. */
static void processes_at_work_and_killed_ones(void **state) {
    if (EMULATED) /* qemu gives a child the start time of its parent, by which processes are known */
        skip();
    other_process first = start_other(*state), killed = start_other(*state);
    assert_int_equal(end_other(&killed, SIGKILL), 128 + SIGKILL);
    assert_int_equal(hidden_in(*state), 2);
    ndp_new_folder f = begin(*state);
    assert_int_equal(hidden_in(*state), 2); /* its own, and the one of `first` */
    write_by(&f, "one");
    assert_int_equal(end_other(&first, 0), NDP_OK);
    made_by(*state, "other");
    CHECK_FAILS(ndp_new_folder_end(&f, NDP_OK), NDP_EINVAL, taken);
    made_by(*state, "other");
    assert_int_equal(hidden_in(*state), 0);
}

/* Killed before any of its operations: the next one finds no obstacle, and the folder is whole or not there. */
static void killed_anywhere(void **state) {
    static const ndp_fault_kind kinds[] = {NDP_FAULT_WRITE, NDP_FAULT_SYNC, NDP_FAULT_RENAME};
    char path[512];
    for (int k = 0; k < NDP_COUNT(kinds); k++)
        for (int n = 1, killed = 1; killed; n++) {
            int status;
            pid_t child = fork();
            if (child == 0) {
                ndp_new_folder f;
                ndp_fault_arm_kill(kinds[k], n);
                f = begin(*state);
                write_by(&f, "other");
                _exit((int)ndp_new_folder_end(&f, NDP_OK));
            }
            assert_int_equal(waitpid(child, &status, 0), child);
            killed = WIFSIGNALED(status);
            assert_true(killed ? WTERMSIG(status) == SIGKILL : status == 0);
            if (ndp_path_exists(in(*state, "merged", path))) {
                made_by(*state, "other");
                CHECK_OK(ndp_folder_remove(path));
            }
            ndp_new_folder f = begin(*state);
            assert_int_equal(hidden_in(*state), 1);
            write_by(&f, "one");
            CHECK_OK(ndp_new_folder_end(&f, NDP_OK));
            made_by(*state, "one");
            CHECK_OK(ndp_folder_remove(path));
        }
}

/* Whose folder it is, by its name alone: an earlier boot's, a number that was used again, another machine's. */
static void who_is_dead(void **state) {
    static const struct who {
        const char *name, *host, *boot;
        int start; /* later than this process's */
        bool stays;
    } whose[] = {{"merged", NULL, NULL, 0, true},
                 {"merged", NULL, NULL, 1, false},
                 {"merged", NULL, "other boot", 0, false},
                 {"merged", "other-host", NULL, 1, true},
                 {"other", NULL, NULL, 1, true}};
    for (int i = 0; i < NDP_COUNT(whose); i++) {
        const struct who *w = &whose[i];
        ndp_holder h;
        char word[NDP_HOLDER_WORD], name[256], path[512];
        ndp_holder_self(&h);
        if (w->host)
            snprintf(h.host, sizeof h.host, "%s", w->host);
        if (w->boot)
            snprintf(h.boot_id, sizeof h.boot_id, "%s", w->boot);
        h.start_time += w->start;
        ndp_holder_word(&h, word);
        snprintf(name, sizeof name, ".%s.tmp-folder-%s-7", w->name, word);
        assert_int_equal(mkdir(in(*state, name, path), 0777), 0);
        ndp_new_folder f = begin(*state);
        assert_int_equal(ndp_path_exists(path), h.machine_id[0] || !w->boot ? w->stays : true);
        (void)!ndp_new_folder_end(&f, NDP_ECOMM);
        (void)rmdir(path);
    }
}

static void long_names(void **state) {
    char name[256] = "", path[512];
    ndp_new_folder f;
    memset(name, 'a', 255);
    CHECK_OK(ndp_new_folder_begin(in(*state, name, path), &f));
    CHECK_OK(ndp_new_folder_end(&f, NDP_OK));
    assert_true(ndp_path_is_folder(path));
}

int main(void) {
#define CASE(NAME) cmocka_unit_test_setup_teardown(NAME, make_folder, drop_folder)
    const struct CMUnitTest tests[] = {
        CASE(two_of_one_name),     CASE(an_empty_folder_is_no_obstacle),
        CASE(what_is_there_stays), CASE(processes_at_work_and_killed_ones),
        CASE(killed_anywhere),     CASE(who_is_dead),
        CASE(long_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
