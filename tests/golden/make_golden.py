"""Makes the reference values of tests/golden from Hugging Face transformers in fp64. README.md says what is in the files.

    python make_golden.py STORIES260K_FOLDER TINYSTORIES_JSONL [NAME ...]

With names only those models are made again; the manifest keeps what it says of the others.
"""

import hashlib
import json
import math
import pathlib
import platform
import sys
import types
import zlib

import numpy
import safetensors
import safetensors.torch
import tokenizers
import torch
import transformers
from transformers.models.deepseek_v2 import modeling_deepseek_v2
from transformers.models.gemma2 import modeling_gemma2
from transformers.models.ministral3 import modeling_ministral3

HERE = pathlib.Path(__file__).parent
UPDATES = 20
LR, BETAS, EPS, WEIGHT_DECAY, MAX_GRAD_NORM = 1e-3, (0.9, 0.95), 1e-8, 0.1, 1.0

COMMON = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "bos_token_id": 1, "eos_token_id": 2,
          "hidden_act": "silu", "initializer_range": 0.02}
# Together: grouped and single kv heads, heads that do not fill the hidden size, tied and untied heads, all biases, odd
# sizes, all kinds of RoPE; config.json as transformers 4 and as transformers 5 writes it; fp32, bf16 and fp16 files.
MODELS = {
    "gqa-bias": dict(
        storage=torch.float32, batch=3, length=48,
        config=COMMON | {"vocab_size": 211, "hidden_size": 72, "num_attention_heads": 9, "num_key_value_heads": 3,
                         "head_dim": 8, "intermediate_size": 100, "num_hidden_layers": 2, "rms_norm_eps": 1e-5,
                         "attention_bias": True, "mlp_bias": False, "tie_word_embeddings": False,
                         "max_position_embeddings": 128, "rope_theta": 10000.0, "rope_scaling": None}),
    "llama3-tied": dict(
        storage=torch.bfloat16, batch=2, length=100,
        config=COMMON | {"vocab_size": 383, "hidden_size": 48, "num_attention_heads": 4, "num_key_value_heads": 2,
                         "head_dim": 16, "intermediate_size": 172, "num_hidden_layers": 2, "rms_norm_eps": 1e-6,
                         "attention_bias": False, "mlp_bias": False, "tie_word_embeddings": True,
                         "max_position_embeddings": 512, "rope_theta": 500000.0,
                         "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
                                          "high_freq_factor": 4.0, "original_max_position_embeddings": 64}}),
    "linear-mqa": dict(
        storage=torch.float16, batch=4, length=33, shards=2,
        config=COMMON | {"vocab_size": 257, "hidden_size": 40, "num_attention_heads": 5, "num_key_value_heads": 1,
                         "head_dim": 12, "intermediate_size": 101, "num_hidden_layers": 3, "rms_norm_eps": 1e-5,
                         "attention_bias": True, "mlp_bias": True, "tie_word_embeddings": False,
                         "max_position_embeddings": 64,
                         "rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 1000.0}}),
}


def family(model_type, architecture, **more):
    """A configuration of another family; `more` goes over the sizes that most of them have here. Without a token of padding:
    transformers gives its row of the embedding no gradient."""
    return {"architectures": [architecture], "model_type": model_type, "bos_token_id": 1, "eos_token_id": 2,
            "pad_token_id": None, "initializer_range": 0.02, "vocab_size": 97, "hidden_size": 24, "num_attention_heads": 4,
            "num_key_value_heads": 2, "intermediate_size": 44, "num_hidden_layers": 2, "max_position_embeddings": 64,
            "tie_word_embeddings": False} | more


# One of each family, with what is particular to it in use: windows shorter than the rows, RoPE of a part of a head or of
# some layers, caps that logits and scores come near to, weights that files hold fused or transposed. No dropout.
SIZES = dict(storage=torch.bfloat16, batch=2, length=24)
FAMILIES = {
    "llama-yarn": family("llama", "LlamaForCausalLM", rms_norm_eps=1e-5, head_dim=8, rope_theta=10000.0,
                         rope_scaling={"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16,
                                       "beta_fast": 4.0, "beta_slow": 1.0}),
    "mistral": family("mistral", "MistralForCausalLM", rms_norm_eps=1e-5, head_dim=8, rope_theta=1000.0, sliding_window=7),
    "ministral": family("ministral", "MinistralForCausalLM", rms_norm_eps=1e-5, head_dim=8, rope_theta=1000.0,
                        num_hidden_layers=3, sliding_window=7,
                        layer_types=["sliding_attention", "full_attention", "sliding_attention"]),
    "ministral3": family("ministral3", "Ministral3ForCausalLM", rms_norm_eps=1e-5, head_dim=8, sliding_window=None,
                         hidden_act="silu",
                         rope_parameters={"rope_type": "yarn", "rope_theta": 1000.0, "factor": 4.0, "beta_fast": 4.0,
                                          "beta_slow": 1.0, "original_max_position_embeddings": 8, "mscale": 1.0,
                                          "mscale_all_dim": 0.9, "llama_4_scaling_beta": 0.5}),
    "qwen2": family("qwen2", "Qwen2ForCausalLM", rms_norm_eps=1e-6, rope_theta=1000.0, tie_word_embeddings=True,
                    num_hidden_layers=3, use_sliding_window=True, max_window_layers=1, sliding_window=9),
    "qwen3": family("qwen3", "Qwen3ForCausalLM", rms_norm_eps=1e-6, head_dim=10, rope_theta=1000.0, attention_bias=False,
                    tie_word_embeddings=True, use_sliding_window=False, sliding_window=None),
    "seed-oss": family("seed_oss", "SeedOssForCausalLM", rms_norm_eps=1e-6, head_dim=8, rope_theta=1000.0, hidden_act="silu",
                       attention_bias=True, attention_out_bias=False, mlp_bias=False, attention_dropout=0.0,
                       residual_dropout=0.0),
    "phi3": family("phi3", "Phi3ForCausalLM", rms_norm_eps=1e-5, hidden_size=32, rope_theta=1000.0,
                   partial_rotary_factor=0.75, original_max_position_embeddings=16, sliding_window=None,
                   rope_scaling={"type": "longrope", "short_factor": [1.0, 1.25, 1.5], "long_factor": [1.0, 2.5, 4.0]}),
    "olmo2": family("olmo2", "Olmo2ForCausalLM", rms_norm_eps=1e-6, rope_theta=1000.0, attention_bias=False),
    "olmo3": family("olmo3", "Olmo3ForCausalLM", rms_norm_eps=1e-6, intermediate_size=20, num_hidden_layers=4, sliding_window=7,
                    attention_bias=False, rope_parameters={
                        "full_attention": {"rope_type": "yarn", "rope_theta": 1000.0, "factor": 4.0, "beta_fast": 4.0,
                                           "beta_slow": 1.0, "original_max_position_embeddings": 16},
                        "sliding_attention": {"rope_type": "default", "rope_theta": 1000.0}}),
    "smollm3": family("smollm3", "SmolLM3ForCausalLM", rms_norm_eps=1e-6, rope_theta=1000.0, tie_word_embeddings=True,
                      num_hidden_layers=3, no_rope_layers=[1, 0, 1], use_sliding_window=False),
    "granite": family("granite", "GraniteForCausalLM", rms_norm_eps=1e-5, rope_theta=1000.0, hidden_act="silu",
                      attention_bias=False, mlp_bias=False, attention_dropout=0.0, embedding_multiplier=12.0,
                      residual_multiplier=0.22, attention_multiplier=0.3, logits_scaling=0.7, tie_word_embeddings=True),
    "gemma": family("gemma", "GemmaForCausalLM", rms_norm_eps=1e-6, head_dim=8, num_key_value_heads=1, rope_theta=1000.0,
                    hidden_act="gelu", tie_word_embeddings=True),
    "gemma2": family("gemma2", "Gemma2ForCausalLM", rms_norm_eps=1e-6, head_dim=8, rope_theta=1000.0,
                     hidden_activation="gelu_pytorch_tanh", query_pre_attn_scalar=12, sliding_window=6,
                     attn_logit_softcapping=2.0, final_logit_softcapping=1.5, tie_word_embeddings=True),
    "gemma3": family("gemma3_text", "Gemma3ForCausalLM", rms_norm_eps=1e-6, head_dim=8, rope_theta=1000.0,
                     hidden_activation="gelu_pytorch_tanh", query_pre_attn_scalar=12, sliding_window=6,
                     num_hidden_layers=3, sliding_window_pattern=2, rope_local_base_freq=100.0,
                     rope_scaling={"rope_type": "linear", "factor": 4.0}, tie_word_embeddings=True),
    # Heads wider in layers that see all keys, whose values are their keys; a quarter of these heads turns.
    "gemma4": family("gemma4_text", "Gemma4ForCausalLM", rms_norm_eps=1e-6, head_dim=8, global_head_dim=16,
                     hidden_size=32, num_global_key_value_heads=1, attention_k_eq_v=True, num_hidden_layers=3,
                     hidden_activation="gelu_pytorch_tanh", sliding_window=7, final_logit_softcapping=1.5,
                     layer_types=["sliding_attention", "sliding_attention", "full_attention"], attention_bias=False,
                     hidden_size_per_layer_input=0, num_kv_shared_layers=0, enable_moe_block=False,
                     tie_word_embeddings=True, rope_parameters={
                         "full_attention": {"rope_type": "proportional", "rope_theta": 1000.0, "partial_rotary_factor": 0.5},
                         "sliding_attention": {"rope_type": "default", "rope_theta": 100.0}}),
    "gpt2": {"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "bos_token_id": 1, "eos_token_id": 2,
             "activation_function": "gelu_new", "initializer_range": 0.02, "vocab_size": 97, "n_embd": 24, "n_head": 3,
             "n_layer": 2, "n_positions": 40, "layer_norm_epsilon": 1e-5, "attn_pdrop": 0.0, "embd_pdrop": 0.0,
             "resid_pdrop": 0.0},
    "stablelm": family("stablelm", "StableLmForCausalLM", layer_norm_eps=1e-5, hidden_size=32, rope_theta=1000.0,
                       hidden_act="silu", partial_rotary_factor=0.25, use_qkv_bias=True, use_parallel_residual=False),
    "stablelm-parallel": family("stablelm", "StableLmForCausalLM", layer_norm_eps=1e-5, hidden_size=32, hidden_act="silu",
                                rope_theta=1000.0, partial_rotary_factor=0.5, use_parallel_residual=True),
    "gpt-neox": family("gpt_neox", "GPTNeoXForCausalLM", layer_norm_eps=1e-5, hidden_size=32, rotary_emb_base=1000,
                       rotary_pct=0.25, hidden_act="gelu", use_parallel_residual=True, attention_bias=True,
                       attention_dropout=0.0, hidden_dropout=0.0),
    "gpt-neox-serial": family("gpt_neox", "GPTNeoXForCausalLM", layer_norm_eps=1e-5, num_attention_heads=3,
                              rotary_emb_base=1000, rotary_pct=0.5, hidden_act="gelu_fast", use_parallel_residual=False,
                              attention_bias=False, attention_dropout=0.0, hidden_dropout=0.0, tie_word_embeddings=True),
    "starcoder2": family("starcoder2", "Starcoder2ForCausalLM", norm_epsilon=1e-5, rope_theta=1000.0, use_bias=True,
                         hidden_act="gelu_pytorch_tanh", sliding_window=8, tie_word_embeddings=True,
                         attention_dropout=0.0, residual_dropout=0.0, embedding_dropout=0.0),
}
# Mixtures: layers with and without one, weights that are renormalised or not.
EXPERTS = dict(rms_norm_eps=1e-6, rope_theta=1000.0, hidden_act="silu", output_router_logits=False)
# Latent attention: values narrower than keys, or wider; scores are scaled with the angles.
LATENT = dict(num_key_value_heads=4, kv_lora_rank=12, qk_rope_head_dim=4, rms_norm_eps=1e-6, hidden_act="silu")
MSCALED = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "beta_fast": 4.0, "beta_slow": 1.0}
FAMILIES |= {
    "mixtral": family("mixtral", "MixtralForCausalLM", intermediate_size=20, num_local_experts=8, num_experts_per_tok=2,
                      sliding_window=None, **EXPERTS),
    "qwen3-moe": family("qwen3_moe", "Qwen3MoeForCausalLM", head_dim=8, num_hidden_layers=3, num_experts=6,
                        num_experts_per_tok=3, moe_intermediate_size=14, norm_topk_prob=True, mlp_only_layers=[1],
                        decoder_sparse_step=1, attention_bias=False, use_sliding_window=False, **EXPERTS),
    "qwen2-moe": family("qwen2_moe", "Qwen2MoeForCausalLM", num_hidden_layers=3, num_experts=6, num_experts_per_tok=2,
                        moe_intermediate_size=10, shared_expert_intermediate_size=18, norm_topk_prob=False,
                        mlp_only_layers=[1], decoder_sparse_step=1, qkv_bias=True, use_sliding_window=True, sliding_window=7,
                        max_window_layers=2, **EXPERTS),
    "olmoe": family("olmoe", "OlmoeForCausalLM", intermediate_size=10, num_experts=9, num_experts_per_tok=3,
                    norm_topk_prob=False, clip_qkv=None, attention_bias=False, **EXPERTS),
    "glm4-moe": family("glm4_moe", "Glm4MoeForCausalLM", head_dim=8, partial_rotary_factor=0.5, n_routed_experts=12,
                       num_experts_per_tok=3, n_group=3, topk_group=2, norm_topk_prob=True, routed_scaling_factor=2.5,
                       moe_intermediate_size=10, n_shared_experts=2, first_k_dense_replace=1, use_qk_norm=True,
                       attention_bias=True, num_nextn_predict_layers=0, rms_norm_eps=1e-5, rope_theta=1000.0,
                       hidden_act="silu"),
    "deepseek-v2": family("deepseek_v2", "DeepseekV2ForCausalLM", q_lora_rank=None, qk_nope_head_dim=6, v_head_dim=5,
                          n_routed_experts=12, num_experts_per_tok=3, n_group=3, topk_group=2, moe_intermediate_size=10,
                          topk_method="group_limited_greedy", norm_topk_prob=False, routed_scaling_factor=1.7,
                          n_shared_experts=2, first_k_dense_replace=1, attention_bias=False, scoring_func="softmax",
                          rope_theta=1000.0, rope_scaling=MSCALED | {"mscale": 0.707, "mscale_all_dim": 0.707}, **LATENT),
    "deepseek-v3": family("deepseek_v3", "DeepseekV3ForCausalLM", q_lora_rank=11, qk_nope_head_dim=6, v_head_dim=5,
                          n_routed_experts=12, num_experts_per_tok=3, n_group=3, topk_group=2, moe_intermediate_size=10,
                          norm_topk_prob=True, routed_scaling_factor=2.5, n_shared_experts=1, first_k_dense_replace=1,
                          attention_bias=True, scoring_func="sigmoid", topk_method="noaux_tc", num_nextn_predict_layers=0,
                          rope_theta=1000.0, rope_scaling=MSCALED | {"mscale": 1.0, "mscale_all_dim": 0.9}, **LATENT),
    "glm4-moe-lite": family("glm4_moe_lite", "Glm4MoeLiteForCausalLM", q_lora_rank=11, qk_nope_head_dim=4, v_head_dim=8,
                            num_hidden_layers=3, n_routed_experts=6, num_experts_per_tok=2, moe_intermediate_size=10,
                            n_shared_experts=1, n_group=1, topk_group=1, norm_topk_prob=True, routed_scaling_factor=1.8,
                            mlp_layer_types=["dense", "sparse", "dense"], rope_interleave=False,
                            attention_bias=False, num_nextn_predict_layers=0, **(LATENT | {"rms_norm_eps": 1e-5}),
                            rope_parameters={"rope_type": "default", "rope_theta": 1000.0}),
    "gpt-oss": family("gpt_oss", "GptOssForCausalLM", head_dim=8, intermediate_size=10, num_local_experts=6,
                      num_experts_per_tok=3, num_hidden_layers=3, sliding_window=7, rms_norm_eps=1e-5, attention_bias=True,
                      hidden_act="silu", swiglu_alpha=1.702, swiglu_limit=0.5, output_router_logits=False,
                      layer_types=["sliding_attention", "full_attention", "sliding_attention"],
                      rope_parameters={"rope_type": "yarn", "rope_theta": 1000.0, "factor": 4.0, "beta_fast": 4.0,
                                       "beta_slow": 1.0, "truncate": False, "original_max_position_embeddings": 16}),
}
# Layers with a state: fewer key heads than value heads, values narrower than keys. Norms with a large epsilon: the first
# results of a document are a number times its values, and near 0 the norm would make a sign of it, which bf16 gets wrong.
STATES = dict(num_hidden_layers=3, layer_types=["linear_attention", "full_attention", "linear_attention"], head_dim=8,
              linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=6, linear_value_head_dim=5,
              max_position_embeddings=256, attention_bias=False, rms_norm_eps=1e-3, hidden_act="silu",
              rope_parameters={"rope_type": "default", "rope_theta": 1000.0, "partial_rotary_factor": 0.5})
STATE_EXPERTS = dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=10, shared_expert_intermediate_size=18,
                     output_router_logits=False)
FAMILIES |= {
    "qwen3-5": family("qwen3_5_text", "Qwen3_5ForCausalLM", linear_conv_kernel_dim=4, tie_word_embeddings=True, **STATES),
    "qwen3-5-moe": family("qwen3_5_moe_text", "Qwen3_5MoeForCausalLM", linear_conv_kernel_dim=2, **STATE_EXPERTS, **STATES),
    "qwen3-next": family("qwen3_next", "Qwen3NextForCausalLM", linear_conv_kernel_dim=3, mlp_only_layers=[0],
                         decoder_sparse_step=1, norm_topk_prob=True, **STATE_EXPERTS, **STATES),
}
MODELS |= {name: SIZES | {"config": config} for name, config in FAMILIES.items()}
MODELS["qwen3-5"]["length"] = 70  # more than a chunk of the delta rule
MODELS["gpt2"]["bare"] = True  # names without "transformer.", and the mask, as the files on the Hub
MODELS["gpt-neox"]["buffers"] = True  # the mask and others, as files of older versions


def rope_frequencies(config, rope, length):
    """Inverse frequencies in fp64 and the amplitude, from the definitions; transformers computes the same in fp32."""
    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    dim = head if rope["rope_type"] == "proportional" else int(head * rope.get("partial_rotary_factor", 1.0))
    steps = torch.arange(0, dim, 2, dtype=torch.float64)
    plain = 1.0 / rope["rope_theta"] ** (steps / dim)
    original = rope.get("original_max_position_embeddings")
    kind = rope["rope_type"]
    if kind == "default":
        return plain, 1.0
    if kind == "proportional":
        turns = steps < 2 * int(rope.get("partial_rotary_factor", 1.0) * dim // 2)
        return torch.where(turns, plain / rope.get("factor", 1.0), torch.zeros_like(plain)), 1.0
    if kind == "linear":
        return plain / rope["factor"], 1.0
    if kind == "llama3":
        # Long waves are slowed by the factor, short ones kept, those between interpolated.
        low, high = rope["low_freq_factor"], rope["high_freq_factor"]
        smooth = ((original * plain / (2 * math.pi) - low) / (high - low)).clamp(0, 1)
        return (1 - smooth) * plain / rope["factor"] + smooth * plain, 1.0
    if kind == "yarn":
        turns = [dim * math.log(original / (beta * 2 * math.pi)) / (2 * math.log(rope["rope_theta"]))
                 for beta in (rope["beta_fast"], rope["beta_slow"])]
        if rope.get("truncate", True):
            turns = [math.floor(turns[0]), math.ceil(turns[1])]
        low, high = max(turns[0], 0), min(turns[1], dim - 1)
        divided = ((steps / 2 - low) / (high - low)).clamp(0, 1)
        own, others = (0.1 * rope.get(key, 1) * math.log(rope["factor"]) + 1 for key in ("mscale", "mscale_all_dim"))
        return divided * plain / rope["factor"] + (1 - divided) * plain, own / others if "mscale" in rope else own
    assert kind == "longrope"
    factors = torch.tensor(rope["long_factor" if length > original else "short_factor"], dtype=torch.float64)
    return plain / factors, math.sqrt(1 + math.log(config.max_position_embeddings / original) / math.log(original))


def check_rope(rotary, config, length):
    """The fp64 frequencies of a rotary module, by kind of layer (None: it has one), held against its own."""
    nested = "rope_type" not in config.rope_parameters
    tables = {}
    for kind, rope in config.rope_parameters.items() if nested else [(None, config.rope_parameters)]:
        of_kind = config.per_layer_config[kind] if config.model_type == "gemma4_text" else config
        exact, amplitude = rope_frequencies(of_kind, rope, length)
        x, positions = torch.zeros(1, length, 4), torch.arange(length)[None]
        table = rotary(x, positions, kind) if nested else rotary(x, positions)
        cos, sin = (table.real, table.imag) if torch.is_tensor(table) else table
        angles = positions[..., None].double() * torch.cat((exact, exact))[: cos.shape[-1]]  # gpt_oss has each once
        for ours, theirs in ((angles.cos(), cos), (angles.sin(), sin)):
            torch.testing.assert_close((amplitude * ours).float(), theirs, rtol=1e-5, atol=1e-5)
        tables[kind] = exact, amplitude
    return tables


def rotary_fp64(self, x, position_ids, layer_type=None):
    frequencies, amplitude = self.fp64_tables[layer_type]
    position_ids = position_ids[0] if position_ids.ndim == 3 else position_ids  # of text all three are one
    angles = position_ids[..., None].double() * frequencies
    if type(self).__name__ == "DeepseekV2RotaryEmbedding":
        return torch.polar(torch.full_like(angles, amplitude), angles)
    if type(self).__name__ != "GptOssRotaryEmbedding":
        angles = torch.cat((angles, angles), dim=-1)
    return (amplitude * angles.cos()).to(x.dtype), (amplitude * angles.sin()).to(x.dtype)


def rotate(q, k, table):
    """deepseek_v2's apply_rotary_emb, in fp64 without its casts to fp32."""
    if q.dtype != torch.float64:
        return DEEPSEEK_V2_ROTATION(q, k, table)
    turn = lambda x: torch.view_as_real(torch.view_as_complex(x.unflatten(-1, (-1, 2))) * table.unsqueeze(1)).flatten(3)
    return turn(q.contiguous()), turn(k.contiguous())


def growth_fp64(positions, beta, original):
    """ministral3's scale of queries, whose logarithm is in fp32."""
    return (1 + beta * torch.log(1 + (positions // original).double()))[:, None, :, None]


def adds_one(name):
    """Whether norms of a class of that name multiply by 1 + w: not Gemma 4's, of which some have no weights."""
    return name.startswith(("Gemma", "Qwen3_5", "Qwen3Next")) and not name.startswith("Gemma4")


def rmsnorm_fp64(self, x):
    eps = self.variance_epsilon if hasattr(self, "variance_epsilon") else self.eps
    normed = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)
    if not getattr(self, "with_scale", True):
        return normed
    return (1 + self.weight if adds_one(type(self).__name__) else self.weight) * normed


def delta_fp64(self, hidden_states, **kwargs):
    """The gated delta rule row by row, without casts to fp32."""
    x, heads, key, value = hidden_states, self.num_v_heads, self.head_k_dim, self.head_v_dim
    if hasattr(self, "in_proj_qkvz"):
        *qkv, z, b, a = self.fix_query_key_value_ordering(self.in_proj_qkvz(x), self.in_proj_ba(x))
        qkv = torch.cat([part.flatten(2) for part in qkv], dim=-1)
    else:
        qkv, z, b, a = self.in_proj_qkv(x), self.in_proj_z(x).unflatten(-1, (heads, value)), self.in_proj_b(x), self.in_proj_a(x)
    taps = self.conv1d.weight.flip(-1)[:, 0]  # the first one weighs the row itself
    shifted = [torch.nn.functional.pad(qkv, (0, 0, j, 0))[:, : x.shape[1]] * taps[:, j] for j in range(taps.shape[1])]
    q, k, v = torch.nn.functional.silu(sum(shifted)).split((self.key_dim, self.key_dim, self.value_dim), dim=-1)
    q, k = (p.unflatten(-1, (-1, key)).repeat_interleave(heads // self.num_k_heads, dim=2) for p in (q, k))
    q, k = (p * torch.rsqrt(p.pow(2).sum(-1, keepdim=True) + 1e-6) for p in (q, k))
    v, beta = v.unflatten(-1, (heads, value)), b.sigmoid()
    decay = (-self.A_log.exp() * torch.nn.functional.softplus(a + self.dt_bias)).exp()
    state, rows = x.new_zeros(x.shape[0], heads, key, value), []
    for t in range(x.shape[1]):
        state = state * decay[:, t, :, None, None]
        missing = beta[:, t, :, None] * (v[:, t] - torch.einsum("bhkv,bhk->bhv", state, k[:, t]))
        state = state + k[:, t, :, :, None] * missing[:, :, None]
        rows.append(torch.einsum("bhkv,bhk->bhv", state, q[:, t]) / key**0.5)
    out = torch.stack(rows, dim=1)
    out = self.norm.weight * out * torch.rsqrt(out.pow(2).mean(-1, keepdim=True) + self.norm.variance_epsilon)
    return self.out_proj((out * torch.nn.functional.silu(z)).flatten(2))


def router_fp64(self, x):
    """The routers without their softmax in fp32."""
    logits = torch.nn.functional.linear(x.reshape(-1, self.hidden_dim), self.weight, getattr(self, "bias", None))
    values, choices = torch.topk(logits.softmax(dim=-1), self.top_k, dim=-1)
    best = logits.detach().topk(self.top_k + 1, dim=-1).values
    GAPS.append((best[:, self.top_k - 1] - best[:, self.top_k]).min().item())
    if getattr(self, "norm_topk_prob", True):
        values = values / values.sum(dim=-1, keepdim=True)
    return logits, values, choices


def gap_of(values, slopes, k):
    """How far logits have to move for the last of the k largest values to be smaller than the next one."""
    order = values.argsort(dim=-1, descending=True)
    sorted_values, sorted_slopes = values.gather(-1, order), slopes.gather(-1, order)
    gaps = sorted_values[..., k - 1] - sorted_values[..., k]
    return (2 * gaps / (sorted_slopes[..., k - 1] + sorted_slopes[..., k])).min().item()


def limited_router_fp64(self, x):
    """DeepseekV2TopkRouter without its casts to fp32; by logits, whose order is that of a softmax."""
    logits = torch.nn.functional.linear(x.reshape(-1, self.hidden_dim), self.weight)
    keys = logits.detach()
    best = keys.unflatten(-1, (self.num_group, -1)).max(dim=-1).values
    is_open = torch.zeros_like(best).scatter(1, best.topk(self.topk_group, dim=-1).indices, 1).bool()
    keys = keys.masked_fill(~is_open.repeat_interleave(self.num_experts // self.num_group, dim=-1), -1e9)
    choices = keys.topk(self.top_k, dim=-1).indices
    GAPS.append(min(gap_of(x, torch.ones_like(x), k) for x, k in ((keys, self.top_k), (best, self.topk_group))))
    return logits, logits.softmax(dim=-1).gather(1, choices) * self.routed_scaling_factor, choices


def score_router_fp64(self, x):
    """The routers of sigmoids without their casts to fp32."""
    logits = torch.nn.functional.linear(x.reshape(-1, self.hidden_dim), self.weight)
    scores = logits.sigmoid()
    keys, slopes = (scores + self.e_score_correction_bias).detach(), (scores * (1 - scores)).detach()
    best = keys.unflatten(-1, (self.num_group, -1)).topk(2, dim=-1)
    counts = best.values.sum(dim=-1)
    moves = slopes.unflatten(-1, (self.num_group, -1)).gather(-1, best.indices).sum(dim=-1)
    is_open = torch.zeros_like(counts).scatter(1, counts.topk(self.topk_group, dim=-1).indices, 1).bool()
    closed = ~is_open.repeat_interleave(self.num_experts // self.num_group, dim=-1)
    keys = keys.masked_fill(closed, -1e9)
    choices = keys.topk(self.top_k, dim=-1).indices
    GAPS.append(gap_of(keys, slopes, self.top_k))
    if self.topk_group < self.num_group:
        GAPS.append(gap_of(counts, moves, self.topk_group))
    values = scores.gather(1, choices)
    if self.norm_topk_prob:
        values = values / (values.sum(dim=-1, keepdim=True) + 1e-20)
    return logits, values * self.routed_scaling_factor, choices


GAPS = []  # of logits, between the last choice of a row and the first expert that was not chosen
# In fp32 the choices of all updates are those of fp64, and in bf16, which is off by 0.02, those of update 0: a row that
# goes elsewhere has another gradient, by more than bf16 rounds.
LEAST_GAP, LEAST_GAP_BF16 = 1e-4, 0.06


def is_mixture(config):
    return "num_experts_per_tok" in config


def eager_experts(config):
    """Each expert's rows are a product by themselves."""
    return {"experts_implementation": "eager"} if is_mixture(config.to_dict()) else {}


def choices_tell(folder, ids, labels):
    GAPS.clear()
    train(load(folder, torch.float64, ids.shape[-1]), ids, labels)
    return min(GAPS) > LEAST_GAP


def hub_tensors(model, tensors):
    """Tensors by the names of files: those of experts, which transformers stacks, one by one."""
    mixtral, out = model.config.model_type == "mixtral", {}
    for name, t in tensors:
        name = name.replace("lm_head.", "embed_out.") if model.config.model_type == "gpt_neox" else name
        name = name.replace(".mlp.", ".block_sparse_moe.") if mixtral else name
        stem, _, last = name.rpartition(".experts.")
        if not stem or model.config.model_type == "gpt_oss":
            out[name] = t
            continue
        for e, one in enumerate(t):
            parts = one.chunk(2) if last == "gate_up_proj" else [one]
            hub = {"gate_up_proj": ("w1", "w3"), "down_proj": ("w2",)} if mixtral else \
                {"gate_up_proj": ("gate_proj", "up_proj"), "down_proj": ("down_proj",)}
            for part, piece in zip(hub[last], parts):
                out[f"{stem}.experts.{e}.{part}.weight"] = piece.contiguous()
    return out


def softcap_attention(module, query, key, value, attention_mask, scaling=None, softcap=None, **kwargs):
    """Gemma 2's eager attention without its cast to fp32."""
    groups = module.num_key_value_groups
    key, value = key.repeat_interleave(groups, dim=1), value.repeat_interleave(groups, dim=1)
    scores = softcap * torch.tanh(query @ key.transpose(2, 3) * scaling / softcap) + attention_mask
    return (scores.softmax(dim=-1) @ value).transpose(1, 2).contiguous(), None


def load(folder, dtype, length):
    """The model in `dtype`. In fp64 nothing is left of the casts to fp32 inside transformers (norms, RoPE, Gemma's scale of
    embeddings; attention goes through SDPA, which has none, save for Gemma 2's)."""
    config = transformers.AutoConfig.from_pretrained(folder)
    eager = config.model_type in ("gemma2", "gpt_oss")
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, **eager_experts(config),
                                                              attn_implementation="eager" if eager else "sdpa")
    modeling_gemma2.eager_attention_forward = GEMMA2_ATTENTION
    modeling_deepseek_v2.apply_rotary_emb = rotate
    modeling_ministral3.get_llama_4_attn_scale = growth_fp64 if dtype == torch.float64 else MINISTRAL3_GROWTH
    if dtype == torch.float64:
        modeling_gemma2.eager_attention_forward = softcap_attention
        rotary = getattr(model.base_model, "rotary_emb", None)
        tables = check_rope(rotary, model.config, length) if rotary else None
        model = model.double()
        for module in model.modules():
            if module is rotary:
                module.fp64_tables = tables
                module.forward = types.MethodType(rotary_fp64, module)
            if type(module).__name__.endswith("GatedDeltaNet"):
                module.forward = types.MethodType(delta_fp64, module)
            if "RMSNorm" in type(module).__name__ and "Gated" not in type(module).__name__:
                module.forward = types.MethodType(rmsnorm_fp64, module)
            if type(module).__name__.endswith("TopKRouter"):
                module.forward = types.MethodType(router_fp64, module)
            if type(module).__name__ == "DeepseekV2TopkRouter":
                module.forward = types.MethodType(limited_router_fp64, module)
            if hasattr(module, "e_score_correction_bias"):
                module.forward = types.MethodType(score_router_fp64, module)
            if hasattr(module, "embed_scale"):
                module.embed_scale = torch.tensor(config.hidden_size, dtype=torch.float64).sqrt()
    return model.train()


GEMMA2_ATTENTION = modeling_gemma2.eager_attention_forward
MINISTRAL3_GROWTH = modeling_ministral3.get_llama_4_attn_scale
DEEPSEEK_V2_ROTATION = modeling_deepseek_v2.apply_rotary_emb


def loss_of(model, ids, labels):
    """Sum of the tokens' nll over the number of valid labels; logits."""
    logits = model(input_ids=ids.long(), use_cache=False).logits
    nll = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten().long(), ignore_index=-1, reduction="sum")
    return nll / (labels >= 0).sum(), logits


def clip(parameters):
    """Global norm before clipping; gradients times min(1, max / norm), without the 1e-6 that torch's own adds."""
    norm = torch.sqrt(sum(p.grad.pow(2).sum() for p in parameters))
    scale = torch.clamp(MAX_GRAD_NORM / norm, max=1.0)
    for p in parameters:
        p.grad *= scale
    return norm.item()


def train(model, ids, labels):
    """Losses and norms of the updates, loss u being that of batch u before update u."""
    parameters = list(model.parameters())
    decays = [p.ndim >= 2 and not name.endswith("_bias") for name, p in model.named_parameters()]  # those of experts are stacks
    groups = [{"params": [p for p, d in zip(parameters, decays) if d], "weight_decay": WEIGHT_DECAY},
              {"params": [p for p, d in zip(parameters, decays) if not d], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=LR, betas=BETAS, eps=EPS, foreach=False)
    losses, norms = [], []
    for batch, targets in zip(ids, labels):
        optimizer.zero_grad()
        loss, _ = loss_of(model, batch, targets)
        loss.backward()
        losses.append(loss.item())
        norms.append(clip(parameters))
        optimizer.step()
    return losses, norms


def check_gradient(model, loss, generator):
    """The gradients of loss() against central differences along one random direction."""
    parameters = list(model.parameters())
    direction = [torch.randn(p.shape, generator=generator, dtype=p.dtype) for p in parameters]
    slope = sum((p.grad * d).sum() for p, d in zip(parameters, direction)).item()
    h, ends = 1e-6, []
    with torch.no_grad():
        for sign in (1, -2, 1):
            for p, d in zip(parameters, direction):
                p += sign * h * d
            ends.append(loss().item())
    error = abs((ends[0] - ends[1]) / (2 * h) / slope - 1)
    assert error < 1e-6, f"gradient is off by {error}"
    return error


def shift(rows):
    """Rows of S + 1 tokens as inputs and labels (the next token)."""
    return rows[..., :-1].contiguous(), rows[..., 1:].clone()


def random_data(vocab, batch, length, generator):
    """A noisy rule that can be learned, next = 5 x + 3, with ignored labels: single ones, row ends, one whole row."""
    rows = torch.randint(vocab, (UPDATES, batch, length + 1), generator=generator)
    follow = torch.rand(rows.shape, generator=generator) < 0.7
    for t in range(1, length + 1):
        rows[..., t] = torch.where(follow[..., t], (5 * rows[..., t - 1] + 3) % vocab, rows[..., t])
    ids, labels = shift(rows)
    labels[torch.rand(labels.shape, generator=generator) < 0.1] = -1
    labels[0, 0, -7:] = -1
    labels[1, -1, :] = -1
    return ids, labels


def data_of(spec, folder, generator):
    """Random data; of a mixture, such that no choice of update 0 is near another."""
    sizes = spec["config"]["vocab_size"], spec["batch"], spec["length"], generator
    if not is_mixture(spec["config"]):
        return random_data(*sizes)
    model = load(folder, torch.float64, spec["length"])
    while True:
        ids, labels = random_data(*sizes)
        GAPS.clear()
        with torch.no_grad():
            model(input_ids=ids[0], use_cache=False)
        if min(GAPS) > LEAST_GAP_BF16:
            return ids, labels


def story_data(folder, stories, batch, length):
    """The beginnings of stories, as the tokenizer gives them (with BOS); shorter ones end in ignored labels."""
    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    with open(stories, encoding="utf-8") as lines:
        texts = [json.loads(next(lines))["text"] for _ in range(UPDATES * batch)]
    ids = torch.zeros(len(texts), length, dtype=torch.int64)
    labels = torch.full((len(texts), length), -1, dtype=torch.int64)
    for row, text in enumerate(texts):
        tokens = torch.tensor(tokenizer.encode(text).ids[: length + 1])
        ids[row, : min(len(tokens), length)] = tokens[:length]
        labels[row, : len(tokens) - 1] = tokens[1:]
    return ids.view(UPDATES, batch, length), labels.view(UPDATES, batch, length)


def write_model(folder, spec, generator):
    """A model folder with weights that matter: wider than an initialization, norms off 1, biases off 0."""
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(spec["config"], indent=2, sort_keys=True) + "\n")
    model = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.from_pretrained(folder))
    weights = {}
    states = [(name, b) for name, b in model.named_buffers() if name.endswith(("e_score_correction_bias", "layer_scalar"))]
    for name, p in hub_tensors(model, [*model.named_parameters(), *states]).items():
        noise = torch.randn(p.shape, generator=generator)
        if p.ndim == 1 and name.endswith(".weight"):  # a norm's; Gemma adds the 1 itself
            noise = 0.2 * noise + (0 if adds_one(type(model).__name__) and not name.endswith("linear_attn.norm.weight") else 1)
            if "Gemma4" in type(model).__name__ and name.endswith("q_norm.weight"):
                noise *= 0.35  # scores are not divided by the root of a head's size
        elif name.endswith(("conv1d.weight", "in_proj_qkv.weight", "in_proj_qkvz.weight")):
            noise *= 0.5  # else the norm of a head is of numbers near its epsilon
        elif name.endswith("A_log"):
            noise = 0.5 * noise - 2  # states that last
        elif name.endswith("layer_scalar"):
            noise = 0.2 * noise + 0.8
        else:
            router = name.endswith(("mlp.gate.weight", "block_sparse_moe.gate.weight", "mlp.router.weight", "sinks"))
            noise *= 0.5 if router else 0.08 if p.ndim > 1 else 0.1
        weights[name] = noise if name.endswith("_bias") and name in dict(states) else noise.to(spec["storage"])  # that is fp32, as on the Hub
    if spec.get("bare"):
        n, layers = spec["config"]["n_positions"], spec["config"]["n_layer"]
        weights = {name.removeprefix("transformer."): w for name, w in weights.items()}
        weights |= {f"h.{i}.attn.bias": torch.ones(1, 1, n, n).tril().to(spec["storage"]) for i in range(layers)}
    if spec.get("buffers"):
        n, rotary = spec["config"]["max_position_embeddings"], "attention.rotary_emb.inv_freq"
        for i in range(spec["config"]["num_hidden_layers"]):
            weights |= {f"gpt_neox.layers.{i}.attention.bias": torch.ones(1, 1, n, n).tril().bool(),
                        f"gpt_neox.layers.{i}.attention.masked_bias": torch.tensor(-1e9),
                        f"gpt_neox.layers.{i}.{rotary}": model.gpt_neox.rotary_emb.inv_freq.clone()}
    shards = spec.get("shards", 1)
    if shards == 1:
        safetensors.torch.save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
        return
    names, index = list(weights), {}
    for i in range(shards):
        part = names[i * len(names) // shards : (i + 1) * len(names) // shards]
        file = f"model-{i + 1:05d}-of-{shards:05d}.safetensors"
        safetensors.torch.save_file({n: weights[n] for n in part}, folder / file, metadata={"format": "pt"})
        index |= {n: file for n in part}
    total = sum(w.numel() * w.element_size() for w in weights.values())
    text = json.dumps({"metadata": {"total_size": total}, "weight_map": index}, indent=2, sort_keys=True)
    (folder / "model.safetensors.index.json").write_text(text + "\n")


def write_expected(folder, weights_folder, ids, labels, generator):
    """expected.safetensors; what the manifest says about it."""
    losses32, _ = train(load(weights_folder, torch.float32, ids.shape[-1]), ids, labels)
    model = load(weights_folder, torch.float64, ids.shape[-1])
    loss, logits = loss_of(model, ids[0], labels[0])
    loss.backward()
    length = ids.shape[-1]
    rows = torch.tensor([0, 1, length // 2, length - 1, length, ids[0].numel() - 1])
    tensors = {"input_ids": ids.int(), "labels": labels.int(), "loss": loss.detach().view(1),
               "logits_rows": rows.int(), "logits": logits.detach().flatten(0, 1)[rows].float()}
    tensors |= {f"grad.{name}": g.float() for name, g in
                hub_tensors(model, [(name, p.grad) for name, p in model.named_parameters()]).items()}
    error = check_gradient(model, lambda: loss_of(model, ids[0], labels[0])[0], generator)
    GAPS.clear()
    losses, norms = train(load(weights_folder, torch.float64, ids.shape[-1]), ids, labels)
    tensors |= {"losses": torch.tensor(losses, dtype=torch.float64), "grad_norms": torch.tensor(norms, dtype=torch.float64)}

    folder.mkdir(exist_ok=True)
    safetensors.torch.save_file(tensors, folder / "expected.safetensors")
    assert losses[0] == loss.item()
    return {"batch": ids.shape[1], "length": length, "parameters": sum(p.numel() for p in model.parameters()),
            "valid_labels": [int((l >= 0).sum()) for l in labels], "first_loss": losses[0], "last_loss": losses[-1],
            "fp32_torch_losses_off_by": max(abs(a / b - 1) for a, b in zip(losses32, losses)),
            "gradient_off_finite_differences_by": error} | ({"least_gap_of_choices": min(GAPS)} if GAPS else {})


def sha256(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def main(stories_folder, stories, names):
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(20)
    before = json.loads((HERE / "manifest.json").read_text())["models"] if names else {}
    report = {}
    made_with = {"python": platform.python_version(), "numpy": numpy.__version__, "safetensors": safetensors.__version__,
                 "tokenizers": tokenizers.__version__, "torch": torch.__version__, "transformers": transformers.__version__}
    for name in ["stories260K", *MODELS]:
        if names and name not in names:
            report[name] = before[name]
            continue
        if name in FAMILIES:
            generator.manual_seed(zlib.crc32(name.encode()))
        if name == "stories260K":
            weights = stories_folder
            ids, labels = story_data(stories_folder, stories, batch=4, length=64)
        else:
            weights, spec = HERE / name, MODELS[name]
            while True:
                write_model(weights, spec, generator)
                ids, labels = data_of(spec, weights, generator)
                if not is_mixture(spec["config"]) or choices_tell(weights, ids, labels):
                    break
        report[name] = write_expected(HERE / name, weights, ids, labels, generator)
        report[name] |= {"made_with": made_with} if names else {}  # where the others were made with something else
    kept = json.loads((HERE / "manifest.json").read_text())
    manifest = {
        "made_with": kept["made_with"] if names else made_with,
        "inputs": {"stories260K/model.safetensors": sha256(stories_folder / "model.safetensors"),
                   "stories260K/tokenizer.json": sha256(stories_folder / "tokenizer.json"),
                   "tinystories.jsonl": sha256(pathlib.Path(stories))},
        "optimizer": {"name": "adamw", "lr": LR, "schedule": "constant", "betas": BETAS, "eps": EPS,
                      "weight_decay": WEIGHT_DECAY, "decays": "parameters of two dimensions", "max_grad_norm": MAX_GRAD_NORM,
                      "clipping": "min(1, max / norm)", "updates": UPDATES},
        "models": report,
        "exported_logits_off_by": kept.get("exported_logits_off_by", {}),  # check_exports.py
        "bf16_torch_off_by": kept.get("bf16_torch_off_by", {}),  # measure_bf16.py
        "files": {str(p.relative_to(HERE)): sha256(p) for p in sorted(HERE.glob("*/*")) if p.is_file()},
    }
    (HERE / "manifest.json").write_text(json.dumps(manifest, indent=2) + "\n")
    print(json.dumps({name: report[name] for name in report if not names or name in names}, indent=2))


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3:])
