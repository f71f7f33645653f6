"""ndparallel from Python: the training loop of Hugging Face Accelerate (Accelerator), and the library's own (Trainer)."""
from ._accelerate import (Accelerator, AdamW, AutoModelForCausalLM, DistributedType, ParallelismConfig, get_constant_schedule,
                          get_constant_schedule_with_warmup, get_cosine_schedule_with_warmup, get_linear_schedule_with_warmup,
                          get_scheduler, set_seed, skip_first_batches)
from ._library import REFUSED, Config, Error, lib, unknown
from ._trainer import Trainer

__version__ = lib.ndp_build().decode().split()[0]


def __getattr__(name):
    """What Accelerate has and this package has not, as an import of a script asks for it."""
    unknown("ndparallel", [name] * (("ndparallel()", name) in REFUSED))
    raise AttributeError(f"ndparallel has no '{name}'")
