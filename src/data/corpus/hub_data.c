/* Splits of a data set. Every file of the snapshot gets the configuration and the split that the first rule which
 * applies to any file gives it; then the wanted one is chosen. Called by files.c. */
#include "data/corpus/hub_data.h"

#include "data/corpus/folder_files.h"
#include "data/corpus/hub_card.h"
#include "data/corpus/source.h"
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Three lists of equal length: file i, relative to the snapshot, is of split i of configuration i. */
typedef struct listing {
    ndp_strings configs, splits, paths;
} listing;

static void release(listing *l) {
    ndp_strings_release(&l->configs);
    ndp_strings_release(&l->splits);
    ndp_strings_release(&l->paths);
}

enum { MOST_LISTED = 1 << 20 }; /* a card may list a file many times */

static ndp_status add(listing *l, const char *config, const char *split, const char *path) {
    if (l->paths.n == MOST_LISTED)
        return NDP_FAIL(NDP_EFORMAT, "the patterns of its README.md list more than %d files; name the files",
                        MOST_LISTED);
    NDP_TRY(ndp_strings_add(&l->configs, config));
    NDP_TRY(ndp_strings_add(&l->splits, split));
    return ndp_strings_add(&l->paths, path);
}

static bool holds(const ndp_strings *list, const char *text) {
    for (int i = 0; i < list->n; i++)
        if (strcmp(list->items[i], text) == 0)
            return true;
    return false;
}

/* ---- the files of a snapshot ---- */

static const char *base_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* Records and texts, but not what describes them. */
static bool is_data(const char *path) {
    static const char *const others[] = {"config.json", "dataset_info.json", "dataset_infos.json", "dataset_dict.json",
                                         "state.json"};
    ndp_source_kind kind;
    for (int i = 0; i < NDP_COUNT(others); i++)
        if (strcmp(base_name(path), others[i]) == 0)
            return false;
    return ndp_source_is_known(path, &kind) && kind != NDP_SOURCE_IDS && !ndp_ends_with(path, ".md");
}

static int by_bytes(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

/* Relative paths, sorted. */
static ndp_status list_files(const char *folder, ndp_strings *out) {
    ndp_strings paths = {0};
    int64_t others = 0;
    ndp_status st = ndp_folder_files(folder, is_data, &paths, &others);
    for (int i = 0; i < paths.n && st == NDP_OK; i++)
        st = ndp_strings_add(out, paths.items[i] + strlen(folder) + 1);
    ndp_strings_release(&paths);
    if (out->n)
        qsort(out->items, (size_t)out->n, sizeof *out->items, by_bytes);
    return st;
}

/* ---- rule 1: README.md ---- */

/* The part of a path or pattern up to the next slash. */
static size_t part_of(const char *path, char out[NDP_PATH]) {
    size_t n = strcspn(path, "/");
    snprintf(out, NDP_PATH, "%.*s", (int)n, path);
    return n;
}

/* The part after this one; NULL after the last. */
static const char *behind(const char *path) {
    const char *slash = strchr(path, '/');
    return slash ? slash + 1 : NULL;
}

static const char *skip_dots(const char *pattern) { /* "./train.jsonl" */
    while (pattern && strncmp(pattern, "./", 2) == 0)
        pattern += 2;
    return pattern;
}

/* A pattern of folders and names: ** stands for any number of folders, and at the end for all files in them. Where
 * parts do not match, the last ** takes one more folder; an earlier one never has to, so that the time is at most the
 * product of the numbers of parts. */
static bool matches(const char *pattern, const char *path) {
    const char *after = NULL, *from = NULL; /* the pattern behind the last **, and the path that it was tried on */
    char wanted[NDP_PATH], name[NDP_PATH];
    for (pattern = skip_dots(pattern); path;) {
        size_t n = pattern ? part_of(pattern, wanted) : 0;
        if (pattern && n == 2 && strcmp(wanted, "**") == 0) {
            if (!(pattern = skip_dots(behind(pattern))))
                return true;
            after = pattern;
            from = path;
            continue;
        }
        part_of(path, name);
        if (pattern && fnmatch(wanted, name, 0) == 0) {
            pattern = skip_dots(behind(pattern));
            path = behind(path);
        } else if (after) {
            pattern = after;
            path = from = behind(from);
        } else
            return false;
    }
    return !pattern;
}

static ndp_status by_card(const ndp_hub_card *card, const ndp_strings *files, listing *out) {
    for (int i = 0; i < card->patterns.n; i++)
        for (int f = 0; f < files->n; f++)
            if (matches(card->patterns.items[i], files->items[f]))
                NDP_TRY(add(out, card->configs.items[i], card->splits.items[i], files->items[f]));
    return NDP_OK;
}

/* ---- rules 2 to 4: names ---- */

/* data/SPLIT-00000-of-00001.parquet */
static bool split_of_shard(const char *path, char split[NDP_HUB_PART]) {
    const char *name = path + 5, *dash = strchr(name, '-');
    if (strncmp(path, "data/", 5) != 0 || !dash || dash == name || dash - name >= NDP_HUB_PART ||
        fnmatch("-[0-9][0-9][0-9][0-9][0-9]-of-[0-9][0-9][0-9][0-9][0-9]*.*", dash, 0) != 0)
        return false;
    snprintf(split, NDP_HUB_PART, "%.*s", (int)(dash - name), name);
    return true;
}

/* Whether `word` is in the text, with one of the separators, or nothing, on either side. */
static bool has_word(const char *text, size_t n, const char *word) {
    static const char separators[] = "-._ 0123456789";
    size_t m = strlen(word);
    for (size_t at = 0; at + m <= n; at++)
        if (memcmp(text + at, word, m) == 0 && (at == 0 || strchr(separators, text[at - 1])) &&
            (at + m == n || strchr(separators, text[at + m])))
            return true;
    return false;
}

static const char *split_of_word(const char *text, size_t n) {
    static const char *const words[][2] = {{"train", "train"},      {"training", "train"}, {"validation", "validation"},
                                           {"valid", "validation"}, {"dev", "validation"}, {"val", "validation"},
                                           {"test", "test"},        {"testing", "test"},   {"eval", "test"},
                                           {"evaluation", "test"}};
    for (int i = 0; i < NDP_COUNT(words); i++)
        if (has_word(text, n, words[i][0]))
            return words[i][1];
    return NULL;
}

enum { BY_SHARD, BY_FOLDER, BY_NAME, ALL_TRAIN, RULES };

/* False: the rule does not apply to this file. */
static bool split_by(int rule, const char *path, char split[NDP_HUB_PART]) {
    const char *found = rule == ALL_TRAIN ? "train" : NULL, *name = base_name(path);
    if (rule == BY_SHARD)
        return split_of_shard(path, split);
    if (rule == BY_NAME)
        found = split_of_word(name, strlen(name));
    for (const char *at = path, *slash; rule == BY_FOLDER && !found && (slash = strchr(at, '/')); at = slash + 1)
        found = split_of_word(at, (size_t)(slash - at));
    snprintf(split, NDP_HUB_PART, "%s", found ? found : "");
    return found != NULL;
}

/* `folder`: a configuration, "" for none. */
static ndp_status by_names(const ndp_strings *files, const char *folder, listing *out) {
    size_t skip = strlen(folder) + (folder[0] != '\0');
    for (int rule = BY_SHARD; rule < RULES && out->paths.n == 0; rule++)
        for (int f = 0; f < files->n; f++) {
            const char *path = files->items[f];
            char split[NDP_HUB_PART];
            bool below = skip == 0 || (strncmp(path, folder, skip - 1) == 0 && path[skip - 1] == '/');
            if (below && split_by(rule, path + skip, split))
                NDP_TRY(add(out, folder[0] ? folder : "default", split, path));
        }
    return NDP_OK;
}

/* ---- choosing ---- */

/* The list without repetitions: "test, train"; of many, the first. */
static ndp_status fail_choice(const char *name, const char *what, const ndp_strings *list, const char *wanted,
                              const char *form) {
    enum { MOST_NAMED = 30 };
    ndp_strings seen = {0};
    ndp_str all = {0};
    for (int i = 0; i < list->n && seen.n < MOST_NAMED; i++)
        if (!holds(&seen, list->items[i]) && ndp_strings_add(&seen, list->items[i]) == NDP_OK)
            ndp_str_addf(&all, "%s%s", seen.n > 1 ? ", " : "", list->items[i]);
    if (seen.n == MOST_NAMED)
        ndp_str_add(&all, ", ...");
    char missing[NDP_HUB_PART + 40];
    snprintf(missing, sizeof missing, "no %s '%s'; its", what, wanted);
    ndp_status st = NDP_FAIL(NDP_EINVAL, "'%s': the data set has %s %ss: %s; name one as %s", name,
                             wanted[0] ? missing : "several", what, all.data ? all.data : "none", form);
    ndp_strings_release(&seen);
    ndp_str_release(&all);
    return st;
}

/* `wanted` if it is in the list, the only entry, or `otherwise` if that is in the list; NULL: none of these. */
static const char *choose(const ndp_strings *list, const char *wanted, const char *otherwise) {
    if (wanted[0])
        return holds(list, wanted) ? wanted : NULL;
    for (int i = 1; i < list->n; i++)
        if (strcmp(list->items[i], list->items[0]) != 0)
            return otherwise && holds(list, otherwise) ? otherwise : NULL;
    return list->n ? list->items[0] : NULL;
}

/* NDP_EIO if a file is missing: a dangling link, or a shard of several. */
static ndp_status check_there(const char *path) {
    if (access(path, F_OK))
        return NDP_FAIL(NDP_EIO, "'%s' is missing", path);
    const char *of = strstr(base_name(path), "-of-"), *digits = "0123456789";
    if (!of || of - base_name(path) < 6 || strspn(of + 4, digits) != 5 || strspn(of - 5, digits) != 5)
        return NDP_OK;
    int n = atoi(of + 4);
    for (int i = 0; i < n; i++) {
        char *shard = ndp_format("%.*s%05d%s", (int)(of - 5 - path), path, i, of);
        bool there = shard && access(shard, F_OK) == 0;
        ndp_status st = there ? NDP_OK : NDP_FAIL(NDP_EIO, "'%s' is missing", shard ? shard : path);
        free(shard);
        NDP_TRY(st);
    }
    return NDP_OK;
}

/* All files of a split are of one kind. */
static ndp_status take(const char *name, const char *folder, const listing *l, const char *config, const char *split,
                       ndp_strings *paths) {
    const char *first = NULL;
    ndp_source_kind kind = NDP_SOURCE_TEXT, other;
    for (int i = 0; i < l->paths.n; i++) {
        char path[NDP_PATH];
        if (strcmp(l->configs.items[i], config) != 0 || strcmp(l->splits.items[i], split) != 0)
            continue;
        NDP_TRY(ndp_path_join(path, folder, l->paths.items[i]));
        NDP_TRY(check_there(path));
        (void)ndp_source_is_known(path, &other);
        if (first && other != kind)
            return NDP_FAIL(NDP_EINVAL,
                            "'%s': its split %s has files of several kinds, such as %s and %s; name the files", name,
                            split, first, l->paths.items[i]);
        kind = other;
        first = first ? first : l->paths.items[i];
        NDP_TRY(ndp_strings_add(paths, path));
    }
    return NDP_OK;
}

static ndp_status choose_and_take(const char *name, const ndp_hub_name *n, const char *folder, const ndp_hub_card *card,
                                  const listing *l, ndp_strings *paths) {
    listing of_config = {0};
    const char *config = choose(&l->configs, n->config, card->preferred ? card->preferred : "default");
    if (l->paths.n == 0)
        return NDP_FAIL(NDP_EIO, "'%s': the snapshot %s has no file of records%s%s", name, folder,
                        n->config[0] ? " in the folder " : "", n->config);
    if (!config)
        return fail_choice(name, "configuration", &l->configs, n->config, "org/name:CONFIGURATION/SPLIT");
    ndp_status st = NDP_OK;
    for (int i = 0; i < l->paths.n && st == NDP_OK; i++)
        if (strcmp(l->configs.items[i], config) == 0)
            st = add(&of_config, config, l->splits.items[i], l->paths.items[i]);
    const char *split = choose(&of_config.splits, n->split, NULL);
    if (st == NDP_OK)
        st = split ? take(name, folder, &of_config, config, split, paths)
                   : fail_choice(name, "split", &of_config.splits, n->split, "org/name:SPLIT");
    release(&of_config);
    return st;
}

static ndp_status find_files(const char *name, const ndp_hub_name *n, const char *folder, ndp_strings *paths) {
    ndp_hub_card card;
    ndp_strings files = {0};
    listing all = {0};
    NDP_TRY(ndp_hub_card_read(folder, &card));
    ndp_status st = list_files(folder, &files);
    if (st == NDP_OK)
        st = card.patterns.n ? by_card(&card, &files, &all) : by_names(&files, n->config, &all);
    if (st == NDP_OK)
        st = choose_and_take(name, n, folder, &card, &all, paths);
    release(&all);
    ndp_strings_release(&files);
    ndp_hub_card_release(&card);
    return st;
}

ndp_status ndp_hub_data_files(const char *name, ndp_strings *paths) {
    char folder[NDP_PATH];
    ndp_hub_name n;
    NDP_CHECK(ndp_hub_parse(NDP_HUB_DATASET, name, &n), "'%s' is not a name on the Hub", name);
    NDP_TRY(ndp_hub_find(NDP_HUB_DATASET, name, folder));
    return ndp_hub_explain(NDP_HUB_DATASET, name, folder, find_files(name, &n, folder, paths));
}
