#!/bin/sh
# Tables that hold code: pyarrow below 14.0.1 runs it (CVE-2023-47248). A stub stands for that pyarrow: it runs what the
# file holds while it reads the schema, as unpickling does. Refused by version, and by the audit hook if a version that
# counts as safe does the same.
. "$(dirname "$0")/cases.sh"
python=${NDP_PYTHON:-/usr/bin/python3}
"$python" -I -c 'import sys; sys.exit(sys.version_info < (3, 8))' 2>/dev/null || { echo "SKIPPED: no $python of version 3.8"; exit 77; }
make_job

# stub VERSION: a virtual environment with it.
site=venv/lib/$("$python" -I -c 'import sys; print("python%d.%d" % sys.version_info[:2])')/site-packages/pyarrow
mkdir -p venv/bin "$site"
ln -s "$(command -v "$python")" venv/bin/python
printf 'home = %s\n' "$(dirname "$("$python" -I -c 'import os, sys; print(os.path.realpath(sys.executable))')")" >venv/pyvenv.cfg
stub() { rm -rf "$site/__pycache__"; printf '__version__ = "%s"\nfrom builtins import open as OSFile_\nOSFile = memory_map = lambda path: OSFile_(path, "rb")\nset_memory_pool = system_memory_pool = lambda *pool: None\nclass ArrowException(Exception): pass\n' "$1" >"$site/__init__.py"; }
: >"$site/compute.py"
cat >"$site/ipc.py" <<'END'
def open_stream(file):
    exec(file.read().decode(), {})
    raise OSError("that was all")
END
cat >"$site/parquet.py" <<'END'
class ParquetFile:
    def __init__(self, path, **options):
        with open(path, "rb") as file:
            exec(file.read().decode(), {})
        raise OSError("that was all")
END
export NDP_PYTHON="$work/venv/bin/python"
"$NDP_PYTHON" -I -c 'pass' || { echo "SKIPPED: no virtual environment by hand"; exit 77; }

# attack CODE PATTERN: as either kind of table; nothing happens, and the message says why. A dry run is enough.
echo precious >kept
attack() {
    for table in bad.arrow bad.parquet; do
        printf '%s\n' "$1" >$table
        run train job.yaml --dry-run --set "data.files=[$table]"
        refused "$table: .*$2"
        [ ! -e "$work/pwned" ] || fail "the table ran: $1"
        [ -s kept ] || fail "a file is gone"
        rm -f pwned
        echo precious >kept
    done
}
system="import os; os.system('touch $work/pwned')"

for version in 0.14.0 13.0.0 14.0.0; do
    stub $version
    attack "$system" "reading it needs Python's pyarrow 14.0.1 or newer, and $NDP_PYTHON has $version, which lets a table run any code \(CVE-2023-47248\): $NDP_PYTHON -m pip install 'pyarrow>=14.0.1'"
done

for version in 14.0.1 22.1.0.dev3; do
    stub $version
    attack "$system" 'it tried to use os.system'
done
pickled=$("$python" -I -c "
import os, pickle
class Code:
    def __reduce__(self):
        return os.system, ('touch $work/pwned',)
print(repr(pickle.dumps(Code())))")
attack "import pickle; pickle.loads($pickled)" 'it tried to use pickle.find_class'
attack "import subprocess; subprocess.run(['touch', '$work/pwned'])" 'it tried to use subprocess.Popen'
attack "import os; os.posix_spawn('/bin/touch', ['touch', '$work/pwned'], {})" 'it tried to use os.posix_spawn'
attack "import os; os.fork() or os.execv('/bin/touch', ['touch', '$work/pwned'])" 'it tried to use os.fork'
attack "open('$work/pwned', 'w')" 'it tried to open .*pwned'
attack "import os; os.open('$work/pwned', os.O_CREAT)" 'it tried to open .*pwned'
attack "import os; os.remove('$work/kept')" 'it tried to use os.remove'
attack "import os; os.rename('$work/kept', '$work/pwned')" 'it tried to use os.rename'
attack "import os; os.truncate('$work/kept', 0)" 'it tried to use os.truncate'
attack "open('$work/kept').read()" 'it tried to open .*kept'
attack "import sys; open(sys.prefix + '/../kept').read()" 'it tried to open .*kept'
attack "import socket; socket.create_connection(('127.0.0.1', 9))" 'it tried to use socket'
attack "import ctypes; ctypes.CDLL(None)" 'it tried to use ctypes.dlopen'

attack "import wave, decimal" "that was all"
end_of_cases
