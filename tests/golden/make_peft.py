"""Makes the references of tests/golden/peft with Hugging Face PEFT, in fp64. README.md says what is in the files.

    python make_peft.py STORIES15M_FOLDER TINYSTORIES_JSONL [NAME ...]

With names ("gpt2-dora", "qwen2-head", "stories15M") only those are made again; manifest.json there keeps what it says
of the others.
"""

import json
import pathlib
import platform
import sys
import zlib

import numpy
import peft
import safetensors
import safetensors.torch
import tokenizers
import torch
import transformers

import make_golden

HERE = pathlib.Path(__file__).parent
OUT = HERE / "peft"
UPDATES = 30
ENDING = {"lora_A": ".lora_A.weight", "lora_B": ".lora_B.weight", "lora_magnitude_vector": ".lora_magnitude_vector"}
# Options of LoraConfig; targets by family: of all projections, and of some.
KINDS = {"lora": dict(r=4, lora_alpha=8), "rslora": dict(r=3, lora_alpha=6, use_rslora=True),
         "dora": dict(r=2, lora_alpha=3, use_dora=True)}
ALL = {"llama-yarn": ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
       "phi3": ["qkv_proj", "o_proj", "gate_up_proj", "down_proj"],
       "gpt2": ["c_attn", "c_fc", "c_proj"]}
SOME = {"llama-yarn": ["q_proj", "v_proj", "up_proj"], "phi3": ["qkv_proj", "down_proj"], "gpt2": ["c_attn", "mlp.c_proj"]}
# Of experts, by target_parameters: beside both stacks, or one. Others of the same adapter are modules.
STACKS = {"qwen3-moe-experts": ("qwen3-moe", dict(r=3, lora_alpha=6, target_modules=["q_proj", "o_proj"], target_parameters=[
              "mlp.experts.gate_up_proj", "mlp.experts.down_proj"])),
          "gpt-oss-experts": ("gpt-oss", dict(r=2, lora_alpha=5, target_modules=[], target_parameters=[
              "experts.gate_up_proj", "experts.down_proj"])),
          "mixtral-experts": ("mixtral", dict(r=2, lora_alpha=2, use_rslora=True, target_modules=["v_proj"], target_parameters=[
              "mlp.experts.gate_up_proj"]))}
# Modules of a tied model that are saved whole.
SAVED = {"qwen2-tied": dict(modules_to_save=["embed_tokens"], ensure_weight_tying=True),
         "qwen2-embedding": dict(modules_to_save=["embed_tokens", "model.norm"]),
         "qwen2-head": dict(modules_to_save=["lm_head"])}
# After merging, some matrices by the names that files have: of stacks those of one expert, where files have no stack.
MERGED_EXPERTS = {"qwen3-moe": {"layers.0.mlp.experts.gate_up_proj": ["layers.0.mlp.experts.4.gate_proj.weight",
                                                                     "layers.0.mlp.experts.4.up_proj.weight"]},
                  "mixtral": {"layers.0.mlp.experts.gate_up_proj": ["layers.0.block_sparse_moe.experts.4.w1.weight",
                                                                    "layers.0.block_sparse_moe.experts.4.w3.weight"]},
                  "gpt-oss": {"layers.0.mlp.experts.gate_up_proj": ["layers.0.mlp.experts.gate_up_proj"],
                              "layers.0.mlp.experts.down_proj": ["layers.0.mlp.experts.down_proj"]}}
MERGED = ("layers.0.self_attn.q_proj", "layers.0.self_attn.qkv_proj", "layers.0.mlp.down_proj", "h.0.attn.c_attn",
          "h.0.mlp.c_proj")
EVERY = 31  # element of a sample


def adapted(folder, dtype, length, config):
    """The base model in `dtype`, as make_golden loads it, with an adapter of the same type."""
    model = make_golden.load(folder, dtype, length)
    model = peft.get_peft_model(model, peft.LoraConfig(task_type="CAUSAL_LM", lora_dropout=0.0, **config),
                                autocast_adapter_dtype=False)
    assert all(p.dtype == dtype for p in model.parameters())
    return model


def trained(model):
    """By the names of adapter_model.safetensors."""
    return {name.replace(".default", ""): p for name, p in model.named_parameters() if p.requires_grad}


def file_name(name):
    """A magnitude is a module's weight in memory."""
    return name.removesuffix(".weight") if "lora_magnitude_vector" in name else name


def spread(model, generator):
    """Random values with which every gradient tells: B is not 0, and magnitudes are not those of the weights."""
    with torch.no_grad():
        for name, p in trained(model).items():
            noise = torch.randn(p.shape, generator=generator).to(p.dtype)
            if "lora_B" in name:
                p.copy_(0.05 * noise)
            elif "lora_magnitude_vector" in name:
                p.mul_(1 + 0.1 * noise)
            elif "lora_A" not in name:
                p.add_(0.05 * noise)
            p.copy_(p.float())


def save(model, folder, base):
    """The adapter as PEFT saves it, but in fp32, and with its lists sorted, which PEFT keeps as sets."""
    model.save_pretrained(folder)
    (folder / "README.md").unlink()
    file = folder / "adapter_model.safetensors"
    weights = {n: t.float() for n, t in safetensors.torch.load_file(file).items()}
    safetensors.torch.save_file(weights, file, metadata={"format": "pt"})
    path = folder / "adapter_config.json"
    config = json.loads(path.read_text()) | {"base_model_name_or_path": base}
    for key in ("target_modules", "target_parameters", "modules_to_save"):
        config[key] = config[key] and sorted(config[key])
    path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")


def step(model, ids, labels):
    loss, logits = make_golden.loss_of(model, ids, labels)
    model.zero_grad()
    loss.backward()
    return loss, logits


def train(model, ids, labels):
    """Losses and norms of the updates; those of make_golden, with decay of A and B, and 30 of them on the batches in turn."""
    parameters = list(trained(model).values())
    groups = [{"params": [p for p in parameters if p.ndim >= 2], "weight_decay": make_golden.WEIGHT_DECAY},
              {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=make_golden.LR, betas=make_golden.BETAS, eps=make_golden.EPS, foreach=False)
    losses, norms = [], []
    for u in range(UPDATES):
        loss, _ = step(model, ids[u % len(ids)], labels[u % len(ids)])
        losses.append(loss.item())
        norms.append(make_golden.clip(parameters))
        optimizer.step()
    return losses, norms


def doubles(values):
    return torch.tensor(values, dtype=torch.float64)


def rows_of(logits, rows):
    return logits.detach().flatten(0, 1)[rows.long()].float()


def load_adapter(folder, base, dtype, length):
    """The adapter of a folder, as PEFT loads it."""
    model = make_golden.load(base, dtype, length)
    return peft.PeftModel.from_pretrained(model, folder, is_trainable=True, autocast_adapter_dtype=False)


def merged_tensors(merged, family):
    """By the names of the model's files."""
    names = MERGED_EXPERTS.get(family)
    for n, p in merged.named_parameters():
        p = p.detach().float().contiguous()
        if not names and n.endswith(".weight") and n.removesuffix(".weight").endswith(MERGED):
            yield f"merged.{n}", p
        files = (names or {}).get(n.removeprefix("model."), [])
        parts = [p] if len(files) == 1 and files[0] in n else p[4].chunk(len(files)) if files else []
        yield from ((f"merged.model.{file}", part.contiguous()) for file, part in zip(files, parts))


def kind_config(family, kind):
    return KINDS[kind] | {"target_modules": (SOME if kind == "rslora" else ALL)[family], "fan_in_fan_out": family == "gpt2"}


def write_variant(name, family, config, report):
    """One kind of adapter for one of the models of this folder."""
    base = HERE / family
    data = safetensors.torch.load_file(base / "expected.safetensors")
    ids, labels, rows = data["input_ids"], data["labels"], data["logits_rows"]
    length = ids.shape[-1]
    torch.manual_seed(zlib.crc32(name.encode()))
    model = adapted(base, torch.float64, length, config)
    spread(model, torch.Generator().manual_seed(zlib.crc32(name.encode())))
    save(model, OUT / name, family)

    model = load_adapter(OUT / name, base, torch.float64, length)
    loss, logits = step(model, ids[0], labels[0])
    tensors = {"loss": loss.detach().view(1), "logits": rows_of(logits, rows)}
    tensors |= {f"grad.{file_name(n)}": p.grad.float() for n, p in trained(model).items()}
    losses, norms = train(model, ids, labels)
    tensors |= {f"final.{file_name(n)}": p.detach().float() for n, p in trained(model).items()}
    tensors |= {"losses": doubles(losses), "grad_norms": doubles(norms)}
    merged = load_adapter(OUT / name, base, torch.float64, length).merge_and_unload()
    off = (rows_of(make_golden.loss_of(merged, ids[0], labels[0])[1], rows) - tensors["logits"]).abs().max().item()
    tensors |= dict(merged_tensors(merged, family))
    safetensors.torch.save_file(tensors, OUT / name / "expected.safetensors")
    losses32, _ = train(load_adapter(OUT / name, base, torch.float32, length), ids, labels)
    report[name] = {"first_loss": losses[0], "last_loss": losses[-1], "merged_logits_off_by": off,
                    "fp32_torch_losses_off_by": max(abs(a / b - 1) for a, b in zip(losses32, losses))}


def write_saved(name, report):
    """Modules of a tied model saved whole, beside an adapter of a projection."""
    base = HERE / "qwen2"
    data = safetensors.torch.load_file(base / "expected.safetensors")
    ids, labels, rows = data["input_ids"], data["labels"], data["logits_rows"]
    torch.manual_seed(zlib.crc32(name.encode()))
    model = adapted(base, torch.float64, ids.shape[-1], dict(r=1, lora_alpha=2, target_modules=["q_proj"]) | SAVED[name])
    spread(model, torch.Generator().manual_seed(zlib.crc32(name.encode())))
    save(model, OUT / name, "qwen2")
    _, logits = step(load_adapter(OUT / name, base, torch.float64, ids.shape[-1]), ids[0], labels[0])
    safetensors.torch.save_file({"logits": rows_of(logits, rows)}, OUT / name / "expected.safetensors")
    report[name] = {"tensors": len(safetensors.torch.load_file(OUT / name / "adapter_model.safetensors"))}


def write_stories(folder, stories, report):
    """All projections of stories15M, from PEFT's first A and B = 0: too large to be kept whole afterwards, so norms and
    samples are kept."""
    ids, labels = make_golden.story_data(folder, stories, batch=2, length=32)
    tensors, first = {"input_ids": ids[:20].int(), "labels": labels[:20].int()}, None
    for kind in KINDS:
        config = KINDS[kind] | {"r": 2, "lora_alpha": 4, "target_modules": ALL["llama-yarn"]}
        losses = {}
        for dtype in (torch.float64, torch.float32):
            torch.manual_seed(15)
            model = adapted(folder, dtype, ids.shape[-1], config)
            start = {n: p.detach().float() for n, p in trained(model).items() if "lora_A" in n}
            first = first or start
            assert all(torch.equal(first[n], start[n].to(first[n].dtype)) for n in first)
            losses[dtype], norms = train(model, ids, labels)
            if dtype == torch.float64:
                tensors[f"{kind}.grad_norms"] = doubles(norms)
                for n, p in trained(model).items():
                    tensors[f"{kind}.norm.{file_name(n)}"] = p.detach().norm().view(1)
                    tensors[f"{kind}.sample.{file_name(n)}"] = p.detach().flatten()[::EVERY].clone()
        tensors[f"{kind}.losses"] = doubles(losses[torch.float64])
        tensors[f"{kind}.losses32"] = doubles(losses[torch.float32])
        report[f"stories15M-{kind}"] = {
            "first_loss": losses[torch.float64][0], "last_loss": losses[torch.float64][-1],
            "fp32_torch_losses_off_by": max(abs(a / b - 1) for a, b in zip(losses[torch.float32], losses[torch.float64]))}
    (OUT / "stories15M").mkdir(exist_ok=True)
    safetensors.torch.save_file(tensors | {f"first.{n}": t for n, t in first.items()},
                                OUT / "stories15M" / "expected.safetensors")


def main(stories_folder, stories, names):
    torch.set_num_threads(1)
    OUT.mkdir(exist_ok=True)
    path = OUT / "manifest.json"
    before = json.loads(path.read_text()) if path.exists() else {}
    report = before.get("adapters", {}) if names else {}
    wanted = lambda name: not names or name in names
    for family in ALL:
        for kind in KINDS:
            if wanted(f"{family}-{kind}"):
                write_variant(f"{family}-{kind}", family, kind_config(family, kind), report)
    for name, (family, config) in STACKS.items():
        if wanted(name):
            write_variant(name, family, config, report)
    for name in SAVED:
        if wanted(name):
            write_saved(name, report)
    if wanted("stories15M"):
        write_stories(stories_folder, stories, report)
    manifest = {
        "made_with": {"python": platform.python_version(), "numpy": numpy.__version__, "peft": peft.__version__,
                      "safetensors": safetensors.__version__, "tokenizers": tokenizers.__version__,
                      "torch": torch.__version__, "transformers": transformers.__version__},
        "inputs": {"stories15M/model.safetensors": make_golden.sha256(stories_folder / "model.safetensors"),
                   "tinystories.jsonl": make_golden.sha256(pathlib.Path(stories))},
        "updates": UPDATES,
        "adapters": dict(sorted(report.items())),
        "merged_logits_off_by": before.get("merged_logits_off_by", {}),  # check_peft.py, both
        "trained_loss_off_by": before.get("trained_loss_off_by", {}),
        "files": {str(p.relative_to(OUT)): make_golden.sha256(p) for p in sorted(OUT.glob("*/*"))},
    }
    path.write_text(json.dumps(manifest, indent=2) + "\n")
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3:])
