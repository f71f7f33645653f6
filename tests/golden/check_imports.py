"""Shows that what `config import` makes of another program's job is what that program does with it: for each case the
rows of an update, the number of updates, the learning rate of each, the modules that have factors and the number of
parameters that are trained, and of every record the tokens and which of them are trained on.

    python check_imports.py PROGRAM [--record]

The other program trains a tiny model on its job, and this script looks over its Trainer's shoulder; ours imports the
same file and trains too. Cases of programs that this Python does not have are left out, and named. --record writes what
was found to be equal to ../import/equal, which tests/cli/test_import_equal.sh compares without Python.
"""

import hashlib
import importlib
import inspect
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).parent
KEPT = HERE.parent / "import" / "equal"
LENGTH = 160  # tokens of a row
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
CHATML = ("{% for m in messages %}<|im_start|>{{ m['role'] }}\n{% if m['role'] == 'assistant' %}"
          "{% generation %}{{ m['content'] }}<|im_end|>{% endgeneration %}{% else %}{{ m['content'] }}<|im_end|>"
          "{% endif %}\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")

# ---- the model and the records ----

MODEL = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 259, "hidden_size": 32,
         "intermediate_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2,
         "max_position_embeddings": 512, "tie_word_embeddings": False, "bos_token_id": None, "eos_token_id": 258,
         "pad_token_id": 256, "torch_dtype": "float32"}


def make_model(folder):
    """Weights, and a tokenizer of bytes with the tokens of ChatML."""
    import tokenizers
    import torch
    import transformers
    letters = {c: i for i, c in enumerate(sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet()))}
    t = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=letters, merges=[]))
    t.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.decoder = tokenizers.decoders.ByteLevel()
    t.add_special_tokens(SPECIAL)
    torch.manual_seed(3)
    config = transformers.LlamaConfig(**{k: v for k, v in MODEL.items() if k not in ("architectures", "model_type", "torch_dtype")})
    transformers.LlamaForCausalLM(config).save_pretrained(folder)
    (folder / "config.json").write_text(json.dumps(MODEL, indent=1))
    t.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({
        "tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>",
        "chat_template": CHATML, "model_max_length": 512, "clean_up_tokenization_spaces": False}, indent=1))


WORDS = ["tide", "lamp", "harbour", "keeper", "storm", "rope", "gull", "chart", "fog", "bell", "mast", "anchor"]


def words(k, n):
    return " ".join(WORDS[(5 * k + 3 * i + i * i) % len(WORDS)] for i in range(n))


def lines(records):
    return "".join(json.dumps(r) + "\n" for r in records)


def conversations(n=12):
    """Of one turn and of two, with and without a system message."""
    for k in range(n):
        system = [{"role": "system", "content": words(k, 2)}] if k % 3 == 0 else []
        turns = [{"role": role, "content": words(k + i, 2 + (k + i) % 3)}
                 for i, role in enumerate(["user", "assistant"] * (1 + k % 2))]
        yield {"messages": system + turns}


def completions(n=12):
    for k in range(n):
        yield {"prompt": words(k, 3) + ":", "completion": " " + words(k + 4, 1 + k % 4)}


def instructions(n=12):
    for k in range(n):
        yield {"instruction": words(k, 3), "input": words(k + 2, 2) if k % 2 else "", "output": words(k + 4, 1 + k % 4)}


def texts(n=12):
    for k in range(n):
        yield {"text": words(k, 3 + k % 5)}


def pairs(n=12):
    for k in range(n):
        yield {"prompt": [{"role": "user", "content": words(k, 3)}],
               "chosen": [{"role": "assistant", "content": words(k + 1, 2 + k % 3)}],
               "rejected": [{"role": "assistant", "content": words(k + 2, 3)}]}


# ---- the cases ----

COMMON = "output_dir: theirs\nreport_to: none\nsave_strategy: 'no'\nlogging_steps: 1\nseed: 7\n"
TRL = COMMON + "model_name_or_path: model\ndataset_name: data\nmax_length: 160\nbf16: false\nuse_cpu: true\n"
LLAMAFACTORY = COMMON + ("model_name_or_path: model\ndo_train: true\ndataset_dir: data\ndataset: all\ntemplate: chatml\n"
                         "cutoff_len: 160\nuse_cpu: true\noverwrite_output_dir: true\n")
AXOLOTL = ("base_model: model\noutput_dir: theirs\nsequence_len: 160\nlearning_rate: 0.0005\noptimizer: adamw_torch\nseed: 7\n"
           "save_strategy: 'no'\nlogging_steps: 1\nbf16: false\nfp16: false\ndataset_prepared_path: prepared\n"
           "val_set_size: 0\nuse_tensorboard: false\n")
CASES = {
    "trl-messages": ("trl sft", "job.yaml", {
        "job.yaml": TRL + "per_device_train_batch_size: 2\ngradient_accumulation_steps: 2\nnum_train_epochs: 3\n"
        "learning_rate: 1.0e-3\nlr_scheduler_type: cosine\nwarmup_steps: 0.25\nuse_peft: true\nlora_r: 4\n"
        "lora_alpha: 8\nlora_target_modules: [q_proj, v_proj, down_proj]\n",
        "data/train.jsonl": lines(conversations())}),
    "trl-assistant": ("trl sft", "job.yaml", {
        "job.yaml": TRL + "per_device_train_batch_size: 4\nmax_steps: 7\nlearning_rate: 2.0e-4\nassistant_only_loss: true\n"
        "lr_scheduler_type: linear\nwarmup_steps: 3\n",
        "data/train.jsonl": lines(conversations())}),
    "trl-completions": ("trl sft", "job.yaml", {
        "job.yaml": TRL + "per_device_train_batch_size: 3\nmax_steps: 9\nlearning_rate: 2.0e-4\ncompletion_only_loss: true\n"
        "lr_scheduler_type: constant_with_warmup\nwarmup_steps: 4\nuse_peft: true\nlora_r: 2\nlora_target_modules: all-linear\n",
        "data/train.jsonl": lines(completions())}),
    "trl-pairs": ("trl dpo", "job.yaml", {
        "job.yaml": TRL + "per_device_train_batch_size: 2\nmax_steps: 5\nlearning_rate: 1.0e-4\nbeta: 0.2\nuse_peft: true\n"
        "lr_scheduler_type: cosine_with_min_lr\nlr_scheduler_kwargs: {min_lr_rate: 0.2}\nlora_target_modules: [gate_proj, up_proj]\n",
        "data/train.jsonl": lines(pairs())}),
    "llamafactory-lora": ("llamafactory", "job.yaml", {
        "job.yaml": LLAMAFACTORY + "stage: sft\nfinetuning_type: lora\nlora_rank: 4\nlora_target: all\n"
        "per_device_train_batch_size: 2\ngradient_accumulation_steps: 2\nnum_train_epochs: 3.0\nlearning_rate: 1.0e-4\n"
        "lr_scheduler_type: cosine\nwarmup_ratio: 0.25\n",
        "data/dataset_info.json": json.dumps({"all": {"file_name": "all.jsonl"}}),
        "data/all.jsonl": lines(instructions())}),
    "llamafactory-history": ("llamafactory", "job.yaml", {
        "job.yaml": LLAMAFACTORY + "stage: sft\nfinetuning_type: lora\nlora_rank: 2\nlora_target: q_proj,o_proj\n"
        "per_device_train_batch_size: 4\nmax_steps: 6\nlearning_rate: 1.0e-4\nlr_scheduler_type: linear\nwarmup_steps: 2\n",
        "data/dataset_info.json": json.dumps({"all": {"file_name": "all.jsonl", "columns": {
            "prompt": "ask", "response": "reply", "system": "system", "history": "history"}}}),
        "data/all.jsonl": lines({"ask": words(k, 2), "reply": words(k + 1, 3), "system": words(k, 1 + k % 2),
                                 "history": [[words(k, 1), words(k, 2)]] * (k % 3)} for k in range(12))}),
    "llamafactory-sharegpt": ("llamafactory", "job.yaml", {
        "job.yaml": LLAMAFACTORY + "stage: sft\nfinetuning_type: full\nper_device_train_batch_size: 3\nmax_steps: 5\n"
        "learning_rate: 1.0e-4\nlr_scheduler_type: constant_with_warmup\nwarmup_steps: 2\n",
        "data/dataset_info.json": json.dumps({"all": {"file_name": "all.jsonl", "formatting": "sharegpt", "columns": {
            "messages": "messages"}, "tags": {"role_tag": "role", "content_tag": "content", "user_tag": "user",
                                              "assistant_tag": "assistant", "system_tag": "system"}}}),
        "data/all.jsonl": lines(conversations())}),
    # An update sees all records, so that their order does not count: the weights are compared too.
    "llamafactory-muon": ("llamafactory", "job.yaml", {
        "job.yaml": LLAMAFACTORY + "stage: sft\nfinetuning_type: full\nuse_muon: true\nweight_decay: 0.1\n"
        "per_device_train_batch_size: 12\nmax_steps: 4\nlearning_rate: 1.0e-3\nlr_scheduler_type: constant\n",
        "data/dataset_info.json": json.dumps({"all": {"file_name": "all.jsonl"}}),
        "data/all.jsonl": lines(instructions())}),
    "llamafactory-pairs": ("llamafactory", "job.yaml", {
        "job.yaml": LLAMAFACTORY + "stage: dpo\npref_beta: 0.2\nfinetuning_type: lora\nlora_rank: 2\nlora_target: v_proj\n"
        "per_device_train_batch_size: 2\ngradient_accumulation_steps: 3\nmax_steps: 4\nlearning_rate: 5.0e-5\n"
        "lr_scheduler_type: cosine_with_restarts\nlr_scheduler_kwargs: {num_cycles: 2}\n",
        "data/dataset_info.json": json.dumps({"all": {"file_name": "all.jsonl", "formatting": "sharegpt", "ranking": True,
            "columns": {"messages": "conversations", "chosen": "chosen", "rejected": "rejected"}}}),
        "data/all.jsonl": lines({"conversations": [{"from": "human", "value": words(k, 3)}],
                                 "chosen": {"from": "gpt", "value": words(k + 1, 2 + k % 3)},
                                 "rejected": {"from": "gpt", "value": words(k + 2, 3)}} for k in range(12))}),
    "axolotl-chat": ("axolotl", "job.yaml", {
        "job.yaml": AXOLOTL + "adapter: lora\nlora_r: 4\nlora_alpha: 8\nlora_target_modules: 'model.layers.[\\d]+.(mlp|self_attn).(up|q|k)_proj'\n"
        "micro_batch_size: 2\ngradient_accumulation_steps: 2\nnum_epochs: 3\nwarmup_ratio: 0.25\nlr_scheduler: cosine\n"
        "datasets: [{path: data/train.jsonl, type: chat_template, ds_type: json}]\n",
        "data/train.jsonl": lines(conversations())}),
    "axolotl-alpaca": ("axolotl", "job.yaml", {
        "job.yaml": AXOLOTL.replace("160", "310") + "micro_batch_size: 3\nmax_steps: 8\nwarmup_steps: 3\nlr_scheduler: linear\n"
        "datasets: [{path: data/train.jsonl, type: alpaca, ds_type: json}]\n",
        "data/train.jsonl": lines(instructions())}),
    "axolotl-styles": ("axolotl", "job.yaml", {
        "job.yaml": AXOLOTL.replace("160", "300") + "micro_batch_size: 2\nmax_steps: 3\nlr_scheduler: constant\nwarmup_steps: 0\n"
        "datasets:\n" + "".join(f"  - {{path: data/{s}.jsonl, type: 'alpaca:{s}', ds_type: json}}\n" for s in ("chat", "chatml", "phi")),
        **{f"data/{s}.jsonl": lines(instructions(4)) for s in ("chat", "chatml", "phi")}}),
    "axolotl-completion": ("axolotl", "job.yaml", {
        "job.yaml": AXOLOTL + "micro_batch_size: 4\nmax_steps: 10\nlr_scheduler: warmup_stable_decay\nwarmup_steps: 2\n"
        "lr_scheduler_kwargs: {num_decay_steps: 4, min_lr_ratio: 0.1}\n"
        "datasets: [{path: data/train.jsonl, type: completion, ds_type: json, field: text}]\n",
        "data/train.jsonl": lines(texts())}),
    "axolotl-pairs": ("axolotl", "job.yaml", {
        "job.yaml": AXOLOTL + "rl: dpo\nadapter: lora\nlora_r: 2\nlora_alpha: 4\nlora_target_linear: true\nmicro_batch_size: 2\n"
        "max_steps: 4\nlr_scheduler: inverse_sqrt\nwarmup_steps: 2\n"
        "datasets: [{path: data/train.jsonl, type: chat_template.default, ds_type: json}]\n",
        "data/train.jsonl": lines({"messages": r["prompt"], "chosen": r["chosen"][0], "rejected": r["rejected"][0]} for r in pairs())}),
}

FSDP = "compute_environment: LOCAL_MACHINE\ndistributed_type: FSDP\nmixed_precision: bf16\nuse_cpu: false\n"
OWN_DATA = ["--set", "model.path=model", "--set", "data.files=[data/train.jsonl]", "--set", "data.format=messages"]
CASES |= {
    "accelerate-mesh": ("accelerate mesh", "job.yaml", {
        "job.yaml": FSDP + "fsdp_config: {fsdp_version: 2, fsdp_reshard_after_forward: false}\nnum_machines: 2\nnum_processes: 16\n"
        "parallelism_config: {parallelism_config_cp_size: 2, parallelism_config_dp_replicate_size: 2, "
        "parallelism_config_dp_shard_size: 2, parallelism_config_tp_size: 2, parallelism_config_cp_comm_strategy: alltoall}\n",
        "data/train.jsonl": lines(conversations())}),
    "accelerate-hybrid": ("accelerate mesh", "job.yaml", {
        "job.yaml": FSDP + "fsdp_config: {fsdp_version: 1, fsdp_sharding_strategy: HYBRID_SHARD, "
        "fsdp_sync_module_states: false, fsdp_cpu_ram_efficient_loading: false}\nnum_machines: 2\nnum_processes: 8\n",
        "data/train.jsonl": lines(conversations())}),
    "accelerate-deepspeed": ("accelerate mesh", "job.yaml", {
        "job.yaml": FSDP.replace("FSDP", "DEEPSPEED") + "num_machines: 1\nnum_processes: 4\ndeepspeed_config: {zero_stage: 2, "
        "gradient_accumulation_steps: 3, gradient_clipping: 0.5, offload_optimizer_device: none, offload_param_device: none}\n",
        "data/train.jsonl": lines(conversations())}),
    "deepspeed-cosine": ("deepspeed 4", "job.json", {
        "job.json": json.dumps({
            "train_batch_size": 8, "train_micro_batch_size_per_gpu": 1, "gradient_clipping": 0.4, "zero_optimization": {"stage": 2},
            "optimizer": {"type": "AdamW", "params": {"lr": 2e-4, "betas": [0.8, 0.99], "eps": 1e-7, "weight_decay": 0.1}},
            "scheduler": {"type": "WarmupCosineLR", "params": {"total_num_steps": 9, "warmup_num_steps": 3, "warmup_type": "linear",
                                                               "warmup_min_ratio": 0.0, "cos_min_ratio": 0.2}}}),
        "data/train.jsonl": lines(conversations())}),
    "deepspeed-linear": ("deepspeed 2", "job.json", {
        "job.json": json.dumps({
            "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 3, "zero_optimization": {"stage": 3},
            "optimizer": {"type": "AdamW", "params": {"lr": 2e-4}},
            "scheduler": {"type": "WarmupDecayLR", "params": {"total_num_steps": 10, "warmup_num_steps": 4, "warmup_type": "linear",
                                                              "warmup_min_lr": 0, "warmup_max_lr": 3e-4}}}),
        "data/train.jsonl": lines(conversations())}),
}

# ---- theirs ----


def strip(ids, labels, mask):
    """A record without padding: its tokens, and which are trained on; what comes before the first is never predicted."""
    kept = [i for i, m in enumerate(mask) if m]
    return [[int(ids[i]) for i in kept], [0] + [int(labels[i] != -100) for i in kept[1:]]]


def records_of(trainer):
    found = []
    for batch in trainer.get_train_dataloader():
        labels = batch["labels"] if "labels" in batch else batch["completion_mask"] * 101 - 100  # of pairs
        for ids, labels, mask in zip(batch["input_ids"].tolist(), labels.tolist(), batch["attention_mask"].tolist()):
            found.append(strip(ids, labels, mask))
    return sorted(found)


def watch(out):
    """Notes what a Trainer has before it trains, and each rate."""
    import transformers
    train = transformers.Trainer.train

    class Rates(transformers.TrainerCallback):
        def on_step_begin(self, args, state, control, optimizer=None, **_):
            out["rates"].append(optimizer.param_groups[0]["lr"])

    def watched(self, *words, **named):
        model, args = self.model, self.args
        out["rates"] = []
        pairs = 2 if "DPO" in type(self).__name__ else 1  # rows, of which a pair is two
        out["rows"] = pairs * args.per_device_train_batch_size * args.gradient_accumulation_steps * args.world_size
        out["trained"] = sum(p.numel() for p in model.parameters() if p.requires_grad)
        out["targets"] = sorted(n.replace("base_model.model.", "", 1) for n, m in model.named_modules() if hasattr(m, "lora_A") and m.lora_A)
        out["records"] = records_of(self)
        self.add_callback(Rates())
        result = train(self, *words, **named)
        out["steps"] = self.state.global_step
        return result

    transformers.Trainer.train = watched


def run_trl(script, job):
    module = importlib.import_module(f"trl.scripts.{script}")
    module.main(*module.make_parser().parse_args_and_config(["--config", job], fail_with_unknown_args=False))


def run_llamafactory(job):
    import torch
    import yaml
    torch.Tensor.bfloat16 = torch.Tensor.float  # Muon's steps of Newton-Schulz, which are in fp32 here
    from llamafactory.train.tuner import run_exp
    run_exp(yaml.safe_load(open(job)))


def run_axolotl(job):
    from axolotl.cli.args import TrainerCliArgs
    from axolotl.cli.config import load_cfg
    from axolotl.cli.train import do_train
    do_train(load_cfg(job), TrainerCliArgs())


def run_accelerate(_, job):
    """What `accelerate launch` hands to the script, as the script's plugins read it."""
    from accelerate.commands.launch import _validate_launch_command, launch_command_parser
    from accelerate.utils import DeepSpeedPlugin, FullyShardedDataParallelPlugin, launch
    args = launch_command_parser().parse_args(["--config_file", job, "x.py"])
    args, file, _ = _validate_launch_command(args)
    args.deepspeed_fields_from_accelerate_config = ",".join(file.deepspeed_config)
    made = launch.prepare_deepspeed_cmd_env(args)[1] if args.use_deepspeed else launch.prepare_multi_gpu_env(args)
    os.environ.update({k: v for k, v in made.items() if isinstance(v, str)})
    if args.use_deepspeed:
        plugin = DeepSpeedPlugin()
        return {"layout": {"dp_shard": args.num_processes if plugin.zero_stage > 0 else 1}, "clip": float(plugin.gradient_clipping),
                "gathered": "false" if plugin.zero_stage < 3 else "true", "accumulation": plugin.gradient_accumulation_steps}
    plugin = FullyShardedDataParallelPlugin()
    if not args.use_parallelism_config:
        inside = args.num_processes // args.num_machines
        assert plugin.sharding_strategy.name == "HYBRID_SHARD"
        return {"layout": {"dp_shard": inside, "dp_replicate": args.num_machines}, "gathered": "true"}
    from accelerate.parallelism_config import ParallelismConfig
    mesh = ParallelismConfig()
    return {"layout": {n: getattr(mesh, n + "_size") for n in ("dp_replicate", "dp_shard", "cp", "tp")},
            "gathered": str(plugin.reshard_after_forward).lower()}


def run_deepspeed(ranks, job):
    """Its configuration in a world of that many ranks, and its scheduler."""
    import deepspeed.runtime.config as config
    import torch
    from deepspeed.runtime import lr_schedules
    config.dist.get_rank = lambda *_: 0
    config.dist.get_world_size = lambda *_: int(ranks)
    c = config.DeepSpeedConfig(json.load(open(job)))
    from deepspeed.ops.adam.fused_adam import FusedAdam  # which AdamW is, and needs a GPU
    own = {n: p.default for n, p in inspect.signature(FusedAdam.__init__).parameters.items() if n in ("lr", "betas", "eps", "weight_decay")}
    optimizer = torch.optim.AdamW([torch.nn.Parameter(torch.zeros(1))], **(own | c.optimizer_params))
    scheduler, rates = getattr(lr_schedules, c.scheduler_name)(optimizer, **c.scheduler_params), []
    for _ in range(c.scheduler_params["total_num_steps"]):
        rates.append(optimizer.param_groups[0]["lr"])
        scheduler.step()
    group = optimizer.param_groups[0]
    return {"rows": c.train_batch_size, "micro": c.train_micro_batch_size_per_gpu, "accumulation": c.gradient_accumulation_steps,
            "clip": c.gradient_clipping, "rates": rates, "steps": len(rates), "layout": {"dp_shard": int(ranks)},
            "gathered": str(c.zero_optimization_stage == 3).lower(), "betas": list(group["betas"]), "decay": group["weight_decay"]}


def theirs(program, job, path):
    """In the folder of the case, as a process of its own."""
    out = {}
    name, *rest = program.split()
    if name in ("accelerate", "deepspeed"):
        out = {"accelerate": run_accelerate, "deepspeed": run_deepspeed}[name](*rest, job)
    else:
        watch(out)
        {"trl": run_trl, "llamafactory": run_llamafactory, "axolotl": run_axolotl}[name](*rest, job)
    pathlib.Path(path).write_text(json.dumps(out))


# ---- ours ----


def run(folder, *command, check=True):
    done = subprocess.run([str(c) for c in command], cwd=folder, capture_output=True, text=True)
    assert not check or done.returncode == 0, f"{command}: {done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return done.stdout


def our_records(program, folder):
    o = json.loads(run(folder, program, "data", "ours.yaml", "--ids", "--json", "--show", 1000))
    return sorted([r["ids"], r["trained"]] for r in o["records"] if r["row"] is not None and r["row"] >= 0)


def our_targets(folder):
    """The modules that have factors, and how many numbers these have."""
    import safetensors
    path = folder / "ours" / "adapter" / "adapter_model.safetensors"
    if not path.exists():
        return [], None
    with safetensors.safe_open(path, "pt") as f:
        names = list(f.keys())
        count = sum(f.get_tensor(n).numel() for n in names)
    return sorted({n.replace("base_model.model.", "", 1).split(".lora_")[0] for n in names}), count


def ours(program, what, job, folder):
    name, *rest = what.split()
    parts = name in ("accelerate", "deepspeed")
    run(folder, program, "config", "import", job, "--output", "ours.yaml", "--set", "train.output_dir=ours",
        "--set", "data.cache_dir=cache", "--set", "train.force_memory=true", *(OWN_DATA if parts else []),
        *(["--ranks", rest[0]] if name == "deepspeed" else []))
    plan = json.loads(run(folder, program, "plan", "ours.yaml", "--json"))
    found = {"rows": plan["batch"]["global_batch"], "micro": plan["batch"]["micro_batch"], "accumulation": plan["batch"]["accumulation"],
             "layout": plan["layout"]}
    if parts:
        import yaml
        keys, given = yaml.safe_load(run(folder, program, "config", "--defaults")), yaml.safe_load((folder / "ours.yaml").read_text())
        of = {section: values | given.get(section, {}) for section, values in keys.items()}
        found |= {"clip": float(of["optimizer"]["max_grad_norm"]), "betas": of["optimizer"]["betas"],
                  "decay": float(of["optimizer"]["weight_decay"]), "gathered": str(of["parallelism"]["reshard_after_forward"]).lower()}
    if name == "accelerate":
        return found
    run(folder, program, "train", "ours.yaml", "--transport", "local")
    steps = [json.loads(line) for line in open(folder / "ours" / "metrics.jsonl")]
    rates = [s["lr"] for s in steps if "lr" in s]
    targets, count = our_targets(folder)
    return found | {"rates": rates, "steps": len(rates), "targets": targets, "records": our_records(program, folder),
                    "trained": plan["model"]["parameters"] if count is None else count}


# ---- compared ----


def moved_apart(folder):
    """The norm of the difference between their weights and ours, by the norm of their change. Elements whose gradient is rounding
    alone move in directions of chance under Adam."""
    import safetensors.torch
    start, a, b = (safetensors.torch.load_file(folder / f / "model.safetensors") for f in ("model", "theirs", "ours/model"))
    assert set(a) == set(b)
    return (sum((a[n] - b[n]).square().sum().item() for n in a) / sum((a[n] - start[n]).square().sum().item() for n in a)) ** 0.5


def differences(a, b):
    for key in set(a) - {"rates", "records", "layout", "apart"}:
        if a[key] != b[key]:
            yield f"{key}: {a[key]}, ours {b[key]}"
    for axis, size in a.get("layout", {}).items():
        if b["layout"][axis] != size:
            yield f"{axis}: {size}, ours {b['layout'][axis]}"
    if "rates" not in a:
        return
    far = [i for i, (x, y) in enumerate(zip(a["rates"], b["rates"])) if abs(x - y) > 1e-9 * max(a["rates"])]
    if far:
        yield f"rates of {len(far)} updates: " + ", ".join(f"{a['rates'][i]:.3e} and {b['rates'][i]:.3e}" for i in far[:4])
    if "records" not in a:
        return
    off = [(x, y) for x, y in zip(a["records"], b["records"]) if x != y]
    if off or len(a["records"]) != len(b["records"]):
        yield f"{len(off)} of {len(a['records'])} and {len(b['records'])} records, first\n    {off[:1]}"


def keep(name, what, job, files, a):
    """The job, what to import it with, and what the other program makes of it, for a test without Python."""
    folder = KEPT / name
    for file, text in files.items():
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text(text)
    program, *rest = what.split()
    ranks = f"--ranks {rest[0]}" if program == "deepspeed" else ""
    said = [f"import {job} {' '.join(OWN_DATA[2:]) if program in ('accelerate', 'deepspeed') else ''} {ranks}".rstrip()]
    said += [f"{key} {a[key]}" for key in ("rows", "micro", "accumulation", "steps") if key in a]
    said += [f"{axis} {size}" for axis, size in a.get("layout", {}).items()]
    said += ["rates " + " ".join(f"{r:.12g}" for r in a["rates"])] if "rates" in a else []
    said += [f"target {t}" for t in a.get("targets", [])]
    if "records" in a:
        texts = sorted(f"{' '.join(map(str, ids))} | {' '.join(map(str, trained))}" for ids, trained in a["records"])
        said += [f"records {len(texts)} {hashlib.md5(''.join(t + chr(10) for t in texts).encode()).hexdigest()}"]
        said += [f"record {t}" for t in sorted(texts, key=len)[:2]]
    (folder / "expected").write_text("\n".join(said) + "\n")


def keep_model(model):
    (KEPT / "model").mkdir(parents=True, exist_ok=True)
    for file in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        shutil.copy(model / file, KEPT / "model")


def has(program):
    try:
        importlib.import_module(program)
        return True
    except ImportError:
        return False


def versions():
    from importlib import metadata
    names = ("axolotl", "llamafactory", "trl", "accelerate", "deepspeed", "peft", "transformers", "datasets", "torch")
    there = {d.metadata["Name"].lower() for d in metadata.distributions() if d.metadata["Name"]}
    return ", ".join(f"{n} {metadata.version(n)}" for n in names if n in there)


def check(program, name, scratch, record):
    what, job, files = CASES[name]
    make_model(scratch / "model")
    for file, text in files.items():
        (scratch / file).parent.mkdir(parents=True, exist_ok=True)
        (scratch / file).write_text(text)
    environment = dict(os.environ, HF_HUB_OFFLINE="1", HF_HOME=str(scratch / "hf"), CUDA_VISIBLE_DEVICES="", WANDB_DISABLED="true")
    done = subprocess.run([sys.executable, __file__, "theirs", what, job, "theirs.json"], cwd=scratch, env=environment,
                          capture_output=True, text=True)
    assert done.returncode == 0, f"{name}: {done.stdout[-1000:]}\n{done.stderr[-4000:]}"
    a = json.loads((scratch / "theirs.json").read_text())
    b = ours(program, what, job, scratch)
    wrong = list(differences(a, b))
    if a.get("rows") == len(a.get("records", [])) and not a["targets"]:
        apart = moved_apart(scratch)
        wrong += [f"weights differ by {apart:.1e} of the change"] if apart > 0.01 else []
        a["apart"] = f"{apart:.0e} of the change of the weights"
    counted = [f"{len(v) if isinstance(v, (list, dict)) and k != 'betas' else v} {k}" for k, v in a.items()]
    print(f"{name}: {', '.join(counted)}:", "equal" if not wrong else "DIFFER", flush=True)
    for line in wrong:
        print("  ", line[:1500])
    if record and not wrong:
        keep(name, what, job, files, a)
        keep_model(scratch / "model")
    return not wrong


REGEXES = [r"model.language_model.layers.[\d]+.(mlp|cross_attn|self_attn).(up|down|gate|q|k|v|o)_proj", r".*_proj", r"q_proj",
           r".*\.(3|11|2\d)\.self_attn\.(q|k)_proj", r"(?!.*experts).*\.(up|down)_proj", r"model\.layers\.[0-9]\..*", r".*[13579]\..*q_proj$",
           r"(model|transformer)\.(layers|h)\.(?:1?\d)\.(self_)?attn\.[a-z_]+", r"(?i)MODEL.*UP_proj", r".+layernorm|.+c_attn",
           r"(?=.*layers\.2)(?=.*mlp).*", r".*?(\d)\1\..*", r"[^.]+\.[^.]+\.\d{2}\..*o_proj", r"(?P<stem>.*)\.mlp\.(?P<kind>gate|up)_proj", r""]


def regexes():
    """The table of tests/base/test_full_match.c."""
    import re
    stems = ["model.layers.", "model.language_model.layers.", "transformer.h.", "language_model.model.layers."]
    parts = [".self_attn.q_proj", ".self_attn.k_proj", ".self_attn.o_proj", ".mlp.up_proj", ".mlp.gate_proj", ".mlp.experts.3.down_proj",
             ".attn.c_attn", ".mlp.shared_expert.up_proj", ".input_layernorm"]
    names = [f"{stem}{layer}{part}" for stem in stems for layer in range(40) for part in parts]
    for regex in REGEXES:
        found = [i for i, name in enumerate(names) if re.fullmatch(regex, name)]
        print("{%s, %d, %d}," % (json.dumps(regex), len(found), sum(found)))


def main(program, *words):
    program = str(pathlib.Path(program).resolve())
    chosen = [w for w in words if not w.startswith("-")] or CASES
    equal = True
    print(versions(), flush=True)
    for name in chosen:
        if not has(CASES[name][0].split()[0]):
            print(f"{name}: left out, this Python has no {CASES[name][0]}")
            continue
        with tempfile.TemporaryDirectory() as scratch:
            equal &= check(program, name, pathlib.Path(scratch), "--record" in words)
    return 0 if equal else 1


if __name__ == "__main__":
    if sys.argv[1] == "regexes":
        sys.exit(regexes())
    sys.exit(theirs(*sys.argv[2:]) if sys.argv[1] == "theirs" else main(*sys.argv[1:]))
