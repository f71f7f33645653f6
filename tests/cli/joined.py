"""A rank that joins its world, without a body function: LIBRARY JOB.YAML [fail]. Rank 0 prints the losses of three steps. With
`fail`, rank 1 leaves with an error after the first step."""
import ctypes
import sys

ndp = ctypes.CDLL(sys.argv[1])
ndp.ndp_error_message.restype = ctypes.c_char_p
ndp.ndp_world_fail.restype = ctypes.c_bool
NDP_EINVAL = 1


class Metrics(ctypes.Structure):
    """The beginning of ndp_metrics, with room for the rest."""
    _fields_ = [("step", ctypes.c_int64), ("loss", ctypes.c_double), ("rest", ctypes.c_char * 1024)]


config, world, trainer, metrics = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p(), Metrics()
status = ndp.ndp_config_create(ctypes.byref(config)) or ndp.ndp_config_read(config, sys.argv[2].encode())
status = status or ndp.ndp_world_join(config, ctypes.byref(world))
rank = ndp.ndp_world_rank(world)
status = status or ndp.ndp_trainer_create(config, world, ctypes.byref(trainer))
losses = []
while status == 0 and metrics.step < 3:
    status = ndp.ndp_trainer_step(trainer, ctypes.byref(metrics))
    losses.append(metrics.loss)
    if sys.argv[3:] == ["fail"] and rank == 1:
        status = ndp.ndp_config_set(config, b"optimizer.rate=1")
if status != 0 and (not world or ndp.ndp_world_fail(world)):
    print(f"rank {rank}:", ndp.ndp_error_message().decode(), file=sys.stderr)
ndp.ndp_trainer_destroy(trainer)
ndp.ndp_world_leave(world, status)
ndp.ndp_config_destroy(config)
if status == 0 and rank == 0:
    print(*(f"{loss:.4f}" for loss in losses))
sys.exit(2 if status == NDP_EINVAL else 1 if status else 0)
