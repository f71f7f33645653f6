"""Unusual configurations and weight files: what `ndparallel evaluate` makes of them beside transformers.

    python unusual.py [--train] ../../build/ndparallel [NAME ...]

Each case (unusual_cases.py) is a configuration that no golden model has, or a damaged or odd weight file. The script builds a
model of random weights, asks transformers and the program for the mean negative log-likelihood of the same tokens, and says
which of these the case is:

    equal     both accept it, and the values agree within BOUND
    refused   the program refuses it by name; transformers computes something
    both      both refuse it
    only us   transformers refuses it, the program computes something
    WRONG     both accept it, and the values differ

It exits with 1 if a case is WRONG, or `only us` and not marked as allowed: there transformers refuses what cannot change a
result, such as a whole number for an epsilon. With --train the equal cases of one document are also trained for one update of
plain SGD at rate 1. The weights that the program exports must then be the old ones less transformers' gradient, within GRADIENT
of its norm, their number transformers', and transformers must load the export and score it as the program does.
"""

import argparse
import json
import logging
import pathlib
import shutil
import subprocess
import sys
import tempfile
import warnings
import zlib

import safetensors.torch
import torch
import transformers

import make_golden
from unusual_cases import CASES, FAMILIES, LENGTH, save

BOUND = 1e-6  # relative; transformers in fp64, save for its norms and angles in fp32
GRADIENT = 2e-5

ALPHABET = 0x4E00  # token i is the character ALPHABET + i


def write_tokenizer(folder, vocab):
    model = {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
             "fuse_unk": False, "byte_fallback": False, "vocab": {chr(ALPHABET + i): i for i in range(vocab)}, "merges": []}
    tokenizer = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
                 "pre_tokenizer": None, "post_processor": None, "decoder": None, "model": model}
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))


def file_name(model, name):
    return name.replace("lm_head.", "embed_out.") if model.config.model_type == "gpt_neox" else name


def class_of(config):
    """Of models of several parts the whole."""
    whole = transformers.AutoModelForImageTextToText
    return whole if type(config) in whole._model_mapping else transformers.AutoModelForCausalLM


def write_weights(folder, config, generator):
    """Weights that matter: wide, norms off 1, biases off 0; for a dictionary of keys, or the folder's own."""
    config = transformers.AutoConfig.for_model(**config) if config else transformers.AutoConfig.from_pretrained(folder)
    model = class_of(config).from_config(config, dtype=torch.float32)
    tied = {n for n, _ in model.named_parameters(remove_duplicate=False)} - {n for n, _ in model.named_parameters()}
    weights = {}
    scalars = [(name, b) for name, b in model.named_buffers() if name.endswith("layer_scalar")]
    for name, p in [*model.named_parameters(), *scalars]:
        noise = torch.randn(p.shape, generator=generator)
        if p.ndim == 1 and name.endswith(".weight"):
            kind = type(model).__name__
            noise = 0.3 * noise + (0 if make_golden.adds_one(kind) and "linear_attn.norm" not in name else 1)
            noise *= 0.35 if "Gemma4" in kind and name.endswith("q_norm.weight") else 1  # no other scale of scores
        else:
            noise *= 0.25 if p.ndim > 1 else 0.2
        weights[file_name(model, name)] = noise
    save(folder, {k: v for k, v in weights.items() if k not in {file_name(model, n) for n in tied}})


def write_case(folder, spec, generator):
    """The folder of a case. Where transformers refuses the configuration, the weights are those of the family's plain model,
    of the case's sizes if it takes these."""
    text = json.dumps(spec["config"])
    (folder / "config.json").write_text(spec["text"](text) if spec["text"] else text, encoding="utf-8")
    plain = {"model_type": spec["family"]} | FAMILIES[spec["family"]]
    sizes = {k: v for k, v in spec["config"].items() if k in plain and type(v) is int}
    for config in (None, plain | sizes, plain):
        try:
            write_weights(folder, config, generator)
            break
        except Exception:
            if config == plain:
                raise
    if spec["files"]:
        spec["files"](folder)


def write_documents(folder, spec, generator):
    vocab = spec["config"].get("vocab_size")
    vocab = vocab if isinstance(vocab, int) else 97
    write_tokenizer(folder, vocab)
    documents = [torch.randint(vocab, (n,), generator=generator) for n in spec["rows"]]
    with open(folder / "data.jsonl", "w", encoding="utf-8") as f:
        for ids in documents:
            f.write(json.dumps({"text": "".join(chr(ALPHABET + i) for i in ids.tolist())}) + "\n")
    return documents


def load(folder):
    """transformers' model, in fp64 save for casts inside it. Fails as it does, and where it would draw weights or drop some."""
    config = transformers.AutoConfig.from_pretrained(folder)
    mixes = hasattr(getattr(config, "text_config", config), "num_experts_per_tok")
    more = {"experts_implementation": "eager"} if mixes else {}
    model, info = class_of(config).from_pretrained(folder, dtype=torch.float32, attn_implementation="eager",
                                                   output_loading_info=True, **more)
    bad = {k: v for k, v in info.items() if v and k in ("missing_keys", "unexpected_keys", "mismatched_keys", "error_msgs")}
    if bad:
        raise ValueError(f"loads, but not the file's model: {bad}")
    return model.double().eval()


def nll_of(model, documents):
    nll = n = 0
    for ids in documents:
        logits = model(input_ids=ids[None, :-1], use_cache=False).logits
        nll = nll + torch.nn.functional.cross_entropy(logits[0], ids[1:], reduction="sum")
        n += len(ids) - 1
    return nll / n


def ours(program, folder):
    """The program's mean nll, or its message."""
    run = subprocess.run([program, "evaluate", "--model", folder, "--data", folder / "data.jsonl", "--json", "--threads", "1"],
                         capture_output=True, text=True, timeout=60)
    if run.returncode == 0:
        return json.loads(run.stdout)["mean_nll"], None
    return None, run.stderr.strip() or f"exit status {run.returncode}"


def differ(mine, reference):
    return abs(mine / reference - 1) if reference == reference and reference else float("inf")


def check_training(program, folder, model, documents):
    """How far the exported weights are from the old ones less transformers' gradient, relative to it; of how the program and
    transformers score the export. Raises where these weights are not the model's."""
    model.get_input_embeddings().padding_idx = None  # would leave its row without a gradient
    before = {n: p.detach().clone() for n, p in model.named_parameters()}
    nll_of(model, documents).backward()
    for p in model.parameters():  # those of other parts have none
        p.grad = torch.zeros_like(p) if p.grad is None else p.grad
    job = {"model": {"path": str(folder)}, "data": {"files": [str(folder / "data.jsonl")], "sequence_length": max(LENGTH, len(documents[0])),
                                                    "cache_dir": str(folder / "cache")},
           "optimizer": {"name": "sgd", "lr": 1.0, "weight_decay": 0.0, "max_grad_norm": 0.0},
           "schedule": {"name": "constant", "warmup_steps": 0}, "batch": {"global_batch_size": 1},
           "train": {"steps": 1, "threads": 1, "transport": "self", "output_dir": str(folder / "run")}}
    (folder / "job.yaml").write_text(json.dumps(job))
    run = subprocess.run([program, "train", folder / "job.yaml"], capture_output=True, text=True, timeout=60)
    if run.returncode:
        raise ValueError(run.stderr.strip())
    export = folder / "run" / "model"
    after = safetensors.torch.load_file(export / "model.safetensors")
    prefix = "" if set(after) & set(before) else model.base_model_prefix + "."
    after = {n if n.startswith("lm_head") else prefix + n: w.double() for n, w in after.items()}
    before = dict(make_golden.hub_tensors(model, before.items()))
    gradients = make_golden.hub_tensors(model, [(n, p.grad) for n, p in model.named_parameters()])
    fixed = {n for n, _ in model.named_buffers() if n.endswith("layer_scalar")}
    if set(after) != set(before) | fixed:
        raise ValueError(f"exports {sorted(set(after) ^ set(before) ^ fixed)}")
    if transformers.AutoConfig.from_pretrained(export).dtype not in (torch.float32, None):
        raise ValueError("the export's config.json gives its tensors another type than they have")
    off = sum((before[n] - after[n] - g).pow(2).sum() for n, g in gradients.items()).sqrt().item()
    size = sum(p.grad.pow(2).sum() for p in model.parameters()).sqrt().item()
    shutil.copy(folder / "data.jsonl", export)
    mine, message = ours(program, export)
    if message:
        raise ValueError(message)
    with torch.no_grad():
        return off / size if size else off, differ(mine, nll_of(load(export), documents).item())


def compare(program, name, root, train):
    """What became of one case: its word, and what there is to say."""
    spec = CASES[name]
    folder = root / name
    folder.mkdir()
    generator = torch.Generator().manual_seed(zlib.crc32(name.encode()))
    write_case(folder, spec, generator)
    documents = write_documents(folder, spec, generator)
    mine, message = ours(program, folder)
    try:
        model = load(folder)
        with torch.no_grad():
            reference = nll_of(model, documents).item()
        trouble = None
    except Exception as e:
        reference, trouble = None, f"{type(e).__name__}: {' '.join(str(e).split())[:160]}"
    if message is not None and reference is not None:
        return "refused", message
    if message is not None:
        return "both", f"{message}   | {trouble}"
    if reference is None:
        return "only us", f"{mine:.7f}   | {trouble}"
    off = differ(mine, reference)
    detail = f"{mine:.7f} and {reference:.7f}: {off:.1e}"
    if off > BOUND or not train or len(documents) > 1:
        return "equal" if off <= BOUND else "WRONG", detail
    try:
        gradient, export = check_training(program, folder, model, documents)
    except Exception as e:
        return "WRONG", f"{detail}; trained: {type(e).__name__}: {e}"
    right = gradient <= GRADIENT and export <= BOUND
    return "equal" if right else "WRONG", f"{detail}; gradient {gradient:.1e}, export {export:.1e}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", type=pathlib.Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--train", action="store_true")
    parser.add_argument("--keep", type=pathlib.Path, help="an empty folder for the models")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(1)
    totals, bad = {}, 0
    with tempfile.TemporaryDirectory() as temporary:
        root = options.keep or pathlib.Path(temporary)
        root.mkdir(exist_ok=True)
        for name in options.names or CASES:
            word, detail = compare(options.program.resolve(), name, root, options.train)
            bad += word == "WRONG" or (word == "only us" and not CASES[name]["allowed"])
            totals[word] = totals.get(word, 0) + 1
            print(f"{word:8} {name:34} {detail.replace(str(root) + '/', '')}", flush=True)
            if not options.keep:
                shutil.rmtree(root / name)
    print(json.dumps(totals))
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
