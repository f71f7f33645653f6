/* libFuzzer: a conversation, and the template it is rendered by. The first byte says which template and tokenizer, each
 * message is a byte for its role and a text up to a zero byte; a text with a one byte in it holds the reasoning behind
 * that. What the assistant wrote are ranges in order, not empty; a prompt for an answer only adds to the text;
 * rendering the same again gives the same. */
#include "text/chat/chat.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MOST = 32 };

static void check(bool fine) {
    if (!fine)
        __builtin_trap();
}

static int64_t read_messages(const char *text, size_t size, ndp_message *m) {
    int64_t n = 0;
    for (size_t at = 0; at < size && n < MOST; n++) {
        const char *begin = text + at + 1, *end = memchr(begin, 0, size - at - 1);
        size_t length = end ? (size_t)(end - begin) : size - at - 1;
        const char *border = length ? memchr(begin, 1, length) : NULL;
        size_t content = border ? (size_t)(border - begin) : length;
        m[n] = (ndp_message){(ndp_role)((unsigned char)text[at] % NDP_ROLES),
                             {begin, content},
                             {border ? border + 1 : NULL, border ? length - content - 1 : 0},
                             NULL,
                             false};
        at += 1 + length + (end != NULL);
    }
    return n;
}

static void check_spans(const ndp_rendering *r) {
    size_t at = 0;
    for (int64_t i = 0; i < r->n; i++) {
        check(r->spans[i].begin >= at && r->spans[i].end > r->spans[i].begin && r->spans[i].end <= r->text.length);
        at = r->spans[i].end;
    }
}

static void render(const ndp_chat *c, const ndp_message *m, int64_t n) {
    ndp_rendering r[2] = {{.text = {0}}, {.text = {0}}};
    ndp_status st = ndp_chat_render(c, &(ndp_conversation){.messages = m, .n = n}, false, &r[0]);
    check(st == ndp_chat_render(c, &(ndp_conversation){.messages = m, .n = n}, true, &r[1]));
    if (st == NDP_OK) {
        check_spans(&r[0]);
        check(r[0].n == r[1].n && r[0].text.length <= r[1].text.length &&
              !memcmp(r[0].text.data, r[1].text.data, r[0].text.length));
        size_t length = r[0].text.length;
        check(ndp_chat_render(c, &(ndp_conversation){.messages = m, .n = n}, false, &r[1]) == NDP_OK &&
              r[1].text.length == length && !memcmp(r[0].text.data, r[1].text.data, length));
    }
    ndp_rendering_release(&r[0]);
    ndp_rendering_release(&r[1]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char *const names[] = {"chatml",   "qwen2.5", "qwen3",  "deepseek-r1",  "plain",       "zephyr",
                                        "llama3.2", "gemma2",  "gemma3", "mistral-v0.1", "mistral-v0.3"};
    ndp_tokenizer *t;
    ndp_chat c;
    ndp_message m[MOST];
    ndp_role role;
    if (size == 0 || ndp_tokenizer_create("bytes", &t) != NDP_OK)
        return 0;
    char *text = malloc(size); /* so that reading beyond is seen */
    memcpy(text, data, size);
    check(ndp_chat_init(&c, t, "bytes", names[data[0] % NDP_COUNT(names)], NULL) == NDP_OK);
    c.adds_bos = data[0] & 64;
    c.bos = (ndp_span){"<s>", 3};
    c.eos = (ndp_span){"</s>", data[0] & 128 ? 0 : 4};
    int64_t n = read_messages(text + 1, size - 1, m);
    render(&c, m, n);
    text[size - 1] = '\0';
    check(!ndp_role_of(text, &role) || role < NDP_ROLES);
    ndp_chat_release(&c);
    ndp_tokenizer_destroy(t);
    free(text);
    return 0;
}
