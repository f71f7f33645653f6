#!/bin/sh
# tools/check-words finds a planted word in each of its places, and says what to write instead.
. "$(dirname "$0")/cases.sh"

# plant FILE TEXT: a tree with this file alone.
plant() {
    rm -rf tree
    for folder in src/room include tests bench examples docs/guide tools .ci; do mkdir -p tree/$folder; done
    touch tree/Makefile tree/CMakeLists.txt tree/README.md
    printf '%s\n' "$2" >tree/"$1"
    case_of "check-words: $1: $2"
    "$NDP_SOURCE_DIR/tools/check-words" tree >out 2>err
    code=$?
}

# finds FILE TEXT ADVICE
finds() {
    plant "$1" "$2"
    code_is 1
    says err "^(./)?$1:1:" "write instead: .*$3"
}

# takes FILE TEXT
takes() {
    plant "$1" "$2"
    code_is 0
}

finds src/room/a.c '/* TODO */' 'finish it'
finds src/room/a.c '/* Nobody reads it. */' 'no rank'
finds tests/a.c '/* The first, too. */' 'also'
finds tools/a 'separated, or parted by commas' 'separated by'
finds docs/a.md 'It waits for ever.' 'forever'
finds src/room/a.c 'NDP_FAIL(code, "experts are not built yet");' 'not supported'
finds docs/guide/a.md 'Experts are unsupported.' 'not supported'
finds README.md 'Such a file is refused by name.' 'what the message says'
finds src/room/a.py 'raise ValueError("nothing to learn here")' 'train on'
finds docs/guide/a.md 'Answers are learned.' 'train on'
finds README.md 'Each room has its tests.' 'part of the source'
finds src/room/a.c 'fail("%s:%d:%d: %s", file, line, column, why);' 'file:line'

takes src/room/a.c '/* A room that is not built yet: its tokens are learned. */'
takes src/room/a.c 'NDP_FAIL(code, "the template is not built in: %lld learned positions");'
takes docs/guide/a.md 'Tokens are trained on; experts are not supported; a bedroom is none of ours.'
takes docs/a.md 'A room of the source.'
takes README.md ''

end_of_cases
