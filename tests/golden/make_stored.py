"""Makes stored/: a small llama whose matrices are stored in fewer bits, as published folders have them, and what the programs that
store them make of the matrices. README.md says what is in the files.

    venv/bin/pip install accelerate==1.15.0 bitsandbytes==0.50.2 torchao==0.17.0
    venv/bin/python make_stored.py

nf4, fp4 and int8 are written by transformers with bitsandbytes, on a CPU. NVFP4 is packed here under the names of modelopt and of
compressed-tensors, which need a GPU for it, and unpacked by torchao.
"""

import json
import shutil
import tempfile

import safetensors.torch
import torch
import transformers
from torchao.prototype.mx_formats.kernels import f4_unpacked_to_f32, unpack_uint4
from torchao.prototype.mx_formats.nvfp4_tensor import NVFP4Tensor, per_tensor_amax_to_scale

import make_golden

OUT = make_golden.HERE / "stored"
CONFIG = make_golden.COMMON | {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 32, "hidden_size": 64, "num_attention_heads": 2,
    "num_key_value_heads": 1, "head_dim": 32, "intermediate_size": 64, "num_hidden_layers": 1, "rms_norm_eps": 1e-5,
    "attention_bias": False, "mlp_bias": False, "tie_word_embeddings": True, "max_position_embeddings": 64, "rope_theta": 1000.0,
    "rope_scaling": None}
FOUR = dict(load_in_4bit=True, bnb_4bit_compute_dtype=torch.bfloat16)
BNB = {"nf4": FOUR | dict(bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True, bnb_4bit_quant_storage=torch.bfloat16),
       "fp4": FOUR | dict(bnb_4bit_quant_type="fp4"), "int8": dict(load_in_8bit=True)}
FFN = {"nf4": 320}  # more than 256 blocks in a matrix, and rows of whole blocks (make_packed.py says why)
PACKED = {"modelopt": {"quant_method": "modelopt", "quant_algo": "NVFP4", "kv_cache_scheme": None},
          "compressed": {"quant_method": "compressed-tensors", "format": "nvfp4-pack-quantized"}}


def plain(folder, ffn):
    config = transformers.LlamaConfig(**CONFIG | {"intermediate_size": ffn})
    model = transformers.LlamaForCausalLM(config)
    for p in model.parameters():
        torch.nn.init.normal_(p, std=0.08)
    model.to(torch.bfloat16).save_pretrained(folder)


def finish(name, weights, packing, expected):
    folder = OUT / name
    folder.mkdir(parents=True, exist_ok=True)
    config = CONFIG | {"intermediate_size": FFN.get(name, 64), "dtype": "bfloat16", "quantization_config": packing}
    (folder / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True, default=str) + "\n")
    safetensors.torch.save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    safetensors.torch.save_file({n: t.contiguous() for n, t in expected.items()}, folder / "expected.safetensors")


def bitsandbytes(name, folder):
    from_pretrained = transformers.AutoModelForCausalLM.from_pretrained
    how = transformers.BitsAndBytesConfig(**BNB[name])
    model = from_pretrained(folder, quantization_config=how, device_map="cpu", dtype=torch.bfloat16)
    with tempfile.TemporaryDirectory() as saved:
        model.save_pretrained(saved)
        config = json.loads(open(f"{saved}/config.json").read())
        weights = safetensors.torch.load_file(f"{saved}/model.safetensors")
        again = from_pretrained(saved, device_map="cpu", dtype=torch.bfloat16).dequantize()
    expected = {n: p.data.to(torch.bfloat16) for n, p in again.named_parameters() if n != "lm_head.weight"}
    finish(name, weights, config["quantization_config"], expected)


def numbers(codes, scales, whole):
    """In fp32, then rounded, as modelopt's NVFP4QTensor."""
    values = f4_unpacked_to_f32(unpack_uint4(codes)).view(*scales.shape, -1)
    return (values * (scales.float() * whole)[..., None]).flatten(1).to(torch.bfloat16)


def nvfp4(name, folder):
    weights, expected = {}, {}
    for n, t in safetensors.torch.load_file(f"{folder}/model.safetensors").items():
        if t.ndim < 2 or "embed" in n:
            weights[n] = expected[n] = t
            continue
        packed = NVFP4Tensor.to_nvfp4(t, per_tensor_scale=per_tensor_amax_to_scale(t.abs().max().float()))
        codes, scales, whole = packed.qdata.view(torch.uint8), packed.scale.view(t.shape[0], -1), packed.per_tensor_scale
        assert scales.dtype == torch.float8_e4m3fn and scales.shape[1] == t.shape[1] // 16
        expected[n] = numbers(codes, scales, whole)
        assert torch.allclose(expected[n].float(), packed.dequantize(torch.float32), rtol=2**-7)  # its scales are in bf16
        module = n.removesuffix("weight")
        if name == "modelopt":
            weights |= {n: codes, f"{n}_scale": scales, f"{n}_scale_2": whole, f"{module}input_scale": torch.tensor(0.5)}
        else:
            weights |= {f"{n}_packed": codes, f"{n}_scale": scales, f"{n}_global_scale": (1 / whole).reshape(1),
                        f"{module}input_global_scale": torch.tensor([2.0])}
            expected[n] = numbers(codes, scales, 1 / weights[f"{n}_global_scale"])
    finish(name, weights, PACKED[name], expected)


def main():
    shutil.rmtree(OUT, ignore_errors=True)
    for name in [*BNB, *PACKED]:
        torch.manual_seed(52)
        with tempfile.TemporaryDirectory() as folder:
            plain(folder, FFN.get(name, 64))
            (bitsandbytes if name in BNB else nvfp4)(name, folder)


if __name__ == "__main__":
    main()
