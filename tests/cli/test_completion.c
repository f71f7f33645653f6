/* What appears when a user presses tab. bash and zsh run on a pseudo-terminal; fish, which asks the terminal questions
 * that only a real one answers, completes by its own `complete -C`. A shell that is not installed is skipped. */
#include "base/clock.h"
#include "base/text.h"
#include "check.h"

#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* The first prompt is the environment's. The one after the setup is put together there, so that the echo of the setup
 * does not look like it. */
#define FIRST "FIRST> "
#define PROMPT "READY> "
#define SET_PROMPT "PS1='REA''DY> '\r"

static const struct {
    const char *typed, *appears;
} lines[] = {{"ndparallel chec", "kpoint"},
             {"ndparallel train job.yaml --dry", "-run"},
             {"ndparallel train job.yaml --set data.cha", "t_template"},
             {"ndparallel train job.yaml --device s", "im"}};

typedef struct terminal {
    pid_t pid;
    int fd;
    ndp_str seen; /* since the last line was typed, without escape sequences */
} terminal;

static bool there_is(const char *shell) {
    char command[64];
    snprintf(command, sizeof command, "command -v %s >/dev/null 2>&1", shell);
    return system(command) == 0;
}

static const char *completion(const char *file) {
    static char path[4096];
    snprintf(path, sizeof path, "%s/completion/%s", getenv("NDP_BUILD_DIR"), file);
    return path;
}

/* Appends what a person would see of it: no escape sequences, no carriage returns. */
static void see(terminal *t, const char *bytes, ssize_t n) {
    for (ssize_t i = 0; i < n; i++) {
        if (bytes[i] == '\033') {
            bool brackets = i + 1 < n && bytes[i + 1] == '[';
            for (i += brackets ? 2 : 1; brackets && i < n && !(bytes[i] >= '@' && bytes[i] <= '~');)
                i++;
        } else if (bytes[i] != '\r' && bytes[i] != '\a' && bytes[i] != '\0') {
            ndp_str_add_bytes(&t->seen, bytes + i, 1);
        }
    }
}

static void wait_for(terminal *t, const char *words) {
    double started = ndp_now();
    while (!t->seen.data || !strstr(t->seen.data, words)) {
        struct pollfd ready = {t->fd, POLLIN, 0};
        char bytes[4096];
        ssize_t n = poll(&ready, 1, 1000) > 0 ? read(t->fd, bytes, sizeof bytes) : 0;
        if (n < 0 || ndp_now() - started > HANGS)
            fail_msg("no '%s' appears; there is: %s", words, t->seen.data ? t->seen.data : "nothing");
        see(t, bytes, n);
    }
    ndp_str_release(&t->seen);
}

static void type(const terminal *t, const char *text) {
    assert_int_equal(write(t->fd, text, strlen(text)), (ssize_t)strlen(text));
}

static terminal open_shell(char *const argv[]) {
    struct winsize size = {.ws_row = 50, .ws_col = 200};
    terminal t = {0};
    t.pid = forkpty(&t.fd, NULL, NULL, &size);
    assert_true(t.pid >= 0);
    if (t.pid == 0) {
        setenv("TERM", "dumb", 1);
        setenv("PS1", FIRST, 1);
        execvp(argv[0], argv);
        _exit(127);
    }
    wait_for(&t, FIRST); /* a shell may discard what is typed earlier */
    return t;
}

/* Types each line and a tab after `setup`, and expects the rest of the word after the echo of the line. */
static void press_tab(char *const argv[], const char *setup) {
    terminal t = open_shell(argv);
    type(&t, setup);
    type(&t, SET_PROMPT);
    wait_for(&t, PROMPT);
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        type(&t, lines[i].typed);
        wait_for(&t, lines[i].typed);
        type(&t, "\t");
        wait_for(&t, lines[i].appears);
        type(&t, "\x15"); /* ^U empties the line; ^C would only end a completion that is still under way */
    }
    kill(t.pid, SIGKILL); /* zsh asks before it ends */
    waitpid(t.pid, NULL, 0);
    close(t.fd);
    ndp_str_release(&t.seen);
}

static void test_bash(void **state) {
    (void)state;
    if (!there_is("bash"))
        skip();
    char setup[5000];
    snprintf(setup, sizeof setup, "bind 'set enable-bracketed-paste off'; source '%s'; ",
             completion("ndparallel.bash"));
    press_tab((char *[]){"bash", "--norc", "--noprofile", "-i", NULL}, setup);
}

static void test_zsh(void **state) {
    (void)state;
    if (!there_is("zsh"))
        skip();
    char setup[5000];
    snprintf(setup, sizeof setup, "fpath=('%s' $fpath); autoload -Uz compinit; compinit -u -D; ", completion(""));
    press_tab((char *[]){"zsh", "-f", "-i", NULL}, setup);
}

static void test_fish(void **state) {
    (void)state;
    if (!there_is("fish"))
        skip();
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        char command[6000], word[256], first[256] = "";
        snprintf(command, sizeof command, "fish --no-config -c \"source '%s'; complete -C '%s'\" 2>&1",
                 completion("ndparallel.fish"), lines[i].typed);
        snprintf(word, sizeof word, "%s%s", strrchr(lines[i].typed, ' ') + 1, lines[i].appears);
        FILE *out = popen(command, "r");
        assert_non_null(out);
        if (!fgets(first, sizeof first, out))
            first[0] = '\0';
        pclose(out);
        if (strncmp(first, word, strlen(word)) != 0)
            fail_msg("'%s' becomes '%s', not '%s'", lines[i].typed, first, word);
    }
}

/* The shells find the program. */
static int set_path(void **state) {
    (void)state;
    const char *program = getenv("NDP_PROGRAM"), *path = getenv("PATH");
    char joined[8192];
    assert_true(program && path && getenv("NDP_BUILD_DIR"));
    snprintf(joined, sizeof joined, "%.*s:%s", (int)(strrchr(program, '/') - program), program, path);
    return setenv("PATH", joined, 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_bash), cmocka_unit_test(test_zsh),
                                       cmocka_unit_test(test_fish)};
    return cmocka_run_group_tests(tests, set_path, NULL);
}
