"""The keys of the JSON object on standard input, a path a line: a.b, or a[].b inside a list. Members of the objects named
as arguments, whose keys are names of other things, become `*`."""
import json
import sys


def fail(constant):
    raise ValueError(f"{constant} is no JSON")


def walk(value, path, found):
    if isinstance(value, dict):
        for key, inner in value.items():
            below = f"{path}.{'*' if path in sys.argv[1:] else key}".lstrip(".")
            found.add(below)
            walk(inner, below, found)
    elif isinstance(value, list):
        for inner in value:
            walk(inner, path + "[]", found)


text = sys.stdin.buffer.read().decode("utf-8")
assert text.endswith("\n") and text.count("\n") == 1, "it is not one line"
keys = set()
walk(json.loads(text, parse_constant=fail), "", keys)
print("\n".join(sorted(keys)))
