#!/bin/sh
# All kernels of CUDA have names that begin with ndp_: tools/gpu/first-contact has the sanitizer check those, and no others.
# By their sources, and by what ndp_sim.so exports, which is its kernels.
python3 - "$NDP_SOURCE_DIR" <<'PYTHON' || exit 1
import pathlib, re, sys

COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)

def names(text):
    """Of each __global__ its function's: the word before the first bracket that is not __launch_bounds__'s."""
    text = COMMENT.sub(" ", text)
    for kernel in re.finditer(r"\b__global__\b", text):
        rest = text[kernel.end():]
        while bounds := re.search(r"__launch_bounds__\s*\(", rest):
            if "(" in rest[:bounds.start()]:
                break
            depth, end = 1, bounds.end()
            while depth:
                depth += {"(": 1, ")": -1}.get(rest[end], 0)
                end += 1
            rest = rest[:bounds.start()] + rest[end:]
        yield re.match(r"[^(;{]*?(\w+)\s*\(", rest).group(1)

# What it finds in sources of every form.
known = """static __global__ void __launch_bounds__(most(K), 1)
    a(int x);  // __global__ void comment()
template <int D> __global__ __launch_bounds__(N) void b(const c d);"""
assert list(names(known)) == ["a", "b"], list(names(known))

root, wrong, n = pathlib.Path(sys.argv[1]), [], 0
for path in sorted(root.glob("src/**/*.cu*")):
    for name in names(path.read_text()):
        n += 1
        if not name.startswith("ndp_"):
            wrong.append(f"{path}: {name}")
print(f"{n} kernels in the sources")
if wrong or n < 20:
    sys.exit("not called ndp_...:\n" + "\n".join(wrong))
PYTHON

sim=${NDP_PLUGIN_DIR:-$NDP_SOURCE_DIR/build}/ndp_sim.so
[ -e "$sim" ] || exit 0
# Functions without their types and templates. Beside kernels it exports what the standard library leaves in it.
exported=$(nm -D --defined-only "$sim" | awk '$2 ~ /[TW]/ { print $3 }' | c++filt | sed 's/<.*//; s/(.*//; s/^void //' | grep -v '^std::' | sort -u)
echo "$(echo "$exported" | grep -c '^ndp_.*kernel$') kernels in ndp_sim.so"
echo "$exported" | grep -q '^ndp_.*kernel$' || { echo "does it export none?"; exit 1; }
wrong=$(echo "$exported" | grep -v '^ndp_')
[ -z "$wrong" ] || { echo "not called ndp_...: $wrong"; exit 1; }
