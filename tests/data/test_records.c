/* Records, compressed files, files of ids, folders: from files on the disk to what a token cache holds. */
#include "data/cache/cache.h"
#include "data/corpus/encode.h"
#include "data/corpus/files.h"
#include "data/corpus/source.h"
#include "data/corpus/unpack.h"

#include "data/record_files.h"
#include <archive.h>
#include <archive_entry.h>
#include <sys/stat.h>

/* ---- records ---- */

static void conversations_learn_what_the_assistant_wrote(void **state) {
    const fixture *f = *state;
    static const char TWO[] =
        "{\"messages\":[{\"role\":\"user\",\"content\":\"ab\"},{\"role\":\"assistant\",\"content\":\"c\"},"
        "{\"role\":\"user\",\"content\":\"d\"},{\"role\":\"assistant\",\"content\":\"\"}]}\n"
        "{\"text\":\"zz\"}\n";
    CHECK_FILE(f, "a.jsonl", TWO, ((ndp_record_format){.chat = &f->plain}), "<s>ab/[c</s>]d/[</s>] [<s>zz] | 2");
    CHECK_FILE(f, "a.jsonl", TWO, ((ndp_record_format){.chat = &f->plain, .train_all = true}),
               "[<s>ab/c</s>d/</s>] [<s>zz] | 2");
}

/* LLaMA-Factory's turns end with the line break. */
static void turns_end_with_their_line_breaks(void **state) {
    const fixture *f = *state;
    static const char TWO[] =
        "{\"messages\":[{\"role\":\"user\",\"content\":\"ab\"},{\"role\":\"assistant\",\"content\":"
        "\"c\"},{\"role\":\"user\",\"content\":\"d\"},{\"role\":\"assistant\",\"content\":\"e\"}]}";
    ndp_chat chat;
    CHECK_OK(ndp_chat_init(&chat, f->t, f->folder, "chatml", NULL));
    CHECK_FILE(f, "a.jsonl", TWO, ((ndp_record_format){.chat = &chat, .train_turn = true}),
               "<|im_start|>user/ab<|im_end|>/<|im_start|>assistant/[c<|im_end|>/]<|im_start|>user/d<|im_end|>/"
               "<|im_start|>assistant/[e<|im_end|>/] | 1");
    CHECK_FILE(f, "a.jsonl", TWO, ((ndp_record_format){.chat = &f->plain, .train_turn = true}),
               "<s>ab/[c</s>]d/[e</s>] | 1");
    ndp_chat_release(&chat);
}

static void instructions_are_questions_and_answers(void **state) {
    const fixture *f = *state;
    static const char RECORDS[] =
        "{\"instruction\":\"a\",\"input\":\"b\",\"response\":\"c\"}\n"
        "{\"instruction\":\"a\",\"input\":\"\",\"output\":\"c\"}\n{\"instruction\":\"\",\"output\":\"\"}";
    CHECK_FILE(f, "a.jsonl", RECORDS, ((ndp_record_format){.chat = &f->plain}),
               "<s>a//b/[c</s>] <s>a/[c</s>] <s>/[</s>] | 3");
    CHECK_FILE(f, "a.jsonl", "{\"question\":\"q\",\"answer\":\"a\",\"text\":1}",
               ((ndp_record_format){
                   .kind = NDP_RECORD_INSTRUCTION, .prompt = "question", .response = "answer", .chat = &f->plain}),
               "<s>q/[a</s>] | 1");
    CHECK_FILE(f, "a.json", "[{\"text\":\"a\"},\n{\"instruction\":\"a\",\"output\":\"c\"}]",
               ((ndp_record_format){.chat = &f->plain}), "[<s>a] <s>a/[c</s>] | 2");
    CHECK_FILE(f, "a.jsonl", RECORDS, ((ndp_record_format){.chat = &f->plain, .separator = "-"}),
               "<s>a-b/[c</s>] <s>a/[c</s>] <s>/[</s>] | 3");
}

/* LLaMA-Factory's form: earlier turns, of which the answers are also trained on, and what the system says. */
static void instructions_with_turns_before(void **state) {
    const fixture *f = *state;
    const ndp_record_format chat = {.chat = &f->plain};
    CHECK_FILE(f, "a.jsonl",
               "{\"instruction\":\"a\",\"input\":\"\",\"output\":\"c\",\"system\":\"s\",\"history\":[[\"x\",\"y\"],"
               "[\"v\",\"w\"]]}",
               chat, "<s>s/x/[y</s>]v/[w</s>]a/[c</s>] | 1");
    CHECK_FILE(f, "a.jsonl",
               "{\"instruction\":\"a\",\"output\":\"c\",\"system\":\"\",\"history\":[]}\n"
               "{\"instruction\":\"a\",\"output\":\"c\",\"system\":null,\"history\":null}",
               chat, "<s>a/[c</s>] <s>a/[c</s>] | 2");
    static const char BROKEN[] = "{\"instruction\":\"a\",\"output\":\"c\",\"history\":[[\"x\"]]}",
                      OTHER[] = "{\"instruction\":\"a\",\"output\":\"c\",\"history\":\"x\"}";
    check_refused(f, "a.jsonl", BROKEN, strlen(BROKEN), chat, NDP_EFORMAT,
                  "turn 1 of 'history' is [ \"x\" ], expected [");
    check_refused(f, "a.jsonl", OTHER, strlen(OTHER), chat, NDP_EFORMAT, "'history' is not a list of earlier turns");
    /* The same beside messages, which may begin with their own. */
    CHECK_FILE(
        f, "a.jsonl",
        "{\"system\":\"s\",\"messages\":[{\"from\":\"human\",\"value\":\"a\"},{\"from\":\"gpt\",\"value\":\"c\"}]}\n"
        "{\"system\":\"s\",\"messages\":[{\"role\":\"system\",\"content\":\"t\"},{\"role\":\"user\",\"content\":\"a\"},"
        "{\"role\":\"assistant\",\"content\":\"c\"}]}",
        chat, "<s>s/a/[c</s>] <s>t/a/[c</s>] | 2");
    ndp_record_format dropping = chat; /* both kinds; a later one stays */
    dropping.drop_system = true;
    CHECK_FILE(
        f, "a.jsonl",
        "{\"system\":\"s\",\"messages\":[{\"from\":\"human\",\"value\":\"a\"},{\"from\":\"gpt\",\"value\":\"c\"}]}\n"
        "{\"messages\":[{\"role\":\"system\",\"content\":\"t\"},{\"role\":\"user\",\"content\":\"a\"},"
        "{\"role\":\"system\",\"content\":\"u\"},{\"role\":\"assistant\",\"content\":\"c\"}]}",
        dropping, "<s>a/[c</s>] <s>a/u/[c</s>] | 2");
}

/* A template without a break between the turns: a word may lie across the border. It belongs to what comes behind. */
static void words_across_a_border(void **state) {
    const fixture *f = *state;
    static const struct {
        const char *text;
        ndp_range spans[2];
        int n;
        int64_t want[4];
    } cases[] = {
        {"ax", {{1, 2}}, 1, {1, 2}},                   /* a x */
        {"axya", {{2, 4}}, 1, {1, 3}},                 /* a xy a: the turn begins with y */
        {"axya", {{1, 2}}, 1, {1, 1}},                 /* it ends with x: the word goes to the next */
        {"axya", {{0, 2}}, 1, {0, 1}},                 /* */
        {"<s>xy</s>xy", {{3, 9}}, 1, {1, 3}},          /* special tokens are never cut */
        {"xyxyxy", {{1, 3}, {5, 6}}, 2, {0, 1, 2, 3}}, /* both borders inside of words */
        {"a<|end|>b<|end|>", {{1, 8}, {9, 16}}, 2, {1, 2, 3, 4}},
    };
    for (int i = 0; i < NDP_COUNT(cases); i++) {
        ndp_ids ids = {0}, whole = {0};
        ndp_places borders = {0};
        ndp_document d = {.text = cases[i].text,
                          .n = strlen(cases[i].text),
                          .rendered = true,
                          .partly = true,
                          .spans = cases[i].spans,
                          .n_spans = cases[i].n};
        CHECK_OK(ndp_ids_add(&ids, 7)); /* what is there already stays */
        CHECK_OK(ndp_encode_document(f->t, &d, NULL, &ids, &borders, NULL));
        CHECK_OK(ndp_tokenizer_encode(f->t, d.text, d.n, false, &whole));
        assert_int_equal(ids.n, whole.n + 1);
        assert_memory_equal(ids.items + 1, whole.items, (size_t)whole.n * sizeof *whole.items);
        assert_int_equal(borders.n, 2 * cases[i].n);
        for (int k = 0; k < 2 * cases[i].n; k++)
            if (borders.items[k] != cases[i].want[k] + 1)
                fail_msg("case %d: border %d is %lld, expected %lld", i, k, (long long)borders.items[k] - 1,
                         (long long)cases[i].want[k]);
        ndp_ids_release(&ids);
        ndp_ids_release(&whole);
        free(borders.items);
    }
}

static void broken_records_name_the_place(void **state) {
    const fixture *f = *state;
    ndp_record_format chat = {.chat = &f->plain}, texts = {.chat = NULL};
#define TURN(role, content) "{\"role\":" role ",\"content\":" content "}"
    static const struct {
        const char *contents, *says;
    } cases[] = {
        {"{\"text\":\"a\"}\n{\"txt\":1}",
         "a.jsonl:2: the record has no 'text', 'messages' or 'instruction'; it has: txt"},
        {"{\"conversations\":[]}", "a.jsonl:1: 'conversations' is not a list of messages"},
        {"{\"conversations\":[],\"chosen\":\"a\",\"rejected\":\"b\"}",
         "it has: conversations, chosen, rejected. data.format: preference, with a loss of pairs"},
        {"{\"prompt\":\"\",\"completion\":\"\"}", "a.jsonl:1: 'completion' is empty, so there is nothing to train on"},
        {"{\"prompt\":[],\"completion\":\"a\"}", "a.jsonl:1: message 1 of 'completion' is not an object"},
        {"{\"prompt\":\"a\",\"completion\":[]}", "a.jsonl:1: 'completion' is not a string"},
        {"{\"segments\":[]}", "data.format: input_output reads 'segments'"},
        {"{\"messages\":[]}", "a.jsonl:1: 'messages' is not a list of messages"},
        {"{\"messages\":{}}", "a.jsonl:1: 'messages' is not a list of messages"},
        {"{\"messages\":[1]}", "a.jsonl:1: message 1 is not an object"},
        {"{\"messages\":[" TURN("\"\"", "\"\"") "]}", "a.jsonl:1: message 1 has the role ''; roles are system, user"},
        {"{\"messages\":[" TURN("\"bot\"", "\"\"") "]}", "message 1 has the role 'bot'"},
        {"{\"messages\":[" TURN("\"user\\u0000\"", "\"\"") "]}", "message 1 has the role 'user'"},
        {"{\"messages\":[" TURN("7", "\"\"") "]}", "message 1 has no 'role' that is a string"},
        {"{\"messages\":[{\"content\":\"\"}]}", "message 1 has no 'role' that is a string"},
        {"{\"messages\":[" TURN("\"user\"", "null") "]}", "message 1 has no 'content' that is a string"},
        {"{\"messages\":[" TURN("\"user\"", "[]") "]}", "message 1 has no 'content' that is a string"},
        {"{\"messages\":[" TURN("\"user\"", "\"a\"") "]}",
         "a.jsonl:1: the conversation has no message of the assistant"},
        {"{\"instruction\":\"a\"}", "a.jsonl:1: the record has no 'response' or 'output'"},
        {"{\"instruction\":1,\"output\":\"\"}", "a.jsonl:1: 'instruction' is not a string"},
        {"[]", "a.jsonl:1: the record is not an object"},
    };
    for (int i = 0; i < NDP_COUNT(cases); i++)
        check_refused(f, "a.jsonl", cases[i].contents, strlen(cases[i].contents), chat, NDP_EFORMAT, cases[i].says);
    static const char TOOLS[] = "{\"messages\":[{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{}]}]}";
    check_refused(f, "a.jsonl", TOOLS, strlen(TOOLS), chat, NDP_EFORMAT,
                  "a.jsonl:1: the conversation has tools, which the built-in chat template");
    static const char CHAT[] = "{\"messages\":[" TURN("\"assistant\"", "\"a\"") "]}";
    check_refused(f, "a.jsonl", CHAT, strlen(CHAT), texts, NDP_ENOTSUP, "a.jsonl:1: the record is a conversation");
    check_refused(f, "a.json", "[{\"text\":\"a\"},{}]", 17, texts, NDP_EFORMAT, "a.json: record 2: the record has no");
    check_refused(f, "a.json", "{}", 2, texts, NDP_EFORMAT, "not a list of records");
}

/* What others write besides strings: parts of a text, and fields that say nothing. */
static void messages_of_other_programs(void **state) {
    const fixture *f = *state;
    ndp_record_format chat = {.chat = &f->plain};
    static const struct {
        const char *contents, *says; /* says NULL: as the plain record */
    } cases[] = {
        {"{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},{\"text\":\"b\"}]},"
         "{\"role\":\"assistant\",\"content\":[{\"type\":\"text\",\"text\":\"c\"}]}]}",
         NULL},
        {"{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"value\":\"ab\"}]},"
         "{\"role\":\"assistant\",\"content\":[{\"type\":\"text\",\"value\":\"c\"}]}]}",
         NULL},
        {"{\"messages\":[{\"role\":\"user\",\"content\":\"ab\",\"tool_calls\":[]},"
         "{\"role\":\"assistant\",\"content\":\"c\",\"tool_calls\":null,\"reasoning_content\":null}]}",
         NULL},
        {"{\"messages\":[{\"from\":\"human\",\"value\":\"ab\"},{\"from\":\"gpt\",\"value\":\"c\"}]}", NULL},
        {"{\"messages\":[{\"from\":\"human\",\"content\":\"ab\"}]}",
         "a.jsonl:1: message 1 has no 'value' that is a string or a list of texts"},
        {"{\"messages\":[{\"from\":\"critic\",\"value\":\"ab\"}]}", "a.jsonl:1: message 1 has the role 'critic'"},
        {"{\"messages\":[" TURN("\"user\"", "[{\"type\":\"text\",\"text\":\"a\"},{\"type\":\"image_url\"}]") "]}",
         "a.jsonl:1: part 2 of the content of message 1 is of the type 'image_url'; only parts of the type 'text'"},
        {"{\"messages\":[" TURN("\"user\"", "[\"a\"]") "]}", "part 1 of the content of message 1 is not an object"},
        {"{\"messages\":[" TURN("\"user\"", "[{\"type\":\"text\"}]") "]}", "a.jsonl:1: 'text' is not a string"},
        {"{\"messages\":[" TURN("\"user\"", "{}") "]}",
         "a.jsonl:1: message 1 has no 'content' that is a string or a list of texts"},
    };
    static const char PLAIN[] = "{\"messages\":[" TURN("\"user\"", "\"ab\"") "," TURN("\"assistant\"", "\"c\"") "]}";
    char *want = words_of_file(f, PLAIN, strlen(PLAIN), chat);
    for (int i = 0; i < NDP_COUNT(cases); i++) {
        const char *contents = cases[i].contents;
        if (cases[i].says) {
            ndp_status status = strstr(cases[i].says, "part ") ? NDP_ENOTSUP : NDP_EFORMAT;
            check_refused(f, "a.jsonl", contents, strlen(contents), chat, status, cases[i].says);
        } else {
            check_file(f, "a.jsonl", contents, strlen(contents), chat, want);
        }
    }
    free(want);
}

/* Bytes that are not a text, or not quite. */
static void bytes_of_other_programs(void **state) {
    const fixture *f = *state;
    const ndp_record_format texts = {.chat = NULL};
    CHECK_FILE(f, "a.txt",
               "\xef\xbb\xbf"
               "ab",
               texts, "[<s>ab] | 1");
    CHECK_FILE(f, "a.txt", "\xef\xbb\xbf<|endoftext|>\nab\n<|endoftext|>\nc", texts, "[<s>ab] [<s>c] | 2");
    CHECK_FILE(f, "a.jsonl", "\xef\xbb\xbf{\"text\":\"ab\"}\r\n{\"text\":\"c\"}\r\n", texts, "[<s>ab] [<s>c] | 2");
    CHECK_FILE(f, "a.json", "\xef\xbb\xbf[{\"text\":\"ab\"}]", texts, "[<s>ab] | 1");
    check_file(f, "a.txt", "abc\0d", 5, texts, "[<s>abc0d] | 1");
    check_refused(f, "a.txt",
                  "\xef\xbb\xbf"
                  "ab\n\xff",
                  7, texts, NDP_EFORMAT, "a.txt:2: byte 6 of the file (0xff)");
    check_refused(f, "a.txt", "a\0b\0", 4, texts, NDP_EFORMAT, "a.txt: looks like UTF-16");
    check_refused(f, "a.txt", "\0a\0b", 4, texts, NDP_EFORMAT, "a.txt: looks like UTF-16");
    check_refused(f, "a.txt",
                  "\xff\xfe"
                  "a\0",
                  4, texts, NDP_EFORMAT, "a.txt:1: byte 0 of the file (0xff)");
    check_refused(f, "a.jsonl", "{\"text\":\"a\0\"}", 13, texts, NDP_EFORMAT,
                  "a.jsonl:1: a control character in JSON text, at byte 11");
    check_refused(f, "a.jsonl", "{\"text\":\"ok\"}\n{\"text\":\"\xff\"}", 26, texts, NDP_EFORMAT,
                  "a.jsonl:2: not valid UTF-8, at byte 10");
}

/* A tokenizer with more tokens than the model is fine as long as none of them is needed. */
static void ids_that_the_model_has_not(void **state) {
    const fixture *f = *state;
    char *file = write_file(f->folder, "a.jsonl", "{\"text\":\"ab\"}\n{\"text\":\"xy\"}\n", 28), *path = NULL;
    ndp_dataset_options o = {
        .files = (const char *const[]){file}, .n_files = 1, .cache_dir = f->folder, .tokenizer = f->t, .vocab = 259};
    CHECK_FAILS(
        ndp_dataset_prepare(&o, &path), NDP_EINVAL,
        "a.jsonl:2: the text has the token 259, the model's vocabulary ends at 258: the tokenizer does not belong");
    o.vocab = 260;
    check_cache(f, o, "[<s>ab] [<s>xy] | 2");
    free(file);
}

/* A line of 200 MB is not a record; as a text it is a document like any other. */
static void a_line_of_200_megabytes(void **state) {
    const fixture *f = *state;
    size_t n = 200u << 20;
    char *text = malloc(n + 32);
    assert_non_null(text);
    memcpy(text, "{}\n{\"text\":\"", 12);
    memset(text + 12, 'a', n);
    memcpy(text + 12 + n, "\"}\n", 3);
    char *file = write_file(f->folder, "a.jsonl", text, 12 + n + 3), *path = NULL;
    ndp_dataset_options o = {
        .files = (const char *const[]){file}, .n_files = 1, .cache_dir = f->folder, .tokenizer = f->t};
    o.format.kind = NDP_RECORD_TEXT;
    memcpy(text, "{\"text\":1}\n\n", 12);
    CHECK_FAILS(ndp_dataset_prepare(&o, &path), NDP_EFORMAT, "a.jsonl:1: the record has no 'text'");
    free(file);
    memcpy(text, "\n\n\n{\"text\":\"", 12);
    file = write_file(f->folder, "b.jsonl", text, 12 + n + 3);
    o.files = (const char *const[]){file};
    CHECK_FAILS(ndp_dataset_prepare(&o, &path), NDP_EFORMAT,
                "b.jsonl:4: a record of 209715211 bytes; at most 67108864 are read");
    free(file);
    free(text);
}

/* What is trained on of real conversations, under real tokenizers, is what the assistant says and nothing else. */
static void check_answers(const fixture *f, const char *root, const char *tokenizer_folder, const char *name,
                          const char *end) {
    char *folder = ndp_format("%s/%s", root, tokenizer_folder), *path, *text, *cache;
    char *file = ndp_format("%s/corpora/gsm8k_train_chat.jsonl", root);
    size_t size;
    ndp_tokenizer *t;
    ndp_chat chat;
    ndp_token_cache c;
    CHECK_OK(ndp_tokenizer_create(folder, &t));
    CHECK_OK(ndp_chat_init(&chat, t, folder, name, NULL));
    CHECK_OK(ndp_file_read(file, &text, &size));
    size_t few = 0;
    for (int lines = 0; lines < 300; few++)
        lines += text[few] == '\n';
    path = write_file(f->folder, "few.jsonl", text, few);
    ndp_dataset_options o = {.files = (const char *const[]){path},
                             .n_files = 1,
                             .format = {.chat = &chat},
                             .cache_dir = f->folder,
                             .tokenizer = t};
    CHECK_OK(ndp_dataset_prepare(&o, &cache));
    CHECK_OK(ndp_token_cache_open(cache, &c));
    assert_int_equal(c.n_documents, 300);
    const char *line = text;
    for (int64_t d = 0; d < c.n_documents; d++) {
        struct json_object *record, *message;
        ndp_ids ids = {0};
        ndp_str got = {0}, want = {0};
        size_t n = strcspn(line, "\n");
        CHECK_OK(ndp_json_parse(line, n, "a record", &record));
        message = json_object_array_get_idx(json_object_object_get(record, "messages"), 1);
        ndp_str_addf(&want, "%s%s", json_object_get_string(json_object_object_get(message, "content")), end);
        for (int64_t i = (int64_t)c.offsets[d]; i < (int64_t)c.offsets[d + 1]; i++)
            if (ndp_token_cache_trained(&c, i))
                CHECK_OK(ndp_ids_add(&ids, ndp_token_cache_id(&c, i)));
        CHECK_OK(ndp_tokenizer_decode(t, ids.items, ids.n, false, &got));
        assert_string_equal(got.data, want.data);
        json_object_put(record);
        ndp_ids_release(&ids);
        ndp_str_release(&got);
        ndp_str_release(&want);
        line += n + 1;
    }
    ndp_token_cache_close(&c);
    ndp_chat_release(&chat);
    ndp_tokenizer_destroy(t);
    free(cache);
    free(path);
    free(text);
    free(file);
    free(folder);
}

static void answers_of_real_conversations(void **state) {
    const char *root = getenv("NDP_TEST_DATA");
    if (!root) {
        print_message("SKIPPED: NDP_TEST_DATA is not set: no conversations to read\n");
        return;
    }
    check_answers(*state, root, "tokenizers/qwen2.5", NULL, "<|im_end|>");
    check_answers(*state, root, "tokenizers/smollm2", "chatml", "<|im_end|>");
    check_answers(*state, root, "models/stories15M", "plain", "</s>");
}

/* ---- files of ids ---- */

typedef struct bin {
    unsigned char bytes[2048];
    size_t n;
} bin;

static void put32(bin *b, uint32_t v) {
    for (int i = 0; i < 4; i++)
        b->bytes[b->n++] = (unsigned char)(v >> 8 * i);
}

static bin make_bin(uint32_t magic, uint32_t version, uint32_t told, int width, const uint32_t *ids, int n) {
    bin b = {.n = 0};
    if (magic) {
        put32(&b, magic);
        put32(&b, version);
        put32(&b, told);
        b.n = 1024;
    }
    for (int i = 0; i < n; i++) {
        put32(&b, ids[i]);
        b.n -= (size_t)(4 - width);
    }
    return b;
}

static void check_bin(const fixture *f, bin b, int id_bytes, const char *want) {
    char *file = write_file(f->folder, "a.bin", (const char *)b.bytes, b.n);
    check_cache(f, (ndp_dataset_options){.files = (const char *const[]){file}, .n_files = 1, .bin_id_bytes = id_bytes},
                want);
    free(file);
}

static void ids_with_and_without_a_header(void **state) {
    const fixture *f = *state;
    static const uint32_t begun[] = {256, 'a', 'b', 256, 256, 'c'}, ended[] = {'a', 'b', 257, 'c', 257, 257, 'd'};
    check_bin(f, make_bin(0, 0, 0, 2, begun, 6), 0, "[<s>ab] [<s>] [<s>c] | 3");
    check_bin(f, make_bin(0, 0, 0, 4, begun, 6), 4, "[<s>ab] [<s>] [<s>c] | 3");
    check_bin(f, make_bin(20240520, 1, 6, 2, begun, 6), 4, "[<s>ab] [<s>] [<s>c] | 3");
    check_bin(f, make_bin(20240801, 7, 6, 4, begun, 6), 0, "[<s>ab] [<s>] [<s>c] | 3");
    check_bin(f, make_bin(0, 0, 0, 2, ended, 7), 2, "[ab</s>] [c</s>] [</s>] [d] | 4");
}

static void broken_files_of_ids(void **state) {
    const fixture *f = *state;
    static const uint32_t ids[] = {'a', 'b', 262};
    static const struct {
        uint32_t magic, version, told;
        int n, cut;
        const char *says;
    } cases[] = {
        {0, 0, 0, 3, 0, "a.bin: token 2, at byte 4 of the file, is the id 262; the vocabulary ends at 261"},
        {20240520, 1, 3, 3, 0, "a.bin: token 2, at byte 1028 of the file, is the id 262"},
        {0, 0, 0, 2, 1, "a.bin: 3 bytes are not a whole number of 16-bit ids"},
        {20240801, 7, 2, 2, 1, "a.bin: 7 bytes are not a whole number of 32-bit ids"},
        {20240520, 1, 3, 2, 0, "a.bin: the header says 3 tokens, the file has 2"},
        {20240520, 2, 2, 2, 0, "a.bin: the header says version 2; only version 1 is supported"},
    };
    for (int i = 0; i < NDP_COUNT(cases); i++) {
        bin b = make_bin(cases[i].magic, cases[i].version, cases[i].told, cases[i].magic == 20240801 ? 4 : 2, ids,
                         cases[i].n);
        check_refused(f, "a.bin", (const char *)b.bytes, b.n - (size_t)cases[i].cut, (ndp_record_format){0},
                      NDP_EFORMAT, cases[i].says);
    }
    static const uint32_t small[] = {1, 2, 3, 4, 5, 6, 7, 8, 9};
    bin narrow = make_bin(0, 0, 0, 4, small, 9); /* read as 16-bit ids they would be trained on */
    check_refused(f, "a.bin", (const char *)narrow.bytes, narrow.n, (ndp_record_format){0}, NDP_EFORMAT,
                  "a.bin: every second 16-bit id is 0: these are 32-bit ids; set data.bin_type: uint32");
    check_refused(f, "a.bin", "", 0, (ndp_record_format){0}, NDP_EINVAL, "the corpus is empty");
}

/* Shares end anywhere in a file of ids; documents do not. */
static void ids_in_many_shares(void **state) {
    const fixture *f = *state;
    enum { N = 3 << 20 };
    uint16_t *ids = malloc(N * sizeof *ids);
    char *file, *path;
    ndp_token_cache c;
    for (int i = 0; i < N; i++)
        ids[i] = i % 1000 == 999 ? 257 : (uint16_t)(i % 251);
    file = write_file(f->folder, "a.bin", (const char *)ids, N * sizeof *ids);
    ndp_dataset_options o = {
        .files = (const char *const[]){file}, .n_files = 1, .cache_dir = f->folder, .tokenizer = f->t, .threads = 3};
    CHECK_OK(ndp_dataset_prepare(&o, &path));
    CHECK_OK(ndp_token_cache_open(path, &c));
    assert_int_equal(c.n_tokens, N);
    assert_int_equal(c.n_documents, (N + 999) / 1000);
    for (int64_t d = 0; d < c.n_documents; d++)
        assert_int_equal(c.offsets[d], 1000 * d);
    for (int64_t i = 0; i < N; i++)
        if (ndp_token_cache_id(&c, i) != ids[i])
            fail_msg("token %lld is %d, expected %d", (long long)i, ndp_token_cache_id(&c, i), ids[i]);
    ndp_token_cache_close(&c);
    free(path);
    free(file);
    free(ids);
}

/* ---- compressed files ---- */

/* Packs a text as FOLDER/name, by the library that reads it. */
static char *pack(const char *folder, const char *name, int (*filter)(struct archive *), const char *text, size_t n) {
    char *path = ndp_format("%s/%s", folder, name);
    struct archive *a = archive_write_new();
    struct archive_entry *e = archive_entry_new();
    assert_int_equal(filter(a), ARCHIVE_OK);
    assert_int_equal(archive_write_set_format_raw(a), ARCHIVE_OK);
    assert_int_equal(archive_write_open_filename(a, path), ARCHIVE_OK);
    archive_entry_set_filetype(e, AE_IFREG);
    assert_int_equal(archive_write_header(a, e), ARCHIVE_OK);
    assert_int_equal(archive_write_data(a, text, n), (la_ssize_t)n);
    archive_entry_free(e);
    assert_int_equal(archive_write_close(a), ARCHIVE_OK);
    archive_write_free(a);
    return path;
}

static void compressed_files(void **state) {
    const fixture *f = *state;
    static const char TEXT[] = "{\"text\":\"ab\"}\n{\"text\":\"c\"}\n";
    static const struct {
        const char *name;
        int (*filter)(struct archive *);
        const char *behind; /* what is said of a line of text after the end */
    } kinds[] = {{"a.jsonl.gz", archive_write_add_filter_gzip, "the last 13 bytes, after the end of the .gz data"},
                 {"a.jsonl.zst", archive_write_add_filter_zstd, ": not a whole "},
                 {"a.JSONL.XZ", archive_write_add_filter_xz, ": not a whole "}};
    for (int i = 0; i < NDP_COUNT(kinds); i++) {
        char *path = pack(f->folder, kinds[i].name, kinds[i].filter, TEXT, strlen(TEXT)), *packed, *cache = NULL;
        size_t n;
        ndp_dataset_options o = {
            .files = (const char *const[]){path}, .n_files = 1, .cache_dir = f->folder, .tokenizer = f->t};
        check_cache(f, o, "[<s>ab] [<s>c] | 2");
        CHECK_OK(ndp_file_read(path, &packed, &n));
        check_refused(f, "unpacked.jsonl", packed, n, (ndp_record_format){0}, NDP_EFORMAT, ": not valid UTF-8");
        ndp_str longer = {0};
        ndp_str_add_bytes(&longer, packed, n);
        ndp_str_add(&longer, "{\"text\":\"d\"}\n");
        free(write_file(f->folder, kinds[i].name, longer.data, longer.length));
        CHECK_FAILS(ndp_dataset_prepare(&o, &cache), NDP_EFORMAT, kinds[i].behind);
        char *contents = NULL; /* unchanged on failure: there is nothing to free */
        size_t length = 0;
        CHECK_FAILS(ndp_unpack(path, longer.data, longer.length, &contents, &length), NDP_EFORMAT, kinds[i].behind);
        assert_true(!contents && !length);
        ndp_str_release(&longer);
        free(write_file(f->folder, kinds[i].name, packed, n - 5)); /* cut short */
        CHECK_FAILS(ndp_dataset_prepare(&o, &cache), NDP_EFORMAT, "not a whole ");
        free(write_file(f->folder, kinds[i].name, TEXT, strlen(TEXT)));
        CHECK_FAILS(ndp_dataset_prepare(&o, &cache), NDP_EFORMAT, "not a whole ");
        free(write_file(f->folder, kinds[i].name, "", 0));
        CHECK_FAILS(ndp_dataset_prepare(&o, &cache), NDP_EFORMAT, "not a whole ");
        assert_null(cache);
        free(pack(f->folder, kinds[i].name, kinds[i].filter, "", 0));
        CHECK_FAILS(ndp_dataset_prepare(&o, &cache), NDP_EINVAL, "the corpus is empty");
        free(packed);
        free(path);
    }
}

/* ---- folders and patterns ---- */

static void folders_and_patterns(void **state) {
    const fixture *f = *state;
    char *root = ndp_format("%s/data", f->folder), *below = ndp_format("%s/sub", root), *cache = NULL;
    char *pattern = ndp_format("%s/*.txt", root), *none = ndp_format("%s/*.bin", root),
         *empty = ndp_format("%s/empty", root);
    CHECK_OK(ndp_folder_create(below));
    CHECK_OK(ndp_folder_create(empty));
    free(write_file(root, "b.txt", "b", 1));
    free(write_file(root, "a.txt", "a", 1));
    free(write_file(root, ".hidden.txt", "h", 1));
    free(write_file(root, "picture.png", "p", 1));
    free(write_file(below, "c.jsonl", "{\"text\":\"c\"}", 12));
    ndp_file_list l = {0};
    CHECK_OK(ndp_file_list_add(&l, root, NULL, &(ndp_slice){0}));
    assert_int_equal(l.paths.n, 3);
    assert_int_equal(l.left_out, 1);
    ndp_strings_release(&l.paths);
    int64_t left_out = 0;
    check_cache(f, (ndp_dataset_options){.files = (const char *const[]){root}, .n_files = 1, .left_out = &left_out},
                "[<s>a] [<s>b] [<s>c] | 3");
    assert_int_equal(left_out, 1);
    check_cache(f, (ndp_dataset_options){.files = (const char *const[]){pattern, below}, .n_files = 2},
                "[<s>a] [<s>b] [<s>c] | 2 3");
    ndp_dataset_options o = {
        .files = (const char *const[]){none}, .n_files = 1, .cache_dir = f->folder, .tokenizer = f->t};
    CHECK_FAILS(ndp_dataset_prepare(&o, &cache), NDP_EINVAL, "no file matches '");
    o.files = (const char *const[]){empty};
    CHECK_FAILS(ndp_dataset_prepare(&o, &cache), NDP_EINVAL, "/empty' has no file whose name ends in");
    char *link = ndp_format("%s/up", below), *dangling = ndp_format("%s/gone.txt", root),
         *pipe = ndp_format("%s/pipe.txt", root);
    assert_int_equal(symlink("..", link), 0); /* the folder that it lies in: read once */
    check_cache(f, (ndp_dataset_options){.files = (const char *const[]){root}, .n_files = 1},
                "[<s>a] [<s>b] [<s>c] | 3");
    assert_int_equal(symlink("/no/such/file.txt", dangling), 0);
    o.files = (const char *const[]){root};
    CHECK_FAILS(ndp_dataset_prepare(&o, &cache), NDP_EINVAL, "/gone.txt': it is a link to a missing file");
    assert_int_equal(mkfifo(pipe, 0600), 0); /* it has no writer: opening it must not wait */
    o.files = (const char *const[]){pipe};
    CHECK_FAILS(ndp_dataset_prepare(&o, &cache), NDP_EIO, "/pipe.txt': it is a pipe, not a file");
    free(pipe);
    free(dangling);
    free(link);
    free(empty);
    free(none);
    free(pattern);
    free(below);
    free(root);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(conversations_learn_what_the_assistant_wrote),
        TEST(turns_end_with_their_line_breaks),
        TEST(instructions_are_questions_and_answers),
        TEST(instructions_with_turns_before),
        TEST(words_across_a_border),
        TEST(broken_records_name_the_place),
        TEST(messages_of_other_programs),
        TEST(bytes_of_other_programs),
        TEST(ids_that_the_model_has_not),
        TEST(a_line_of_200_megabytes),
        TEST(answers_of_real_conversations),
        TEST(ids_with_and_without_a_header),
        TEST(broken_files_of_ids),
        TEST(ids_in_many_shares),
        TEST(compressed_files),
        TEST(folders_and_patterns),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
