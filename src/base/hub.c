/* The local Hub cache. Names and revisions become parts of paths, so both are checked first. */
#include "base/hub.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- names ---- */

static const char WORD[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";

/* Takes the characters before one of `ends`. False: none, or too many. */
static bool take(const char **text, const char *ends, char out[NDP_HUB_PART]) {
    size_t n = strcspn(*text, ends);
    if (n == 0 || n >= NDP_HUB_PART)
        return false;
    memcpy(out, *text, n);
    out[n] = '\0';
    *text += n;
    return true;
}

/* A part of a path that stays inside its folder. */
static bool is_inside(const char *path) { return path[0] != '/' && path[0] != '.' && !strstr(path, "/."); }

/* "name", or "org/name". */
static bool is_repo(const char *repo) {
    size_t org = strspn(repo, WORD), name = repo[org] == '/' ? strspn(repo + org + 1, WORD) : 0;
    return org && is_inside(repo) && (repo[org] == '\0' || (name && repo[org + 1 + name] == '\0'));
}

static bool parse(ndp_hub_kind kind, const char *text, ndp_hub_name *out) {
    ndp_hub_name n = {0};
    if (!take(&text, "@:", n.repo) || !is_repo(n.repo))
        return false;
    if (*text == '@' && (text++, !take(&text, ":", n.revision) || !is_inside(n.revision)))
        return false;
    if (*text == ':') {
        text++;
        if (memchr(text, '/', strcspn(text, "[")) &&
            (!take(&text, "/", n.config) || !is_inside(n.config) || *text++ != '/'))
            return false;
        size_t name = strcspn(text, "[");
        if (kind != NDP_HUB_DATASET || name == 0 || strcspn(text, "/:@") < name || !take(&text, "", n.split) ||
            (n.split[name] && n.split[strlen(n.split) - 1] != ']'))
            return false;
    }
    *out = n;
    return *text == '\0';
}

bool ndp_hub_parse(ndp_hub_kind kind, const char *text, ndp_hub_name *out) {
    return parse(kind, text, out) && strchr(out->repo, '/');
}

ndp_status ndp_hub_refuse_url(const char *key, const char *name) {
    if (!name || !strstr(name, "://"))
        return NDP_OK;
    return NDP_FAIL(NDP_EINVAL,
                    "%s: '%s' is a URL; only files of this machine and its Hub cache are read. Download it and name "
                    "the file",
                    key, name);
}

/* ---- the cache ---- */

static ndp_status copy_path(const char *path, char out[NDP_PATH]) {
    NDP_CHECK(strlen(path) < NDP_PATH, "the path '%s' has %zu bytes, %d at most", path, strlen(path), NDP_PATH - 1);
    strcpy(out, path);
    return NDP_OK;
}

static ndp_status cache_folder(char out[NDP_PATH]) {
    const char *cache = getenv("HF_HUB_CACHE"), *hf = getenv("HF_HOME"), *xdg = getenv("XDG_CACHE_HOME"),
               *home = getenv("HOME");
    if (cache && cache[0])
        return copy_path(cache, out);
    if (hf && hf[0])
        return ndp_path_join(out, hf, "hub");
    if (xdg && xdg[0])
        return ndp_path_join(out, xdg, "huggingface/hub");
    NDP_CHECK(home && home[0], "no Hub cache: neither HF_HOME nor HOME is set");
    return ndp_path_join(out, home, ".cache/huggingface/hub");
}

/* "hf download --repo-type dataset org/name --revision v1" */
static const char *command(ndp_hub_kind kind, const ndp_hub_name *n, char out[NDP_PATH]) {
    snprintf(out, NDP_PATH, "hf download %s%s%s%s", kind == NDP_HUB_DATASET ? "--repo-type dataset " : "", n->repo,
             n->revision[0] ? " --revision " : "", n->revision);
    return out;
}

static const char *what(ndp_hub_kind kind) { return kind == NDP_HUB_DATASET ? "data set" : "model"; }

/* models--org--name */
static ndp_status repo_folder(ndp_hub_kind kind, const ndp_hub_name *n, char cache[NDP_PATH], char out[NDP_PATH]) {
    char name[2 * NDP_HUB_PART];
    const char *slash = strchr(n->repo, '/');
    snprintf(name, sizeof name, "%s--%.*s%s%s", kind == NDP_HUB_DATASET ? "datasets" : "models",
             (int)(slash ? slash - n->repo : (long)strlen(n->repo)), n->repo, slash ? "--" : "",
             slash ? slash + 1 : "");
    NDP_TRY(cache_folder(cache));
    return ndp_path_join(out, cache, name);
}

/* The snapshot of a revision; `folder` is that of the repository. *found: false if the cache does not have it. */
static ndp_status find_snapshot(const char *folder, const char *revision, char out[NDP_PATH], bool *found) {
    char snapshots[NDP_PATH], refs[NDP_PATH], ref[NDP_PATH], *commit;
    size_t n;
    NDP_TRY(ndp_path_join(snapshots, folder, "snapshots"));
    NDP_TRY(ndp_path_join(refs, folder, "refs"));
    NDP_TRY(ndp_path_join(ref, refs, revision));
    NDP_TRY(ndp_path_join(out, snapshots, revision));
    *found = ndp_path_is_folder(out);
    if (*found || !ndp_path_exists(ref) || ndp_path_is_folder(ref))
        return NDP_OK;
    NDP_TRY(ndp_file_read_as(NDP_FILE_HOSTS, ref, &commit, &n));
    commit[strspn(commit, WORD)] = '\0';
    ndp_status st = ndp_path_join(out, snapshots, commit);
    *found = st == NDP_OK && commit[0] && commit[0] != '.' && ndp_path_is_folder(out);
    free(commit);
    return st;
}

/* The name, org/name, of the repository in the cache whose folder is nearest to one that is not there; NULL: none. */
static char *nearest_cached(const char *cache, const char *folder) {
    char *name = ndp_nearest_entry(cache, strrchr(folder, '/') + 1);
    char *org = name ? strstr(name, "--") : NULL, *dashes = org ? strstr(org + 2, "--") : NULL;
    char *both = dashes ? ndp_format("%.*s/%s", (int)(dashes - org - 2), org + 2, dashes + 2) : NULL;
    free(name);
    return both;
}

static ndp_status find(ndp_hub_kind kind, const char *name, const ndp_hub_name *n, char out[NDP_PATH]) {
    char cache[NDP_PATH], folder[NDP_PATH], fetch[NDP_PATH];
    const char *revision = n->revision[0] ? n->revision : "main";
    bool found = false;
    NDP_TRY(repo_folder(kind, n, cache, folder));
    bool cached = ndp_path_is_folder(folder);
    if (cached)
        NDP_TRY(find_snapshot(folder, revision, out, &found));
    if (found)
        return NDP_OK;
    if (cached)
        return NDP_FAIL(NDP_EINVAL, "'%s': the Hub cache has %s, but no snapshot of its revision '%s'; download it: %s",
                        name, folder, revision, command(kind, n, fetch));
    char *meant = nearest_cached(cache, folder);
    ndp_status st = NDP_FAIL(NDP_EINVAL,
                             "'%s' is neither a path here nor a %s in the Hub cache %s; %s%s%sif it is a name on the "
                             "Hub, download it: %s",
                             name, what(kind), cache, meant ? "did you mean '" : "", meant ? meant : "",
                             meant ? "', which is there? Or " : "", command(kind, n, fetch));
    free(meant);
    return st;
}

ndp_status ndp_hub_find(ndp_hub_kind kind, const char *name, char out[NDP_PATH]) {
    char cache[NDP_PATH];
    ndp_hub_name n;
    NDP_TRY(ndp_hub_refuse_url(kind == NDP_HUB_DATASET ? "data.files" : "the model", name));
    bool is_name = !ndp_path_exists(name) && parse(kind, name, &n);
    if (is_name && !strchr(n.repo, '/')) { /* a word is a name of the Hub only if the cache has it */
        NDP_TRY(repo_folder(kind, &n, cache, out));
        is_name = ndp_path_is_folder(out);
    }
    return is_name ? find(kind, name, &n, out) : copy_path(name, out);
}

ndp_status ndp_hub_explain(ndp_hub_kind kind, const char *name, const char *folder, ndp_status st) {
    char fetch[NDP_PATH];
    ndp_hub_name n;
    const char *why = ndp_error_message(); /* a missing file is a mistake of the user's, as others are */
    bool missing = st == NDP_EIO ||
                   (st == NDP_EINVAL && (strstr(why, "cannot read '") == why || strstr(why, "is not there") != NULL));
    if (!missing || strcmp(name, folder) == 0 || !parse(kind, name, &n))
        return st;
    return NDP_FAIL(NDP_EINVAL, "%s. The Hub cache has only a part of %s; complete it: %s", ndp_error_message(), n.repo,
                    command(kind, &n, fetch));
}
