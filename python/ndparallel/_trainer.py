"""The trainer of own batches: what include/ndparallel/loop.h has as functions, as methods."""
import atexit
import ctypes
import math
import os
import sys
from array import array

from . import _declarations as c
from ._library import STATUS, Config, Error, check, fail, lib, unknown
from ._tensors import array_of

_open = []
_print_error = sys.excepthook
_ARRAYS = {"ids": "i", "labels": "i", "weights": "d", "positions": "i", "documents": "i", "lengths": "q"}
_DIVIDE = {"tokens": c.DIVIDE_TOKENS, "sum": c.DIVIDE_SUM, "number": c.DIVIDE_NUMBER}


def _failed(kind, value, trace):
    """An error ends the waits of other ranks. The rank that failed first prints it."""
    first = [trainer.fail(value) for trainer in _open]
    if all(first) or not isinstance(value, Error):
        _print_error(kind, value, trace)


sys.excepthook = _failed
atexit.register(lambda process=os.getpid(): [trainer.close() for trainer in list(_open) if os.getpid() == process])


def _read_batch(batch, keep):
    unknown("a batch", batch, (*_ARRAYS, "everywhere"))
    batch.get("ids") is not None or fail("a batch needs ids, [samples, length]")
    out = c.ndp_batch(*c.BATCH_INIT)
    for name, kind in _ARRAYS.items():
        if batch.get(name) is not None:
            pointer, shape, kept = array_of(batch[name], kind, name)
            keep.append((pointer, kept))
            if name == "ids" and len(shape) == 2:
                out.samples, out.length = shape
            shape == ((out.samples,) if name == "lengths" else (out.samples, out.length)) or fail(
                f"{name} has shape {list(shape)}; ids are [samples, length], lengths [samples], the others as ids")
            setattr(out, name, ctypes.cast(pointer, ctypes.POINTER(pointer._type_)))
    setattr(out, "global", bool(batch.get("everywhere")))
    return out


def _read_batches(batches):
    keep = []  # what must live as long as the call
    read = [_read_batch(batch, keep) for batch in ([batches] if isinstance(batches, dict) else batches)]
    return (c.ndp_batch * max(len(read), 1))(*read), len(read), keep


class Trainer:
    """One rank, of the world that `ndparallel launch` started or the only one. `config`: a Config, or keys with values. A batch
    is a dictionary with the names of ndp_batch; `everywhere`: all ranks give it. Methods are collective; close() leaves."""
    def __init__(self, config):
        self.config = config if isinstance(config, Config) else Config({"train.own_batches": True, **config})
        self.world, self.handle, self.status = ctypes.c_void_p(), ctypes.c_void_p(), c.OK
        check(lib.ndp_world_join(self.config.handle, ctypes.byref(self.world)))
        _open.append(self)
        self.rank, self.ranks = lib.ndp_world_rank(self.world), lib.ndp_world_size(self.world)
        check(lib.ndp_trainer_create(self.config.handle, self.world, ctypes.byref(self.handle)))

    def fail(self, error):
        self.status = STATUS.index(getattr(error, "status", "EINVAL"))
        return lib.ndp_world_fail(self.world)

    def close(self):
        if self in _open:
            _open.remove(self)
            lib.ndp_trainer_destroy(self.handle)
            lib.ndp_world_leave(self.world, self.status)

    __enter__ = lambda self: self

    def __exit__(self, kind, error, trace):
        error and self.fail(error)
        self.close()

    def _out(self, function, kind, *arguments):
        out = kind()
        check(function(self.handle, *arguments, ctypes.byref(out)))
        return out

    updates = property(lambda self: lib.ndp_trainer_updates(self.handle))

    def shape(self):
        return self._out(lib.ndp_trainer_shape, c.ndp_loop_shape)

    def sample(self, number):
        """A sample of the job's own data (data.files), as a batch."""
        length, names = self.shape().length, ("ids", "labels", "positions", "documents")
        rows = [(ctypes.c_int32 * length)() for _ in names]
        check(lib.ndp_trainer_sample(self.handle, number, *rows))
        return {name: memoryview(row).cast("B").cast("i", [1, length]) for name, row in zip(names, rows)}

    def begin(self, divide="tokens", divide_by=1, lr=math.nan, max_grad_norm=math.nan, calls=1):
        options = c.ndp_update_opts(_DIVIDE[divide], divide_by, lr, max_grad_norm, calls)
        check(lib.ndp_trainer_begin(self.handle, ctypes.byref(options)))

    def forward_backward(self, batches):
        rows, n, _keep = _read_batches(batches)
        return self._out(lib.ndp_trainer_forward_backward, c.ndp_call_info, rows, n)

    def forward_backward_with(self, batches, loss):
        """loss(logp, slopes) gets log-probabilities [samples, length], writes its derivatives by them, and returns a number."""
        rows, n, _keep = _read_batches(batches)
        raised = []

        def call(_user, logp, samples, length, slopes, out):
            try:
                size = ctypes.c_double * (samples * length)
                rooms = [memoryview(size.from_address(ctypes.addressof(p.contents))).cast("B") for p in (logp, slopes)]
                out[0] = loss(*(room.cast("d", [samples, length]) for room in rooms)) if samples else 0
            except BaseException as e:  # nothing may cross C: it is raised again below
                raised.append(e)
            return c.EINVAL if raised else c.OK

        try:
            return self._out(lib.ndp_trainer_forward_backward_with, c.ndp_call_info, rows, n, c.ndp_logp_loss(call), None)
        except Error as e:
            raise (raised or [e])[0]

    def norm(self):
        return self._out(lib.ndp_trainer_norm, ctypes.c_double).value

    def update(self):
        return self._out(lib.ndp_trainer_update, c.ndp_update_info)

    def forward(self, batches, wanted=("logp",)):
        """Of each token what is wanted of logp, entropy and best: arrays, one batch after the other."""
        rows, n, _keep = _read_batches(batches)
        size, out, values = sum(row.samples * row.length for row in rows[:n]), {}, c.ndp_token_values()
        for name in wanted:
            kind, ctype = ("i", ctypes.c_int32) if name == "best" else ("d", ctypes.c_double)
            out[name] = array(kind, bytes(max(size, 1) * ctypes.sizeof(ctype)))
            setattr(values, name, ctypes.cast((ctype * len(out[name])).from_buffer(out[name]), ctypes.POINTER(ctype)))
        check(lib.ndp_trainer_forward(self.handle, rows, n, ctypes.byref(values)))
        return {name: found[:size] for name, found in out.items()}

    def tensors(self):
        """The names of the model's tensors, and how many elements each has."""
        size = ctypes.c_int64()
        return {lib.ndp_trainer_tensor(self.handle, i, ctypes.byref(size)).decode(): size.value
                for i in range(lib.ndp_trainer_tensors(self.handle))}

    def read(self, name, gradient=False):
        """A whole tensor, or the last update's gradient of it."""
        sizes = self.tensors()
        unknown("read", [name], tuple(sizes))
        out = (ctypes.c_double * sizes[name])()
        check(lib.ndp_trainer_read(self.handle, c.GRADIENT if gradient else c.WEIGHT, list(sizes).index(name), out))
        return array("d", bytes(out))

    def save(self, folder=None):
        check(lib.ndp_trainer_save(self.handle, folder and os.fsencode(folder)))

    def resume(self, folder=None, step=-1):
        """Loads the newest checkpoint, or that of `step`; returns its step, -1 if there is none."""
        return self._out(lib.ndp_trainer_resume_from, ctypes.c_int64, folder and os.fsencode(folder), step).value

    def export(self, folder=None):
        check(lib.ndp_trainer_export(self.handle, folder and os.fsencode(folder)))
