"""Makes reward/: a reward model's losses of preference/'s pairs in fp64, by TRL's formulas, and what TRL's RewardTrainer logs
for the same pairs in fp32. README.md says what is in the files.

    python make_reward.py        # after make_preference.py
"""

import json
import tempfile

import safetensors.torch
import torch
import torch.nn.functional as F
import transformers
import trl

import make_golden
from make_golden import BETAS, EPS, LR, MAX_GRAD_NORM, UPDATES, WEIGHT_DECAY, clip
from make_preference import FOLDER as CAUSAL
from make_preference import HERE, LENGTH, PAIRS, batches, in_order, make_tokenizer, texts_of

FOLDER = HERE / "reward"
CASES = {"reward": dict(loss="reward"), "reward-center": dict(loss="reward", center=0.3)}


def write_model():
    """preference/'s weights without their head, and a score."""
    model = transformers.AutoModelForSequenceClassification.from_pretrained(CAUSAL, num_labels=1, dtype=torch.float32)
    model.score.weight.data = 0.3 * torch.randn(model.score.weight.shape, generator=torch.Generator().manual_seed(31))
    model.config.pad_token_id = 0  # no text has it
    model.save_pretrained(FOLDER)


class Model(torch.nn.Module):
    """What ...ForSequenceClassification computes, in fp64 throughout; named as its parameters are."""

    def __init__(self):
        super().__init__()
        weights = safetensors.torch.load_file(FOLDER / "model.safetensors")
        self.model = make_golden.load(CAUSAL, torch.float64, LENGTH).model
        self.score = torch.nn.Linear(self.model.config.hidden_size, 1, bias=False, dtype=torch.float64)
        self.score.weight.data = weights["score.weight"].double()

    def forward(self, ids):
        return self.score(self.model(input_ids=torch.tensor(ids)[None], use_cache=False).last_hidden_state[0, -1])[0]


def batch_loss(case, model, pairs):
    chosen, rejected = (torch.stack([model(p["prompt"] + p[which]) for p in pairs]) for which in ("chosen", "rejected"))
    loss = -F.logsigmoid(chosen - rejected).mean() + case.get("center", 0.0) * ((chosen + rejected) ** 2).mean()
    means = {"chosen": chosen.mean().item(), "rejected": rejected.mean().item()}
    return loss, {f"{of}/{which}": x for of in ("rewards", "logps") for which, x in means.items()} | {
        "rewards/accuracies": (chosen > rejected).double().mean().item(),
        "rewards/margins": (chosen - rejected).mean().item()}


def train_fp64(case, pairs):
    """What is logged of each update, and the gradients of the first."""
    model = Model()
    parameters = list(model.parameters())
    groups = [{"params": [p for p in parameters if p.ndim >= 2], "weight_decay": WEIGHT_DECAY},
              {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=LR, betas=BETAS, eps=EPS, foreach=False)
    logged, gradients = [], {}
    for u, batch in enumerate(batches(pairs)):
        optimizer.zero_grad()
        loss, more = batch_loss(case, model, batch)
        loss.backward()
        if u == 0:
            gradients = {name: p.grad.clone() for name, p in model.named_parameters()}
        logged.append({"loss": loss.item(), "grad_norm": clip(parameters)} | more)
        optimizer.step()
    return logged, gradients


def train_trl(case, pairs, where):
    args = trl.RewardConfig(
        output_dir=where, per_device_train_batch_size=PAIRS, max_steps=UPDATES, logging_steps=1, learning_rate=LR,
        lr_scheduler_type="constant", adam_beta1=BETAS[0], adam_beta2=BETAS[1], adam_epsilon=EPS, weight_decay=WEIGHT_DECAY,
        max_grad_norm=MAX_GRAD_NORM, optim="adamw_torch", use_cpu=True, bf16=False, gradient_checkpointing=False, report_to=[],
        save_strategy="no", max_length=LENGTH + 8, disable_tqdm=True, dataloader_pin_memory=False,
        center_rewards_coefficient=case.get("center"))
    model = transformers.AutoModelForSequenceClassification.from_pretrained(FOLDER, dtype=torch.float32)
    run = in_order(trl.RewardTrainer)(model=model, args=args, train_dataset=texts_of(pairs), processing_class=make_tokenizer())
    run.train()
    names = {"loss": "loss", "accuracy": "rewards/accuracies", "margin": "rewards/margins"}
    return [{ours: entry[name] for name, ours in names.items()} for entry in run.state.log_history if "loss" in entry]


def main():
    write_model()
    document = json.loads((CAUSAL / "cases.json").read_text())
    pairs, gradients = document["pairs"], {}
    document |= {"references": [[0.0, 0.0]] * len(pairs), "trl": trl.__version__, "cases": {}}
    for name, case in CASES.items():
        logged, of = train_fp64(case, pairs)
        gradients |= {f"{name}.{parameter}": g for parameter, g in of.items()}
        with tempfile.TemporaryDirectory() as where:
            theirs = train_trl(case, pairs, where)
        assert len(theirs) == UPDATES, (name, len(theirs))
        off = max(abs(ours[key] - value) for ours, their in zip(logged, theirs) for key, value in their.items())
        print(f"{name}: TRL's numbers are within {off:.2g} of the formulas in fp64")
        document["cases"][name] = case | {"updates": logged, "trl": theirs}
    (FOLDER / "cases.json").write_text(json.dumps(document) + "\n")
    safetensors.torch.save_file(gradients, FOLDER / "gradients.safetensors")


if __name__ == "__main__":
    main()
