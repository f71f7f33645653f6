"""Makes mxfp4/: a gpt_oss whose experts are stored as MXFP4, and what transformers makes of it. README.md says what is in the files.

    python make_mxfp4.py
"""

import json

import safetensors.torch
import torch
import transformers
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

import make_golden

OUT = make_golden.HERE / "mxfp4"
CONFIG = make_golden.family("gpt_oss", "GptOssForCausalLM", hidden_size=64, head_dim=16, intermediate_size=32, num_local_experts=3,
                            num_experts_per_tok=2, num_hidden_layers=1, vocab_size=61, sliding_window=7, rms_norm_eps=1e-5,
                            attention_bias=True, hidden_act="silu",
                            rope_parameters={"rope_type": "default", "rope_theta": 1000.0})
PACKED = {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn", "model.layers.*.mlp.router",
                                                               "model.embed_tokens", "lm_head"]}


def main():
    torch.manual_seed(49)
    OUT.mkdir(exist_ok=True)
    (OUT / "config.json").write_text(json.dumps(CONFIG, indent=2, sort_keys=True) + "\n")
    model = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.from_pretrained(OUT))
    weights, plain = {}, {}
    for name, p in model.named_parameters():
        if not name.endswith(("gate_up_proj", "down_proj")):
            weights[name] = plain[name] = (0.3 * torch.randn(p.shape) + (name.endswith("norm.weight"))).to(torch.bfloat16)
            continue
        experts, inputs, outputs = p.shape
        blocks = torch.randint(256, (experts, outputs, inputs // 32, 16), dtype=torch.uint8)
        scales = torch.randint(121, 126, (experts, outputs, inputs // 32), dtype=torch.uint8)
        weights[name + "_blocks"], weights[name + "_scales"] = blocks, scales
        plain[name] = convert_moe_packed_tensors(blocks, scales, dtype=torch.bfloat16).contiguous()
        assert plain[name].shape == p.shape
    safetensors.torch.save_file(weights, OUT / "model.safetensors", metadata={"format": "pt"})
    (OUT / "config.json").write_text(json.dumps(CONFIG | {"quantization_config": PACKED}, indent=2, sort_keys=True) + "\n")
    safetensors.torch.save_file(plain, OUT / "expected.safetensors")


if __name__ == "__main__":
    main()
