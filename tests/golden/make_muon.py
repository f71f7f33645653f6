"""Makes muon.json: what Muon computes in fp64, of matrices by themselves and of some models of this folder. README.md says
what is in the file.

    python make_muon.py

Before it writes, it compares the formulas with torch.optim.Muon, which iterates in bf16.
"""

import json
import math
import pathlib

import safetensors.torch
import torch

import make_golden

HERE = pathlib.Path(__file__).parent
A, B, C, STEPS, EPS = 3.4445, -4.7750, 2.0315, 5, 1e-7
LR, WEIGHT_DECAY, MOMENTUM = 0.02, 0.1, 0.95
SHAPES = [(9, 4), (5, 13), (6, 6), (1, 7)]
MODELS = ["gqa-bias", "phi3", "gpt2", "stablelm-parallel"]
UPDATES, MODEL_LR = 5, 1e-3


def newton_schulz(u):
    x = u.T if u.shape[0] > u.shape[1] else u
    x = x / max(x.norm().item(), EPS)
    for _ in range(STEPS):
        gram = x @ x.T
        x = A * x + (B * gram + C * gram @ gram) @ x
    return x.T if u.shape[0] > u.shape[1] else x


def update(w, g, m, lr):
    """One step of a whole matrix; changes w and m."""
    m.lerp_(g, 1 - MOMENTUM)
    o = newton_schulz(torch.lerp(g, m, MOMENTUM))
    w.mul_(1 - lr * WEIGHT_DECAY).sub_(lr * 0.2 * math.sqrt(max(w.shape)) * o)


def matrix_case(rows, columns, generator):
    def draw(scale):
        return scale * torch.randn(rows, columns, generator=generator, dtype=torch.float64)

    w, m, gradients = draw(0.5), torch.zeros(rows, columns, dtype=torch.float64), [draw(0.1) for _ in range(3)]
    theirs = torch.nn.Parameter(w.clone())
    optimizer = torch.optim.Muon([theirs], lr=LR, weight_decay=WEIGHT_DECAY, momentum=MOMENTUM,
                                 adjust_lr_fn="match_rms_adamw")
    case = {"rows": rows, "columns": columns, "weights": w.flatten().tolist(),
            "gradients": [g.flatten().tolist() for g in gradients], "after": []}
    for g in gradients:
        update(w, g, m, LR)
        theirs.grad = g.clone()
        optimizer.step()
        case["after"].append(w.flatten().tolist())
    moved = (w - torch.tensor(case["weights"]).view(rows, columns)).norm()
    assert (theirs - w).norm() < 0.05 * moved, (rows, columns, (theirs - w).norm() / moved)
    case["momentum"] = m.flatten().tolist()
    return case


# Of each step of microsoft/dion's Muon.
POLYNOMIALS = [(4.0848, -6.8946, 2.9270), (3.9505, -6.3029, 2.6377), (3.7418, -5.5913, 2.3037), (2.8769, -3.1427, 1.2046),
               (2.8366, -3.0525, 1.2012)]


def spectral_case(rows, columns, generator):
    """The Muon of microsoft/dion with momentum m = b m + g; here (1 - b) m, of which it makes the same."""
    def draw(scale):
        return scale * torch.randn(rows, columns, generator=generator, dtype=torch.float64)

    w, m, gradients = draw(0.5), torch.zeros(rows, columns, dtype=torch.float64), [draw(0.1) for _ in range(3)]
    case = {"rows": rows, "columns": columns, "weights": w.flatten().tolist(),
            "gradients": [g.flatten().tolist() for g in gradients], "after": []}
    for g in gradients:
        m.mul_(MOMENTUM).add_(g)
        x = m.T if rows > columns else m
        x = x / x.norm()
        for a, b, c in POLYNOMIALS:
            gram = x @ x.T
            x = a * x + (b * gram + c * gram @ gram) @ x
        check_dion(m, x.T if rows > columns else x)
        w.mul_(1 - LR * WEIGHT_DECAY).sub_(LR * math.sqrt(rows / columns) * (x.T if rows > columns else x))
        case["after"].append(w.flatten().tolist())
    case["momentum"] = ((1 - MOMENTUM) * m).flatten().tolist()
    return case


def check_dion(m, x):
    """Where Axolotl is installed: its iteration, in bf16."""
    try:
        from axolotl.contribs.mit.muon import dist_muon
    except ImportError:
        return
    theirs = dist_muon.zeropower_via_newtonschulz5._torchdynamo_orig_callable(m.clone(), epsilon=1e-8).double()
    assert (theirs - x).norm() < 0.1 * x.norm(), (theirs - x).norm() / x.norm()


def projections(model, name, p):
    """The parts of a parameter that are matrices of their own; none: AdamW updates it."""
    config = model.config
    if p.ndim != 2 or (".layers." not in name and ".h." not in name):
        return []
    if name.endswith("c_attn.weight"):
        return list(p.split(config.n_embd, dim=1))
    if name.endswith("qkv_proj.weight"):
        head = config.hidden_size // config.num_attention_heads
        kv = config.num_key_value_heads * head
        return list(p.split([config.num_attention_heads * head, kv, kv], dim=0))
    return list(p.chunk(2)) if name.endswith("gate_up_proj.weight") else [p]


def train(model, ids, labels):
    parameters = dict(model.named_parameters())
    whole = {n for n, p in parameters.items() if projections(model, n, p)}
    rest = [p for n, p in parameters.items() if n not in whole]
    groups = [{"params": [p for p in rest if p.ndim >= 2], "weight_decay": WEIGHT_DECAY},
              {"params": [p for p in rest if p.ndim < 2], "weight_decay": 0.0}]
    adamw = torch.optim.AdamW(groups, lr=MODEL_LR, betas=make_golden.BETAS, eps=make_golden.EPS, foreach=False)
    momentum = {n: torch.zeros_like(parameters[n]) for n in whole}
    losses, norms = [], []
    for batch, targets in zip(ids, labels):
        model.zero_grad()
        loss, _ = make_golden.loss_of(model, batch, targets)
        loss.backward()
        losses.append(loss.item())
        norms.append(make_golden.clip(list(parameters.values())))
        adamw.step()
        with torch.no_grad():
            for n in whole:
                p = parameters[n]
                parts = [projections(model, n, t) for t in (p, p.grad, momentum[n])]
                for w, g, m in zip(*parts):
                    update(w, g, m, MODEL_LR)
    return {"losses": losses, "grad_norms": norms}


def model_case(name):
    expected = safetensors.torch.load_file(HERE / name / "expected.safetensors")
    ids, labels = expected["input_ids"][:UPDATES], expected["labels"][:UPDATES]
    return train(make_golden.load(HERE / name, torch.float64, ids.shape[-1]), ids, labels)


def main():
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(12)
    made = {"lr": LR, "weight_decay": WEIGHT_DECAY, "momentum": MOMENTUM,
            "matrices": [matrix_case(r, c, generator) for r, c in SHAPES],
            "spectral": [spectral_case(r, c, torch.Generator().manual_seed(13)) for r, c in SHAPES],
            "models": {name: model_case(name) for name in MODELS}}
    (HERE / "muon.json").write_text(json.dumps(made) + "\n")
    print({name: made["models"][name]["losses"] for name in MODELS})


if __name__ == "__main__":
    main()
