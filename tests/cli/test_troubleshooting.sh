#!/bin/sh
# Every error of docs/guide/troubleshooting.md is one that the program reports and that a test has seen: the parts of its
# text, between the ..., follow each other in a file of src/ and in one of tests/.
. "$(dirname "$0")/cases.sh"
page=$NDP_SOURCE_DIR/docs/guide/troubleshooting.md

# text_of FOLDER PATTERN...: each file as one line, adjacent strings of C joined, without backslashes.
text_of() {
    folder=$1
    shift
    find "$NDP_SOURCE_DIR/$folder/" -type f \( -name "$1" -o -name "$2" -o -name "$3" -o -name "$4" \) ! -name "$(basename "$0")" | sort |
        while read -r file; do
            tr '\n' ' ' <"$file" | sed 's/"[ ]*"//g; s/\\//g'
            echo
        done
}
text_of src '*.c' '*.h' '*.cc' '*.py' >src.txt
text_of tests '*.c' '*.h' '*.cc' '*.sh' >tests.txt
sed -n 's/^| `\([^`]*\)` |.*/\1/p' "$page" >errors.txt

# Prints the errors that no line of FILE has: the parts in order, each within 400 bytes of the end of the one before.
missing() {
    awk -v errors=errors.txt '
        function follows(line, parts, n,    from, at, k) {
            while ((at = index(substr(line, from + 1), parts[1]))) {
                from += at + length(parts[1]) - 1
                rest = substr(line, from + 1, 400)
                for (k = 2; k <= n && (at = index(rest, parts[k])); k++)
                    rest = substr(rest, at + length(parts[k]))
                if (k > n) return 1
            }
            return 0
        }
        BEGIN { while ((getline error < errors) > 0) all[++count] = error }
        {
            for (i = 1; i <= count; i++)
                if (!(i in seen)) {
                    n = 0
                    pieces = split(all[i], piece, /\.\.\./)
                    for (k = 1; k <= pieces; k++) if (piece[k] != "") parts[++n] = piece[k]
                    if (n && follows($0, parts, n)) seen[i] = 1
                }
        }
        END { for (i = 1; i <= count; i++) if (!(i in seen)) print all[i] }' "$1"
}

case_of troubleshooting.md
missing src.txt >out
[ ! -s out ] || fail "not in src/"
missing tests.txt >out
[ ! -s out ] || fail "not in tests/"
[ "$(sort -u errors.txt | wc -l)" -ge 60 ] || fail "$(sort -u errors.txt | wc -l) errors, expected 60"
echo 'no ... such error' >errors.txt
[ -n "$(missing src.txt)" ] || fail "an error is found that there is not"

end_of_cases
