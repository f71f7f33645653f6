"""Shows what the program makes of models of several parts to transformers and PEFT: folders of tiny models, with the names
of tensors that transformers writes, and with those that its modules have.

    python check_folders.py PROGRAM

Of each: the loss that the program computes is that of transformers; a run of 3 steps exports a folder whose other tensors
have their bytes and whose names are the same, which transformers loads whole, with the loss that the run ended with; so
does a run with an adapter, which PEFT loads whole, and a merge of it. Prints what it found.
"""

import array
import json
import pathlib
import subprocess
import sys
import tempfile
import warnings

import peft
import safetensors
import safetensors.torch
import torch
import transformers as T

TOKENS = 40  # of the text that a run has held out
TEXT = {"vocab_size": 96, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "max_position_embeddings": 128, "bos_token_id": 1, "eos_token_id": 2}
IMAGE = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2, "image_size": 8,
         "patch_size": 4}
CLIP = IMAGE | {"model_type": "clip_vision_model", "projection_dim": 16}
BLOCKS = {"depth": 2, "hidden_size": 16, "num_heads": 2, "patch_size": 4}
MROPE = {"type": "mrope", "mrope_section": [1, 1, 2]}
STATES = {"head_dim": 8, "layer_types": ["linear_attention", "full_attention"], "linear_num_key_heads": 2,
          "linear_num_value_heads": 4, "linear_key_head_dim": 6, "linear_value_head_dim": 5, "rope_parameters": {
              "rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5, "mrope_interleaved": True,
              "mrope_section": [1, 1, 0]}}
# Settings of each, less what its class has.
MODELS = {
    "gemma3": dict(text_config=TEXT | {"head_dim": 8, "query_pre_attn_scalar": 8, "sliding_window": 7,
                                       "sliding_window_pattern": 2}, vision_config=IMAGE, mm_tokens_per_image=4),
    "mistral3": dict(text_config=TEXT | {"model_type": "mistral", "head_dim": 8, "sliding_window": None},
                     vision_config=IMAGE | {"model_type": "pixtral", "head_dim": 8}, tie_word_embeddings=False),
    "mistral3 with ministral3": dict(
        text_config=TEXT | {"model_type": "ministral3", "head_dim": 8, "tie_word_embeddings": True, "rope_parameters": {
            "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "mscale": 1.0,
            "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.2, "rope_theta": 1e4, "beta_fast": 32.0, "beta_slow": 1.0}},
        vision_config=IMAGE | {"model_type": "pixtral", "head_dim": 8}),
    "llava": dict(text_config=TEXT | {"model_type": "llama"}, vision_config=CLIP),
    "llava_next": dict(text_config=TEXT | {"model_type": "mistral"}, vision_config=CLIP, image_grid_pinpoints=[[8, 8]]),
    "llava_onevision": dict(text_config=TEXT | {"model_type": "qwen2", "tie_word_embeddings": True},
                            vision_config=IMAGE | {"model_type": "siglip_vision_model"}, image_grid_pinpoints=[[8, 8]]),
    "internvl": dict(text_config=TEXT | {"model_type": "qwen3", "head_dim": 8},
                     vision_config=IMAGE | {"image_size": [8, 8], "patch_size": [4, 4]}),
    "internvl with qwen3_moe": dict(
        text_config=TEXT | {"model_type": "qwen3_moe", "head_dim": 8, "num_experts": 6, "num_experts_per_tok": 2,
                            "moe_intermediate_size": 16, "mlp_only_layers": [0], "norm_topk_prob": True},
        vision_config=IMAGE | {"image_size": [8, 8], "patch_size": [4, 4]}, tie_word_embeddings=False),
    "smolvlm": dict(text_config=TEXT | {"model_type": "llama", "pad_token_id": 0}, vision_config=IMAGE, image_token_id=95),
    "idefics3": dict(text_config=TEXT | {"model_type": "llama", "pad_token_id": 0}, vision_config=IMAGE, image_token_id=95,
                     tie_word_embeddings=True),
    "qwen2_vl": dict(text_config=TEXT | {"rope_scaling": MROPE},
                     vision_config={"depth": 1, "embed_dim": 16, "hidden_size": 32, "num_heads": 2, "patch_size": 4}),
    "qwen2_5_vl": dict(text_config=TEXT | {"rope_scaling": MROPE, "use_sliding_window": True, "sliding_window": 9,
                                           "max_window_layers": 1},
                       vision_config=BLOCKS | {"out_hidden_size": 32, "intermediate_size": 24}, tie_word_embeddings=True),
    "qwen3_vl": dict(text_config=TEXT | {"head_dim": 8, "rope_scaling": {"rope_type": "default", "mrope_interleaved": True,
                                                                         "mrope_section": [2, 1, 1]}},
                     vision_config=BLOCKS | {"out_hidden_size": 32, "intermediate_size": 24, "num_position_embeddings": 16,
                                             "deepstack_visual_indexes": [0]}),
    "qwen3_5": dict(text_config=TEXT | STATES, vision_config=BLOCKS | {"out_hidden_size": 32, "intermediate_size": 24,
                                                                       "num_position_embeddings": 16}),
    "qwen3_5_moe": dict(
        text_config={k: v for k, v in TEXT.items() if k != "intermediate_size"} | STATES | {
            "num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "shared_expert_intermediate_size": 20},
        vision_config=BLOCKS | {"out_hidden_size": 32, "intermediate_size": 24, "num_position_embeddings": 16}),
}
DOWN = "*.@(mlp|shared_expert).down_proj"  # that of experts is no module
ADAPTERS = [{"r": 2}, {"r": 2, "targets": ["q_proj", DOWN], "modules_to_save": ["norm", "embed_tokens"]}]


def make(name, folder, own_names):
    """A folder of the model, in names of modules or in those that transformers writes; True if these are others."""
    torch.manual_seed(1)
    model = T.AutoModelForImageTextToText.from_config(T.AutoConfig.for_model(name.split()[0], **MODELS[name]))
    with torch.no_grad():
        for _, w in model.named_parameters():  # so that every tensor tells
            w.copy_(w + 0.1 * torch.randn(w.shape) if w.ndim == 1 else 0.08 * torch.randn(w.shape))
    model.save_pretrained(folder)
    weights = safetensors.torch.load_file(folder / "model.safetensors")
    written = set(weights)
    tied = {k for k in getattr(model, "all_tied_weights_keys", {})}
    own = {n: w.contiguous() for n, w in model.state_dict().items() if n not in tied}
    if name.startswith("qwen3_5"):  # modules for more tokens, which transformers leaves out
        weights["mtp.fc.weight"] = torch.randn(32, 64)
        safetensors.torch.save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    if own_names:
        safetensors.torch.save_file(own, folder / "model.safetensors", metadata={"format": "pt"})
    return written != set(own)


def load(folder):
    model, info = T.AutoModelForImageTextToText.from_pretrained(folder, dtype=torch.float32, output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"], f"{folder}: {info}"
    return model.eval()


def loss_of(model, ids):
    with torch.no_grad():
        logits = model(input_ids=ids[:, :-1], use_cache=False).logits.double()
    return torch.nn.functional.cross_entropy(logits[0], ids[0, 1:]).item()


def run(program, *words):
    done = subprocess.run([program, *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def train(program, folder, adapter, scratch, name):
    """A run of 3 steps; its folder, and the loss that it ended with."""
    job = {"model": {"path": str(folder)},
           "data": {"files": [str(scratch / "ids.bin")], "validation_files": [str(scratch / "held.bin")],
                    "sequence_length": TOKENS, "cache_dir": str(scratch / "cache"), "tokenizer": None},
           "batch": {"global_batch_size": 4}, "optimizer": {"lr": 1e-2}, "precision": {"compute": "fp32"},
           "train": {"steps": 3, "output_dir": str(scratch / name), "force_memory": True}}
    if adapter:
        job["adapter"] = {"type": "lora", "init": "random"} | adapter
    (scratch / f"{name}.yaml").write_text(json.dumps(job))
    run(program, "train", scratch / f"{name}.yaml")
    lines = [json.loads(line) for line in open(scratch / name / "metrics.jsonl")]
    return scratch / name, lines[-1]["eval_loss"]


def tensors(folder):
    """The bytes of each tensor."""
    with safetensors.safe_open(folder / "model.safetensors", "pt") as f:
        return {n: f.get_tensor(n).contiguous().view(torch.uint8).numpy().tobytes() for n in f.keys()}


def is_text(name):
    return name.startswith(("language_model.", "model.language_model.", "model.text_model.", "lm_head.", "model.layers.",
                            "model.embed_tokens.", "model.norm."))


def check_export(before, after):
    """The same names; other parts have their bytes, and all of the text has changed."""
    a, b = tensors(before), tensors(after)
    assert set(a) == set(b), sorted(set(a) ^ set(b))
    assert all((a[n] != b[n]) == is_text(n) for n in a), sorted(n for n in a if (a[n] != b[n]) != is_text(n))
    one, two = (json.loads((f / "config.json").read_text()) for f in (before, after))
    assert one == two, "config.json"
    return sum(not is_text(n) for n in a)


def check_adapter(program, folder, ids, adapter, scratch, name):
    base = load(folder)
    out, loss = train(program, folder, adapter, scratch, name)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        model = peft.PeftModel.from_pretrained(base, out / "adapter", autocast_adapter_dtype=False).eval()
    assert not [w for w in said if "missing" in str(w.message)], [str(w.message) for w in said]
    there, needed = set(safetensors.torch.load_file(out / "adapter" / "adapter_model.safetensors")), None
    needed = set(peft.get_peft_model_state_dict(model))
    assert there == needed, sorted(there ^ needed)
    run(program, "merge", "-m", folder, "-a", out, "-o", scratch / f"{name}-merged")
    merged = loss_of(load(scratch / f"{name}-merged"), ids)
    a, b = tensors(folder), tensors(scratch / f"{name}-merged")
    assert set(a) == set(b) and all(a[n] == b[n] for n in a if not is_text(n)), name
    return max(abs(loss_of(model, ids) / loss - 1), abs(merged / loss - 1))


def check_generated(program, folder):
    """The most likely tokens from the begin token on; another one, or the end token, ends them."""
    ids = [int(i) for i in run(program, "generate", "-m", folder, "-n", "12", "--ids", "--prompt", "").split()]
    theirs = load(folder).generate(input_ids=torch.tensor([[TEXT["bos_token_id"]]]), do_sample=False, max_new_tokens=12,
                                   pad_token_id=0, eos_token_id=[TEXT["bos_token_id"], TEXT["eos_token_id"]])
    assert ids == theirs[0, 1:].tolist(), (ids, theirs)


def check(program, name, own_names, scratch):
    numbers = torch.randint(3, 90, (2, 400), generator=torch.Generator().manual_seed(2)).tolist()
    array.array("H", numbers[0]).tofile(open(scratch / "ids.bin", "wb"))
    array.array("H", numbers[1][:TOKENS]).tofile(open(scratch / "held.bin", "wb"))
    ids = torch.tensor([numbers[1][:TOKENS]])
    folder = scratch / "model"
    others = make(name, folder, own_names)
    if own_names and (not others or "moe" in name):  # stacks of experts are no stacks in exports
        return None
    out, loss = train(program, folder, None, scratch, "run")
    kept = check_export(folder, out / "model")
    off = abs(loss_of(load(out / "model"), ids) / loss - 1)
    of_adapters = [check_adapter(program, folder, ids, a, scratch, f"lora{i}") for i, a in enumerate(ADAPTERS)]
    check_generated(program, out / "model")
    return {"other tensors": kept, "loss off by": off, "with adapters": max(of_adapters)}


def main(program):
    torch.set_num_threads(1)
    for name in MODELS:
        for own_names in (False, True):
            with tempfile.TemporaryDirectory() as scratch:
                found = check(program, name, own_names, pathlib.Path(scratch))
            if found:
                print(name, "names of modules" if own_names else "names of files", json.dumps(found))
                assert max(found["loss off by"], found["with adapters"]) < 2e-5


if __name__ == "__main__":
    main(sys.argv[1])
