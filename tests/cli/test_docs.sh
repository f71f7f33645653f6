#!/bin/sh
# What the pages name exists. And tools/check-docs, which says so, finds what a page names and is not there.
. "$(dirname "$0")/cases.sh"

check() {
    case_of check-docs "$@"
    "$NDP_SOURCE_DIR/tools/check-docs" "$@" >out 2>&1
    code=$?
}
check
code_is 0

export NDP_DOCS_ROOT="$work"
# page LINE...: a page of the guide with these lines; README.md and llms.txt name it.
mkdir -p docs/guide
echo 'See [the page](docs/guide/page.md#keys-and-values).' >README.md
cp README.md llms.txt
page() { printf '%s\n' '# A page' '## Keys, and values' "$@" >docs/guide/page.md; }
# finds PATTERN LINE...: a page with these lines is refused.
finds() {
    pattern=$1
    shift
    page "$@"
    check
    code_is 1
    says out "^docs/guide/page.md:[0-9]+: $pattern"
}

page 'Set `optimizer.lr` or `data.files: [a.txt]`, not `model.safetensors` or `model.norm.weight`;' \
    'run `ndparallel train job.yaml --dry-run` ([more](#keys-and-values), [up](../../README.md), [out](https://a.b)).' '' \
    '    build/ndparallel launch -n 4 -- ./own --option' '' '```yaml' 'train: {steps: 3}' '```' \
    '<!-- output: echo ndparallel has 3 -->' '```' 'ndparallel has 3' '```'
check
code_is 0
says out '^check-docs: 3 pages, 4 links, 1 options, 2 keys: all exist$'

finds 'no key optimizer.rate$' 'Set `optimizer.rate`.'
finds 'no key data.chats$' '' '```yaml' '# data.chats' '```'
finds 'ndparallel train has no option --dry$' 'Run `ndparallel train --dry`.'
finds 'ndparallel checkpoint has no option --all$' '' '    $ build/ndparallel checkpoint list RUN --all'
finds 'no function ndp_trian in ndparallel.h$' 'Call `ndp_trian`.'
finds 'no command "trian"$' '' '    ndparallel trian job.yaml'
finds 'a link to nowhere.md: there is no docs/guide/nowhere.md$' '[a](nowhere.md)'
finds 'a link to #nothing: no such heading$' '[a](#nothing)'
finds 'a link to ../../README.md#keys: no such heading$' '[a](../../README.md#keys)'
finds 'a path of one machine: /home/me/project/x$' '<!-- output: echo -->' '```' 'looked for /home/me/project/x; (/usr/lib/x)' '```'
finds 'a path of one machine: /tmp/tmp.aB3/cache$' 'It is in `/tmp/tmp.aB3/cache`, not `/tmp/cache/x`.'
finds 'this output is not checked' '' '```' 'loss 1.0' '```'

page "$(seq 250)"
check
code_is 1
says out '^docs/guide/page.md: 252 lines, .* at most 249 and 1999$'
page "$(yes word | head -n 2000 | paste -sd ' ')"
check
code_is 1
says out '^docs/guide/page.md: 3 lines, 200[0-9] words'

page
echo 'no pages' >llms.txt
check
code_is 1
says out '^llms.txt does not name docs/guide/page.md$'

case_of check-docs --counts
"$NDP_SOURCE_DIR/tools/check-docs" --counts >out 2>&1
code=$?
code_is 0
says out '^docs/guide/page.md +2 lines +7 words +0 blocks$'

end_of_cases
