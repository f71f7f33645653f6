"""Makes fp8/: a deepseek_v3 whose matrices are stored as fp8 in blocks of 128 x 128, with a module for more tokens behind its last
layer, and what transformers makes of the matrices. README.md says what is in the files.

    python make_fp8.py
"""

import json

import safetensors.torch
import torch
import transformers
from transformers.integrations.finegrained_fp8 import Fp8Dequantize

import make_golden

OUT = make_golden.HERE / "fp8"
CONFIG = make_golden.family("deepseek_v3", "DeepseekV3ForCausalLM", hidden_size=136, num_attention_heads=2, num_key_value_heads=2,
                            q_lora_rank=None, kv_lora_rank=130, qk_nope_head_dim=8, qk_rope_head_dim=4, v_head_dim=6,
                            n_routed_experts=2, num_experts_per_tok=1, n_group=1, topk_group=1, moe_intermediate_size=8,
                            num_hidden_layers=1, first_k_dense_replace=0, vocab_size=61, rms_norm_eps=1e-6, rope_theta=1000.0,
                            num_nextn_predict_layers=1, hidden_act="silu")
PACKED = {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}


def pack(shape):
    """Codes, and scales of their blocks."""
    blocks = [-(-n // 128) for n in shape]
    return torch.randn(shape).to(torch.float8_e4m3fn), 0.01 + 0.05 * torch.rand(blocks)


def main():
    torch.manual_seed(49)
    OUT.mkdir(exist_ok=True)
    (OUT / "config.json").write_text(json.dumps(CONFIG, indent=2, sort_keys=True) + "\n")
    model = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.from_pretrained(OUT))
    weights, plain = {}, {}
    states = [(name, b) for name, b in model.named_buffers() if name.endswith("e_score_correction_bias")]
    for name, p in make_golden.hub_tensors(model, [*model.named_parameters(), *states]).items():
        if p.ndim < 2 or name.endswith(("gate.weight", "embed_tokens.weight", "lm_head.weight")):
            own = torch.float32 if name in dict(states) else torch.bfloat16
            weights[name] = plain[name] = (0.3 * torch.randn(p.shape) + name.endswith("norm.weight")).to(own)
            continue
        weights[name], weights[name + "_scale_inv"] = codes, scales = pack(p.shape)
        spread = scales.repeat_interleave(128, 0)[: p.shape[0]].repeat_interleave(128, 1)[:, : p.shape[1]]
        plain[name] = (codes.float() * spread).to(torch.bfloat16)
        if scales.numel() == 1:  # transformers 5.24 refuses matrices that are not whole blocks
            theirs = Fp8Dequantize(None)._dequantize_one(codes, scales, torch.bfloat16)
            assert torch.equal(theirs, plain[name])
    further = "model.layers.1."
    weights[further + "eh_proj.weight"], weights[further + "eh_proj.weight_scale_inv"] = pack((136, 272))
    weights[further + "enorm.weight"] = torch.randn(136).to(torch.bfloat16)
    safetensors.torch.save_file(weights, OUT / "model.safetensors", metadata={"format": "pt"})
    (OUT / "config.json").write_text(json.dumps(CONFIG | {"quantization_config": PACKED}, indent=2, sort_keys=True) + "\n")
    safetensors.torch.save_file(plain, OUT / "expected.safetensors")


if __name__ == "__main__":
    main()
