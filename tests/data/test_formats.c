/* Records in Axolotl's prompt formats: their text, and what of it is trained on. */
#include "data/corpus/encode.h"

#include "data/record_files.h"

#define TASK "Below is an instruction that describes a task"
#define RESPOND " Write a response that appropriately completes the request.//### Instruction:/"

/* With an end token, which ends texts. */
static void check_ended(const fixture *f, const char *contents, ndp_record_format format, const char *want) {
    const int32_t eos = ndp_tokenizer_eos(f->t);
    char *file = write_file(f->folder, "a.jsonl", contents, strlen(contents));
    check_cache(
        f,
        (ndp_dataset_options){.files = (const char *const[]){file}, .n_files = 1, .format = format, .end_token = &eos},
        want);
    free(file);
}

static void alpaca_learns_the_response(void **state) {
    const fixture *f = *state;
    ndp_record_format alpaca = {.kind = NDP_RECORD_ALPACA};
    check_ended(f, "{\"instruction\":\"Add.\",\"input\":\"1 2\",\"output\":\"3\"}", alpaca,
                "<s>" TASK ", paired with an input that provides further context." RESPOND
                "Add.//### Input:/1 2//### Response:/[3</s>] | 1");
    static const char NO_INPUT[] = "<s>" TASK "." RESPOND "Sing.//### Response:/[La la</s>] | 1";
    check_ended(f, "{\"instruction\":\"Sing.\",\"output\":\"La la\"}", alpaca, NO_INPUT);
    check_ended(f, "{\"instruction\":\"Sing.\",\"input\":\"\",\"output\":\"La la\"}", alpaca, NO_INPUT);
    check_ended(f, "{\"instruction\":\"Sing.\",\"input\":null,\"response\":\"La la\"}", alpaca, NO_INPUT);
    check_ended(f, "{\"instruction\":\"Sing.\",\"output\":\"La la</s>\"}", alpaca, NO_INPUT);
    alpaca.train_all = true;
    check_ended(f, "{\"instruction\":\"Sing.\",\"output\":\"La la\"}", alpaca,
                "[<s>" TASK "." RESPOND "Sing.//### Response:/La la</s>] | 1");
}

/* As Axolotl's prompters write them. */
static void alpaca_in_other_styles(void **state) {
    const fixture *f = *state;
#define RESPOND_TO " Write a response that appropriately completes the request."
#define PAIRED ", paired with an input that provides further context." RESPOND_TO
    static const char BOTH[] =
        "{\"instruction\":\"q\",\"input\":\"c\",\"output\":\"a\"}\n{\"instruction\":\"q\",\"output\":\"a\"}";
    static const struct {
        ndp_record_kind kind;
        const char *want;
    } of[] = {{NDP_RECORD_ALPACA_CHAT, "<s>SYSTEM: " TASK PAIRED "/USER: q/c/ASSISTANT:[a</s>] <s>SYSTEM: " TASK
                                       "." RESPOND_TO "/USER: q/ASSISTANT:[a</s>] | 2"},
              {NDP_RECORD_ALPACA_CHATML, "<s><|im_start|>system/" TASK PAIRED
                                         "<|im_end|>/<|im_start|>user/q/c<|im_end|>/<|im_start|>assistant/[a</s>] "
                                         "<s><|im_start|>system/" TASK "." RESPOND_TO
                                         "<|im_end|>/<|im_start|>user/q<|im_end|>/<|im_start|>assistant/[a</s>] | 2"},
              {NDP_RECORD_ALPACA_PHI,
               "<s><|system|>/" TASK PAIRED "<|end|>/<|user|>/q<|end|>c<|assistant|>[a</s>] <s><|system|>/" TASK
               "." RESPOND_TO "<|end|>/<|user|>/q<|end|>/<|assistant|>/[a</s>] | 2"}};
    for (int k = 0; k < NDP_COUNT(of); k++)
        check_ended(f, BOTH, (ndp_record_format){.kind = of[k].kind}, of[k].want);
}

static void jeopardy_asks_for_an_answer(void **state) {
    const fixture *f = *state;
    check_ended(
        f,
        "{\"question\":\"q\",\"category\":\"c\",\"answer\":\"a\",\"value\":1}\n{\"question\":\"q\",\"answer\":\"a\"}",
        (ndp_record_format){.kind = NDP_RECORD_JEOPARDY, .prompt = "instruction", .input = "input"},
        "<s>" TASK PAIRED "//### Instruction:/q//### Input:/c//### Response:/[what is a</s>] <s>" TASK "." RESPOND_TO
        "//### Instruction:/q//### Response:/[what is a</s>] | 2");
}

/* Ids with labels, padding on either side, and without labels; no token is added. */
static void ids_of_a_record(void **state) {
    const fixture *f = *state;
    int32_t id[4];
    ndp_ids ids = {0};
    CHECK_OK(ndp_tokenizer_encode(f->t, "abcx", 4, false, &ids));
    assert_int_equal(ids.n, 4);
    memcpy(id, ids.items, sizeof id);
    ndp_ids_release(&ids);
    char text[700];
    snprintf(text, sizeof text,
             "{\"input_ids\":[%d,%d,%d,%d],\"labels\":[-100,%d,-100,%d],\"attention_mask\":[1,1,1,1]}\n"
             "{\"input_ids\":[0,%d,%d,0],\"labels\":[-100,-100,%d,-100],\"attention_mask\":[0,1,1,0]}\n"
             "{\"input_ids\":[%d,%d]}\n{\"input_ids\":[%d,0],\"attention_mask\":[1,0]}",
             id[0], id[1], id[2], id[3], id[1], id[3], id[0], id[1], id[1], id[2], id[3], id[0]);
    for (int way = 0; way < 2; way++)
        check_ended(f, text, (ndp_record_format){.kind = way ? NDP_RECORD_TOKEN_IDS : NDP_RECORD_AUTO},
                    "a[b]c[x] a[b] [cx] [a] | 4");
    static const char *const bad[][2] = {
        {"{\"input_ids\":\"1 2\"}", "'input_ids' is not a list of numbers"},
        {"{\"input_ids\":[]}", "'input_ids' is empty"},
        {"{\"input_ids\":[1,-2]}", "item 2 of 'input_ids' is -2, which is not an id"},
        {"{\"input_ids\":[1,2.5]}", "item 2 of 'input_ids' is 2.5, expected a whole number"},
        {"{\"input_ids\":[1,2],\"labels\":[1]}", "'labels' has 1 numbers for 2 ids"},
        {"{\"input_ids\":[1,2],\"labels\":[2,-100]}", "item 1 of 'labels' is 2 where 'input_ids' has 1"},
        {"{\"input_ids\":[1,2],\"labels\":[-100,-100]}", "all 'labels' are -100, so there is nothing to train on"},
        {"{\"input_ids\":[1,2],\"labels\":[-100,2],\"attention_mask\":[1,0]}", "item 2 of 'attention_mask' is 0"},
        {"{\"input_ids\":[1,2],\"attention_mask\":[1,2]}", "item 2 of 'attention_mask' is 2, expected 1, or 0"}};
    for (int i = 0; i < NDP_COUNT(bad); i++)
        check_refused(f, "a.jsonl", bad[i][0], strlen(bad[i][0]), (ndp_record_format){.kind = NDP_RECORD_TOKEN_IDS},
                      NDP_EFORMAT, bad[i][1]);
}

/* Without a `system` the text begins with the instruction. */
static void alpaca_with_the_systems_task(void **state) {
    const fixture *f = *state;
    static const char ALL[] = "{\"system\":\"s\",\"instruction\":\"q\",\"input\":\"c\",\"output\":\"a\"}\n"
                              "{\"system\":\"\",\"instruction\":\"q\",\"output\":\"a\"}\n"
                              "{\"system\":null,\"instruction\":\"q\",\"output\":\"a\"}";
    check_ended(f, ALL, (ndp_record_format){.kind = NDP_RECORD_ALPACA_SYSTEM},
                "<s>s//### Instruction:/q//### Input:/c//### Response:/[a</s>] "
                "<s>### Instruction:/q//### Response:/[a</s>] <s>### Instruction:/q//### Response:/[a</s>] | 3");
    check_ended(f, ALL, (ndp_record_format){.kind = NDP_RECORD_ALPACA_SYSTEM_CHAT},
                "<s>SYSTEM: s/USER: q/c/ASSISTANT:[a</s>] <s>USER: q/ASSISTANT:[a</s>] <s>USER: q/ASSISTANT:[a</s>] "
                "| 3");
}

static void alpaca_with_other_fields(void **state) {
    const fixture *f = *state;
    const ndp_record_format other = {
        .kind = NDP_RECORD_ALPACA, .prompt = "question", .input = "context", .response = "answer"};
    check_ended(f, "{\"question\":\"q\",\"context\":\"c\",\"answer\":\"a\",\"output\":1}", other,
                "<s>" TASK ", paired with an input that provides further context." RESPOND
                "q//### Input:/c//### Response:/[a</s>] | 1");
}

/* A token across the border belongs to the response; an empty response leaves nothing to train on. */
static void alpaca_at_the_border(void **state) {
    const fixture *f = *state;
    const ndp_record_format alpaca = {.kind = NDP_RECORD_ALPACA};
    check_ended(f, "{\"instruction\":\"x\",\"output\":\"xyxy\"}", alpaca,
                "<s>" TASK "." RESPOND "x//### Response:/[xyxy</s>] | 1");
    check_ended(f, "{\"instruction\":\"x\",\"output\":\"\"}", alpaca,
                "<s>" TASK "." RESPOND "x//### Response:/</s> | 1");
}

/* The answer of a text is found behind the tokens that the tokenizer puts before it, and before those after it. */
static void spans_of_a_text(void **state) {
    const fixture *f = *state;
    static const ndp_range middle[] = {{1, 2}}, end[] = {{1, 3}};
    static const struct {
        const ndp_range *spans;
        bool rendered, ended;
        int64_t want[2];
    } cases[] = {{middle, false, true, {2, 3}},
                 {middle, true, true, {1, 2}},
                 {end, false, true, {2, 5}},
                 {end, false, false, {2, 4}},
                 {end, true, true, {1, 3}}};
    const int32_t eos = ndp_tokenizer_eos(f->t);
    for (int i = 0; i < NDP_COUNT(cases); i++) {
        ndp_ids ids = {0};
        ndp_places borders = {0};
        ndp_document d = {.text = "abc",
                          .n = 3,
                          .rendered = cases[i].rendered,
                          .partly = true,
                          .spans = cases[i].spans,
                          .n_spans = 1};
        CHECK_OK(ndp_encode_document(f->t, &d, cases[i].ended ? &eos : NULL, &ids, &borders, NULL));
        assert_int_equal(borders.n, 2);
        for (int k = 0; k < 2; k++)
            if (borders.items[k] != cases[i].want[k])
                fail_msg("case %d: border %d is %lld", i, k, (long long)borders.items[k]);
        ndp_ids_release(&ids);
        free(borders.items);
    }
}

static void sharegpt_is_a_conversation(void **state) {
    const fixture *f = *state;
    ndp_record_format sharegpt = {.kind = NDP_RECORD_SHAREGPT, .messages = "messages", .chat = &f->plain};
#define TURNS "[{\"from\":\"human\",\"value\":\"ab\"},{\"from\":\"gpt\",\"value\":\"c\"}]"
    CHECK_FILE(f, "a.jsonl", "{\"conversations\":" TURNS ",\"text\":1}", sharegpt, "<s>ab/[c</s>] | 1");
    CHECK_FILE(f, "a.jsonl", "{\"messages\":" TURNS "}", sharegpt, "<s>ab/[c</s>] | 1");
    sharegpt.messages = "turns";
    CHECK_FILE(f, "a.jsonl", "{\"conversations\":1,\"turns\":" TURNS "}", sharegpt, "<s>ab/[c</s>] | 1");
}

static void names_of_roles_and_fields(void **state) {
    const fixture *f = *state;
    char *items[] = {"the bot: assistant", "human: system", "x: user"};
    const ndp_strings roles = {.items = items, .n = 3};
    const ndp_record_format named = {.kind = NDP_RECORD_SHAREGPT,
                                     .messages = "talk",
                                     .role = "speaker",
                                     .content = "says",
                                     .roles = &roles,
                                     .chat = &f->plain};
    CHECK_FILE(f, "a.jsonl",
               "{\"talk\":[{\"speaker\":\"human\",\"says\":\"s\"},{\"speaker\":\"x\",\"says\":\"a\"},"
               "{\"speaker\":\"the "
               "bot\",\"says\":\"b\"},{\"speaker\":\"gpt\",\"says\":[{\"type\":\"text\",\"text\":\"c\"}]}]}",
               named, "<s>s/a/[b</s>c</s>] | 1");
    static const char PART[] = "{\"talk\":[{\"speaker\":\"the\",\"says\":\"a\"}]}";
    check_refused(
        f, "a.jsonl", PART, strlen(PART), named, NDP_EFORMAT,
        "a.jsonl:1: message 1 has the role 'the'; roles are system, user or human, assistant or gpt, and tool; "
        "data.roles: {NAME: ROLE}");
    static const char CALLS[] = "{\"talk\":[{\"speaker\":\"gpt\",\"says\":\"\",\"tool_calls\":[{}]}]}";
    check_refused(f, "a.jsonl", CALLS, strlen(CALLS), named, NDP_ENOTSUP,
                  "a.jsonl:1: message 1 has 'tool_calls', which are read only with the fields and roles");
    static const char USUAL[] = "{\"talk\":[{\"role\":\"x\",\"content\":\"a\"}]}";
    check_refused(f, "a.jsonl", USUAL, strlen(USUAL), named, NDP_EFORMAT,
                  "message 1 has no 'speaker' that is a string");
}

static void completion_is_a_text(void **state) {
    const fixture *f = *state;
    ndp_record_format completion = {.kind = NDP_RECORD_COMPLETION};
    CHECK_FILE(f, "a.jsonl", "{\"text\":\"ab\",\"messages\":[]}", completion, "[<s>ab] | 1");
    completion.text = "body";
    CHECK_FILE(f, "a.jsonl", "{\"text\":1,\"body\":\"ab\"}", completion, "[<s>ab] | 1");
}

#define LEARNED(text) "{\"label\":true,\"text\":\"" text "\"}"
#define GIVEN(text) "{\"label\":false,\"text\":\"" text "\"}"

/* No tokens are added; a token across a border belongs to the piece that it ends in. */
static void input_output_learns_by_label(void **state) {
    const fixture *f = *state;
    ndp_record_format pieces = {.kind = NDP_RECORD_INPUT_OUTPUT};
    CHECK_FILE(f, "a.jsonl",
               "{\"segments\":[" GIVEN("<s>a") "," LEARNED("b</s>") "," GIVEN("c") "," LEARNED("") "," LEARNED(
                   "d") "," LEARNED("e") "]}",
               pieces, "<s>a[b</s>]c[de] | 1");
    CHECK_FILE(f, "a.jsonl", "{\"segments\":[" GIVEN("ax") "," LEARNED("ya") "]}", pieces, "a[xya] | 1");
    pieces.train_all = true;
    CHECK_FILE(f, "a.jsonl", "{\"segments\":[" GIVEN("a") "," LEARNED("b") "]}", pieces, "[ab] | 1");
    CHECK_FILE(f, "a.jsonl", "{\"segments\":[" GIVEN("a") "]}", pieces, "[a] | 1");
}

static void broken_records_name_the_place(void **state) {
    const fixture *f = *state;
    static const struct {
        ndp_record_kind kind;
        const char *contents, *says;
    } cases[] = {
        {NDP_RECORD_ALPACA, "{\"output\":\"a\"}",
         "a.jsonl:1: the record has no 'instruction'; it has: output. data.prompt_field says which"},
        {NDP_RECORD_ALPACA, "{\"instruction\":\"a\"}",
         "a.jsonl:1: the record has no 'response' or 'output'; it has: instruction. data.response_field"},
        {NDP_RECORD_ALPACA, "{\"instruction\":\"a\",\"input\":1,\"output\":\"\"}",
         "a.jsonl:1: 'input' is not a string"},
        {NDP_RECORD_SHAREGPT, "{\"text\":\"a\"}",
         "a.jsonl:1: the record has no 'conversations'; it has: text. data.messages_field says which"},
        {NDP_RECORD_COMPLETION, "{\"a\":\"\"}", "a.jsonl:1: the record has no 'text'; it has: a."},
        {NDP_RECORD_INPUT_OUTPUT, "{\"text\":\"a\"}", "a.jsonl:1: the record has no 'segments'; it has: text."},
        {NDP_RECORD_INPUT_OUTPUT, "{\"segments\":{}}", "a.jsonl:1: 'segments' is not a list of segments"},
        {NDP_RECORD_INPUT_OUTPUT, "{\"segments\":[]}", "a.jsonl:1: 'segments' is not a list of segments"},
        {NDP_RECORD_INPUT_OUTPUT, "{\"segments\":[" LEARNED("a") ",{\"label\":1,\"text\":\"b\"}]}",
         "a.jsonl:1: segment 2 is { \"label\": 1, \"text\": \"b\" }, expected {\"label\": true or false"},
        {NDP_RECORD_INPUT_OUTPUT, "{\"segments\":[null]}", "a.jsonl:1: segment 1 is null, expected"},
        {NDP_RECORD_INPUT_OUTPUT, "{\"segments\":[{\"label\":true}]}", "a.jsonl:1: segment 1 is { \"label\": true }"},
        {NDP_RECORD_INPUT_OUTPUT, "{\"segments\":[" GIVEN("a") "," LEARNED("") "]}",
         "a.jsonl:1: no segment has the label true and a text, so there is nothing to train on"},
    };
    for (int i = 0; i < NDP_COUNT(cases); i++)
        check_refused(f, "a.jsonl", cases[i].contents, strlen(cases[i].contents),
                      (ndp_record_format){.kind = cases[i].kind, .messages = "messages", .chat = &f->plain},
                      NDP_EFORMAT, cases[i].says);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(alpaca_learns_the_response),
        TEST(alpaca_in_other_styles),
        TEST(alpaca_with_other_fields),
        TEST(alpaca_with_the_systems_task),
        TEST(alpaca_at_the_border),
        TEST(spans_of_a_text),
        TEST(sharegpt_is_a_conversation),
        TEST(names_of_roles_and_fields),
        TEST(completion_is_a_text),
        TEST(input_output_learns_by_label),
        TEST(broken_records_name_the_place),
        TEST(jeopardy_asks_for_an_answer),
        TEST(ids_of_a_record),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
