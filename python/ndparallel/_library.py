"""The shared library by ctypes, which releases Python's lock during a call; its errors; what is refused (refused.txt)."""
import ctypes
import json
import os

from . import _declarations as c

HERE = os.path.dirname(os.path.abspath(__file__))
STATUS = ("OK", "EINVAL", "EFORMAT", "EIO", "ENOMEM", "ECOMM", "ENOTSUP", "EINTR", "EBUG")


class Error(RuntimeError):
    """What the library or this package refused: `status` ("EINVAL"), `message` (cause and fix), `trail` (places in C)."""
    def __init__(self, message, status="EINVAL", trail=""):
        super().__init__(message)
        self.message, self.status, self.trail = message, status, trail


def native(name):
    """A file of the wheel's native part, or of the build two folders above."""
    paths = [os.path.join(folder, name) for folder in (os.path.join(HERE, "native"), os.path.dirname(os.path.dirname(HERE)))]
    return next((path for path in paths if os.path.isfile(path)), None)


_path = os.environ.get("NDP_LIBRARY") or native("libndparallel.so")
if not _path:
    raise ImportError(f"no libndparallel.so in {HERE}: install the wheel, or set NDP_LIBRARY to its path")
lib = ctypes.CDLL(_path)
for _name, (_result, _arguments) in c.FUNCTIONS.items():
    if not hasattr(lib, _name):
        raise ImportError(f"{_path} lacks {_name}: it is of another version than this package")
    getattr(lib, _name).restype, getattr(lib, _name).argtypes = _result, _arguments


def check(status):
    if status:
        raise Error(lib.ndp_error_message().decode(), STATUS[status], lib.ndp_error_trail().decode())


class Config:
    """A job: a job file, then keys with values, {"optimizer.lr": 1e-3}."""
    def __init__(self, settings=(), file=None):
        self.handle = ctypes.c_void_p()
        check(lib.ndp_config_create(ctypes.byref(self.handle)))
        file and check(lib.ndp_config_read(self.handle, os.fsencode(file)))
        for key, value in dict(settings).items():
            check(lib.ndp_config_set(self.handle, f"{key}={json.dumps(value)}".encode()))

    def tensors(self):
        """The names of the model's tensors."""
        text = ctypes.c_char_p()
        check(lib.ndp_model_tensors(self.handle, ctypes.byref(text)))
        names = text.value.decode().splitlines()
        ctypes.CDLL(None).free(text)
        return names

    def __del__(self):
        if lib and self.handle:
            lib.ndp_config_destroy(self.handle)


REFUSED = {}
with open(os.path.join(HERE, "refused.txt")) as _file:
    for _owners, _names, _why in (line.strip().split(" | ") for line in _file if line[0] != "#"):
        REFUSED.update({(owner, name): _why for owner in _owners.split() for name in _names.split()})


def unknown(who, given, known=()):
    """Refuses what is not `known`, with what to use, or the nearest one."""
    for name in (name for name in given if name not in known):
        near = known and lib.ndp_nearest(name.encode(), (ctypes.c_char_p * len(known))(*map(str.encode, known)), len(known))
        why = REFUSED.get((f"{who}()", name)) or (f"did you mean {near.decode()}?" if near else "")
        raise Error(f"{who}: no '{name}'" + (f"; {why}" if why else ""), "ENOTSUP")


class Refusing:
    def __getattr__(self, name):
        kind = type(self).__name__
        (kind, name) in REFUSED and fail(f"{kind}.{name} is not supported: {REFUSED[kind, name]}", "ENOTSUP")
        raise AttributeError(f"'{kind}' has no attribute '{name}'")


def fail(message, status="EINVAL"):
    raise Error(message, status)
