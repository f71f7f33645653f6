/* What a name that does not exist probably meant: the entry of its folder with the nearest name. */
#include "base/text.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_ENTRIES = 4096 }; /* of a folder; a suggestion is not worth more */

static ndp_status add_entry(void *user, const char *folder, const char *name) {
    ndp_strings *names = user;
    (void)folder;
    return names->n < MOST_ENTRIES && name[0] != '.' ? ndp_strings_add(names, name) : NDP_OK;
}

char *ndp_nearest_entry(const char *folder, const char *name) {
    ndp_strings names = {0};
    char *copy = NULL;
    if (ndp_path_is_folder(folder) && ndp_folder_visit(folder, add_entry, &names) == NDP_OK) {
        const char *nearest = ndp_nearest(name, (const char *const *)names.items, names.n);
        copy = nearest ? strdup(nearest) : NULL;
    }
    ndp_strings_release(&names);
    return copy;
}

char *ndp_nearest_path(const char *path) {
    const char *slash = strrchr(path, '/');
    char *folder = slash ? strndup(path, (size_t)(slash - path) + 1) : strdup("");
    char *name = folder ? ndp_nearest_entry(*folder ? folder : ".", slash ? slash + 1 : path) : NULL;
    char *nearest = name ? ndp_format("%s%s", folder, name) : NULL;
    free(folder);
    free(name);
    return nearest;
}
