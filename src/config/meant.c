/* What a wrong value probably meant: the names that other programs have for a value of ours, and values in another
 * spelling. */
#include "config/meant.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* Words of a key that mean `ours`, separated by spaces; a word that ends with * is a prefix. */
typedef struct foreign_value {
    const char *section, *key, *theirs, *ours;
    const char *why; /* what the user should know about the difference; NULL: nothing */
} foreign_value;

#define FP16_WHY "fp16 is not supported; bf16 has fp32's range and needs no loss scaling"

static const foreign_value foreign_values[] = {
    {"precision", "compute", "fp16 float16 half f16", "bf16", FP16_WHY},
    {"precision", "compute", "fp8* float8*", "bf16", "fp8 is not supported"},
    {"precision", "compute", "bfloat16", "bf16", NULL},
    {"precision", "compute", "float32 float no", "fp32", NULL},
    {"precision", "compute", "float64 double", "fp64", NULL},
    {"optimizer", "name", "adamw_bnb_8bit adamw_8bit paged_adamw_8bit adamw_torch_8bit adam8bit", "adamw8bit", NULL},
    {"optimizer", "name", "adamw_torch* adamw_hf adam fused_adamw", "adamw", NULL},
    {"optimizer", "name", "adamw_* paged_adamw*", "adamw", "its states are fp32"},
    {"schedule", "name", "constant_with_warmup", "constant", "schedule.warmup_steps sets the warm-up"},
    {"schedule", "name", "cosine_with_min_lr* cosine_warmup*", "cosine", "schedule.min_lr_ratio sets its end"},
    {"schedule", "name", "cosine_with_restarts cosine_annealing_with_restarts", "cosine_restarts",
     "schedule.cycles sets how many"},
    {"schedule", "name", "warmup_stable_decay warmup-stable-decay", "wsd", "schedule.decay_ratio sets its decay"},
    {"train", "device", "gpu cuda:* nvidia", "cuda", NULL},
    {"train", "transport", "nccl gloo ucc", "auto", NULL},
    {"train", "recompute", "true full selective", "block", NULL},
    {"train", "recompute", "false no off", "none", NULL},
};

static bool has_word(const char *words, const char *text) {
    for (size_t n; *words; words += n + (words[n] == ' ')) {
        n = strcspn(words, " ");
        if (words[n - 1] == '*' ? strncasecmp(words, text, n - 1) == 0
                                : strlen(text) == n && strncasecmp(words, text, n) == 0)
            return true;
    }
    return false;
}

static const foreign_value *find_foreign(const ndp_option *o, const char *text) {
    for (int i = 0; i < NDP_COUNT(foreign_values); i++)
        if (!strcmp(o->section, foreign_values[i].section) && !strcmp(o->key, foreign_values[i].key) &&
            has_word(foreign_values[i].theirs, text))
            return &foreign_values[i];
    return NULL;
}

/* One of the words in capitals, or else the nearest one. */
static const char *nearest_word(const ndp_option *o, const char *text) {
    int n = 0;
    for (; o->words && o->words[n]; n++)
        if (strcasecmp(o->words[n], text) == 0)
            return o->words[n];
    return o->words ? ndp_nearest(text, o->words, n) : NULL;
}

static const char *meant_bool(const char *text) {
    return has_word("true yes on 1", text) ? "true" : has_word("false no off 0", text) ? "false" : NULL;
}

/* A whole number written as 1e3, 1_000 or 1,000; or -1, which other programs write where we write auto. */
static void add_meant_integer(const ndp_option *o, const char *text, ndp_str *out) {
    char digits[32], *end = digits; /* not the end, unless strtod sets it */
    size_t n = 0;
    for (const char *c = text; *c && n + 1 < sizeof digits; c++)
        if (*c != '_' && *c != ',')
            digits[n++] = *c;
    digits[n] = '\0';
    double v = strspn(digits, "0123456789.eE+-") == n ? strtod(digits, &end) : NAN;
    if (o->open && strcmp(text, "-1") == 0)
        ndp_str_add(out, "; did you mean auto?");
    else if (n && !*end && v == floor(v) && v >= (double)o->low && v <= (double)o->high && fabs(v) < 0x1p53)
        ndp_str_addf(out, "; did you mean %lld?", (long long)v);
}

/* In quotes it is text, for a key that is not. */
static void add_without_quotes(const ndp_option *o, const char *text, ndp_str *out) {
    union {
        int whole;
        int64_t large;
        double number;
    } scratch;
    ndp_option alone = *o;
    alone.offset = 0;
    bool is_bool = strcmp(text, "true") == 0 || strcmp(text, "false") == 0;
    if (o->type == NDP_OPTION_BOOL ? is_bool : ndp_option_digits(&alone, text, &scratch))
        ndp_str_addf(out, "; remove the quotes: %s", text);
}

void ndp_meant_add(const ndp_option *o, const char *text, bool quoted, ndp_str *out) {
    bool whole = o->type == NDP_OPTION_INT || o->type == NDP_OPTION_INT64;
    const foreign_value *foreign = find_foreign(o, text);
    const char *word = foreign ? foreign->ours : o->type == NDP_OPTION_BOOL ? meant_bool(text) : nearest_word(o, text);
    if (quoted && (whole || o->type == NDP_OPTION_NUMBER || o->type == NDP_OPTION_BOOL))
        add_without_quotes(o, text, out);
    else if (word)
        ndp_str_addf(out, "; did you mean '%s'?", word);
    else if (whole)
        add_meant_integer(o, text, out);
    if (foreign && foreign->why)
        ndp_str_addf(out, " %s", foreign->why);
}
