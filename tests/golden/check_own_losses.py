"""Losses of one's own against PyTorch: check_own_losses.py [WORD]. Weights of both signs, a function of log-probabilities (PPO's ratio,
clipped) and one of logits (label smoothing, a z-loss, distillation from stored probabilities), on packed rows of a Llama and of a
Mixtral with random weights. transformers computes their gradients in fp64 in one process; each must be those of the package on every
layout (of those whose name has WORD) within the bounds of docs/proofs.md, proof 3: 1e-9 of its norm in fp64, 2e-5 in fp32. Needs
torch, transformers, numpy, and ndparallel on PYTHONPATH (build/python)."""
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy as np

import ndparallel

SAMPLES, LENGTH, VOCAB, DIVISOR, SMOOTH, Z, CLIP = 8, 16, 96, 50, 0.1, 1e-3, 0.2
BOUNDS = {"fp64": 1e-9, "fp32": 2e-5}
BASE = {"train.threads": 1, "train.force_memory": True, "train.own_logits": True, "data.sequence_length": LENGTH,
        "batch.global_batch_size": SAMPLES, "batch.micro_batch_size": 1, "optimizer.max_grad_norm": 0, "moe.balance": "none"}
PIPELINES = ("1f1b", "gpipe", "interleaved", "zero_bubble", "zbv", "dualpipev")
LAYOUTS = [("llama", layout) for layout in (
    {}, {"dp_shard": 2}, {"dp_shard": 4}, {"dp_replicate": 2}, {"dp_replicate": 2, "dp_shard": 2}, {"cp": 2}, {"cp": 2, "dp_shard": 2},
    {"sp": 2}, {"tp": 2}, {"tp": 2, "dp_shard": 2}, {"cp": 2, "tp": 2}, {"sp": 2, "pp": 2}, {"tp": 2, "pp": 2},
    {"dp_replicate": 2, "dp_shard": 2, "cp": 2, "tp": 2}, {"dp_replicate": 2, "dp_shard": 2, "pp": 2, "tp": 2},
    *({"pp": 2, "schedule": name} for name in PIPELINES))]
LAYOUTS += [("mixtral", layout) for layout in ({}, {"dp_shard": 2}, {"tp": 2}, {"cp": 2, "pp": 2})]


def make_rows():
    """Numbers that all ranks and PyTorch draw alike."""
    r = np.random.default_rng(3)
    rows = {"ids": r.integers(2, VOCAB, (SAMPLES, LENGTH)), "labels": r.integers(0, VOCAB, (SAMPLES, LENGTH)),
            "documents": np.cumsum(r.random((SAMPLES, LENGTH)) < 0.15, axis=1), "weights": r.normal(size=(SAMPLES, LENGTH))}
    rows["labels"][r.random((SAMPLES, LENGTH)) < 0.2] = -100
    teacher = r.random((SAMPLES, LENGTH, VOCAB))
    return rows, r.normal(size=(SAMPLES, LENGTH)), -4.5 + 0.3 * r.normal(size=(SAMPLES, LENGTH)), teacher / teacher.sum(-1, keepdims=True)


# ---- ours, on each rank ----

def ratio_loss(logp, slopes, rows, advantages, old):
    """PPO's; a slope is that of the smaller one of two products."""
    logp, slopes, used = np.asarray(logp), np.asarray(slopes), rows["labels"] >= 0
    ratio = np.exp(logp - old)
    bare, clipped = ratio * advantages, np.clip(ratio, 1 - CLIP, 1 + CLIP) * advantages
    slopes[:] = np.where(used & (bare <= clipped), -bare / DIVISOR, 0)
    return float(-np.minimum(bare, clipped)[used].sum() / DIVISOR)


def logits_loss(some, teacher):
    x, labels = np.asarray(some.logits).astype("f8"), np.asarray(some.labels)
    lse = np.log(np.exp(x).sum(1))
    p, one = np.exp(x - lse[:, None]), np.arange(VOCAB) == labels[:, None]
    target = (1 - SMOOTH) * one + SMOOTH / VOCAB + teacher[some.samples, some.tokens]
    np.asarray(some.losses)[:] = (target * (lse[:, None] - x)).sum(1) + Z * lse ** 2
    np.asarray(some.slopes)[:] = 2 * p - target + 2 * Z * lse[:, None] * p


def run_rank(settings, out):
    rows, advantages, old, teacher = make_rows()
    bare = {**{name: rows[name] for name in ("ids", "labels", "documents")}, "everywhere": True}
    found = {}
    with ndparallel.Trainer(json.loads(settings)) as t:
        for kind in ("weights", "ratio", "logits"):
            t.begin("number", 1 if kind == "ratio" else DIVISOR, lr=0.0)
            if kind == "ratio":
                call = t.forward_backward_with(bare, lambda logp, slopes: ratio_loss(logp, slopes, rows, advantages, old))
            else:
                batch = {**bare, "weights": rows["weights"]}
                call = (t.forward_backward(batch) if kind == "weights" else
                        t.forward_backward_logits(batch, lambda some: logits_loss(some, teacher)))
            t.update()
            found.update({f"{kind} {name}": np.array(t.read(name, "gradient")) for name in t.tensors()}, **{f"{kind} loss": call.loss})
        if t.rank == 0:
            np.savez(out, **found)


# ---- PyTorch's ----

def make_model(kind, folder):
    import make_golden
    import torch
    import transformers
    sizes = dict(vocab_size=VOCAB, hidden_size=32, intermediate_size=48, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2,
                 max_position_embeddings=64, tie_word_embeddings=False)
    torch.manual_seed(4)
    config, model = ((transformers.MixtralConfig(num_local_experts=4, **sizes), transformers.MixtralForCausalLM) if kind == "mixtral" else
                     (transformers.LlamaConfig(**sizes), transformers.LlamaForCausalLM))
    model(config).save_pretrained(folder)
    return make_golden.load(pathlib.Path(folder), torch.float64, LENGTH)  # without the roundings to fp32 that are inside


def expected(model):
    import torch
    rows, advantages, old, teacher = ({k: torch.tensor(v) for k, v in x.items()} if isinstance(x, dict) else torch.tensor(x)
                                      for x in make_rows())
    used, found = rows["labels"] >= 0, {}
    for kind in ("weights", "ratio", "logits"):
        logits = torch.stack([torch.cat([model(ids[documents == d][None]).logits[0] for d in documents.unique()])
                              for ids, documents in zip(rows["ids"], rows["documents"])])
        logp_all, lse = logits.log_softmax(-1), logits.logsumexp(-1)
        logp = logp_all.gather(-1, rows["labels"].clamp(min=0)[..., None])[..., 0]
        ratio = (logp - old).exp()
        loss = {"weights": lambda: -(rows["weights"] * logp)[used].sum() / DIVISOR,
                "ratio": lambda: -torch.minimum(ratio * advantages, ratio.clamp(1 - CLIP, 1 + CLIP) * advantages)[used].sum() / DIVISOR,
                "logits": lambda: (rows["weights"] * (
                    -(1 - SMOOTH) * logp - SMOOTH * logp_all.mean(-1) - (teacher * logp_all).sum(-1) + Z * lse ** 2))[used].sum() / DIVISOR}
        loss = loss[kind]()
        model.zero_grad()
        loss.backward()
        found.update({f"{kind} {name}": p.grad.numpy().ravel() for name, p in model.named_parameters()}, **{f"{kind} loss": loss.item()})
    return found


# ---- both ----

def compare(ours, theirs, bound):
    """The largest distance of a gradient, of its norm, and how many were compared."""
    worst, n = 0, 0
    for name in ours.files:
        x, y = ours[name], theirs.get(name)
        if y is not None:  # experts that transformers keeps as stacks are compared in their sum, through what is before them
            n += 1
            worst = max(worst, float(np.linalg.norm(x - y) / max(np.linalg.norm(y), 1e-30)))
    return worst, n


def main():
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        kinds = {kind: f"{folder}/{kind}" for kind in dict(LAYOUTS)}
        theirs = {kind: expected(make_model(kind, path)) for kind, path in kinds.items()}
        for kind, layout in LAYOUTS:
            name = f"{kind} {' '.join(f'{axis} {n}' for axis, n in layout.items()) or 'one rank'}"
            if not all(word in name for word in sys.argv[1:]):
                continue
            axes = {f"parallelism.{axis}_size": n for axis, n in layout.items() if axis != "schedule"}
            ranks = int(np.prod([n for axis, n in layout.items() if axis != "schedule"]))
            for precision, bound in BOUNDS.items():
                settings = {**BASE, **axes, "model.path": kinds[kind], "pipeline.schedule": layout.get("schedule", "1f1b"),
                            "precision.compute": precision, "train.device": "ref" if precision == "fp64" else "cpu"}
                out = pathlib.Path(folder, "found.npz")
                subprocess.run([sys.executable, "-m", "ndparallel", "launch", "-n", str(ranks), __file__, "rank", json.dumps(settings), out],
                               check=True)
                with np.load(out) as ours:
                    worst, n = compare(ours, theirs[kind], bound)
                failed += not worst <= bound or n < 30
                print(f"{name}, {precision}: {n} gradients and losses, off by at most {worst:.1e} (bound {bound:.0e})", flush=True)
    sys.exit(failed)


if sys.argv[1:2] == ["rank"]:
    run_rank(*sys.argv[2:])
else:
    main()
