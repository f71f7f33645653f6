"""Makes the reference values of the losses of routers (router.safetensors of the mixtures of tests/golden), in fp64.

    python make_router.py [NAME ...]

The losses are by the formulas of DeepSeek-V3 (arXiv:2412.19437, equations 17 to 20) and of ST-MoE (arXiv:2202.08906), of the
logits and choices of transformers' routers; its own balance loss multiplies means over all layers, and is another one.
"""

import sys
import types

import safetensors.torch
import torch

import make_golden
from make_golden import HERE, hub_tensors, is_mixture, load

BALANCE, Z = 0.5, 0.05  # large beside the loss of tokens, so that what is missing tells


def router_that_tells(forward, seen):
    def run(self, x):
        logits, values, choices = forward(x)
        seen.append((logits, choices))
        return logits, values, choices

    return run


def watched(folder, length):
    """The model in fp64; a list that each forward fills with logits and choices, by layer."""
    model, seen = load(folder, torch.float64, length), []
    for module in model.modules():
        if type(module).__name__.endswith("TopKRouter"):
            module.forward = types.MethodType(router_that_tells(module.forward, seen), module)
    return model, seen


def router_losses(seen, samples):
    """Balance and z, each the sum over layers of a mean over rows; samples are equally long."""
    balance = z = 0
    for logits, choices in seen:
        experts, k = logits.shape[-1], choices.shape[-1]
        p = logits.softmax(dim=-1).unflatten(0, (samples, -1))
        chosen = torch.nn.functional.one_hot(choices, experts).sum(dim=1).unflatten(0, (samples, -1)).double()
        f = experts / (k * p.shape[1]) * chosen.sum(dim=1)
        balance = balance + (f * p.mean(dim=1)).sum(dim=-1).mean()
        z = z + logits.logsumexp(dim=-1).pow(2).mean()
    return balance, z


def losses_of(model, seen, ids, labels):
    seen.clear()
    tokens, _ = make_golden.loss_of(model, ids, labels)
    return tokens, *router_losses(seen, ids.shape[0]), len(seen)


def all_losses(model, seen, ids, labels):
    tokens, balance, z, _ = losses_of(model, seen, ids, labels)
    return tokens + BALANCE * balance + Z * z


def train(model, seen, ids, labels):
    """make_golden.train with the losses of routers; what each update reports, and the first gradient."""
    parameters = list(model.parameters())
    groups = [{"params": [p for p in parameters if p.ndim >= 2], "weight_decay": make_golden.WEIGHT_DECAY},
              {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=make_golden.LR, betas=make_golden.BETAS, eps=make_golden.EPS, foreach=False)
    rows, first = [], {}
    for batch, targets in zip(ids, labels):
        optimizer.zero_grad()
        tokens, balance, z, layers = losses_of(model, seen, batch, targets)
        (tokens + BALANCE * balance + Z * z).backward()
        first = first or {name: g.clone() for name, g in
                          hub_tensors(model, [(name, p.grad) for name, p in model.named_parameters()]).items()}
        rows.append((tokens.item(), balance.item() / layers, z.item() / layers, make_golden.clip(parameters)))
        optimizer.step()
    return rows, first


def make(name):
    folder = HERE / name
    expected = safetensors.torch.load_file(folder / "expected.safetensors")
    ids, labels = expected["input_ids"], expected["labels"]
    make_golden.GAPS.clear()
    model, seen = watched(folder, ids.shape[-1])
    all_losses(model, seen, ids[0], labels[0]).backward()
    make_golden.check_gradient(model, lambda: all_losses(model, seen, ids[0], labels[0]), torch.Generator().manual_seed(5))
    make_golden.GAPS.clear()
    model, seen = watched(folder, ids.shape[-1])
    rows, first = train(model, seen, ids, labels)
    columns = dict(zip(("losses", "balance", "z", "grad_norms"), torch.tensor(rows, dtype=torch.float64).T.contiguous()))
    tensors = {f"grad.{n}": g.float() for n, g in first.items()} | {n: c.clone() for n, c in columns.items()}
    tensors |= {"coefficients": torch.tensor([BALANCE, Z], dtype=torch.float64)}
    safetensors.torch.save_file(tensors, folder / "router.safetensors")
    print(name, "least gap of choices", min(make_golden.GAPS), "first", rows[0], "last", rows[-1])


if __name__ == "__main__":
    for each in sys.argv[1:] or [n for n, spec in make_golden.MODELS.items() if is_mixture(spec["config"])]:
        make(each)
