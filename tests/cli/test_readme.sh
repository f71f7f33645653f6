#!/bin/sh
# What the pages show is what the program prints: the commands that take no time (the others: long_readme). And the script
# that says so: it finds a wrong digit and puts it right.
. "$(dirname "$0")/cases.sh"

# check ARGUMENT...: leaves $code and out.
check() {
    case_of check-readme "$@"
    "$NDP_SOURCE_DIR/tools/check-readme" "$@" >out 2>&1
    code=$?
}

check --short
code_is 0
says out '^check-readme: [1-9][0-9]* agree, 0 differ'

cat >page.md <<'E2'
<!-- output: seq 3 -->
```
1
2
3
```

<!-- output
     volatile: ^[a-z]+
     within: 10%
     exact: exact -->
```text
$ printf '%s\n' 'gamma took 7.25 s, 12.5 GiB available' \
      'loss  3.05' 'exact 4'
alpha took 3 s, 1 GiB available
loss 3.1
exact 4
```

<!-- output -->
```
$ cat >two.txt <<'END'
one
two
END
$ tail -n 1 two.txt
two
```

<!-- output long: exit 5 -->
```
```
E2
check --short page.md
code_is 0
says out '^check-readme: 3 agree, 0 differ, 0 skipped'
check page.md
code_is 1
says out '^page.md:[0-9]+: exit 5: fails with 5'

# wrong PATTERN REPLACEMENT: a page that differs, until it is updated.
wrong() {
    sed "s/$1/$2/" page.md >wrong.md
    check --short wrong.md
    code_is 1
    says out ' 1 differ' '^wrong.md:.*: differs$'
    check --short --update wrong.md
    code_is 1
    check --short wrong.md
    code_is 0
    lines wrong.md 1 "^[$] printf '%s.n' .*"
}
# Times of another run are not a difference; all of them are taken on demand.
cp page.md times.md
check --short --update times.md
code_is 0
cmp -s page.md times.md || fail "it changed a page that agrees"
check --short --update-all times.md
code_is 0
lines times.md 1 '^gamma took 7.25 s, 12.5 GiB available$'

wrong '^2$' 4
cmp -s page.md wrong.md || fail "updated to another page: $(diff page.md wrong.md)"
wrong '^loss 3.1' 'loss 4'
lines wrong.md 1 '^loss  3.05$'
wrong '^exact 4' 'exact 4.1'
wrong '^3$' '3\n4'

sed 's/within/wihtin/' page.md >wrong.md
check wrong.md
[ "$code" != 0 ] || fail "an unknown key is taken"
says out 'wrong.md:10: unknown key "wihtin"'

# A part of the page, and blocks that use what an earlier one made; each page has a tree of its own.
cat >table.md <<'E2'
<!-- output: echo 7 >build/made; echo made -->
```
made
```

<!-- page: printf '| a |\n|---|\n| %s |\n' "$(cat build/made)" -->
| a |
|---|
| 7 |
<!-- end -->

<!-- output: test -e build/nothing
     code: 1 -->
```
```
E2
check table.md
code_is 0
says out '3 agree, 0 differ'
sed 's/^| 7 |/| 8 |/' table.md >wrong.md
check --update wrong.md
code_is 1
cmp -s table.md wrong.md || fail "updated to another table: $(diff table.md wrong.md)"
sed '/made" *-->/,/^$/d; /^<!-- output: echo/,/^$/d' table.md >alone.md
check table.md alone.md
code_is 1
says out '^alone.md:[0-9]+: printf .*: differs$' ' 1 differ'
sed '/<!-- end/d' table.md >wrong.md
check wrong.md
[ "$code" != 0 ] || fail "a table without an end is taken"

printf '<!-- output: echo no text; exit 77 -->\n```\n```\n' >skipped.md
check skipped.md
code_is 0
says out 'skipped: no text$' '0 agree, 0 differ, 1 skipped'

end_of_cases
