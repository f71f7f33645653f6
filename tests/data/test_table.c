/* Tables as JSONL: CSV by Python, Parquet and Arrow where pyarrow is installed, and readers that misbehave. */
#include "data/corpus/source.h"
#include "base/python.h"
#include "data/table/table_reader.h"

#include "base/clock.h"
#include "data/folder.h"
#include <sys/resource.h>
#include <sys/stat.h>

/* ---- helpers ---- */

typedef struct collected {
    ndp_str text;
    int64_t rows;
} collected;

static ndp_status put(void *user, const char *bytes, size_t n) {
    ndp_str_add_bytes(&((collected *)user)->text, bytes, n);
    return NDP_OK;
}

static ndp_status end_row(void *user) {
    ((collected *)user)->rows++;
    return NDP_OK;
}

enum { SILENCE = 2, SLOW = HANGS };

static ndp_status read_within(int silence, const char *path, int64_t most, collected *out) {
    const ndp_table_sink sink = {put, end_row, out};
    int64_t rows;
    *out = (collected){0};
    ndp_status st = ndp_table_read(path, most, silence, 1, &sink, &rows);
    assert_int_equal(rows, out->rows);
    return st;
}

static ndp_status read_rows(const char *path, int64_t most, collected *out) {
    return read_within(SLOW, path, most, out);
}

static void check_rows(const char *folder, const char *name, const char *contents, const char *expected) {
    collected c;
    char *path = write_file(folder, name, contents, strlen(contents));
    CHECK_OK(read_rows(path, 0, &c));
    assert_string_equal(c.text.data ? c.text.data : "", expected);
    ndp_str_release(&c.text);
    free(path);
}

static void check_refused(const char *folder, const char *name, const char *contents, size_t n, ndp_status st,
                          const char *words) {
    collected c;
    char *path = write_file(folder, name, contents, n);
    CHECK_FAILS(read_rows(path, 0, &c), st, words);
    ndp_str_release(&c.text);
    free(path);
}

/* Makes a program the interpreter. */
static void use_reader(const char *folder, const char *script) {
    char *path = write_file(folder, "reader", script, strlen(script));
    assert_int_equal(chmod(path, 0755), 0);
    setenv("NDP_PYTHON", path, 1);
    free(path);
}

static char *own_python;

static void use_python(void) {
    if (own_python)
        setenv("NDP_PYTHON", own_python, 1);
    else
        unsetenv("NDP_PYTHON");
}

static bool has_python(void) {
    use_python();
    bool has = access(ndp_python_interpreter(), X_OK) == 0;
    if (!has)
        printf("SKIPPED: no %s\n", ndp_python_interpreter());
    return has;
}

/* ---- CSV ---- */

static void csv_files(void **state) {
    if (!has_python())
        skip();
    check_rows(*state, "a.csv", "text,n\na,1\n\"b, \"\"c\"\"\nd\",02\n",
               "{\"text\":\"a\",\"n\":\"1\"}\n{\"text\":\"b, \\\"c\\\"\\nd\",\"n\":\"02\"}\n");
    check_rows(*state, "mark.csv", "\xef\xbb\xbftext\r\n\xc3\xa9\r\n\r\nb",
               "{\"text\":\"\xc3\xa9\"}\n{\"text\":\"b\"}\n");
    check_rows(*state, "a.TSV", "text\tn\na,b\t\n", "{\"text\":\"a,b\",\"n\":\"\"}\n");
    check_rows(*state, "none.csv", "text,n\n", "");
}

static void csv_files_that_are_refused(void **state) {
    static const struct {
        const char *contents, *words;
    } bad[] = {{"", "a.csv: is empty; its first line must name the columns"},
               {"text,n\na,1\n\"b\n\",2,3\n", "a.csv: row 2 (line 4) has fields: 3, but the header has 2"},
               {"text,n\na\n", "a.csv: row 1 (line 2) has fields: 1, but the header has 2"},
               {"text,text\na,b\n", "a.csv: two columns are named 'text'"},
               {"text\na\n\"b\nc\n", "a.csv: row 2 (line 4): unexpected end of data"},
               {"text\n\"b\"c\n", "a.csv: row 1 (line 2): ',' expected after '\"'"},
               {"text\n\xff\n", "a.csv: not valid UTF-8 after row 0"}};
    if (!has_python())
        skip();
    for (int i = 0; i < NDP_COUNT(bad); i++)
        check_refused(*state, "a.csv", bad[i].contents, strlen(bad[i].contents), NDP_EFORMAT, bad[i].words);
    collected c;
    CHECK_FAILS(read_rows("/nowhere/a.csv", 0, &c), NDP_EIO, "FileNotFoundError");
    ndp_str_release(&c.text);
}

static void a_record_beyond_the_limit_has_its_row(void **state) {
    size_t n = NDP_RECORD_BYTES * 3;
    if (!has_python())
        skip();
    char *text = malloc(n);
    assert_non_null(text);
    memset(text, 'x', n);
    memcpy(text, "text\na\n", 7);
    check_refused(*state, "a.csv", text, n, NDP_EFORMAT, "a.csv: row 2 (line 3): field larger than field limit");
    free(text);
    use_reader(*state, "#!/bin/sh\nprintf '{}\\n{\"text\": \"'; exec tr '\\0' x </dev/zero\n");
    check_refused(*state, "a.csv", "x", 1, NDP_EFORMAT, "a.csv: row 2: a record of more than 67108864 bytes");
}

static void heads(void **state) {
    size_t n;
    bool complete;
    if (!has_python())
        skip();
    char *rows, *path = write_file(*state, "a.csv", "t\na\nb\nc\n", 8);
    CHECK_OK(ndp_table_head(path, 2, SIZE_MAX, &rows, &n, &complete));
    assert_false(complete);
    free(rows);
    CHECK_OK(ndp_table_head(path, 3, SIZE_MAX, &rows, &n, &complete));
    assert_true(complete);
    assert_int_equal(n, 3 * strlen("{\"t\":\"a\"}\n"));
    free(rows);
    CHECK_OK(ndp_table_head(path, 0, 1, &rows, &n, &complete));
    assert_false(complete);
    assert_int_equal(n, strlen("{\"t\":\"a\"}\n"));
    free(rows);
    free(path);
}

/* Only as much of a reader that never ends is read as is asked for. */
static void a_head_ends_the_reader(void **state) {
    char *rows;
    size_t n;
    bool complete;
    use_reader(*state, "#!/bin/sh\nexec yes '{\"text\": \"a\"}'\n");
    CHECK_OK(ndp_table_head("a.csv", 100, 1000, &rows, &n, &complete));
    assert_false(complete);
    assert_in_range(n, 1000, 1100);
    free(rows);
}

/* ---- readers that misbehave ---- */

static void readers_that_misbehave(void **state) {
    static const struct {
        const char *script;
        const char *words;
    } bad[] = {
        {"printf '{}\\n{}\\n'; kill -9 $$",
         "a.csv: row 3: the program that reads tables was killed by signal 9 (Killed), before it had read all rows"},
        {"printf '{}\\n{\"text\": '; echo no luck >&2; exit 3",
         "row 2: the program that reads tables ended with exit code 3: no luck, before it had read"},
        {"printf '{}\\n'", "/reader) ended before it had read all rows"},
        {"printf '{}\\nend 1\\n'; exit 1", "a.csv: row 2: the program that reads tables ended with exit code 1"},
        {"printf '{}\\nend 2\\n'", "a.csv: its reader wrote 1 rows, but counted 2"},
        {"printf '{}\\nend 1\\n{}\\n'", "a.csv: its reader wrote more after the last row"},
        {"printf '{}\\nhello\\n'", "a.csv: row 2: its reader wrote 'hello', which is not a record"},
        {"printf '{}\\n\\n'", "a.csv: row 2: its reader wrote '', which is not a record"},
        {"printf '{}\\n'; exec sleep 6000", "has written nothing for 2 s, before it had read all rows"},
        {"printf '{}\\nend 1\\n'; exec >&- <&-; exec sleep 6000", "did not end within 10 s"},
    };
    for (int i = 0; i < NDP_COUNT(bad); i++) {
        char *script = ndp_format("#!/bin/sh\n%s\n", bad[i].script);
        double begin = ndp_now();
        collected c;
        use_reader(*state, script);
        int silence = strstr(bad[i].words, "has written nothing") ? SILENCE : SLOW;
        CHECK_FAILS(read_within(silence, "a.csv", 0, &c), NDP_EIO, bad[i].words);
        ndp_str_release(&c.text);
        assert_true(ndp_now() - begin < HANGS); /* the sleeper was not waited for */
        free(script);
    }
    use_reader(*state, "#!/bin/sh\nyes text | head -c 10000000 >&2; printf 'end 0\\n'\n");
    collected c;
    CHECK_OK(read_rows("a.csv", 0, &c)); /* whatever it says on stderr */
    setenv("NDP_PYTHON", "/nowhere/python", 1);
    CHECK_FAILS(read_rows("a.csv", 0, &c), NDP_EINVAL, "has no /nowhere/python: install it");
}

/* ---- Parquet and Arrow ---- */

static bool has_pyarrow(void) {
    if (!has_python())
        return false;
    char *command = ndp_format("%s -I -c 'import pyarrow' 2>/dev/null", ndp_python_interpreter());
    assert_non_null(command);
    bool has = system(command) == 0;
    free(command);
    if (!has)
        printf("SKIPPED: %s has no pyarrow\n", ndp_python_interpreter());
    return has;
}

static char *golden(const char *name) {
    const char *source = getenv("NDP_SOURCE_DIR");
    char *path = ndp_format("%s/tests/golden/tables/%s", source ? source : ".", name);
    assert_non_null(path);
    return path;
}

/* Both as parsed values, since spaces differ. */
static void check_same(const char *lines, const char *expected) {
    for (;;) {
        const char *end = strchr(lines, '\n'), *other = strchr(expected, '\n');
        assert_int_equal(end == NULL, other == NULL);
        if (!end)
            break;
        struct json_object *a, *b;
        CHECK_OK(ndp_json_parse(lines, (size_t)(end - lines), "rows", &a));
        CHECK_OK(ndp_json_parse(expected, (size_t)(other - expected), "expected", &b));
        assert_string_equal(json_object_to_json_string(a), json_object_to_json_string(b));
        json_object_put(a);
        json_object_put(b);
        lines = end + 1;
        expected = other + 1;
    }
}

static void parquet_and_arrow(void **state) {
    static const char *const pairs[][2] = {{"chat.parquet", "chat.jsonl"},
                                           {"chat.arrow", "chat.jsonl"},
                                           {"chat-file.arrow", "chat.jsonl"},
                                           {"types.parquet", "types.jsonl"}};
    (void)state;
    if (!has_pyarrow())
        skip();
    for (int i = 0; i < NDP_COUNT(pairs); i++) {
        char *path = golden(pairs[i][0]), *lines = golden(pairs[i][1]), *expected;
        size_t n;
        collected c;
        CHECK_OK(read_rows(path, 0, &c));
        CHECK_OK(ndp_file_read(lines, &expected, &n));
        check_same(c.text.data, expected);
        ndp_str_release(&c.text);
        CHECK_OK(read_rows(path, 1, &c));
        assert_int_equal(c.rows, 1);
        ndp_str_release(&c.text);
        free(expected);
        free(lines);
        free(path);
    }
}

static void damaged_parquet_and_arrow(void **state) {
    static const struct {
        const char *name;
        double part;
        const char *words;
    } bad[] = {{"chat.parquet", 0.5, "x.parquet: after row 0: "},
               {"chat.arrow", 0.6, "x.arrow: after row 13: "},
               {"chat-file.arrow", 0.5, "x.arrow: after row 0: "},
               {"image.parquet", 1, "x.parquet: the column 'image' is binary (struct<bytes: binary, path: string>)"}};
    if (!has_pyarrow())
        skip();
    for (int i = 0; i < NDP_COUNT(bad); i++) {
        char *path = golden(bad[i].name), *bytes;
        size_t n;
        CHECK_OK(ndp_file_read(path, &bytes, &n));
        check_refused(*state, ndp_ends_with(path, ".arrow") ? "x.arrow" : "x.parquet", bytes,
                      (size_t)((double)n * bad[i].part), NDP_EFORMAT, bad[i].words);
        free(bytes);
        free(path);
    }
}

/* ---- small files of large tables ---- */

/* Of the largest child so far, bytes. */
static int64_t peak_of_readers(void) {
    struct rusage u;
    getrusage(RUSAGE_CHILDREN, &u);
    return (int64_t)u.ru_maxrss << 10;
}

/* A table of some kilobytes may be gigabytes of rows: they are read one at a time, up to a limit, or the reader's
 * memory ends. */
static void tables_that_expand(void **state) {
    static const struct {
        const char *name, *words;
        int64_t readable; /* rows */
    } bombs[] = {{"dictionary.arrow", "rows are more than", 200},
                 {"struct.arrow", "rows are more than", 200},
                 {"runs.arrow", "rows are more than", 200},
                 {"dictionary.parquet", "rows are more than", 200},
                 {"prefixes.parquet", "rows are more than", 200},
                 {"nulls.arrow", "rows are more than", 100000},
                 {"row.arrow", "after row 0: the next one needs more memory than the", 0}};
    (void)state;
    if (!has_pyarrow())
        skip();
    for (int i = 0; i < NDP_COUNT(bombs); i++) {
        char *path = golden(bombs[i].name);
        collected c = {0};
        if (bombs[i].readable) {
            CHECK_OK(read_rows(path, bombs[i].readable, &c));
            assert_int_equal(c.rows, bombs[i].readable);
            ndp_str_release(&c.text);
        }
        CHECK_FAILS(read_rows(path, 0, &c), NDP_EFORMAT, bombs[i].words);
        ndp_str_release(&c.text);
        print_message("  %s: a reader took %lld MiB\n", bombs[i].name, (long long)peak_of_readers() >> 20);
        assert_true(peak_of_readers() < (bombs[i].readable ? (int64_t)512 << 20 : NDP_TABLE_MOST_MEMORY + (64 << 20)));
        free(path);
    }
}

/* Whatever the reader is: rows without end, and its share of the memory. */
static void what_a_reader_may_write_and_take(void **state) {
    collected c;
    char *end, *path = write_file(*state, "small.csv", "text\na\n", 7);
    use_reader(*state, "#!/bin/sh\nexec yes '{\"text\":null}'\n");
    CHECK_FAILS(read_rows(path, 0, &c), NDP_EFORMAT,
                "bytes of text; beyond 64 MiB a table may expand 1000 times. If these are really data");
    assert_true(c.text.length <= (size_t)NDP_TABLE_ALLOWANCE + 7 * NDP_TABLE_RATIO);
    ndp_str_release(&c.text);
    use_reader(*state, "#!/bin/sh\neval memory=\\${$#}\necho \"{$memory\"\necho end 1\n");
    int64_t before = 0;
    for (int readers = 1; readers <= 1 << 20; readers *= 1024) {
        const ndp_table_sink sink = {put, end_row, &c};
        int64_t rows;
        c = (collected){0};
        CHECK_OK(ndp_table_read(path, 0, SLOW, readers, &sink, &rows));
        int64_t memory = strtoll(c.text.data + 1, &end, 10);
        assert_in_range(memory, NDP_TABLE_LEAST_MEMORY, NDP_TABLE_MOST_MEMORY);
        assert_true(readers == 1 || memory <= before);
        before = memory;
        ndp_str_release(&c.text);
    }
    assert_int_equal(before, NDP_TABLE_LEAST_MEMORY);
    free(path);
}

static double seconds_of(int who) {
    struct rusage u;
    getrusage(who, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) + 1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

/* Of this process and the readers that have ended, seconds of a core. */
static double work_so_far(void) { return seconds_of(RUSAGE_SELF) + seconds_of(RUSAGE_CHILDREN); }

static void many_columns(void **state) {
    enum { COLUMNS = 150000 };
    ndp_str text = {0};
    if (!has_python())
        skip();
    for (int i = 0; i < COLUMNS; i++)
        ndp_str_addf(&text, "%sc%d", i ? "," : "", i);
    ndp_str_addf(&text, "\n%0*d\n", COLUMNS - 1, 0);
    memset(strchr(text.data, '\n') + 1, ',', COLUMNS - 1);
    char *path = write_file(*state, "wide.csv", text.data, text.length);
    collected c;
    double begin = work_so_far();
    CHECK_OK(read_rows(path, 0, &c));
    assert_int_equal(c.rows, 1);
    assert_true(work_so_far() - begin < 20);
    ndp_str_release(&c.text);
    ndp_str_addf(&text, "\n");
    memcpy(strstr(text.data, "c149999"), "c77,xyz", 7); /* one column more, with the name of another */
    free(path);
    path = write_file(*state, "wide.csv", text.data, text.length);
    CHECK_FAILS(read_rows(path, 0, &c), NDP_EFORMAT, "wide.csv: two columns are named 'c77'");
    ndp_str_release(&c.text);
    ndp_str_release(&text);
    free(path);
}

int main(void) {
    const char *python = getenv("NDP_PYTHON");
    own_python = python ? strdup(python) : NULL;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(csv_files),
        cmocka_unit_test(csv_files_that_are_refused),
        cmocka_unit_test(a_record_beyond_the_limit_has_its_row),
        cmocka_unit_test(heads),
        cmocka_unit_test(a_head_ends_the_reader),
        cmocka_unit_test(readers_that_misbehave),
        cmocka_unit_test(parquet_and_arrow),
        cmocka_unit_test(damaged_parquet_and_arrow),
        cmocka_unit_test(many_columns),
        cmocka_unit_test(what_a_reader_may_write_and_take),
        cmocka_unit_test(tables_that_expand),
    };
    int failed = cmocka_run_group_tests(tests, make_folder, remove_folder);
    free(own_python);
    return failed;
}
