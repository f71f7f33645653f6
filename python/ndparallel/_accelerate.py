"""The loop of Hugging Face Accelerate over the trainer of own batches.

Gradients are divided once, by the tokens of all batches of the update. Numbers that come after backward (the
bound of clip_grad_norm_, the number of calls) are first taken from the update before; if they differ, the update is begun anew
and its calls run again, in practice once a script."""
import ctypes
import json
import math
import os
import random
import signal
import sys
import tempfile
from contextlib import contextmanager, nullcontext
from functools import partial
from threading import current_thread, main_thread

from ._batches import Loader, Round, longest, skip_first_batches
from ._library import STATUS, Config, Refusing, fail, lib, unknown
from ._tensors import view
from ._trainer import Trainer

_OF_LINE = ("step", "epoch", "loss", "grad_norm", "lr")
AXES = ("dp_replicate_size", "dp_shard_size", "cp_size", "sp_size", "tp_size", "pp_size", "ep_size")
_FREE = ("config", "low_cpu_mem_usage", "trust_remote_code", "from_tf", "use_cache")  # what transformers may do as it likes
DistributedType = type("DistributedType", (), {n: n for n in ("NO", "MULTI_CPU", "MULTI_GPU", "FSDP", "DEEPSPEED", "XLA")})
_seed = {}


def _number(value, what):
    return value if isinstance(value, (int, float)) else fail(f"{what} is a {type(value).__name__}; it must be a number")


def set_seed(seed):
    """Of random weights, and of random, numpy and torch where they are imported."""
    _seed["train.seed"] = seed
    random.seed(seed)
    "numpy" in sys.modules and sys.modules["numpy"].random.seed(seed)
    "torch" in sys.modules and sys.modules["torch"].manual_seed(seed)


class ParallelismConfig:
    """The sizes of the layout, whose product is the number of ranks."""
    def __init__(self, **sizes):
        unknown("ParallelismConfig", sizes, AXES)
        self.sizes = {name: _number(sizes.get(name) or 1, name) for name in AXES}
        self.ranks = math.prod(self.sizes[name] for name in AXES[:-1])


class _Named(str):
    """A tensor of a model, for groups of AdamW."""
    name, requires_grad = property(str), True


class Model(Refusing):
    """Has no weights before the first batch, which says how large the trainer is."""
    def __init__(self, settings, folder=None):
        self.place, self.name = "model", "vectors"  # of an accelerator, and in a group of AdamW
        self.settings, self.accelerator, self._folder = settings, None, folder

    no_sync = lambda self: nullcontext()
    named_parameters = lambda self: [(name, _Named(name)) for name in Config(self.settings).tensors()]
    gradient_checkpointing_enable = lambda self: self.settings.update({"train.recompute": "block"})
    parameters = lambda self: [self]  # one handle for all of them
    train = eval = lambda self, mode=True: self
    to = lambda self, on: self if str(on) == "cpu" else fail(f"model.to({on}): the device is the setting train.device", "ENOTSUP")

    def save_pretrained(self, save_directory, is_main_process=True, save_function=None, **options):
        self.accelerator.save_model(self, save_directory, **options)

    def __call__(self, num_items_in_batch=None, use_cache=None, return_dict=None, **batch):
        return Outputs(self.accelerator or fail("the model was not prepared: use accelerator.prepare"), batch, num_items_in_batch)


class AutoModelForCausalLM:
    from_pretrained = staticmethod(lambda name, **o: unknown("from_pretrained", o, _FREE) or Model({"model.path": str(name)}))

    @staticmethod
    def from_config(config, **options):
        """Random weights. `config`: a config.json or its folder, a dictionary, or a configuration of transformers."""
        unknown("from_config", options, _FREE)
        if isinstance(config, (str, os.PathLike)):
            return Model({"model.config": os.path.join(config, "config.json") if os.path.isdir(config) else os.fspath(config)})
        folder = tempfile.TemporaryDirectory(prefix="ndparallel-")
        with open(os.path.join(folder.name, "config.json"), "w") as file:
            file.write(json.dumps(config) if isinstance(config, dict) else config.to_json_string(use_diff=False))
        return Model({"model.config": file.name}, folder)


class AdamW(Refusing):
    """As torch.optim.AdamW decays all tensors; without `decay_vectors` not those of one dimension. `params`:
    model.parameters(), or groups of named_parameters() with `weight_decay` and `lr` of their own."""
    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=1e-2, decay_vectors=True, **options):
        unknown("AdamW", options)
        params, self.place, self.accelerator, self.step_was_skipped = list(params), "optimizer", None, False
        self.param_groups, entries = [{"params": params, "lr": _number(lr, "lr")}], []
        for group in params if params and isinstance(params[0], dict) else [{"params": params}]:
            unknown("a group of AdamW", group, ("params", "lr", "weight_decay"))
            names = [getattr(each, "name", None) or fail("AdamW: params must be model.parameters() of this package, or groups of "
                                                         "its named_parameters()") for each in group["params"]]
            if names and (decay_vectors or names != ["vectors"]):
                entries.append({"params": names, "weight_decay": group.get("weight_decay", weight_decay),
                                "lr_scale": group.get("lr", lr) / lr})
        self.settings = {"optimizer.name": "adamw", "optimizer.lr": lr, "optimizer.betas": list(betas), "optimizer.eps": eps,
                         "optimizer.weight_decay": weight_decay, "schedule.name": "constant", "schedule.warmup_steps": 0,
                         "optimizer.groups": entries}

    step = lambda self: (self.accelerator or fail("the optimizer was not prepared: accelerator.prepare(optimizer)")).step(self)
    zero_grad = lambda self, set_to_none=True: self.accelerator and self.accelerator.sync_gradients and self.accelerator.drop()


_cosine = lambda x, cycles=0.5: 0.5 * (1 + math.cos(math.pi * 2 * cycles * x))  # noqa: E731
_SHAPES = {"constant": lambda x: 1, "constant_with_warmup": lambda x: 1, "linear": lambda x: 1 - x,
           "cosine": lambda x, num_cycles=0.5: max(0, _cosine(x, num_cycles)),
           "cosine_with_restarts": lambda x, num_cycles=1: _cosine(num_cycles * x % 1) if x < 1 else 0,
           "cosine_with_min_lr": lambda x, min_lr_rate, num_cycles=0.5: min_lr_rate + (1 - min_lr_rate) * _cosine(x, num_cycles)}


class Scheduler(Refusing):
    """A learning rate for each update, by the formulas of transformers. As in Accelerate an update is a step for each batch of
    the loader, one on each data rank."""
    def __init__(self, name, optimizer, num_warmup_steps=0, num_training_steps=None, scheduler_specific_kwargs=None):
        name, options = getattr(name, "value", name), scheduler_specific_kwargs or {}
        unknown("get_scheduler", [name], tuple(_SHAPES))
        isinstance(optimizer, AdamW) or fail(f"get_scheduler: a {type(optimizer).__name__}; use AdamW of this package")
        num_training_steps or name.startswith("constant") or fail(f"get_scheduler: {name} needs num_training_steps")
        self.place, self.accelerator, self.optimizer, self.steps = "scheduler", None, optimizer, num_training_steps
        base, warmup = optimizer.param_groups[0]["lr"], num_warmup_steps * (name != "constant")
        rest = max(1, (num_training_steps or 0) - warmup)
        self._lr = lambda n: base * (n / warmup if n < warmup else _SHAPES[name](min(1, (n - warmup) / rest), **options))
        self.to(0)

    def to(self, count):
        self.count, self.optimizer.param_groups[0]["lr"] = count, self._lr(count)

    def step(self):
        if not self.accelerator or (self.accelerator.sync_gradients and not self.optimizer.step_was_skipped):
            self.to(self.count + (self.accelerator.data_ranks if self.accelerator else 1))

    get_last_lr = lambda self: [self.optimizer.param_groups[0]["lr"]]


get_scheduler = Scheduler
get_constant_schedule, get_constant_schedule_with_warmup, get_linear_schedule_with_warmup, get_cosine_schedule_with_warmup = (
    partial(Scheduler, name) for name in ("constant", "constant_with_warmup", "linear", "cosine"))


class Loss(Refusing):
    """Computed when it is asked for: the mean over the tokens of the batches of all data ranks. A sum of losses is a number,
    without outputs, of which scripts ask what they ask of a tensor."""
    def __init__(self, outputs, scale=1.0):
        self.outputs, self.scale = outputs, scale

    item = lambda self: self.scale * (self.outputs.mean() if self.outputs else 1)
    detach = float = cpu = mean = sum = lambda self, *_: self
    new_tensor = lambda self, numbers: sys.modules["torch"].tensor(numbers) if "torch" in sys.modules else numbers
    repeat = lambda self, n: self.new_tensor([self.item()] * n)
    __add__ = __radd__ = lambda self, other: Loss(None, float(self) + float(other))
    __mul__ = __rmul__ = lambda self, by: Loss(self.outputs, self.scale * _number(by, "what a loss is multiplied by"))
    __truediv__ = lambda self, by: Loss(self.outputs, self.scale / _number(by, "what a loss is divided by"))
    __format__ = lambda self, form: format(self.item(), form)
    __float__, __str__ = item, lambda self: str(self.item())


class Outputs(Refusing):
    """What model(**batch) returns. With num_items_in_batch, of all data ranks, a loss is their mean of sums divided by it."""
    def __init__(self, accelerator, batch, items):
        accelerator.trainer or accelerator.start(batch)
        rounds = accelerator.round.window if accelerator.round and "input_ids" in batch else ()
        of_loader = (each for each in rounds if all(value is each.shown.get(name) for name, value in batch.items()))
        self.round = next(of_loader, None) or Round([batch], 0)
        self.trainer, self._sum, self.items = accelerator.trainer, None, items and float(items) * accelerator.num_processes
        self.round.own()  # rows that cannot be fail here
        self._update, self.loss = self.trainer.updates, Loss(self) if batch.get("labels") is not None else None

    __getitem__ = lambda self, name: getattr(self, "loss" if name == 0 else name)
    log_probs = property(lambda self: self._forward("logp", self.round.own()))
    entropies = property(lambda self: self._forward("entropy", self.round.own()))
    predictions = property(lambda self: self._forward("best", self.round.own()))

    def _forward(self, what, batches):
        self._update == self.trainer.updates or fail("the weights have changed since this batch; ask before optimizer.step()")
        values = iter(self.trainer.forward(batches, [what])[what])
        return [[next(values) for _ in ids] for batch in batches for ids in batch["ids"]]

    def mean(self):
        if self._sum is None:
            rows = self._forward("logp", self.round.all() if self.round.window else self.round.own())
            self._sum = -math.fsum(map(math.fsum, rows))
        return self._sum / (self.items or self.round.tokens() or math.nan)


def _like(value, numbers, shape):
    new = getattr(value, "new_tensor", list)(numbers)
    return new.reshape(shape) if hasattr(new, "reshape") else new


class Accelerator(Refusing):
    """`settings`: keys of a job file (`ndparallel config`); data.sequence_length, the longest row, is that of the first batch."""
    skip_first_batches = staticmethod(skip_first_batches)
    unwrap_model = lambda self, model, **options: model
    no_sync = lambda self, model: nullcontext()
    init_trackers = lambda self, project_name, config=None, init_kwargs=None: None
    save = lambda self, *_, **options: fail("save: use save_state, or save_model, which needs no save_function", "ENOTSUP")
    end_training = lambda self: self._met and self._met.close()
    device, _met, trainer, model, optimizer, scheduler, round, last_update = "cpu", *[None] * 7
    sync_gradients, _accumulating, _stopping, _manual, _resume = True, False, False, False, None
    _max_norm, _registered, loaders = 1.0, (), ()

    def __init__(self, parallelism_config=None, gradient_accumulation_steps=1, mixed_precision="no", project_dir=None,
                 log_with=None, cpu=True, settings=(), **options):
        unknown("Accelerator", options)
        launched = ctypes.c_int(1)
        self.ranks = launched.value if lib.ndp_world_launched(ctypes.byref(launched)) else 1
        self.process_index = lib.ndp_world_launched_rank()
        layout = self.parallelism_config = parallelism_config or ParallelismConfig(dp_replicate_size=self.ranks)
        isinstance(layout, ParallelismConfig) or fail(f"parallelism_config is a {type(layout).__name__}; use ours")
        layout.ranks == self.ranks or fail(f"the layout has {layout.ranks} ranks, this is one of {self.ranks}: "
                                           f"ndparallel launch -n {layout.ranks} script.py")
        self.is_main_process = self.is_local_main_process = self.process_index == 0
        self.gradient_accumulation_steps = int(_number(gradient_accumulation_steps, "gradient_accumulation_steps"))
        self.sizes, self.mixed_precision = layout.sizes, mixed_precision or "no"
        self.num_processes = self.data_ranks = self.sizes["dp_replicate_size"] * self.sizes["dp_shard_size"]
        self.distributed_type = DistributedType.MULTI_CPU if self.ranks > 1 else DistributedType.NO
        log_with and self.print(f"log_with {log_with}: log() writes to {project_dir or 'run'}/metrics.jsonl", file=sys.stderr)
        self.settings = {**{f"parallelism.{name}": size for name, size in layout.sizes.items()},
                         "precision.compute": self.mixed_precision.replace("no", "fp32"),
                         **({"train.output_dir": os.fspath(project_dir)} if project_dir else {}), **dict(settings)}
        self.drop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1) if current_thread() is main_thread() else ():
            if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):
                signal.signal(number, self._stop)  # a forked loader goes on at Ctrl-C, and ends as others end it
                in_fork = signal.SIG_IGN if number == signal.SIGINT else signal.SIG_DFL
                os.register_at_fork(after_in_child=partial(signal.signal, number, in_fork))

    def prepare(self, *things):
        return tuple(map(self._prepare, things)) if len(things) != 1 else self._prepare(*things)

    def _prepare(self, x):
        if isinstance(x, (Model, AdamW, Scheduler)):
            x.accelerator = self
            setattr(self, x.place, x)
            return x
        hasattr(x, "__iter__") and not hasattr(x, "named_parameters") or fail(f"prepare: a {type(x).__name__}; use our "
            "AutoModelForCausalLM, AdamW and get_scheduler; a loader is an iterable of dictionaries", "ENOTSUP")
        self.loaders += (x if isinstance(x, Loader) else Loader(self, x),)
        return self.loaders[-1]

    def start(self, batch):
        """Makes the trainer, of calls of such batches."""
        hasattr(batch, "keys") or fail(f"a {type(batch).__name__} is no batch; a loader gives dictionaries with input_ids")
        self.model or fail("no model was prepared: accelerator.prepare(model, ...)")
        shape = view(batch["input_ids"], "input_ids")[1] if batch.get("input_ids") is not None else ()
        len(shape) == 2 or fail(f"input_ids has shape {list(shape)}; it must be [samples, length]")
        parts = self.sizes["sp_size"] * self.sizes["tp_size"] * self.sizes["cp_size"] * (2 if self.sizes["cp_size"] > 1 else 1)
        config = Config({
            "train.own_batches": True, "data.sequence_length": -(-max(shape[1], *map(longest, self.loaders), 0) // parts) * parts,
            "batch.micro_batch_size": shape[0], "batch.global_batch_size": shape[0] * self.data_ranks, **_seed,
            "train.steps": math.ceil((self.scheduler and self.scheduler.steps or 1 << 30) / self.data_ranks),
            **self.model.settings, **(self.optimizer.settings if self.optimizer else {}), **self.settings})
        self._meet(config).create(config)
        self.trainer, self.data_rank = self._met, self._met.shape().data_rank
        self._resume is None or self.load_state(*self._resume)

    # ---- an update: its calls are (outputs, scale, how many calls, tokens of all of these) ----

    @contextmanager
    def accumulate(self, *models):
        self.round or self.gradient_accumulation_steps == 1 or fail("accumulate: accelerator.prepare(loader) first")
        self._accumulating, self.sync_gradients = True, not self.round or self.round is self.round.window[-1]
        yield
        self._accumulating = False

    def backward(self, loss):
        isinstance(loss, Loss) and loss.outputs or fail(
            f"backward: a {type(loss).__name__}; give outputs.loss, times a number, or Trainer.forward_backward_with", "ENOTSUP")
        self.optimizer or fail("backward: prepare an optimizer first")
        loss.outputs.round.window or self.data_ranks == 1 or fail("backward: give a batch of a prepared loader, which counts tokens")
        outputs, unit = loss.outputs, self._accumulating and loss.outputs.round.window or [loss.outputs.round]
        scale = loss.scale / (1 if self._accumulating and not outputs.items else self.gradient_accumulation_steps)
        self._calls.append((outputs, scale, len(unit), outputs.items or sum(each.tokens() for each in unit)))
        self._manual |= len(self._calls) > self._calls[0][2]
        self._settle() or self._run(*self._calls[-1])

    def _settle(self):
        """Begins the update if that was not done with these numbers; true if its calls were run."""
        self._calls or fail("there is no gradient: call accelerator.backward first")
        wanted = self.optimizer.param_groups[0]["lr"], self._max_norm, 0 if self._manual else self._calls[0][2]
        if wanted == self._begun:
            return False
        if any(self.trainer.reduce([self._stopping], "max", by_data=False)):
            self.save_state()
            self.print(f"stopped after step {self.trainer.updates}, which is saved")
            self.trainer.status = STATUS.index("EINTR")
            sys.exit(130)
        self.trainer.begin("number", self._calls[0][3], *wanted)
        self._begun = wanted
        return [self._run(*call) for call in self._calls]

    def _run(self, outputs, scale, _calls, tokens):
        weight, batches = scale * (self._calls[0][3] / (tokens or 1)), outputs.round.own()
        for batch in batches if weight != 1 else ():
            batch["weights"] = [[weight] * len(row) for row in batch["ids"]]
        info = self.trainer.forward_backward(batches)
        outputs._sum = info.sum / weight if weight else outputs._sum

    def clip_grad_norm_(self, parameters, max_norm, norm_type=2):
        """The norm of the update's gradient, which step() clips; between the calls of an `accumulate` None."""
        norm_type == 2 or fail(f"clip_grad_norm_: norm_type {norm_type}; it is 2", "ENOTSUP")
        if self.sync_gradients:
            self._max_norm, self._clips = _number(max_norm, "max_norm") if max_norm < math.inf else 0, True
            self._settle()
            return self.trainer.norm()

    def step(self, optimizer):
        if self.sync_gradients:
            self._max_norm = self._max_norm if self._clips else 0
            self._settle()
            self.last_update = self.trainer.update()
            optimizer.step_was_skipped = not self.last_update.applied
            self.drop()

    def drop(self):
        self._calls, self._begun, self._clips = [], None, False

    # ---- the ranks ----

    def _meet(self, config):
        self._met = self._met or Trainer(config, create=False)
        return self._met

    wait_for_everyone = lambda self: self.ranks > 1 and self._meet(self.settings).barrier()

    @contextmanager
    def main_process_first(self):
        self.is_main_process or self.wait_for_everyone()
        yield
        self.is_main_process and self.wait_for_everyone()

    local_main_process_first = main_process_first

    print = lambda self, *words, **options: self.is_main_process and print(*words, **options, flush=True)

    def gather(self, value, ranks=None):
        """Numbers of all data ranks, one after the other: along the first axis of a tensor of torch, else a list."""
        if isinstance(value, tuple):
            return tuple(self.gather(each, ranks) for each in value)
        numbers, shape = view(value, "the value")
        return _like(value, sum(self._made("gather").gather(numbers.tolist())[:ranks], []), (-1, *shape[1:]))

    # The same without the ranks that have no batch at the end of the loader.
    gather_for_metrics = lambda self, value: self.gather(value, self.round and len(self.round.batches))

    def reduce(self, value, reduction="sum", scale=1.0):
        """Sums or means over data ranks of a number, an array or a tensor; a list, or a tensor of torch."""
        unknown("reduce", [reduction], ("sum", "mean"))
        numbers, shape = view(value, "the value")
        by = scale / (self.data_ranks if reduction == "mean" else 1)
        return _like(value, [by * x for x in self._made("reduce").reduce(numbers.tolist())], shape)

    def log(self, values, step=None):
        """Numbers of your own beside the newest update's, whose step the line has, in PROJECT_DIR/metrics.jsonl; log/NAME where
        the line has a NAME. Collective."""
        self._made("log").log({f"log/{name}" if name in _OF_LINE else name: value for name, value in values.items()})

    def _stop(self, number, frame):
        """As `ndparallel train`: the first Ctrl-C ends and saves the update, the second one ends at once."""
        if not self.trainer or (self._stopping and number == signal.SIGINT):
            raise KeyboardInterrupt
        self._stopping = True

    # ---- saves ----

    def register_for_checkpointing(self, *objects):
        """Their state_dict() goes into checkpoints, as JSON, and comes back by load_state_dict()."""
        self._registered += objects

    def save_state(self, output_dir=None):
        """Weights, states and step, in output_dir/step-N; None: PROJECT_DIR/checkpoints."""
        self._made("save_state").set_state(json.dumps([each.state_dict() for each in self._registered]).encode())
        self.trainer.save(output_dir)

    def load_state(self, input_dir=None):
        """The newest checkpoint there, of any layout. A loader that can be iterated again gives its first batch for the trainer;
        else the checkpoint is loaded with the first batch."""
        self._resume = (input_dir,)
        if not self.trainer and self.loaders and iter(self.loaders[0].batches) is not self.loaders[0].batches:
            self.start(next(iter(self.loaders[0].batches)))
        elif self.trainer:
            self.trainer.resume(input_dir) >= 0 or fail(f"load_state: no checkpoint in {input_dir or 'the project folder'}")
            self.scheduler and self.scheduler.to(self.trainer.updates * self.data_ranks)
            [each.load_state_dict(state) for each, state in zip(self._registered, json.loads(self.trainer.state() or "[]"))]

    # A Hugging Face folder.
    save_model = lambda self, model, save_directory, **o: unknown("save_model", o) or self._made("save").export(save_directory)
    _made = lambda self, who: self.trainer or fail(f"{who}: ranks meet with the first batch, which says how large the trainer is")

