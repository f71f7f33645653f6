/* JSON as text. Strings that are not UTF-8 are made so (U+FFFD), and numbers that JSON lacks become null: what is
 * written parses. */
#include "base/json_write.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void add_character(ndp_str *out, unsigned char c) {
    static const char names[] = {['\b'] = 'b', ['\t'] = 't', ['\n'] = 'n', ['\f'] = 'f', ['\r'] = 'r'};
    if (c == '"' || c == '\\')
        ndp_str_addf(out, "\\%c", c);
    else if (c < sizeof names && names[c])
        ndp_str_addf(out, "\\%c", names[c]);
    else if (c < 0x20 || c == 0x7f)
        ndp_str_addf(out, "\\u%04x", c);
    else
        ndp_str_add_bytes(out, &c, 1);
}

void ndp_json_quote_bytes(ndp_str *out, const char *text, size_t n) {
    ndp_str_add(out, "\"");
    for (size_t at = 0; at < n;) {
        size_t end = at + ndp_utf8_valid_prefix(text + at, n - at);
        for (; at < end; at++)
            add_character(out, (unsigned char)text[at]);
        if (at < n) {
            ndp_str_add(out, "\xef\xbf\xbd");
            at++;
        }
    }
    ndp_str_add(out, "\"");
}

void ndp_json_quote(ndp_str *out, const char *text) { ndp_json_quote_bytes(out, text, strlen(text)); }

/* What comes before a value. */
static void begin(ndp_json_out *o, const char *key) {
    if (o->more)
        ndp_str_add(&o->text, ", ");
    o->more = true;
    if (!key)
        return;
    ndp_json_quote(&o->text, key);
    ndp_str_add(&o->text, ": ");
}

void ndp_json_open(ndp_json_out *o, const char *key, char bracket) {
    begin(o, key);
    ndp_str_add_bytes(&o->text, &bracket, 1);
    o->more = false;
}

void ndp_json_close(ndp_json_out *o, char bracket) {
    ndp_str_add_bytes(&o->text, &bracket, 1);
    o->more = true;
}

void ndp_json_put_text(ndp_json_out *o, const char *key, const char *text) {
    begin(o, key);
    if (text)
        ndp_json_quote(&o->text, text);
    else
        ndp_str_add(&o->text, "null");
}

void ndp_json_put_number(ndp_json_out *o, const char *key, double x) {
    begin(o, key);
    if (isfinite(x))
        ndp_str_add_number(&o->text, x);
    else
        ndp_str_add(&o->text, "null");
}

void ndp_json_put_int(ndp_json_out *o, const char *key, int64_t x) {
    begin(o, key);
    ndp_str_addf(&o->text, "%lld", (long long)x);
}

void ndp_json_put_bool(ndp_json_out *o, const char *key, bool x) {
    begin(o, key);
    ndp_str_add(&o->text, x ? "true" : "false");
}

void ndp_json_put_null(ndp_json_out *o, const char *key) { ndp_json_put_text(o, key, NULL); }

void ndp_json_put_lines(ndp_json_out *o, const char *key, const char *text) {
    ndp_json_open(o, key, '[');
    for (const char *end; *text; text = end + (*end == '\n')) {
        end = strchrnul(text, '\n');
        begin(o, NULL);
        ndp_json_quote_bytes(&o->text, text, (size_t)(end - text));
    }
    ndp_json_close(o, ']');
}
