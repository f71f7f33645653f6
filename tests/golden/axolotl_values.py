"""Prints what Axolotl gets for the values in tests/import/test_import_values.c: PyYAML reads the file, pydantic casts.

    python -m pip install pyyaml pydantic
    python tests/golden/axolotl_values.py '500_000' '1e-5' "'010'" on
"""

import sys

import pydantic
import yaml


def cast(to, value):
    try:
        return repr(pydantic.TypeAdapter(to).validate_python(value))
    except pydantic.ValidationError:
        return "refused"


for text in sys.argv[1:]:
    value = yaml.safe_load(f"v: {text}")["v"]
    print(f"{text:16} {value!r:20} int: {cast(int, value):12} float: {cast(float, value):12} bool: {cast(bool, value)}")
