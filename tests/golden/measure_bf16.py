"""How far bf16 runs of transformers are from its fp64 run: what a bf16 run of ours is measured by.

    python measure_bf16.py STORIES260K_FOLDER [NAME ...]

With names only those models are measured; the manifest keeps what it says of the others.

One run says little: how much of its rounding errors meets depends on the batch, by a factor of 2 to 3. So of every model
the batches of updates 0 to 5, at the weights of update 0, through both of its attentions (SDPA and eager), and of all these runs the
largest error: of the logits (of logits_rows) and of all gradients together, as parts of their norms; of the tokens' nll,
as the root of its mean square in nats. Writes them into manifest.json.

In a mixture of experts a row may go to another expert than in fp64, where two are within rounding: its gradient is then another
one, and no rounding. Such runs are counted and left out. In that of update 0, which the tests compare, no choice is near another
(make_golden.py).
"""

import json
import pathlib
import sys

import safetensors.torch
import torch
import transformers

from make_golden import HERE, MODELS, eager_experts, load

BATCHES = 6


def watch_choices(model):
    """A list that gets the experts of every row, in order of their numbers."""
    seen = []
    for module in model.modules():
        if type(module).__name__.lower().endswith("topkrouter"):
            module.register_forward_hook(lambda module, ins, outs: seen.append(outs[2].sort(dim=-1).values))
    return seen


def run(model, seen, ids, labels):
    """Logits, nll of the tokens, gradients, choices."""
    model.zero_grad()
    seen.clear()
    logits = model(input_ids=ids.long(), use_cache=False).logits.flatten(0, 1)
    wide = logits if logits.dtype == torch.float64 else logits.float()
    nll = torch.nn.functional.cross_entropy(wide, labels.flatten().long(), ignore_index=-1, reduction="none")
    (nll.sum() / (labels >= 0).sum()).backward()
    return logits.detach(), nll.detach(), [p.grad.double() for p in model.parameters()], list(seen)


def distance(pairs):
    """|a - b| / |b| of all pairs together."""
    apart, norm = 0.0, 0.0
    for a, b in pairs:
        apart += (a.double() - b).pow(2).sum().item()
        norm += b.pow(2).sum().item()
    return (apart / norm) ** 0.5


def measure(name, folder):
    expected = safetensors.torch.load_file(HERE / name / "expected.safetensors")
    ids, labels, rows = expected["input_ids"][:BATCHES], expected["labels"][:BATCHES], expected["logits_rows"].long()
    exact = load(folder, torch.float64, ids.shape[-1])
    seen = watch_choices(exact)
    wanted = [run(exact, seen, *batch) for batch in zip(ids, labels)]
    valid = [(l >= 0).sum() for l in labels]
    assert abs(wanted[0][1].sum() / valid[0] / expected["loss"][0] - 1) < 1e-12
    worst, elsewhere = {"logits": 0.0, "token_nll": 0.0, "gradient": 0.0}, []
    config = transformers.AutoConfig.from_pretrained(folder)
    own = config.model_type in ("gemma2", "gpt_oss")  # caps and sinks are not built in SDPA
    for attention in ["eager"] if own else ["eager", "sdpa"]:
        model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16,
                                                                  attn_implementation=attention,
                                                                  **eager_experts(config)).train()
        seen = watch_choices(model)
        for i, (batch, want, n) in enumerate(zip(zip(ids, labels), wanted, valid)):
            logits, nll, gradients, choices = run(model, seen, *batch)
            elsewhere.append(sum((a != b).any(dim=-1).sum().item() for a, b in zip(choices, want[3])))
            if elsewhere[-1]:
                assert i > 0, f"{name}: choices of update 0 are within rounding"
                continue
            found = {"logits": distance([(logits[rows], want[0][rows])]),
                     "token_nll": ((nll - want[1]).pow(2).sum() / n).sqrt().item(),
                     "gradient": distance(zip(gradients, want[2]))}
            worst = {key: max(worst[key], found[key]) for key in worst}
    if not seen:
        return worst
    rows = len(elsewhere) * sum(len(layer) for layer in seen)
    return worst | {"runs_left_out": sum(n > 0 for n in elsewhere), "rows_elsewhere": sum(elsewhere) / rows}


def main(stories_folder, names):
    torch.set_num_threads(1)
    manifest = json.loads((HERE / "manifest.json").read_text())
    found = {name: measure(name, HERE / name if name in MODELS else stories_folder) for name in names or manifest["models"]}
    manifest["bf16_torch_off_by"] = manifest["bf16_torch_off_by"] | found if names else found
    (HERE / "manifest.json").write_text(json.dumps(manifest, indent=2) + "\n")
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), sys.argv[2:])
