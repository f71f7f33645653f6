"""Makes qlora/: the first step of LoRA adapters beside projections that bitsandbytes stores as nf4 with double
quantization, as transformers and PEFT compute it in fp32 on a CPU. README.md says what is in the files.

    venv/bin/pip install accelerate==1.15.0 bitsandbytes==0.50.2
    venv/bin/python make_qlora.py

bitsandbytes' Linear4bit runs forward and backward on a CPU. Only its kernel that unpacks is replaced where rows are not
whole blocks: that of its library for CPUs takes blocks to begin with a row (make_packed.py).
"""

import json
import pathlib
import platform
import zlib

import accelerate
import bitsandbytes
import bitsandbytes.functional as bnb
import numpy
import peft
import safetensors
import safetensors.torch
import torch
import transformers

import make_golden
import make_peft
from make_packed import BLOCK, nearest_scales, portable

HERE = pathlib.Path(__file__).parent
OUT = HERE / "qlora"
BASE = "llama-base"
# Rows are whole blocks, and so are the halves of those that two ranks of a tensor axis cut: o_proj and down_proj.
CONFIG = make_golden.COMMON | {
    "vocab_size": 61, "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32,
    "intermediate_size": 128, "num_hidden_layers": 1, "rms_norm_eps": 1e-5, "attention_bias": False, "mlp_bias": False,
    "tie_word_embeddings": True, "max_position_embeddings": 64, "rope_theta": 1000.0, "rope_scaling": None}
SEED = 65  # of weights of which bitsandbytes' own kernels choose the nearest scales (make_packed.py)
# Of phi3, whose rows of 32 and 44 begin within a block: an adapter for the model of the folder above.
CASES = {"llama": dict(base=OUT / BASE, r=2, lora_alpha=6, target_modules=make_peft.ALL["llama-yarn"]),
         "phi3": dict(base=HERE / "phi3", r=2, lora_alpha=6, target_modules=make_peft.ALL["phi3"])}
NF4 = transformers.BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True,
                                      bnb_4bit_compute_dtype=torch.float32)


def unpack(*args):
    """The portable kernel of bitsandbytes, for operands of its own kernels."""
    return portable(torch.ops.bitsandbytes.dequantize_4bit, *args)


def replace_unpack():
    """In forward and backward of Linear4bit, as long as what is returned lives."""
    library = torch.library.Library("bitsandbytes", "IMPL")
    library.impl("dequantize_4bit", unpack, "CPU", allow_override=True)
    return library


def load(folder):
    """The model in fp32 as a user of QLoRA loads it, from weights in fp32."""
    return transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="sdpa", device_map="cpu", quantization_config=NF4).train()


def projections(model):
    found = {n: m for n, m in model.named_modules() if isinstance(m, bitsandbytes.nn.Linear4bit)}
    kept = [n for n, m in model.named_modules() if isinstance(m, torch.nn.Linear) and n not in found]
    assert kept == ["lm_head"]  # norms, embedding and head are not packed
    return found


def check_packed(model, folder):
    """Modules hold what make_packed.py checks: codes and scales of whole tensors, the nearest ones. Returns the values."""
    weights, values = safetensors.torch.load_file(folder / "model.safetensors"), {}
    for name, module in projections(model).items():
        w, state = weights[f"{name}.weight"].float(), module.weight.quant_state
        codes, absmax = portable(torch.ops.bitsandbytes.quantize_4bit, w, BLOCK, "nf4", torch.uint8)
        scales, _, others = nearest_scales(absmax, state.offset, state.state2.code)
        assert state.nested and state.dtype == torch.float32 and state.quant_type == "nf4" and state.blocksize == BLOCK
        assert torch.equal(codes.flatten(), module.weight.data.flatten()), name
        assert torch.equal(scales, state.absmax) and not others, name
        restored = bnb.dequantize_blockwise(state.absmax, state.state2) + state.offset
        values[name] = unpack(module.weight.data, restored, BLOCK, "nf4", state.shape, torch.float32)
        native = bnb.dequantize_4bit(module.weight.data, state)
        assert torch.equal(values[name], native) or w.shape[1] % BLOCK, name
    return values


def gradients(model):
    return {make_peft.file_name(n): p.grad for n, p in make_peft.trained(model).items()}


def exact_step(name, base, values, ids, labels):
    """The same step in fp64, with the unpacked values in plain projections."""
    model = make_golden.load(base, torch.float64, ids.shape[-1])
    with torch.no_grad():
        for module, w in values.items():
            model.get_submodule(module).weight.copy_(w)
    model = peft.PeftModel.from_pretrained(model, OUT / name, is_trainable=True, autocast_adapter_dtype=False)
    loss, _ = make_peft.step(model, ids, labels)
    return loss, gradients(model)


def batch_of(name, base):
    if name != "llama":
        data = safetensors.torch.load_file(base / "expected.safetensors")
        return data["input_ids"][:1], data["labels"][:1]
    ids, labels = make_golden.random_data(CONFIG["vocab_size"], 4, 24, torch.Generator().manual_seed(4))
    return ids[:1], labels[:1]


def write_case(name, base, report, **config):
    ids, labels = batch_of(name, base)
    torch.manual_seed(zlib.crc32(name.encode()))
    model = load(base)
    values = check_packed(model, base)
    replaced = replace_unpack() if any(w.shape[1] % BLOCK for w in values.values()) else None
    model = peft.get_peft_model(model, peft.LoraConfig(task_type="CAUSAL_LM", lora_dropout=0.0, **config))
    make_peft.spread(model, torch.Generator().manual_seed(zlib.crc32(name.encode())))
    make_peft.save(model, OUT / name, str(base.relative_to(HERE)))
    assert all(isinstance(m, peft.tuners.lora.bnb.Linear4bit) for m in model.modules() if hasattr(m, "lora_A"))
    loss, _ = make_peft.step(model, ids[0], labels[0])
    del replaced
    grads = gradients(model)
    norm = torch.sqrt(sum(g.double().pow(2).sum() for g in grads.values()))
    tensors = {"input_ids": ids.int(), "labels": labels.int(), "losses": loss.detach().double().view(1),
               "grad_norms": norm.view(1)} | {f"grad.{n}": g for n, g in grads.items()}
    safetensors.torch.save_file(tensors, OUT / name / "expected.safetensors")

    exact, exact_grads = exact_step(name, base, values, ids[0], labels[0])
    off = {n: ((g.double() - exact_grads[n]).norm() / exact_grads[n].norm()).item() for n, g in grads.items()}
    report[name] = {"loss": loss.item(), "fp32_loss_off_by": abs(loss.item() / exact.item() - 1),
                    "fp32_gradients_off_by": max(off.values())}


def main():
    torch.set_num_threads(1)
    OUT.mkdir(exist_ok=True)
    make_golden.write_model(OUT / BASE, {"config": CONFIG, "storage": torch.bfloat16}, torch.Generator().manual_seed(SEED))
    report = {}
    for name, case in CASES.items():
        write_case(name, report=report, **case)
    versions = {m.__name__: m.__version__ for m in (accelerate, bitsandbytes, numpy, peft, safetensors, torch, transformers)}
    manifest = {"made_with": {"python": platform.python_version()} | versions, "cases": report,
                "files": {str(p.relative_to(OUT)): make_golden.sha256(p) for p in sorted(OUT.glob("*/*"))}}
    (OUT / "manifest.json").write_text(json.dumps(manifest, indent=2) + "\n")
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
