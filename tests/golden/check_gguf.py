"""Shows the GGUF files that the program writes to llama.cpp: to the readers of its gguf package, and to itself.

    python check_gguf.py PROGRAM [DATA]

Of each golden folder of a family that is written: the keys are what config.json says; gguf's tables know the name of every
tensor of the folder, the file has these and no others, and their elements, put in llama.cpp's order here, are equal; bf16, f16
and q8_0 have the bytes of gguf's quantize(). With llama-cpp-python, the logits of the file are those of transformers in
expected.safetensors. Of each tokenizer in DATA: what llama.cpp makes of texts is what the program makes of them. Prints a table.
"""

import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import gguf
import numpy as np
from gguf.constants import MODEL_ARCH, MODEL_ARCH_NAMES, MODEL_TENSOR, MODEL_TENSORS, TENSOR_NAMES

try:
    import llama_cpp
except ImportError:
    llama_cpp = None
try:
    import torch
    import transformers
except ImportError:
    transformers = None

HERE = pathlib.Path(__file__).parent
ARCHITECTURES = {
    "llama": "llama", "mistral": "llama", "ministral3": "mistral3", "mixtral": "llama", "qwen2": "qwen2", "qwen3": "qwen3",
    "qwen2_moe": "qwen2moe", "qwen3_moe": "qwen3moe", "olmo2": "olmo2", "olmo3": "olmo2", "olmoe": "olmoe", "phi3": "phi3",
    "gemma": "gemma", "gemma2": "gemma2", "gemma3_text": "gemma3", "granite": "granite", "smollm3": "smollm3",
    "seed_oss": "seed_oss", "stablelm": "stablelm", "gpt_neox": "gptneox", "gpt2": "gpt2", "starcoder2": "starcoder2",
    "deepseek_v2": "deepseek2", "deepseek_v3": "deepseek2", "kimi_k2": "deepseek2", "glm4_moe": "glm4moe",
    "gpt_oss": "gpt-oss"}
HEADS = {"qwen2moe", "olmo2", "olmoe", "stablelm", "gptneox", "gpt-oss"}  # llama.cpp ties none of these
TURNED = {"llama", "mistral3", "granite", "smollm3"}
# What llama.cpp computes otherwise, as the program says; the same weights with settings that it has are compared instead,
# with transformers where it is installed.
OTHERS = ("its results are others", "where the model has")
SETTINGS = {
    "gemma2": {"query_pre_attn_scalar": 8}, "gemma3": {"query_pre_attn_scalar": 8}, "gpt-oss": {"swiglu_limit": 7.0},
    "mistral": {"sliding_window": None}, "starcoder2": {"sliding_window": None, "layer_types": None},
    "qwen2": {"use_sliding_window": False, "layer_types": None},
    "smollm3": {"no_rope_layers": None, "no_rope_layer_interval": 4, "pad_token_id": 0}}
# What llama.cpp does not load, as the program says. Models of these folders' sizes with settings that it loads are made.
MADE = {
    "deepseek-v2": {"q_lora_rank": 11, "topk_method": "greedy"},
    "deepseek-v3": {"attention_bias": False, "rope_scaling": {
        "beta_fast": 4.0, "beta_slow": 1.0, "factor": 4.0, "mscale": 1.0, "mscale_all_dim": 1.0,
        "original_max_position_embeddings": 16, "type": "yarn"}},
    "olmoe": {"num_key_value_heads": 4},
    "qwen2-moe": {"mlp_only_layers": [], "decoder_sparse_step": 1, "use_sliding_window": False, "norm_topk_prob": False},
    "qwen3-moe": {"mlp_only_layers": [], "decoder_sparse_step": 1, "use_sliding_window": False, "norm_topk_prob": True}}
# Types whose layers and names are those of a folder above.
ALIKE = {"deepseek-v3": [("kimi-k2", "kimi_k2")]}
# MXFP4 and fp8 are unpacked by the program; tests/checkpoint compares that.
PACKED = {"mxfp4", "fp8"}
TYPES = {"fp32": gguf.GGMLQuantizationType.F32, "bf16": gguf.GGMLQuantizationType.BF16,
         "f16": gguf.GGMLQuantizationType.F16, "q8_0": gguf.GGMLQuantizationType.Q8_0}
EXACT = re.compile(r"(ffn_gate_inp|ffn_gate_inp_shexp|position_embd|\w*norm)\.weight$")


def export(program, folder, path, kind="fp32"):
    done = subprocess.run([program, "export", folder, "--format", "gguf", "--type", kind, "-o", path], capture_output=True,
                          text=True, check=False)
    return done.returncode, done.stderr


def text_config(config):
    return config | config.get("text_config", {})


def first_of(config, *keys):
    for key in keys:
        if config.get(key) is not None:
            return config[key]
    return None


# ---- tensors ----

def read_folder(folder, pattern="model*.safetensors"):
    tensors = {}
    for path in sorted(folder.glob(pattern)):
        data = path.read_bytes()
        begin = 8 + int.from_bytes(data[:8], "little")
        for name, t in json.loads(data[8:begin]).items():
            if name == "__metadata__":
                continue
            a, b = t["data_offsets"]
            kind = {"F32": "<f4", "F16": "<f2", "BF16": "<u2", "F64": "<f8", "U8": "u1", "F8_E4M3": "u1", "BOOL": "u1",
                    "I32": "<i4", "I64": "<i8"}[t["dtype"]]
            w = np.frombuffer(data[begin + a:begin + b], kind)
            w = (w.astype(np.uint32) << 16).view(np.float32) if t["dtype"] == "BF16" else w
            w = w if t["dtype"].startswith("I") else w.astype(np.float32)
            tensors[name] = w.reshape(t["shape"])
    return tensors


def turned(w, heads):
    return w.reshape(heads, 2, w.shape[0] // heads // 2, *w.shape[1:]).swapaxes(1, 2).reshape(w.shape)


def reordered(name, w, arch, c):
    """(a name that gguf's tables know, elements) of a tensor of a folder."""
    heads = first_of(c, "num_attention_heads", "n_head")
    kv = first_of(c, "num_key_value_heads") or heads
    if arch in TURNED and re.search(r"\.q_proj\.", name):
        return [(name, turned(w, heads))]
    if arch in TURNED and re.search(r"\.k_proj\.", name):
        return [(name, turned(w, kv))]
    if arch.startswith("gemma") and name.endswith("norm.weight"):
        return [(name, w + np.float32(1))]
    if arch == "gpt2" and re.search(r"(c_attn|c_proj|c_fc)\.weight$", name):
        return [(name, w.T)]
    if arch == "gptneox" and "query_key_value" in name:
        head = w.shape[0] // heads // 3
        return [(name, w.reshape(heads, 3, head, *w.shape[1:]).swapaxes(0, 1).reshape(w.shape))]
    if arch == "deepseek2" and name.endswith("kv_b_proj.weight"):
        nope, value = c["qk_nope_head_dim"], c["v_head_dim"]
        both = w.reshape(heads, nope + value, w.shape[1])
        return [(name.replace("kv_b_proj", "k_b_proj"), both[:, :nope].swapaxes(1, 2)),
                (name.replace("kv_b_proj", "v_b_proj"), both[:, nope:])]
    if arch == "gpt-oss" and ".experts." in name:
        base, part = name.split(".experts.")
        ending = ".bias" if part.endswith("_bias") else ".weight"
        part, w = part.removesuffix("_bias"), w if part.endswith("_bias") else w.swapaxes(1, 2)
        if part == "down_proj":
            return [(f"{base}.experts.down_proj{ending}", w)]
        return [(f"{base}.experts.gate_proj{ending}", w[:, ::2]), (f"{base}.experts.up_proj{ending}", w[:, 1::2])]
    if name.endswith("e_score_correction_bias"):
        return [(name.replace("correction_bias", "correction.bias"), w)]
    if name.endswith(".sinks"):
        return [(name + ".weight", w)]
    return [(name, w)]


def expected_tensors(folder, arch, c, tables):
    """{name in the file: elements}"""
    tied = c.get("tie_word_embeddings", arch in ("gemma", "gemma2", "gemma3", "gpt2"))
    stacks, out = {}, {}
    for name, w in read_folder(folder).items():
        if name.endswith(("rotary_emb.inv_freq", ".attn.bias", ".attn.masked_bias", ".attention.bias", ".attention.masked_bias")) or (tied and name == "lm_head.weight"):
            continue
        expert = re.match(r"(.*\.experts)\.(\d+)\.(.*)$", name)
        if expert:
            stacks.setdefault(f"{expert[1]}.{expert[3]}", {})[int(expert[2])] = w
            continue
        if re.match(r".*\.experts\.gate_up_proj$", name) and arch != "gpt-oss":
            half = w.shape[1] // 2
            out |= {mapped(tables, name.replace("gate_up_proj", "gate_proj.weight")): w[:, :half],
                    mapped(tables, name.replace("gate_up_proj", "up_proj.weight")): w[:, half:]}
            continue
        for known, elements in reordered(name, w, arch, c):
            out[mapped(tables, known)] = elements
    for name, members in stacks.items():
        name = re.sub(r"block_sparse_moe\.experts\.(w\d)", r"mlp.experts.\1", name)
        for old, new in {"w1": "gate_proj", "w2": "down_proj", "w3": "up_proj"}.items():
            name = re.sub(rf"experts\.{old}\.", f"experts.{new}.", name)
        out[mapped(tables, name)] = np.stack([members[i] for i in range(len(members))])
    if tied and arch in HEADS:
        out["output.weight"] = out["token_embd.weight"]
    return out


def mapped(tables, name):
    new = tables.get_name(name, try_suffixes=(".weight", ".bias"))
    if new is None and name.endswith(".down_proj"):
        new = tables.get_name(name + ".weight", try_suffixes=(".weight", ".bias"))
    assert new is not None, f"gguf does not know {name}"
    return new


def decoded(t):
    if t.tensor_type == gguf.GGMLQuantizationType.F32:
        return t.data
    return gguf.quants.dequantize(t.data, t.tensor_type)


def check_tensors(reader, folder, arch, c):
    key = next(a for a, n in MODEL_ARCH_NAMES.items() if n == arch)
    layers = first_of(c, "num_hidden_layers", "n_layer")
    tables = gguf.get_tensor_name_map(key, layers)
    known = {TENSOR_NAMES[t].format(bid=b) for t in MODEL_TENSORS[key] for b in range(layers)}
    there = {t.name: t for t in reader.tensors}
    for name in there:
        assert name.rsplit(".", 1)[0] in known or name.startswith("rope_"), f"{arch} has no {name}"
    if folder.name in PACKED:
        return len(there)
    wanted = expected_tensors(folder, arch, c, tables)
    extra = set(there) - set(wanted) - {"rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight"}
    assert not extra and set(wanted) <= set(there), f"extra {extra}, missing {set(wanted) - set(there)}"
    for name, w in wanted.items():
        assert list(there[name].shape) == list(reversed(w.shape)), f"{name}: {there[name].shape} for {w.shape}"
        assert np.array_equal(there[name].data.reshape(w.shape), w), f"{name} differs"
    return len(there)


def check_types(program, folder, base, where):
    """The other types have the bytes that gguf makes of fp32's."""
    whole = {t.name: t.data for t in base.tensors}
    for kind, qtype in TYPES.items():
        if kind == "fp32":
            continue
        path = where / f"{folder.name}.{kind}.gguf"
        code, err = export(program, folder, path, kind)
        assert code == 0, err
        for t in gguf.GGUFReader(path).tensors:
            data = whole[t.name]
            exact = data.ndim == 1 or EXACT.search(t.name) or not t.name.endswith(".weight")
            type_ = (gguf.GGMLQuantizationType.F32 if exact else gguf.GGMLQuantizationType.F16
                     if kind == "q8_0" and data.shape[-1] % 32 else qtype)
            assert t.tensor_type == type_, f"{kind}: {t.name} is {t.tensor_type.name}, not {type_.name}"
            bytes_ = gguf.quants.quantize(data, type_).tobytes()
            assert t.data.tobytes() == bytes_, f"{kind}: {t.name} differs"
        path.unlink()


# ---- keys ----

def check_keys(reader, arch, c):
    def value(key, whole=False):
        field = reader.fields.get(key if whole else f"{arch}.{key}")
        return None if field is None else field.contents()

    def same(key, wanted):
        got = value(key)
        assert got == wanted or (isinstance(wanted, float) and abs(got - wanted) <= 1e-6 * abs(wanted)), (key, got, wanted)

    heads, hidden = first_of(c, "num_attention_heads", "n_head"), first_of(c, "hidden_size", "n_embd")
    head = c.get("head_dim") or hidden // heads
    assert value("general.architecture", True) == arch and value("general.file_type", True) == 0
    assert value("general.quantization_version", True) == 2
    same("context_length", first_of(c, "max_position_embeddings", "n_positions"))
    same("embedding_length", hidden)
    same("block_count", first_of(c, "num_hidden_layers", "n_layer"))
    same("feed_forward_length", first_of(c, "intermediate_size", "n_inner") or 4 * hidden)
    same("attention.head_count", heads)
    if arch != "deepseek2":
        same("attention.head_count_kv", heads if arch == "gptneox" else c.get("num_key_value_heads") or heads)
        same("attention.key_length", head)
        same("attention.value_length", head)
    eps = first_of(c, "rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon", "norm_epsilon")
    layer_norm = arch in ("gpt2", "gptneox", "stablelm", "starcoder2")
    same("attention.layer_norm_epsilon" if layer_norm else "attention.layer_norm_rms_epsilon", float(eps or 1e-5))
    for key, name in {"expert_count": ("num_local_experts", "num_experts", "n_routed_experts"),
                      "expert_used_count": ("num_experts_per_tok", "num_experts_per_token")}.items():
        if first_of(c, *name) is not None:
            same(key, first_of(c, *name))
    if c.get("moe_intermediate_size"):
        same("expert_feed_forward_length", c["moe_intermediate_size"])
    for key, name in {"attn_logit_softcapping": "attn_logit_softcapping", "final_logit_softcapping": "final_logit_softcapping",
                      "embedding_scale": "embedding_multiplier", "residual_scale": "residual_multiplier",
                      "logit_scale": "logits_scaling", "attention.scale": "attention_multiplier"}.items():
        if c.get(name) and (arch != "gemma3" or "attn" not in key):
            same(key, float(c[name]))
    rope = c.get("rope_parameters") or c.get("rope_scaling") or {}
    rope = rope.get("full_attention", rope)
    theta = rope.get("rope_theta") or c.get("rope_theta") or c.get("rotary_emb_base")
    if theta and arch != "gpt2":
        same("rope.freq_base", float(theta))
    kind = rope.get("rope_type") or rope.get("type")
    if kind in ("yarn", "linear"):
        same("rope.scaling.type", kind)
        same("rope.scaling.factor", float(rope["factor"]))
    if kind == "yarn":
        same("rope.scaling.original_context_length", rope["original_max_position_embeddings"])
    if arch in ("gemma2", "gemma3", "gpt-oss") or (arch == "olmo2" and c.get("sliding_window")):
        same("attention.sliding_window", c["sliding_window"])
        pattern = value("attention.sliding_window_pattern")
        if c.get("layer_types"):
            assert pattern == [t == "sliding_attention" for t in c["layer_types"]], pattern
    return len(reader.fields)


# ---- llama.cpp ----

def logits_of(path, tokens, add=0):
    params = llama_cpp.llama_model_default_params()
    model = llama_cpp.llama_model_load_from_file(str(path).encode(), params)
    assert model, f"llama.cpp does not load {path.name}: {said}"
    c = llama_cpp.llama_context_default_params()
    c.n_ctx, c.n_batch, c.n_ubatch, c.n_threads, c.flash_attn_type = 256, 256, 256, 1, 0
    c.type_k = c.type_v = 0  # fp32
    context = llama_cpp.llama_init_from_model(model, c)
    batch = llama_cpp.llama_batch_init(len(tokens), 0, 1)
    for i, t in enumerate(tokens):
        batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.seq_id[i][0], batch.logits[i] = int(t), i, 1, 0, 1
    batch.n_tokens = len(tokens)
    assert llama_cpp.llama_decode(context, batch) == 0
    vocab = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(model))
    out = np.stack([np.ctypeslib.as_array(llama_cpp.llama_get_logits_ith(context, i), (vocab,)).copy()
                    for i in range(len(tokens))])
    llama_cpp.llama_batch_free(batch)
    llama_cpp.llama_free(context)
    llama_cpp.llama_model_free(model)
    return out


def distance(got, wanted):
    """The largest difference, of the largest logit."""
    return np.abs(got - wanted).max() / np.abs(wanted).max()


def bound(folder):
    """ggml's gelu on a CPU is a table of fp16: gemma2's logits are 2e-5 off where the reference rounds it so, else 6e-4."""
    return 1e-3 if folder.name.startswith(("gemma", "gpt2", "gpt-neox", "starcoder2")) else 1e-5


def check_logits(program, path, folder, where):
    """How far the logits are, in words."""
    expected = read_folder(folder, "expected.safetensors")
    if "input_ids" not in expected:
        return "none there"
    ids, rows = expected["input_ids"][0], expected["logits_rows"]
    got = distance(np.concatenate([logits_of(path, sequence) for sequence in ids])[rows], expected["logits"])
    if folder.name not in SETTINGS:
        assert got < bound(folder), f"logits are {got:.1e} off"
        return f"{got:.1e}"
    assert got > 1e-3, f"{folder.name} agrees: its settings need no change"
    if not transformers:
        return f"{got:.1e}, as the program says"
    changed = where / f"{folder.name}-changed"
    changed.mkdir()
    for weights in folder.glob("model*"):
        (changed / weights.name).symlink_to(weights.resolve())
    write_config(folder, changed, SETTINGS[folder.name])
    code, err = export(program, changed, where / f"{folder.name}-changed.gguf")
    assert code == 0 and not any(o in err for o in OTHERS), err
    return f"{got:.1e}, as the program says; with {SETTINGS[folder.name]} {check_against_transformers(changed, ids):.1e}"


def write_config(folder, out, settings):
    c = json.loads((folder / "config.json").read_text()) | settings
    (out / "config.json").write_text(json.dumps({k: v for k, v in c.items() if v is not None or k == "sliding_window"}))


WAYS = {"attn_implementation": "eager", "experts_implementation": "eager"}


def check_against_transformers(folder, ids):
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64, **WAYS)
    with torch.no_grad():
        wanted = model(torch.tensor(np.asarray(ids), dtype=torch.int64)).logits.numpy()
    got = distance(np.stack([logits_of(folder.with_suffix(".gguf"), sequence) for sequence in ids]), wanted)
    assert got < bound(folder), f"logits of {folder.name} are {got:.1e} off"
    return got


def renamed(folder, name, type):
    """The same model as one of another type."""
    out = shutil.copytree(folder, folder.parent / name)
    c = json.loads((out / "config.json").read_text())
    (out / "config.json").write_text(json.dumps(c | {"model_type": type}))
    return out


def make(folder, where):
    """A model of random weights, none of them 0 or 1."""
    made = where / folder.name
    made.mkdir()
    write_config(folder, made, MADE[folder.name])
    torch.manual_seed(1)
    model = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.from_pretrained(made), **WAYS)
    for name, t in [*model.named_parameters(), *model.named_buffers()]:
        if not name.endswith(("inv_freq", "original_inv_freq")):
            t.data.normal_(1 if name.endswith("norm.weight") else 0, 0.2)
    model.save_pretrained(made)
    return made


@llama_cpp.llama_log_callback if llama_cpp else (lambda f: f)
def quiet(level, text, user):
    del user
    if level >= 4:  # errors
        said.append(text.decode(errors="replace").strip())


said = []


def check_folder(program, folder, where):
    c = text_config(json.loads((folder / "config.json").read_text()))
    arch, path = ARCHITECTURES[c["model_type"]], where / f"{folder.name}.gguf"
    code, err = export(program, folder, path)
    if code and "llama.cpp does not load" in err:
        print(f"{folder.name:18} {arch:10} refused: {err.split('does not load ')[-1].strip()}")
        if transformers and folder.name in MADE and folder.parent == HERE:
            made = make(folder, where)
            check_folder(program, made, where)
            for name, type in ALIKE.get(folder.name, ()):
                check_folder(program, renamed(made, name, type), where)
        return
    assert code == 0, err
    reader = gguf.GGUFReader(path)
    keys, tensors = check_keys(reader, arch, c), check_tensors(reader, folder, arch, c)
    check_types(program, folder, reader, where)
    said.clear()
    if llama_cpp is None:
        logits = "not compared"
    elif folder.parent == HERE:
        assert any(o in err for o in OTHERS) == (folder.name in SETTINGS), err
        logits = check_logits(program, path, folder, where) if (folder / "expected.safetensors").exists() else "none there"
    else:
        assert not any(o in err for o in OTHERS), err
        logits = f"{check_against_transformers(folder, np.random.default_rng(1).integers(0, 97, (2, 40))):.1e}, made here"
    how = "named" if folder.name in PACKED else "equal"
    print(f"{folder.name:18} {arch:10} {keys:3} keys, {tensors:3} tensors {how}, types equal  logits {logits}", flush=True)


# ---- tokenizers ----

TEXTS = ["Hello world", " Hello  world\n\n\tof 12345 words, isn't it? It'S", "Ünïcödé 漢字 かな 한글 \U0001f680\U0001f9d9",
         "def f(x):\n    return x*2  # 3.14\r\n\r\n", "a\u00a0b\u3000c  \n \n  d", "<|im_start|>user\nHi<|im_end|>"]


def tiny_model(where, name, tokenizer):
    """A folder with this tokenizer and a model of as many ids, and some more."""
    folder = where / name
    folder.mkdir()
    for path in tokenizer.glob("*"):
        if "token" in path.name or path.name in ("vocab.json", "merges.txt", "chat_template.jinja"):
            (folder / path.name).symlink_to(path.resolve())
    known = json.loads((folder / "tokenizer.json").read_text())
    vocab = max([*known["model"]["vocab"].values(), *(t["id"] for t in known["added_tokens"])]) + 3
    c = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": vocab, "hidden_size": 32,
         "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "max_position_embeddings": 64,
         "tie_word_embeddings": True, "rms_norm_eps": 1e-5}
    (folder / "config.json").write_text(json.dumps(c))
    names = {"model.embed_tokens": (vocab, 32), "model.norm": (32,)}
    names |= {f"model.layers.0.{n}": (32, 32) for n in (
        *(f"self_attn.{p}_proj" for p in "qkvo"), *(f"mlp.{p}_proj" for p in ("gate", "up", "down")))}
    names |= {f"model.layers.0.{n}_layernorm": (32,) for n in ("input", "post_attention")}
    header, data = {}, b""
    for n, shape in names.items():
        t = np.full(shape, 0.5, np.float32).tobytes()
        header[n + ".weight"] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + len(t)]}
        data += t
    head = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(len(head).to_bytes(8, "little") + head + data)
    return folder


def llama_tokens(vocab, text, special):
    data = text.encode()
    out = (llama_cpp.llama_token * (len(data) + 16))()
    n = llama_cpp.llama_tokenize(vocab, data, len(data), out, len(out), special, True)
    assert n >= 0
    return list(out[:n])


def own_tokens(program, folder, texts, special, where):
    path = where / "texts.jsonl"
    path.write_text("".join(json.dumps({"text": t}) + "\n" for t in texts))
    command = [program, "tokenize", "-m", folder, "-f", path, *(["--special"] if special else [])]
    done = subprocess.run(command, capture_output=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def check_scores(reader, folder):
    """SentencePiece's own scores order tokens as those of the file, which are of its merges."""
    import sentencepiece
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(folder / "tokenizer.model"))
    scores, types, tokens = (reader.fields[f"tokenizer.ggml.{k}"].contents() for k in ("scores", "token_type", "tokens"))
    normal = [i for i in range(pieces.vocab_size()) if types[i] == 1]
    assert all(tokens[i] == pieces.id_to_piece(i) for i in range(3, pieces.vocab_size()))
    order = sorted(normal, key=lambda i: -scores[i])
    theirs = [pieces.get_score(i) for i in order]
    products = [len(tokens[i]) > 1 for i in order]
    assert all(x >= y for x, y, p in zip(theirs, theirs[1:], products[1:]) if p), "another order of merges"
    return "in SentencePiece's order, "


def check_vocabulary(reader, tokenizer):
    """Tokens by their ids, and merges in their order, are those of tokenizer.json. Returns what was compared."""
    own = json.loads((tokenizer / "tokenizer.json").read_text())
    def value(key):
        return reader.fields[f"tokenizer.ggml.{key}"].contents()

    ids = {i: t for t, i in own["model"]["vocab"].items()} | {t["id"]: t["content"] for t in own["added_tokens"]}
    tokens = value("tokens")
    assert all(tokens[i] == t for i, t in ids.items()), "other tokens"
    said = f"{value('model')}/{value('pre')}: {len(ids)} tokens"
    if "tokenizer.ggml.merges" in reader.fields:
        merges = [m if isinstance(m, str) else " ".join(m) for m in own["model"]["merges"]]
        assert value("merges") == merges, "other merges"
        said += f" and {len(merges)} merges"
    return said + " equal"


def check_tokenizer(program, tokenizer, where, texts, expected=None):
    folder = tiny_model(where, f"{tokenizer.name}-tokens", tokenizer)
    path = where / f"{tokenizer.name}-tokens.gguf"
    code, err = export(program, folder, path)
    assert code == 0, err
    reader = gguf.GGUFReader(path)
    vocabulary = check_vocabulary(reader, tokenizer)
    scores = check_scores(reader, tokenizer) if (tokenizer / "tokenizer.model").exists() else ""
    if llama_cpp is None:
        print(f"{tokenizer.name:18} {scores}{vocabulary}", flush=True)
        return
    params = llama_cpp.llama_model_default_params()
    params.vocab_only = True
    model = llama_cpp.llama_model_load_from_file(str(path).encode(), params)
    assert model, said
    vocab = llama_cpp.llama_model_get_vocab(model)
    own, equal, all_texts = 0, 0, [*TEXTS, *texts]
    plain, special = (own_tokens(program, folder, all_texts, x, where) for x in (False, True))
    for i, text in enumerate(all_texts):
        ids = llama_tokens(vocab, text, False)
        own += ids == plain[i]
        equal += expected is None or i < len(TEXTS) or ids == expected[i - len(TEXTS)]
        if ids != plain[i]:
            print(f"  {text!r}: llama.cpp {ids}, the program {plain[i]}")
        assert llama_tokens(vocab, text, True) == special[i] or ids != plain[i], f"{text!r} with special tokens"
    llama_cpp.llama_model_free(model)
    n = len(TEXTS) + len(texts)
    print(f"{tokenizer.name:18} {scores}{vocabulary}; of {n} texts {own} have the "
          f"program's ids in llama.cpp" + (f", {equal} those that llama.cpp publishes" if expected else ""), flush=True)
    assert own >= n and equal == n, tokenizer.name


def check_greedy(program, folder, where):
    """Text that llama.cpp goes on with, from the file of each type, and from fp32 what the program does."""
    done = subprocess.run([program, "generate", "--model", folder, "--prompt", "Once upon a time", "--max-tokens", "60",
                           "--temperature", "0"], capture_output=True, text=True, check=True)
    same = {}
    for kind in TYPES:
        path = where / f"{folder.name}.{kind}.gguf"
        code, err = export(program, folder, path, kind)
        assert code == 0, err
        model = llama_cpp.Llama(str(path), n_ctx=128, verbose=False, n_threads=1)
        text = model.create_completion("Once upon a time", max_tokens=60, temperature=0)["choices"][0]["text"]
        same[kind] = len(pathlib.os.path.commonprefix([text.strip(), done.stdout.strip()]))
        model.close()
    n = len(done.stdout.strip())
    print(f"{folder.name:18} greedy text of {n} characters; llama.cpp's is the same for {same}", flush=True)
    assert same["fp32"] >= n - 1, f"{done.stdout!r}"


def check_tokenizers(program, data, where):
    failed = 0
    for folder in sorted([*(data / "tokenizers").iterdir(), *(data / "models").iterdir()]):
        given, ids = (data / f"conformance/llamacpp/{folder.name}{e}" for e in (".inp", ".out"))
        texts, expected = [], None
        if given.exists():
            texts = given.read_bytes().decode().split("\n__ggml_vocab_test__\n")[:-1]
            expected = [[int(i) for i in line.split()] for line in ids.read_text().splitlines()]
        try:
            check_tokenizer(program, folder, where, texts, expected)
            if llama_cpp and (folder / "model.safetensors").exists():
                check_greedy(program, folder, where)
        except AssertionError as e:
            failed += 1
            print(f"{folder.name:18} FAILED: {e}")
    return failed


def main():
    program, where = sys.argv[1], pathlib.Path(tempfile.mkdtemp())
    if llama_cpp:
        llama_cpp.llama_log_set(quiet, None)
    failed = 0
    for path in sorted(HERE.glob("*/config.json")):
        c = text_config(json.loads(path.read_text()))
        if not list(path.parent.glob("model*.safetensors")):
            continue
        if c["model_type"] not in ARCHITECTURES:
            code, err = export(program, path.parent, where / "refused.gguf")
            assert code != 0 and "are not written as GGUF" in err, err
            print(f"{path.parent.name:18} refused by name")
            continue
        try:
            check_folder(program, path.parent, where)
        except AssertionError as e:
            failed += 1
            print(f"{path.parent.name:18} FAILED: {e}")
    if len(sys.argv) > 2:
        failed += check_tokenizers(program, pathlib.Path(sys.argv[2]), where)
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
