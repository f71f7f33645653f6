"""Shows PEFT and transformers what the program makes of adapters: models that it has merged must load, and give the logits
that PEFT gives with the adapter.

    python check_peft.py PROGRAM

The adapters and models are those of this folder. Writes what it found into peft/manifest.json.
"""

import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

import peft
import safetensors.torch
import torch
import transformers

HERE = pathlib.Path(__file__).parent
OUT = HERE / "peft"


def logits(model, ids):
    with torch.no_grad():
        return model.eval()(input_ids=ids, use_cache=False).logits


def load(folder):
    model, info = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64, output_loading_info=True)
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


def main(program):
    torch.set_num_threads(1)
    manifest = json.loads((OUT / "manifest.json").read_text())
    found = {}
    for adapter in sorted(p.parent for p in OUT.glob("*/adapter_config.json")):
        with tempfile.TemporaryDirectory() as scratch:
            found[adapter.name] = check_merged(program, adapter, pathlib.Path(scratch))
    manifest["merged_logits_off_by"] = found
    (OUT / "manifest.json").write_text(json.dumps(manifest, indent=2) + "\n")
    print(json.dumps(found, indent=2))
    assert all(off < 1e-6 for off in found.values())  # norms and RoPE of transformers are in fp32


if __name__ == "__main__":
    main(sys.argv[1])
