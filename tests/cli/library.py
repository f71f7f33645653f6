"""What a program in Python does with the library through ctypes: LIBRARY JOB.YAML [CODE]. Prints the losses of three steps on
two ranks, which are threads that call Python. The CODE runs before the library is loaded."""
import _ctypes
import ctypes
import sys
import threading

library, job = sys.argv[1:3]
exec("".join(sys.argv[3:]))
ndp = ctypes.CDLL(library)
for name in ("ndp_error_message", "ndp_error_trail"):
    getattr(ndp, name).restype = ctypes.c_char_p
NDP_EINVAL = 1


class PlanOptions(ctypes.Structure):
    """ndp_plan_opts"""
    _fields_ = [("rank", ctypes.c_int), ("ranks_per_node", ctypes.c_int), ("program", ctypes.c_bool), ("data", ctypes.c_bool),
                ("schedule", ctypes.c_char_p), ("timeline", ctypes.c_char_p), ("placements", ctypes.c_char_p),
                ("layout_picture", ctypes.c_char_p), ("json", ctypes.c_bool), ("as_run", ctypes.c_bool),
                ("cluster", ctypes.c_char_p), ("cyclic", ctypes.c_bool), ("layouts", ctypes.c_void_p),
                ("n_layouts", ctypes.c_int)]


class Metrics(ctypes.Structure):
    """The beginning of ndp_metrics, with room for the rest."""
    _fields_ = [("step", ctypes.c_int64), ("loss", ctypes.c_double), ("rest", ctypes.c_char * 1024)]


def check(status):
    if status != 0:
        raise RuntimeError(f"{status}: {ndp.ndp_error_message().decode()} ({ndp.ndp_error_trail().decode()})")


def fails(config):
    """The message of an error, in a thread that has had none."""
    assert ndp.ndp_error_message() == b""
    assert ndp.ndp_config_set(config, b"optimizer.rate=1") == NDP_EINVAL
    message = ndp.ndp_error_message().decode()
    assert "optimizer.rate" in message and "config" in ndp.ndp_error_trail().decode(), message


config = ctypes.c_void_p()
check(ndp.ndp_config_create(ctypes.byref(config)))
check(ndp.ndp_config_read(config, job.encode()))

threads = [threading.Thread(target=fails, args=(config,)) for _ in range(4)]
for thread in threads:
    thread.start()
    thread.join()
fails(config)

text = ctypes.c_char_p()
check(ndp.ndp_plan(config, ctypes.byref(PlanOptions(rank=-1)), ctypes.byref(text)))
assert b"2 ranks" in text.value, text.value.decode()

losses = {}


@ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
def body(world, _):
    rank, trainer, metrics = ndp.ndp_world_rank(ctypes.c_void_p(world)), ctypes.c_void_p(), Metrics()
    status = ndp.ndp_trainer_create(config, ctypes.c_void_p(world), ctypes.byref(trainer))
    while status == 0 and metrics.step < 3:
        status = ndp.ndp_trainer_step(trainer, ctypes.byref(metrics))
        losses.setdefault(rank, []).append(metrics.loss)
    if status != 0:
        ndp.ndp_world_fail(ctypes.c_void_p(world))
    ndp.ndp_trainer_destroy(trainer)
    return status


check(ndp.ndp_world_run(config, body, None))
assert sorted(losses) == [0, 1] and len(losses[0]) == 3 and losses[0] == losses[1], losses

# A thread that had an error may end after the library is closed.
failed, closed = threading.Event(), threading.Event()


def outlives_the_library():
    fails(config)
    failed.set()
    closed.wait()


thread = threading.Thread(target=outlives_the_library)
thread.start()
failed.wait()
ndp.ndp_config_destroy(config)
_ctypes.dlclose(ndp._handle)
closed.set()
thread.join()
print(*(f"{loss:.4f}" for loss in losses[0]))
