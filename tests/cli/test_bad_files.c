/* Every file that the program reads, replaced by something else: a pipe, a folder, a socket, a device, a link to
 * nothing, and where its kind has a limit a file above it. Each is refused by name, with one message, and little work.
 * Links to files are fine. */
#include "cli/job.h"

#include <sys/socket.h>
#include <sys/un.h>

#define MOST_WORK 1.0 /* seconds of a core */

enum { NONE = 0, OR_FOLDER = -1 };

typedef struct input {
    const char *path;      /* below the folder of the job */
    int64_t limit;         /* bytes; NONE; OR_FOLDER: none, and a folder is fine as well */
    const char *arguments; /* of the program; @ is the folder */
    const char *without;   /* a file that would be read instead; NULL */
} input;

#define MIB ((int64_t)1 << 20)
static const char plan[] = "train @/job.yaml --dry-run", generate[] = "generate --model @/model --prompt a -n 2",
                  tokenize[] = "tokenize -m @/model -t text", import[] = "config import @/axolotl.yaml",
                  chat[] = "train @/job.yaml --dry-run --set data.format=messages";

static const input inputs[] = {
    {"job.yaml", 8 * MIB, "train @/job.yaml --dry-run --no-data", NULL},
    {"job.yaml", 8 * MIB, "train @/job.yaml", NULL},
    {"job.yaml", 8 * MIB, "verify @/job.yaml --layout tp=2", NULL},
    {"axolotl.yaml", 8 * MIB, import, NULL},
    {"zero3.json", 8 * MIB, import, NULL},
    {"model/config.json", 16 * MIB, plan, NULL},
    {"model/config.json", 16 * MIB, generate, NULL},
    {"model/config.json", 16 * MIB, "evaluate --model @/model --data @/data/corpus.jsonl", NULL},
    {"model/generation_config.json", 16 * MIB, generate, NULL},
    {"model/model.safetensors", NONE, generate, NULL},
    {"model/model.safetensors", NONE, "train @/job.yaml --transport=local", NULL},
    {"model/model.safetensors.index.json", 64 * MIB, generate, "model/model.safetensors"},
    {"model/tokenizer.json", 256 * MIB, tokenize, NULL},
    {"model/tokenizer_config.json", 16 * MIB, tokenize, NULL},
    {"model/special_tokens_map.json", 16 * MIB, tokenize, NULL},
    {"model/vocab.json", 256 * MIB, tokenize, "model/tokenizer.json"},
    {"model/merges.txt", 256 * MIB, tokenize, "model/tokenizer.json"},
    {"model/chat_template.jinja", MIB, chat, NULL},
    {"data/corpus.jsonl", OR_FOLDER, plan, NULL},
    {"data/corpus.jsonl", OR_FOLDER, "train @/job.yaml --dry-run --set data.files=@/data", NULL},
    {"data/corpus.jsonl", NONE, "tokenize -m bytes -f @/data/corpus.jsonl", NULL},
    {"data/corpus.jsonl", NONE, "evaluate --model @/model --data @/data/corpus.jsonl", NULL},
    {"run/metrics.jsonl", NONE, "train @/job.yaml --transport=local --resume", NULL},
    {"hosts", MIB, "launch --hostfile @/hosts -n 1 -- true", NULL},
    {"hosts", MIB, "train @/job.yaml --transport=mpi --hostfile @/hosts", NULL},
};

/* ---- not a file ---- */

static void put_pipe(const char *path) { assert_int_equal(mkfifo(path, 0600), 0); }
static void put_folder(const char *path) { assert_int_equal(mkdir(path, 0700), 0); }
static void put_device(const char *path) { assert_int_equal(symlink("/dev/zero", path), 0); }
static void put_dangling(const char *path) { assert_int_equal(symlink("/no/such/blob", path), 0); }

static void put_socket(const char *path) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int s = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_true(strlen(path) < sizeof address.sun_path);
    memcpy(address.sun_path, path, strlen(path) + 1);
    assert_int_equal(bind(s, (struct sockaddr *)&address, sizeof address), 0);
    close(s);
}

static const struct {
    void (*put)(const char *path);
    const char *words;
} forms[] = {
    {put_pipe, "it is a pipe, not a file"},     {put_folder, "a folder"},
    {put_socket, "it is a socket, not a file"}, {put_device, "it is a device, not a file"},
    {put_dangling, "a link to a missing file"},
};

/* ---- one command ---- */

/* Words at blanks; @ is the folder. */
static outcome run(const char *folder, const char *arguments) {
    ndp_str text = {0};
    for (const char *at = arguments; *at; at++)
        if (*at == '@')
            ndp_str_add(&text, folder);
        else
            ndp_str_add_bytes(&text, at, 1);
    char *argv[16] = {getenv("NDP_PROGRAM")}, *rest = text.data;
    int n = 1;
    for (char *word; (word = strsep(&rest, " ")) != NULL;)
        argv[n++] = word;
    outcome o = program_run(argv);
    ndp_str_release(&text);
    return o;
}

static void refused(const char *folder, const input *i, const char *words) {
    outcome o = run(folder, i->arguments);
    if (o.code < 1 || o.code > 2 || o.work > MOST_WORK || count_of(o.text.data, "ndparallel: ") != 1 ||
        !strstr(o.text.data, strrchr(in(folder, i->path), '/')) || !strstr(o.text.data, words))
        fail_msg("%s, %s: code %d after %.2f s of work, expected the name and '%s': %s", i->arguments, i->path, o.code,
                 o.work, words, o.text.data);
    ndp_str_release(&o.text);
}

static int setup(void **state) {
    int failed = make_job(state);
    char *axolotl = ndp_format("base_model: %s/model\ndeepspeed: %s/zero3.json\n", (char *)*state, (char *)*state);
    tiny_write(*state, "axolotl.yaml", axolotl);
    free(axolotl);
    return failed || mkdir(in(*state, "run"), 0700);
}

/* The file's place, free; `aside` is where it lies meanwhile. */
static void take_away(const char *folder, const char *name, char aside[600]) {
    snprintf(aside, 600, "%s.aside", in(folder, name));
    (void)rename(in(folder, name), aside);
}

static void put_back(const char *folder, const char *name, const char *aside) {
    CHECK_OK(ndp_folder_remove(in(folder, name)));
    (void)rename(aside, in(folder, name));
}

static void replace_by_all(const char *folder, const input *i) {
    char aside[600], other[600];
    bool mpi = strstr(i->arguments, "hostfile") || strstr(i->arguments, "mpi");
    if (mpi && !have_mpirun())
        return;
    if (i->without)
        take_away(folder, i->without, other);
    for (int f = 0; f < NDP_COUNT(forms); f++) {
        if (i->limit == OR_FOLDER && forms[f].put == put_folder)
            continue;
        take_away(folder, i->path, aside);
        forms[f].put(in(folder, i->path));
        refused(folder, i, forms[f].words);
        put_back(folder, i->path, aside);
    }
    if (i->limit > 0) {
        take_away(folder, i->path, aside);
        int fd = open(in(folder, i->path), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
        assert_int_equal(ftruncate(fd, i->limit + 1), 0);
        close(fd);
        refused(folder, i, "at most; is it the right file?");
        put_back(folder, i->path, aside);
    }
    if (i->without)
        put_back(folder, i->without, other);
}

static void what_is_no_file_is_refused(void **state) {
    tiny_write(in(*state, "model"), "vocab.json", "{}");
    tiny_write(in(*state, "model"), "merges.txt", "");
    for (int i = 0; i < NDP_COUNT(inputs); i++)
        replace_by_all(*state, &inputs[i]);
}

/* As in the cache of Hugging Face's Hub: snapshots of links to blobs. */
static void links_are_fine(void **state) {
    static const char *const names[] = {"config.json", "tokenizer.json", "model.safetensors"};
    assert_int_equal(mkdir(in(*state, "blobs"), 0700), 0);
    for (int i = 0; i < NDP_COUNT(names); i++) {
        char file[600], blob[600], link[600];
        snprintf(file, sizeof file, "%s/%s", in(*state, "model"), names[i]);
        snprintf(blob, sizeof blob, "%s/%d", in(*state, "blobs"), i);
        snprintf(link, sizeof link, "../blobs/%d", i);
        assert_int_equal(rename(file, blob), 0);
        assert_int_equal(symlink(link, file), 0);
    }
    outcome o = run(*state, "train @/job.yaml --transport=local");
    if (o.code != 0)
        fail_msg("code %d: %s", o.code, o.text.data);
    ndp_str_release(&o.text);
}

/* Text that does not end comes in up to half of the memory that there is. */
static void standard_input_has_an_end(void **state) {
    (void)state;
    if (SANITIZED)
        skip();
    char *script = "ulimit -v 1000000; exec \"$NDP_PROGRAM\" tokenize -m bytes -f - </dev/zero";
    outcome o = program_run((char *[]){"sh", "-c", script, NULL});
    if (o.code < 1 || o.code > 2 || !strstr(o.text.data, "standard input has more than"))
        fail_msg("code %d: %s", o.code, o.text.data);
    print_message("%.2f s  %s", o.seconds, o.text.data);
    ndp_str_release(&o.text);
}

/* A text longer than stdio's buffer, and short ones. */
static void full_output_is_an_error(void **state) {
    static const char *const commands[] = {"config",
                                           "config --defaults",
                                           "env",
                                           "train @/job.yaml --dry-run",
                                           "plan @/job.yaml --program",
                                           "tokenize -m bytes -t text",
                                           "evaluate --model @/model --data @/data/corpus.jsonl",
                                           "generate --model @/model -n 2"};
    for (int i = 0; i < NDP_COUNT(commands); i++) {
        ndp_str script = {0};
        ndp_str_add(&script, "exec \"$NDP_PROGRAM\" ");
        for (const char *at = commands[i]; *at; at++)
            ndp_str_add_bytes(&script, *at == '@' ? *state : at, *at == '@' ? strlen(*state) : 1);
        ndp_str_add(&script, " >/dev/full");
        outcome o = program_run((char *[]){"sh", "-c", script.data, NULL});
        if (o.code != 1 || !strstr(o.text.data, "cannot write the output: No space left on device"))
            fail_msg("%s: code %d: %s", commands[i], o.code, o.text.data);
        ndp_str_release(&o.text);
        ndp_str_release(&script);
    }
}

static void a_read_only_disk_is_named(void **state) {
    if (system("unshare -m true >/dev/null 2>&1") != 0) {
        print_message("SKIPPED: a read-only disk needs the right to mount\n");
        skip();
    }
    static const char *const sets[] = {"train.output_dir", "data.cache_dir"};
    for (int i = 0; i < NDP_COUNT(sets); i++) {
        char *script = ndp_format(
            "mkdir -p %s/disk && mount -t tmpfs -o ro none %s/disk && exec \"$NDP_PROGRAM\" train %s/job.yaml "
            "--transport=local --set %s=%s/disk/new",
            (char *)*state, (char *)*state, (char *)*state, sets[i], (char *)*state);
        outcome o = program_run((char *[]){"unshare", "-m", "sh", "-c", script, NULL});
        if (o.code != 1 || !strstr(o.text.data, "/disk/new': Read-only file system") ||
            count_of(o.text.data, "ndparallel: ") != 1)
            fail_msg("code %d: %s", o.code, o.text.data);
        ndp_str_release(&o.text);
        free(script);
    }
}

#define JOB_TEST(f) cmocka_unit_test_setup_teardown(f, setup, tiny_teardown)

int main(void) {
    if (!getenv("NDP_PROGRAM")) {
        printf("SKIPPED: NDP_PROGRAM names no program\n");
        return 77;
    }
    find_leaks(false);
    const struct CMUnitTest tests[] = {
        JOB_TEST(what_is_no_file_is_refused),        JOB_TEST(links_are_fine),
        JOB_TEST(full_output_is_an_error),           JOB_TEST(a_read_only_disk_is_named),
        cmocka_unit_test(standard_input_has_an_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
