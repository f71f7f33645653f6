#!/bin/sh
# A row of the option table that does not say whether a resumed run may change its key, or what reads it, does not build.
. "$(dirname "$0")/cases.sh"
command -v cc >/dev/null && command -v pkg-config >/dev/null || { echo "SKIPPED: needs cc and pkg-config"; exit 77; }

# compiles: the file table.c here.
compiles() {
    cc -D_GNU_SOURCE -std=gnu17 -Wall -Wextra -Werror -fsyntax-only -I "$NDP_SOURCE_DIR/include" -I "$NDP_SOURCE_DIR/src" \
        $(pkg-config --cflags json-c libfyaml) table.c >out 2>err
}

# without FROM TO: the table with one row changed.
without() {
    case_of the row "$2"
    sed "s/$1/$2/" "$NDP_SOURCE_DIR/src/config/table.c" >table.c
    ! cmp -s table.c "$NDP_SOURCE_DIR/src/config/table.c" || fail "no such row"
    ! compiles || fail "it builds"
}

case_of the table as it is
cp "$NDP_SOURCE_DIR/src/config/table.c" .
compiles || fail "it does not build"
# The role is missing, then the readers.
without '{FREE(checkpoint, keep, \([A-Z]*\))' '{checkpoint, keep, \1'
without '{IDENTITY(optimizer, lr, \([A-Z]*\))' '{AT(optimizer, lr, \1)'
without '{IDENTITY(optimizer, lr, \([A-Z]*\))' '{"optimizer", "lr", offsetof(ndp_config, optimizer.lr), \1'
without '{FREE(checkpoint, keep, [A-Z]*)' '{FREE(checkpoint, keep)'
without '{IDENTITY(optimizer, lr, [A-Z]*)' '{"optimizer", "lr", offsetof(ndp_config, optimizer.lr), NDP_KEY_IDENTITY'

end_of_cases
