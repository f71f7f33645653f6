"""Compares every published job that `config import` takes with what the other program's own parser makes of the file: batch,
steps, learning rate and its schedule, optimizer, adapter, lengths. Nothing is trained.

    python check_examples.py PROGRAM axolotl FOLDER        its examples/, as $NDP_TEST_DATA/axolotl has them
    python check_examples.py PROGRAM llamafactory          the jobs of ../import/files/published, and those of FOLDER, if given

Prints for each value how many jobs were compared and how many differ; the exit code is 1 if one does. A job that the other program
itself does not take is left out, and named. It needs a Python with the program (README.md, "Imports").
"""

import collections
import contextlib
import io
import math
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import types

import yaml

HERE = pathlib.Path(__file__).parent
STEPS = 1000  # of a run whose length follows from the data
SCHEDULES = {"cosine_with_min_lr": "cosine", "cosine_warmup_with_min_lr": "cosine", "constant_with_warmup": "constant",
             "cosine_with_restarts": "cosine_restarts", "warmup_stable_decay": "wsd"}
OPTIMIZERS = {"muon": "muon_spectral", "adamw": "adamw", "paged_adamw": "adamw", "sgd": "sgd", "lion": "lion", "paged_lion": "lion", "ao_adamw": "adamw8bit"}


def optimizer_of(name):
    if "8bit" in name or "4bit" in name:
        return "adamw8bit"
    return OPTIMIZERS[max((stem for stem in OPTIMIZERS if name.startswith(stem)), key=len)]


# ---- theirs ----


def trainers(kwargs, steps):
    """What transformers' Trainer has from these arguments; `steps`: of the run."""
    name = str(kwargs.get("lr_scheduler_type", "linear")).split(".")[-1].lower()
    warmup = kwargs.get("warmup_steps") or 0
    warmup = math.ceil(steps * warmup) if 0 < warmup < 1 else int(warmup)
    return {"micro_batch_size": kwargs.get("per_device_train_batch_size", 8), "accumulation": kwargs.get("gradient_accumulation_steps", 1),
            "learning_rate": float(kwargs.get("learning_rate", 5e-5)), "schedule": SCHEDULES.get(name, name),
            "warmup": 0 if name == "constant" else warmup, "weight_decay": float(kwargs.get("weight_decay") or 0),
            "betas": [float(kwargs.get("adam_beta1", 0.9)), float(kwargs.get("adam_beta2", 0.999))],
            "eps": float(kwargs.get("adam_epsilon", 1e-8)), "max_grad_norm": float(kwargs.get("max_grad_norm", 1.0)),
            "seed": int(kwargs.get("seed", 42))}


def axolotl_targets(cfg):
    targets = cfg.lora_target_modules
    if cfg.lora_target_linear:
        return ["linear"]
    return sorted(targets) if isinstance(targets, list) else [f"regex:{targets}" if re.search(r"[\\()|+^$]", targets) else targets]


def of_axolotl(path):
    from axolotl.core.builders import HFCausalTrainerBuilder
    from axolotl.cli.config import prepare_plugins
    from axolotl.utils.config import validate_config
    from axolotl.utils.dict import DictDefault
    cfg = DictDefault(yaml.safe_load(open(path)))
    sys.modules.setdefault("ring_flash_attn", types.ModuleType("ring_flash_attn"))  # context parallelism asks for it
    prepare_plugins(cfg)
    cfg = validate_config(cfg)
    cfg.gradient_accumulation_steps = cfg.gradient_accumulation_steps or cfg.batch_size // cfg.micro_batch_size
    steps = cfg.max_steps or STEPS
    builder = HFCausalTrainerBuilder.__new__(HFCausalTrainerBuilder)
    builder.cfg, builder._train_dataset, builder._eval_dataset = cfg, None, [] if cfg.val_set_size or cfg.test_datasets else None
    kwargs, _ = builder._set_base_training_args(steps)
    found = trainers(kwargs, steps)
    found |= {"optimizer": optimizer_of(str(cfg.optimizer).split(".")[-1].lower()), "sequence_length": cfg.sequence_len,
              "packing": bool(cfg.sample_packing), "adapter": "qlora" if cfg.adapter and (cfg.load_in_4bit or cfg.load_in_8bit) else str(cfg.adapter or "none"),
              "validation": cfg.val_set_size or 0}
    found["steps" if cfg.max_steps else "epochs"] = cfg.max_steps or float(cfg.num_epochs)
    if cfg.rl:
        del found["packing"], found["sequence_length"]
    if cfg.adapter:
        found |= {"r": cfg.lora_r, "alpha": float(cfg.lora_alpha), "dropout": float(cfg.lora_dropout or 0)}
        if not cfg.lora_target_parameters:
            found["targets"] = axolotl_targets(cfg)
    return found


def of_llamafactory(path):
    from llamafactory.hparams import get_train_args
    keys = {k: v for k, v in yaml.safe_load(open(path)).items() if k not in ("deepspeed", "fsdp", "ray_run_name", "report_to")}
    keys = {k: v for k, v in keys.items() if not k.startswith(("ray_", "placement_", "resources_"))}
    _, data, training, tuning, _ = get_train_args(keys | {"use_cpu": True, "bf16": False, "pure_bf16": False, "report_to": "none"})
    steps = training.max_steps if training.max_steps > 0 else STEPS
    found = trainers(training.to_dict() | {"warmup_steps": training.get_warmup_steps(steps)}, steps)
    found |= {"optimizer": "muon" if tuning.use_muon else optimizer_of(str(training.optim).split(".")[-1].lower()),
              "sequence_length": data.cutoff_len, "adapter": {"full": "none"}.get(tuning.finetuning_type, tuning.finetuning_type),
              "max_documents": data.max_samples, "validation": data.val_size, "packing": bool(data.packing)}
    if keys.get("quantization_bit"):
        found["adapter"] = "qlora"
    found["steps" if training.max_steps > 0 else "epochs"] = training.max_steps if training.max_steps > 0 else float(training.num_train_epochs)
    if tuning.stage in ("dpo", "kto"):
        found |= {"beta": float(tuning.pref_beta)}
        del found["packing"]
    if tuning.finetuning_type == "lora":
        found |= {"r": tuning.lora_rank, "alpha": float(tuning.lora_alpha), "dropout": float(tuning.lora_dropout),
                  "targets": ["linear"] if tuning.lora_target == ["all"] else sorted(tuning.lora_target)}
    return found


# ---- ours ----


def ours(program, path, folder, defaults, options):
    done = subprocess.run([program, "config", "import", str(path), *options], cwd=folder, capture_output=True, text=True)
    if done.returncode != 0:
        return None
    given = yaml.safe_load(done.stdout)
    job = {section: (values or {}) | (given.get(section) or {}) for section, values in defaults.items()}
    batch, mesh, optimizer, schedule, data = (job[s] for s in ("batch", "parallelism", "optimizer", "schedule", "data"))
    targets = job["adapter"]["targets"] or []  # beside linear, names of projections add nothing
    pairs = data["format"] == "preference" and job["loss"]["name"] != "kto"
    steps = given["train"].get("steps") or STEPS
    micro = batch["micro_batch_size"] // (2 if pairs else 1)
    warmup = schedule["warmup_steps"] if "warmup_steps" in given.get("schedule", {}) else None
    return {"micro_batch_size": micro, "targets": ["linear"] if "linear" in targets else sorted(targets), "beta": float(job["loss"]["beta"]),
            "accumulation": batch["global_batch_size"] // batch["micro_batch_size"] // (mesh["dp_replicate_size"] * mesh["dp_shard_size"]),
            "learning_rate": float(optimizer["lr"]), "schedule": schedule["name"], "ratio": float(schedule["warmup_ratio"] or 0),
            "warmup": warmup if warmup is not None else math.ceil(float(schedule["warmup_ratio"] or 0) * steps - 1e-9),
            "weight_decay": float(optimizer["weight_decay"]), "betas": [float(b) for b in optimizer["betas"]],
            "eps": float(optimizer["eps"]), "max_grad_norm": float(optimizer["max_grad_norm"]), "seed": job["train"]["seed"],
            "optimizer": optimizer["name"], "sequence_length": data["sequence_length"], "packing": data["packing"],
            "adapter": job["adapter"]["type"], "validation": data["validation_fraction"], "steps": job["train"]["steps"],
            "epochs": float(job["train"]["epochs"] or 0), "r": job["adapter"]["r"], "alpha": float(job["adapter"]["alpha"]),
            "dropout": float(job["adapter"]["dropout"]), "max_documents": data["max_documents"] or None}


# ---- compared ----


def jobs_of_lines(folder):
    """The jobs of ../import/files/published/llamafactory as files: what all share, with the keys of each."""
    shared = {}
    for line in open(HERE.parent / "import" / "files" / "published" / "llamafactory"):
        name, _, keys = line.strip().partition(" ")
        if name == "=":
            shared = yaml.safe_load("{" + keys + "}")
        elif name and name != "#":
            job = {k: v for k, v in (shared | (yaml.safe_load("{" + keys + "}") or {})).items() if v is not None}
            path = pathlib.Path(folder) / (name.replace("/", "_") + ".yaml")
            path.write_text(yaml.safe_dump(job))
            yield path


def near(a, b):
    return abs(a - b) <= 1e-9 * abs(a) if isinstance(a, float) and isinstance(b, (int, float)) else a == b


def compare(theirs, mine, name, compared, wrong):
    for key, value in theirs.items():
        compared[key] += 1
        if not near(value, mine[key]):
            wrong[key].append(f"{name}: {value}, ours {mine[key]}")


def main(program, kind, folder=None):
    program, options = str(pathlib.Path(program).resolve()), []
    defaults = yaml.safe_load(subprocess.run([program, "config", "--defaults"], capture_output=True, text=True, check=True).stdout)
    os.environ |= {"HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": "", "AXOLOTL_DO_NOT_TRACK": "1", "TRANSFORMERS_VERBOSITY": "error"}
    compared, wrong, left, imported, jobs = collections.Counter(), collections.defaultdict(list), [], 0, 0
    with tempfile.TemporaryDirectory() as scratch:
        where = folder or scratch
        files = sorted(p for p in pathlib.Path(where).rglob("*.y*ml")) if folder else []
        if kind == "axolotl":
            files = [p for p in files if re.search("^base_model:", p.read_text(), re.M)]
        else:
            files = [*jobs_of_lines(scratch), *(p for p in files if re.search("^finetuning_type:", p.read_text(), re.M))]
        os.chdir(where)
        for path in files:
            jobs += 1
            path = path.resolve()
            mine = ours(program, path, where, defaults, options)
            if mine is None:
                continue
            imported += 1
            try:
                with contextlib.redirect_stdout(io.StringIO()):
                    theirs = {"axolotl": of_axolotl, "llamafactory": of_llamafactory}[kind](path)
            except (Exception, SystemExit) as error:
                left.append(f"{path.name}: {' '.join(str(error).split())[:230] or repr(error)}")
                continue
            compare(theirs, mine, path.name, compared, wrong)
    print(f"{imported} of {jobs} jobs are imported; {imported - len(left)} compared with {kind}'s own parser")
    for line in left:
        print("  left out:", line)
    for key, n in compared.items():
        print(f"{key:18} {n:4} compared {len(wrong[key]):4} wrong")
        for line in wrong[key]:
            print("    ", line)
    return 1 if any(wrong.values()) else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
