#!/bin/sh
# Manual pages and completion: made from the tables, complete, and without a warning.
. "$(dirname "$0")/cases.sh"

run help --generate pages
code_is 0
case_of a page for each command
for command in $("$NDP_PROGRAM" help | sed -n 's/^  \([a-z]*\) .*/\1/p') checkpoint-list checkpoint-verify \
    checkpoint-export checkpoint-rm config-import; do
    page=pages/man/ndparallel-$command.1
    grep -q '^\.SH EXAMPLES' "$page" || fail "$page has no examples"
    "$NDP_PROGRAM" help $(echo "$command" | tr - ' ') | grep -oE -- '--[a-z][a-z-]+=?' | tr -d = | sort -u >options
    while read -r option; do
        grep -qF -- "$(echo "$option" | sed 's/-/\\-/g')" "$page" || fail "$page lacks $option"
    done <options
done

case_of every key has a paragraph
"$NDP_PROGRAM" config --markdown | sed -n 's/^| `\([^`]*\)`.*/\1/p' >keys
while read -r key; do
    grep -qxF ".B $key" pages/man/ndparallel-job.5 || fail "ndparallel-job.5 lacks $key"
done <keys
lines pages/man/ndparallel-job.5 "$(wc -l <keys)" '^\\fIread by\\fR: .'

case_of every variable that the program reads
grep -rhoE '"NDP_[A-Z_]+"' "$NDP_SOURCE_DIR/src" | grep -v 'NDP_LOCK_PATIENCE is' | tr -d '"' | sort -u >variables
while read -r name; do
    grep -qE "^\\.B (.*, )?$name(,|\$)" pages/man/ndparallel.1 || fail "ndparallel.1 lacks $name"
done <variables

case_of bash completes
cat >complete.bash <<'END'
source pages/completion/ndparallel.bash
compopt() { :; }
COMP_LINE=$1 COMP_POINT=${#1}
_ndparallel
printf '%s\n' "${COMPREPLY[@]}"
END
while IFS='|' read -r line wanted; do
    bash complete.bash "$line" >out 2>err
    [ "$(tr '\n' ' ' <out)" = "$wanted " ] && [ ! -s err ] || fail "'$line' gives '$(cat out)'"
done <<'END'
ndparallel tr|train
ndparallel checkpoint |list verify export rm
ndparallel train job.yaml --set data.chat|data.chat_template=
ndparallel train --set train.matmul=|fp32 tf32
ndparallel train --set=precision.compute=b|bf16
ndparallel plan --transport s|self shm
ndparallel launch --transport |auto shm mpi
ndparallel train --accept optimizer.be|optimizer.betas
ndparallel config optimizer.be|optimizer.betas
ndparallel help ch|checkpoint
ndparallel checkpoint rm --fo|--force
END
for shell in zsh fish; do
    command -v $shell >/dev/null || continue
    case_of $shell reads its script
    $shell -n pages/completion/*"$(echo $shell | sed 's/zsh/_ndparallel/; s/^fish/.fish/')" 2>err || fail 'an error'
done

if command -v man >/dev/null && command -v groff >/dev/null; then
    for page in pages/man/*; do
        case_of man "$page"
        LC_ALL=C.UTF-8 man --warnings -E UTF-8 -l -Tutf8 -Z "$page" 2>err >/dev/null || fail 'an error'
        [ ! -s err ] || fail 'a warning'
    done
else
    echo 'not tested: what man says of the pages, since man or groff is missing'
fi

end_of_cases
