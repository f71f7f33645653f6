#!/bin/sh
# All published templates: those in the packages of TRL and Axolotl, in transformers and in NDP_TEST_DATA, with each of their
# special tokens as begin and end token (templates_property.py); and the answers in 20 conversations each against what
# transformers gives, or against their words (golden/make_templates.py, test_jinja). Packages come from PyPI.
set -u
tests=$NDP_SOURCE_DIR/tests python=${NDP_DUMP_PYTHON-}
[ -n "$python" ] || { echo "skipped: no NDP_DUMP_PYTHON, a Python with transformers (tools/test-python dump)"; exit 77; }
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
"$python" -m pip download --quiet --disable-pip-version-check --no-deps --dest "$work" trl==1.16.0 axolotl==0.19.0 ||
    { echo "skipped: PyPI cannot be reached"; exit 77; }
for wheel in "$work"/*.whl; do
    "$python" -m zipfile -e "$wheel" "$work/packages"
done
published="$work/packages $("$python" -c 'import importlib.util as i; print(*i.find_spec("transformers").submodule_search_locations)')"
[ -z "${NDP_TEST_DATA-}" ] || published="$published $NDP_TEST_DATA"
# shellcheck disable=SC2086 # folders
"$python" "$tests/text/templates_property.py" "$NDP_SOURCE_DIR" 1 &&
    "$python" "$tests/text/templates_property.py" "$NDP_SOURCE_DIR" 1 $published || exit 1

if ! "$python" -c 'import jinja2; assert [int(n) for n in jinja2.__version__.split(".")[:3]] >= [3, 1, 6]' 2>/dev/null; then
    echo "not compared with transformers, which needs Jinja 3.1.6"
    exit 0
fi
(cd "$tests/golden" && "$python" make_templates.py "$work" "$work/cases.jsonl") &&
    NDP_JINJA_CASES=$work/cases.jsonl "$NDP_BUILD_DIR/test_jinja"
