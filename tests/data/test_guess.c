/* What a source of data looks like, by its name and its first record. */
#include "base/text.h"
#include "check.h"

#include <unistd.h>

static char folder[] = "/tmp/ndp-guess-XXXXXX";

static int make_folder(void **state) { return (void)state, mkdtemp(folder) ? 0 : -1; }
static int remove_folder(void **state) { return (void)state, ndp_folder_remove(folder) == NDP_OK ? 0 : -1; }

/* guess FILE TEXT: a guess with these words. */
static void guess(const char *name, const char *text, const char *kind, const char *format, const char *field,
                  bool conversations) {
    ndp_data_guess g;
    char *path = ndp_format("%s/%s", folder, name);
    CHECK_OK(ndp_file_write_atomic(path, text, strlen(text)));
    CHECK_OK(ndp_data_guess_of(path, &g));
    if (strcmp(g.kind, kind) != 0 || strcmp(g.format, format) != 0 || strcmp(g.text_field, field) != 0 ||
        g.conversations != conversations)
        fail_msg("%s: %s, %s, '%s', %d", text, g.kind, g.format, g.text_field, g.conversations);
    free(path);
}

static void kinds(void **state) {
    (void)state;
    guess("a.txt", "{\"text\": 1}", "text", "auto", "", false);
    guess("a", "words", "text", "auto", "", false);
    guess("a.bin", "words", "token ids", "auto", "", false);
    guess("a.jsonl", "\n{\"id\": 1, \"text\": \"a\"}\nnot JSON", "records with a text", "auto", "", false);
    guess("b.json", "[{\"messages\": []}, {]", "conversations (messages)", "auto", "", true);
    guess("c.jsonl", "{\"conversations\": []}", "conversations (ShareGPT)", "auto", "", true);
    guess("d.jsonl", "{\"instruction\": \"a\", \"output\": \"b\"}", "instructions and responses", "auto", "", true);
    guess("e.jsonl", "{\"prompt\": \"a\", \"chosen\": \"b\", \"rejected\": \"c\"}",
          "pairs of a preferred and another answer", "preference", "", true);
    guess("f.jsonl", "{\"prompt\": \"a\", \"completion\": \"b\"}", "prompts and completions", "auto", "", false);
    guess("g.jsonl", "{\"prompt\": \"a\", \"completion\": \"b\", \"label\": true}", "answers that are wanted or not",
          "preference", "", true);
    guess("h.jsonl", "{\"segments\": []}", "texts in segments", "input_output", "", false);
    guess("i.jsonl", "{\"id\": \"x1\", \"content\": \"a longer text\"}", "records", "auto", "content", false);
    guess("j.jsonl", "[1, 2", "records", "auto", "", false);
    guess("k.jsonl", "", "records", "auto", "", false);
    guess("l.csv", "text,id\nhello,1\n", "records with a text", "auto", "", false);
}

static void what_cannot_be_read(void **state) {
    (void)state;
    ndp_data_guess g;
    CHECK_FAILS(ndp_data_guess_of("/nowhere/a.txt", &g), NDP_EINVAL, "/nowhere/a.txt");
    CHECK_FAILS(ndp_data_guess_of("https://host/a.jsonl", &g), NDP_EINVAL, "is a URL");
    CHECK_FAILS(ndp_data_guess_of("a.zip", &g), NDP_ENOTSUP, "not supported");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(kinds), cmocka_unit_test(what_cannot_be_read)};
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
