"""Makes the reference values of tests/golden from Hugging Face transformers in fp64. README.md says what is in the files.

    python make_golden.py STORIES260K_FOLDER TINYSTORIES_JSONL
"""

import hashlib
import json
import math
import pathlib
import platform
import sys
import types

import numpy
import safetensors
import safetensors.torch
import tokenizers
import torch
import transformers
from transformers.models.llama.modeling_llama import LlamaRMSNorm

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


def rope_frequencies(config):
    """Inverse frequencies in fp64, from the definitions; transformers computes the same in fp32."""
    rope, dim = config.rope_parameters, config.head_dim
    plain = 1.0 / rope["rope_theta"] ** (torch.arange(0, dim, 2, dtype=torch.float64) / dim)
    if rope["rope_type"] == "default":
        return plain
    if rope["rope_type"] == "linear":
        return plain / rope["factor"]
    # llama3: long waves are slowed by the factor, short ones kept, those between interpolated.
    low, high, original = rope["low_freq_factor"], rope["high_freq_factor"], rope["original_max_position_embeddings"]
    smooth = ((original * plain / (2 * math.pi) - low) / (high - low)).clamp(0, 1)
    return (1 - smooth) * plain / rope["factor"] + smooth * plain


def rotary_fp64(self, x, position_ids):
    angles = position_ids[..., None].double() * self.fp64_frequencies
    angles = torch.cat((angles, angles), dim=-1)
    return angles.cos().to(x.dtype), angles.sin().to(x.dtype)


def rmsnorm_fp64(self, x):
    return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.variance_epsilon))


def load(folder, dtype):
    """The model in `dtype`. In fp64 nothing is left of the casts to fp32 inside transformers (norms, RoPE; attention goes
    through SDPA, which has none)."""
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="sdpa")
    if dtype == torch.float64:
        rotary = model.model.rotary_emb
        exact = rope_frequencies(model.config)
        torch.testing.assert_close(exact.float(), rotary.inv_freq, rtol=1e-6, atol=0)
        model = model.double()
        rotary.fp64_frequencies = exact
        rotary.forward = types.MethodType(rotary_fp64, rotary)
        for module in model.modules():
            if isinstance(module, LlamaRMSNorm):
                module.forward = types.MethodType(rmsnorm_fp64, module)
    return model.train()


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
    groups = [{"params": [p for p in parameters if p.ndim >= 2], "weight_decay": WEIGHT_DECAY},
              {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0}]
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


def check_gradient(model, ids, labels, generator):
    """The gradients against central differences along one random direction."""
    parameters = list(model.parameters())
    direction = [torch.randn(p.shape, generator=generator, dtype=p.dtype) for p in parameters]
    slope = sum((p.grad * d).sum() for p, d in zip(parameters, direction)).item()
    h, ends = 1e-6, []
    with torch.no_grad():
        for sign in (1, -2, 1):
            for p, d in zip(parameters, direction):
                p += sign * h * d
            ends.append(loss_of(model, ids, labels)[0].item())
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
    for name, p in model.named_parameters():
        noise = torch.randn(p.shape, generator=generator)
        weights[name] = (1 + 0.2 * noise if "norm" in name else (0.08 if p.ndim > 1 else 0.1) * noise).to(spec["storage"])
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
    losses32, _ = train(load(weights_folder, torch.float32), ids, labels)
    model = load(weights_folder, torch.float64)
    loss, logits = loss_of(model, ids[0], labels[0])
    loss.backward()
    length = ids.shape[-1]
    rows = torch.tensor([0, 1, length // 2, length - 1, length, ids[0].numel() - 1])
    tensors = {"input_ids": ids.int(), "labels": labels.int(), "loss": loss.detach().view(1),
               "logits_rows": rows.int(), "logits": logits.detach().flatten(0, 1)[rows].float()}
    tensors |= {f"grad.{name}": p.grad.float() for name, p in model.named_parameters()}
    error = check_gradient(model, ids[0], labels[0], generator)
    losses, norms = train(load(weights_folder, torch.float64), ids, labels)
    tensors |= {"losses": torch.tensor(losses, dtype=torch.float64), "grad_norms": torch.tensor(norms, dtype=torch.float64)}

    folder.mkdir(exist_ok=True)
    safetensors.torch.save_file(tensors, folder / "expected.safetensors")
    assert losses[0] == loss.item()
    return {"batch": ids.shape[1], "length": length, "parameters": sum(p.numel() for p in model.parameters()),
            "valid_labels": [int((l >= 0).sum()) for l in labels], "first_loss": losses[0], "last_loss": losses[-1],
            "fp32_torch_losses_off_by": max(abs(a / b - 1) for a, b in zip(losses32, losses)),
            "gradient_off_finite_differences_by": error}


def sha256(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def main(stories_folder, stories):
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(20)
    report = {}
    ids, labels = story_data(stories_folder, stories, batch=4, length=64)
    report["stories260K"] = write_expected(HERE / "stories260K", stories_folder, ids, labels, generator)
    for name, spec in MODELS.items():
        write_model(HERE / name, spec, generator)
        ids, labels = random_data(spec["config"]["vocab_size"], spec["batch"], spec["length"], generator)
        report[name] = write_expected(HERE / name, HERE / name, ids, labels, generator)
    manifest = {
        "made_with": {"python": platform.python_version(), "numpy": numpy.__version__,
                      "safetensors": safetensors.__version__, "tokenizers": tokenizers.__version__,
                      "torch": torch.__version__, "transformers": transformers.__version__},
        "inputs": {"stories260K/model.safetensors": sha256(stories_folder / "model.safetensors"),
                   "stories260K/tokenizer.json": sha256(stories_folder / "tokenizer.json"),
                   "tinystories.jsonl": sha256(pathlib.Path(stories))},
        "optimizer": {"name": "adamw", "lr": LR, "schedule": "constant", "betas": BETAS, "eps": EPS,
                      "weight_decay": WEIGHT_DECAY, "decays": "parameters of two dimensions", "max_grad_norm": MAX_GRAD_NORM,
                      "clipping": "min(1, max / norm)", "updates": UPDATES},
        "models": report,
        "files": {str(p.relative_to(HERE)): sha256(p) for p in sorted(HERE.glob("*/*"))},
    }
    (HERE / "manifest.json").write_text(json.dumps(manifest, indent=2) + "\n")
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), sys.argv[2])
