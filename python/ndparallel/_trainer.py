"""The trainer of own batches: what include/ndparallel/loop.h has as functions, as methods."""
import atexit
import ctypes
import math
import os
import sys
from array import array
from types import SimpleNamespace

from . import _declarations as c
from ._library import STATUS, Config, Error, Refusing, check, fail, lib, unknown
from ._tensors import array_of

_open = []
_print_error = sys.excepthook
_ARRAYS = {name: kind._type_ for name, kind in c.ndp_batch._fields_ if hasattr(kind, "contents")}


def _view(pointer, *shape):
    """C's numbers as they are, in place."""
    memory = (pointer._type_ * math.prod(shape)).from_address(ctypes.addressof(pointer.contents))
    return memoryview(memory).cast("B").cast(pointer._type_._type_, list(shape))


def _failed(kind, value, trace):
    """An error ends the waits of other ranks. The rank that failed first prints it."""
    (all([trainer.fail(value) for trainer in _open]) or not isinstance(value, Error)) and _print_error(kind, value, trace)


sys.excepthook = _failed
atexit.register(lambda process=os.getpid(): [trainer.close() for trainer in list(_open) if os.getpid() == process])


def _read_batch(batch):
    unknown("a batch", batch, (*_ARRAYS, "everywhere"))
    batch.get("ids") is not None or fail("a batch needs ids, [samples, length]")
    out = c.ndp_batch(*c.BATCH_INIT)
    for name, kind in _ARRAYS.items():
        if batch.get(name) is not None:
            numbers, shape = array_of(batch[name], kind, name)
            if name == "ids" and len(shape) == 2:
                out.samples, out.length = shape
            shape == ((out.samples,) if name == "lengths" else (out.samples, out.length)) or fail(
                f"{name} has shape {list(shape)}; ids are [samples, length], lengths [samples], the others as ids")
            setattr(out, name, numbers)
    setattr(out, "global", bool(batch.get("everywhere")))
    return out


def _read_batches(batches):
    read = [_read_batch(batch) for batch in ([batches] if isinstance(batches, dict) else batches)]
    return (c.ndp_batch * len(read))(*read)


class Trainer(Refusing):
    """One rank, of the world that `ndparallel launch` started or the only one. `config`: a Config, or keys with values. A batch
    is a dictionary with the names of ndp_batch; `everywhere`: all ranks give it. Methods are collective; close() leaves. Without
    `create` the ranks have only met, and barrier() is all that they can do before create()."""
    def __init__(self, config, create=True):
        config = config if isinstance(config, Config) else Config({"train.own_batches": True, **config})
        self.world, self.handle, self.status = ctypes.c_void_p(), ctypes.c_void_p(), c.OK
        check(lib.ndp_world_join(config.handle, ctypes.byref(self.world)))
        _open.append(self)
        self.rank, self.ranks = lib.ndp_world_rank(self.world), lib.ndp_world_size(self.world)
        create and self.create(config)

    def create(self, config):
        self.config = config
        check(lib.ndp_trainer_create(config.handle, self.world, ctypes.byref(self.handle)))

    def fail(self, error):
        self.status = STATUS.index(getattr(error, "status", "EINVAL"))
        return lib.ndp_world_fail(self.world)

    def close(self):
        if self in _open:
            _open.remove(self)
            lib.ndp_trainer_destroy(self.handle)
            lib.ndp_world_leave(self.world, self.status)
            del self.handle, self.world

    def __exit__(self, kind, error, trace):
        error and self in _open and self.fail(error)
        self.close()

    def _out(self, function, kind, *arguments):
        out = kind()
        check(function(self.handle, *arguments, ctypes.byref(out)))
        return out

    # What is one call.
    __enter__ = lambda self: self
    updates = property(lambda self: lib.ndp_trainer_updates(self.handle))
    shape = lambda self: self._out(lib.ndp_trainer_shape, c.ndp_loop_shape)
    norm = lambda self: self._out(lib.ndp_trainer_norm, ctypes.c_double).value
    update = lambda self: self._out(lib.ndp_trainer_update, c.ndp_update_info)
    barrier = lambda self: check(lib.ndp_world_barrier(self.world))
    save = lambda self, folder=None: check(lib.ndp_trainer_save(self.handle, folder and os.fsencode(folder)))
    export = lambda self, folder=None: check(lib.ndp_trainer_export(self.handle, folder and os.fsencode(folder)))
    set_state = lambda self, data: check(lib.ndp_trainer_set_state(self.handle, data, len(data)))
    _find = lambda self, name: lib.ndp_trainer_find(self.handle, name.encode())

    def sample(self, number):
        """A sample of the job's own data (data.files), as a batch."""
        length, names = self.shape().length, ("ids", "labels", "positions", "documents")
        rows = [(ctypes.c_int32 * length)() for _ in names]
        check(lib.ndp_trainer_sample(self.handle, number, *rows))
        return {name: memoryview(row).cast("B").cast("i", [1, length]) for name, row in zip(names, rows)}

    def begin(self, divide="tokens", divide_by=1, lr=math.nan, max_grad_norm=math.nan, calls=1):
        how = getattr(c, f"DIVIDE_{divide.upper()}")
        check(lib.ndp_trainer_begin(self.handle, c.ndp_update_opts(how, divide_by, lr, max_grad_norm, calls)))

    forward_backward = lambda self, batches: self._call(lib.ndp_trainer_forward_backward, batches)

    def _call(self, function, batches, answer=None):
        """One of the functions of loop.h that compute gradients; `answer`: what it calls, None: nothing."""
        rows, raised = _read_batches(batches), []

        def call(_user, *given):
            try:
                answer(*given)
            except BaseException as e:  # nothing may cross C: it is raised again below
                raised.append(e)
            return c.EINVAL if raised else c.OK

        try:
            return self._out(function, c.ndp_call_info, rows, len(rows), *((function.argtypes[3](call), None) if answer else ()))
        except Error as e:
            raise (raised or [e])[0]

    def forward_backward_with(self, batches, loss):
        """loss(logp, slopes) gets log-probabilities [samples, length], writes its derivatives by them, and returns a number."""
        def answer(logp, samples, length, slopes, out):
            out[0] = loss(_view(logp, samples, length), _view(slopes, samples, length)) if samples else 0
        return self._call(lib.ndp_trainer_forward_backward_with, batches, answer)

    def forward_backward_logits(self, batches, loss):
        """loss(rows) gets samples, tokens, labels and logits [n, vocabulary] of some tokens, and writes their losses and the
        slopes, its derivatives by logits. The job has train.own_logits: true."""
        def answer(given):
            r, wide = given.contents, "_f64" * bool(given.contents.logits_f64)
            numbers = {name: _view(getattr(r, name), r.n) for name in ("samples", "tokens", "labels", "losses")}
            loss(SimpleNamespace(**numbers, **{k: _view(getattr(r, k + wide), r.n, r.vocabulary) for k in ("logits", "slopes")}))
        return self._call(lib.ndp_trainer_forward_backward_logits, batches, answer)

    def forward(self, batches, wanted=("logp",)):
        """Of each token what is wanted of logp, entropy and best: arrays, one batch after the other."""
        rows, kinds = _read_batches(batches), dict(c.ndp_token_values._fields_)
        size = sum(row.samples * row.length for row in rows)
        out = {name: (kinds[name]._type_ * max(size, 1))() for name in wanted}
        check(lib.ndp_trainer_forward(self.handle, rows, len(rows), ctypes.byref(c.ndp_token_values(**out))))
        return {name: array(room._type_._type_, bytes(room))[:size] for name, room in out.items()}

    def tensors(self):
        """The names of the model's tensors, and how many elements each has."""
        size = ctypes.c_int64()
        return {lib.ndp_trainer_tensor(self.handle, i, ctypes.byref(size)).decode(): size.value
                for i in range(lib.ndp_trainer_tensors(self.handle))}

    def read(self, name, which="weight"):
        """A whole tensor, the last update's gradient of it ("gradient"), or a state of its optimizer ("state0", "state1")."""
        unknown("the model", [name], tuple(self.tensors()))
        out = (ctypes.c_double * self.tensors()[name])()
        check(lib.ndp_trainer_read(self.handle, getattr(c, which.upper()), self._find(name), out))
        return array("d", bytes(out))

    def write(self, name, values, which="weight"):
        """Replaces a whole tensor, or a state; every rank gives the same numbers."""
        numbers, _shape = array_of(values, ctypes.c_double, name)
        self.tensors().get(name) == len(numbers) or fail(f"write: {len(numbers)} numbers for {name}: see tensors()")
        check(lib.ndp_trainer_write(self.handle, getattr(c, which.upper()), self._find(name), numbers))

    def reduce(self, values, how="sum", by_data=True):
        """Sums ("sum") or maxima ("max") of numbers over the data ranks, or over all ranks."""
        room = (ctypes.c_double * len(values))(*values)
        check(lib.ndp_trainer_reduce(self.handle, room, len(room), getattr(c, f"REDUCE_{how.upper()}"), by_data))
        return list(room)

    def gather(self, values):
        """The numbers of each data rank, which may have several lengths, as lists."""
        most = int(self.reduce([len(values)], "max")[0]) + 1
        own, out = (ctypes.c_double * most)(len(values), *values), (ctypes.c_double * (most * self.shape().data_ranks))()
        check(lib.ndp_trainer_gather(self.handle, own, most, out))
        return [out[at + 1:at + 1 + int(out[at])] for at in range(0, len(out), most)]

    def log(self, numbers):
        """Appends the newest update to metrics.jsonl of train.output_dir, with numbers of your own by their names."""
        rows = [c.ndp_named_number(name.encode(), float(value)) for name, value in numbers.items()]
        check(lib.ndp_trainer_log(self.handle, (c.ndp_named_number * max(1, len(rows)))(*rows), len(rows)))

    def state(self):
        """Bytes of your own, of rank 0, that are in checkpoints."""
        data, size = ctypes.c_void_p(), ctypes.c_int64()
        check(lib.ndp_trainer_state(self.handle, ctypes.byref(data), ctypes.byref(size)))
        return ctypes.string_at(data, size.value)

    def resume(self, folder=None, step=-1):
        """Loads the newest checkpoint, or that of `step`; returns its step, -1 if there is none."""
        return self._out(lib.ndp_trainer_resume_from, ctypes.c_int64, folder and os.fsencode(folder), step).value
