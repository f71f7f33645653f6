"""Shows PEFT and transformers what the program makes of adapters. Models that it has merged must load, and give the logits
that PEFT gives with the adapter. Adapters that it has trained must load, whole and with nothing else, and give the loss
that the run ended with.

    python check_peft.py PROGRAM [--record]

The adapters and models are those of this folder. --record writes what it found into peft/manifest.json.
"""

import array
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import warnings

import peft
import safetensors.torch
import torch
import transformers

import make_golden

HERE = pathlib.Path(__file__).parent
OUT = HERE / "peft"
TEXT = 40  # tokens
# A model of each family, with the targets that a job has by default.
FAMILIES = ["llama-yarn", "linear-mqa", "mistral", "ministral", "ministral3", "qwen2", "qwen3", "seed-oss", "phi3", "olmo2", "olmo3", "smollm3", "granite", "gemma", "gemma2", "gemma3",
            "gpt2", "stablelm", "gpt-neox", "gpt-neox-serial", "starcoder2", "mixtral", "qwen3-moe", "qwen2-moe", "olmoe", "glm4-moe", "gpt-oss",
            "deepseek-v2", "deepseek-v3", "glm4-moe-lite", "qwen3-5", "qwen3-5-moe", "qwen3-next"]
# Adapters that the program trains: kinds, targets that are some of those of a name, modules that are saved whole.
TRAINED = [(name, {"r": 3}) for name in FAMILIES] + [
    ("llama-yarn", {"r": 3, "alpha": 6}),
    ("llama-yarn", {"r": 2, "rslora": True, "targets": ["q_proj", "down_proj"], "dropout": 0.1}),
    ("llama-yarn", {"r": 2, "dora": True, "targets": ["*.mlp.*"]}),
    ("llama-yarn", {"r": 2, "targets": ["v_proj"], "modules_to_save": ["norm", "lm_head"]}),
    ("llama-yarn", {"r": 2, "targets": ["v_proj"], "modules_to_save": ["input_layernorm", "embed_tokens"]}),
    ("phi3", {"r": 3, "dora": True}),
    ("gpt-neox", {"r": 3, "dora": True, "modules_to_save": ["input_layernorm"]}),
    ("gpt-neox-serial", {"r": 2, "targets": ["query_key_value"], "dropout": 0.1}),
    ("gpt2", {"r": 2, "dora": True, "targets": ["mlp.c_proj", "c_attn"], "modules_to_save": ["ln_f", "ln_1"]}),
    ("gpt2", {"r": 2, "targets": ["c_fc"], "modules_to_save": ["wte"]}),
    ("qwen2", {"r": 2, "targets": ["q_proj"], "modules_to_save": ["embed_tokens"]}),
    ("qwen2", {"r": 2, "targets": ["q_proj"], "modules_to_save": ["lm_head", "norm"]}),
    ("gemma2", {"r": 2, "dora": True, "modules_to_save": ["norm"]}),
    ("qwen2-moe", {"r": 2, "dropout": 0.1, "targets": ["shared_expert.up_proj", "*.1.mlp.up_proj"]}),
    ("qwen2-moe", {"r": 2, "dora": True, "targets": ["q_proj", "o_proj"]}),
    ("qwen3-moe", {"r": 2, "rslora": True, "targets": ["*.mlp.*"], "modules_to_save": ["norm"]}),
    # Of layers with a state, some of whose projections have their parts in turn.
    ("qwen3-5", {"r": 2, "dora": True, "modules_to_save": ["conv1d", "embed_tokens"]}),
    ("qwen3-5", {"r": 2, "targets": ["*.linear_attn.*"], "dropout": 0.1}),
    ("qwen3-5-moe", {"r": 2, "rslora": True, "targets": ["in_proj_qkv", "in_proj_b", "in_proj_a", "q_proj"]}),
    ("qwen3-next", {"r": 2, "dora": True, "targets": ["q_proj", "in_proj_qkvz", "in_proj_ba", "out_proj"]}),
    ("qwen3-next", {"r": 2, "targets": ["in_proj_ba"], "modules_to_save": ["lm_head", "q_norm", "norm"]}),
    # Of experts.
    ("qwen3-moe", {"r": 3, "alpha": 5, "targets": ["experts.gate_up_proj", "experts.down_proj", "q_proj"]}),
    ("gpt-oss", {"r": 2, "targets": ["experts.gate_up_proj", "experts.down_proj", "linear"]}),
    ("mixtral", {"r": 2, "rslora": True, "targets": ["mlp.experts.down_proj"]}),
    ("glm4-moe", {"r": 2, "targets": ["experts.gate_up_proj", "linear"]}),
    ("olmoe", {"r": 2, "targets": ["*.experts.*"]}),
    ("qwen2-moe", {"r": 2, "targets": ["experts.gate_up_proj", "experts.down_proj", "linear"], "modules_to_save": ["norm"]}),
    ("qwen3-5-moe", {"r": 2, "targets": ["experts.gate_up_proj", "experts.down_proj", "linear"]}),
    # Of single experts, which PEFT makes those of stacks.
    ("qwen3-moe", {"r": 2, "rslora": True, "targets": ["*.experts.*.*", "linear"]}),
    ("olmoe", {"r": 3, "alpha": 4, "targets": ["*.experts.*.*", "linear"]}),
    ("glm4-moe", {"r": 3, "targets": ["*.experts.*.down_proj"]}),
    ("mixtral", {"r": 2, "targets": ["*.experts.*.*", "v_proj"]}),
]
# What PEFT has no form for: it must say so, and load nothing wrongly.
REFUSED = [(name, {"r": 2, "dora": True}) for name in ("qwen2-moe", "qwen3-moe", "qwen3-next")]


def logits(model, ids):
    with torch.no_grad():
        return model.eval()(input_ids=ids, use_cache=False).logits


def load(folder):
    experts = make_golden.eager_experts(transformers.AutoConfig.from_pretrained(folder))
    model, info = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64, output_loading_info=True,
                                                                    **experts)
    assert not info["missing_keys"] and not info["unexpected_keys"], f"{folder}: {info}"
    return model


def make_base(name, folder):
    """The model with its tensors in fp64, so that merging rounds nothing."""
    weights = safetensors.torch.load_file(HERE / name / "model.safetensors")
    safetensors.torch.save_file({n: w.double() for n, w in weights.items()}, folder / "model.safetensors",
                                metadata={"format": "pt"})
    shutil.copy(HERE / name / "config.json", folder)


def check_merged(program, adapter, scratch):
    base, merged = scratch / "base", scratch / "merged"
    base.mkdir()
    name = json.loads((adapter / "adapter_config.json").read_text())["base_model_name_or_path"]
    make_base(name, base)
    subprocess.run([program, "merge", "-m", base, "-a", adapter, "-o", merged], check=True, stdout=subprocess.DEVNULL)
    ids = torch.randint(transformers.AutoConfig.from_pretrained(base).vocab_size, (2, 20),
                        generator=torch.Generator().manual_seed(1))
    with_adapter = peft.PeftModel.from_pretrained(load(base), adapter, autocast_adapter_dtype=False)
    return (logits(with_adapter, ids) - logits(load(merged), ids)).abs().max().item()


def train(program, name, adapter, scratch):
    """A run of some steps in fp64; its folder, and the loss of a text that it has held out."""
    vocab = transformers.AutoConfig.from_pretrained(HERE / name).vocab_size
    numbers = torch.randint(3, vocab, (2, 400), generator=torch.Generator().manual_seed(2)).tolist()
    array.array("H", numbers[0]).tofile(open(scratch / "ids.bin", "wb"))
    array.array("H", numbers[1][:TEXT]).tofile(open(scratch / "held.bin", "wb"))
    job = {"model": {"path": str(HERE / name)}, "adapter": {"type": "lora", "init": "random"} | adapter,
           "data": {"files": [str(scratch / "ids.bin")], "validation_files": [str(scratch / "held.bin")],
                    "sequence_length": 40, "cache_dir": str(scratch / "cache"), "tokenizer": None},
           "batch": {"global_batch_size": 4}, "optimizer": {"lr": 1e-2}, "precision": {"compute": "fp64"},
           "train": {"steps": 5, "output_dir": str(scratch / "run"), "device": "ref", "transport": "local",
                     "force_memory": True}}
    (scratch / "job.yaml").write_text(json.dumps(job))
    subprocess.run([program, "train", scratch / "job.yaml"], check=True, stdout=subprocess.DEVNULL)
    lines = [json.loads(line) for line in open(scratch / "run" / "metrics.jsonl")]
    return scratch / "run", lines[-1]["eval_loss"], torch.tensor([numbers[1][:TEXT]])


def check_trained(program, name, adapter, scratch):
    run, loss, ids = train(program, name, adapter, scratch)
    merged = scratch / "merged"
    base = make_golden.load(HERE / name, torch.float64, ids.shape[1])
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        model = peft.PeftModel.from_pretrained(base, run / "adapter", autocast_adapter_dtype=False)
    missing = [str(w.message) for w in said if "missing" in str(w.message)]
    assert not missing, missing
    there = {n for n in safetensors.torch.load_file(run / "adapter" / "adapter_model.safetensors")}
    needed = set(peft.get_peft_model_state_dict(model))
    single = any(".experts." in n and n.split(".experts.")[1][0].isdigit() for n in there)
    assert there == needed or single, f"{name}: {sorted(there ^ needed)}"
    with torch.no_grad():
        theirs = make_golden.loss_of(model.eval(), ids[:, :-1], ids[:, 1:])[0].item()
        subprocess.run([program, "merge", "-m", HERE / name, "-a", run, "-o", merged], check=True,
                       stdout=subprocess.DEVNULL)
        whole = make_golden.load(merged, torch.float64, ids.shape[1]).eval()
        of_merged = make_golden.loss_of(whole, ids[:, :-1], ids[:, 1:])[0].item()
    return abs(theirs / loss - 1), abs(of_merged / loss - 1)


def check_refused(program, name, adapter, scratch):
    run, _, ids = train(program, name, adapter, scratch)
    try:
        peft.PeftModel.from_pretrained(make_golden.load(HERE / name, torch.float64, ids.shape[1]), run / "adapter")
    except ValueError as e:
        assert "use_dora" in str(e), e
        return
    raise AssertionError(f"PEFT loads {name} {adapter}")


def main(program, record):
    torch.set_num_threads(1)
    manifest = json.loads((OUT / "manifest.json").read_text())
    found, trained = {}, {}
    for name, adapter in TRAINED:
        with tempfile.TemporaryDirectory() as scratch:
            off = check_trained(program, name, adapter, pathlib.Path(scratch))
        trained[f"{name} {json.dumps(adapter)}"] = off[0]
        print(name, adapter, "loss off by", off[0], "merged, in the model's type,", off[1])
    for name, adapter in REFUSED:
        with tempfile.TemporaryDirectory() as scratch:
            check_refused(program, name, adapter, pathlib.Path(scratch))
    for adapter in sorted(p.parent for p in OUT.glob("*/adapter_config.json")):
        with tempfile.TemporaryDirectory() as scratch:
            found[adapter.name] = check_merged(program, adapter, pathlib.Path(scratch))
    manifest["merged_logits_off_by"] = found
    manifest["trained_loss_off_by"] = trained
    if record:
        (OUT / "manifest.json").write_text(json.dumps(manifest, indent=2) + "\n")
    print(json.dumps(found, indent=2))
    assert all(off < 1e-6 for off in found.values())  # norms and RoPE of transformers are in fp32
    assert all(off < 1e-9 for off in trained.values())


if __name__ == "__main__":
    main(sys.argv[1], "--record" in sys.argv[2:])
