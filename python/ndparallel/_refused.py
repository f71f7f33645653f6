"""Missing attributes and arguments are errors that say what to use: refused.txt."""
import os

from ._library import HERE, Error, lib, texts

_table = {}
with open(os.path.join(HERE, "refused.txt")) as _file:
    for _owners, _names, _why in (line.strip().split(" | ") for line in _file if line[0] != "#"):
        _table.update({(owner, name): _why for owner in _owners.split() for name in _names.split()})


def unknown(who, given, known=()):
    """Refuses what is not `known`, with what to use, or the nearest one."""
    for name in (name for name in given if name not in known):
        near = known and lib.ndp_nearest(name.encode(), texts(known), len(known))
        why = _table.get((f"{who}()", name)) or (f"did you mean {near.decode()}?" if near else "")
        raise Error(f"{who}: no '{name}'" + (f"; {why}" if why else ""), "ENOTSUP")


class Refusing:
    def __getattr__(self, name):
        kind = type(self).__name__
        if (kind, name) in _table:
            raise Error(f"{kind}.{name} is not supported: {_table[kind, name]}", "ENOTSUP")
        raise AttributeError(f"'{kind}' has no attribute '{name}'")


def fail(message, status="EINVAL"):
    raise Error(message, status)
