"""Makes preference/: what losses of preference data are in fp64, by TRL's formulas, and what TRL itself logs for the same
pairs. README.md says what is in the files.

    python make_preference.py        # with trl besides requirements.txt

TRL's own log-probabilities are fp32.
"""

import json
import math
import pathlib
import tempfile

import datasets
import safetensors.torch
import tokenizers
import torch
import torch.nn.functional as F
import transformers
import trl
from trl.experimental.cpo import CPOConfig, CPOTrainer
from trl.experimental.orpo import ORPOConfig, ORPOTrainer

import make_golden
from make_golden import BETAS, EPS, LR, MAX_GRAD_NORM, UPDATES, WEIGHT_DECAY, clip

HERE = pathlib.Path(__file__).parent
FOLDER = HERE / "preference"
PAIRS, LENGTH, EOS = 4, 24, 2
CONFIG = make_golden.COMMON | {
    "vocab_size": 61, "hidden_size": 16, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 8,
    "intermediate_size": 24, "num_hidden_layers": 2, "rms_norm_eps": 1e-5, "attention_bias": False, "mlp_bias": False,
    "tie_word_embeddings": False, "max_position_embeddings": 64, "rope_theta": 1000.0, "rope_scaling": None,
    "bos_token_id": None, "eos_token_id": EOS}
CASES = {
    "dpo-sigmoid": dict(loss="dpo", variant="sigmoid", beta=0.1),
    "dpo-hinge": dict(loss="dpo", variant="hinge", beta=0.7),
    "dpo-ipo": dict(loss="dpo", variant="ipo", beta=0.3),
    "dpo-robust": dict(loss="dpo", variant="robust", beta=0.2, label_smoothing=0.1),
    "dpo-apo-zero": dict(loss="dpo", variant="apo_zero", beta=0.4),
    "dpo-sft": dict(loss="dpo", variant="sigmoid", beta=0.1, sft_weight=0.6),
    "orpo": dict(loss="orpo", beta=0.4),
    "simpo": dict(loss="simpo", beta=2.0, gamma=0.7),
    "simpo-sft": dict(loss="simpo", beta=2.5, gamma=0.5, label_smoothing=0.05, sft_weight=0.8),
}


def make_pairs(generator):
    """Answers of unequal length; each ends with the end token. Chosen ones follow a rule more often, so that there is
    something to prefer."""
    def draw(n):
        return torch.randint(3, CONFIG["vocab_size"], (n,), generator=generator).tolist()

    pairs = []
    for _ in range(UPDATES * PAIRS):
        n = torch.randint(1, 7, (1,), generator=generator).item()
        prompt, answers = draw(n), []
        for odds in (0.8, 0.3):
            length = torch.randint(1, LENGTH - n, (1,), generator=generator).item()
            answer, last = draw(length), prompt[-1]
            for i in range(length):
                if torch.rand(1, generator=generator).item() < odds:
                    answer[i] = 3 + (5 * last + 1) % (CONFIG["vocab_size"] - 3)
                last = answer[i]
            answers.append(answer + [EOS])
        if answers[0] == answers[1]:
            answers[1] = [3] + answers[1]
        pairs.append({"prompt": prompt, "chosen": answers[0], "rejected": answers[1]})
    return pairs


def log_probabilities(model, document):
    """Of each token after the first."""
    ids = torch.tensor(document)[None]
    logits = model(input_ids=ids, use_cache=False).logits[0, :-1]
    return torch.log_softmax(logits, -1).gather(-1, ids[0, 1:, None])[:, 0]


def answers_of(model, pair):
    """The log-probabilities of the answers' tokens, and of the whole chosen document."""
    n = len(pair["prompt"])
    whole = [log_probabilities(model, pair["prompt"] + pair[which]) for which in ("chosen", "rejected")]
    return [w[n - 1:] for w in whole], whole[0]


def log1mexp(x):
    return torch.where(x < -math.log(2), torch.log1p(-torch.exp(x)), torch.log(-torch.expm1(x)))


def batch_loss(case, model, pairs, references):
    """TRL's formulas. The loss, and what is logged."""
    beta, e = case["beta"], case.get("label_smoothing", 0.0)
    chosen, rejected, nll, losses, rewards, logps = [], [], [], [], [], []
    for pair, reference in zip(pairs, references):
        (c, r), whole = answers_of(model, pair)
        nll.append(-(whole if case["loss"] == "orpo" else c))
        if case["loss"] == "dpo":
            ratios = c.sum() - reference[0], r.sum() - reference[1]
            delta = ratios[0] - ratios[1]
            if case["variant"] == "sigmoid":
                loss = -F.logsigmoid(beta * delta)
            elif case["variant"] == "hinge":
                loss = torch.relu(1 - beta * delta)
            elif case["variant"] == "ipo":
                loss = (ratios[0] / len(c) - ratios[1] / len(r) - 1 / (2 * beta)) ** 2
            elif case["variant"] == "apo_zero":
                loss = 1 - torch.sigmoid(beta * ratios[0]) + torch.sigmoid(beta * ratios[1])
            else:
                loss = (-(1 - e) * F.logsigmoid(beta * delta) + e * F.logsigmoid(-beta * delta)) / (1 - 2 * e)
            logps.append((c.sum(), r.sum()))
        else:
            ratios = c.mean(), r.mean()
            logps.append(ratios)
            if case["loss"] == "orpo":
                odds = ratios[0] - ratios[1] - (log1mexp(ratios[0]) - log1mexp(ratios[1]))
                loss = -beta * F.logsigmoid(odds)
            else:
                x = beta * (ratios[0] - ratios[1] - case["gamma"] / beta)
                loss = -F.logsigmoid(x) * (1 - e) - F.logsigmoid(-x) * e
        losses.append(loss)
        rewards.append((beta * ratios[0], beta * ratios[1]))
    loss = torch.stack(losses).mean() + case.get("sft_weight", float(case["loss"] == "orpo")) * torch.cat(nll).mean()
    chosen, rejected = (torch.stack([r[k] for r in rewards]) for k in (0, 1))
    logged = {"rewards/chosen": chosen.mean(), "rewards/rejected": rejected.mean(),
              "rewards/accuracies": (chosen > rejected).double().mean(), "rewards/margins": (chosen - rejected).mean(),
              "logps/chosen": torch.stack([l[0] for l in logps]).mean(),
              "logps/rejected": torch.stack([l[1] for l in logps]).mean()}
    return loss, {name: value.item() for name, value in logged.items()}


def batches(pairs):
    return [pairs[u * PAIRS:(u + 1) * PAIRS] for u in range(UPDATES)]


def references_of(pairs):
    model = make_golden.load(FOLDER, torch.float64, LENGTH)
    with torch.no_grad():
        return [[a.sum().item() for a in answers_of(model, pair)[0]] for pair in pairs]


def train_fp64(case, pairs, references):
    """What is logged of each update, and the gradients of the first."""
    model = make_golden.load(FOLDER, torch.float64, LENGTH)
    parameters = list(model.parameters())
    groups = [{"params": [p for p in parameters if p.ndim >= 2], "weight_decay": WEIGHT_DECAY},
              {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=LR, betas=BETAS, eps=EPS, foreach=False)
    logged, gradients = [], {}
    for u, (batch, of) in enumerate(zip(batches(pairs), batches(references))):
        optimizer.zero_grad()
        loss, more = batch_loss(case, model, batch, of)
        loss.backward()
        if u == 0:
            gradients = {name: p.grad.clone() for name, p in model.named_parameters()}
        norm = clip(parameters)
        logged.append({"loss": loss.item(), "grad_norm": norm} | more)
        optimizer.step()
    return logged, gradients


# ---- TRL ----


def make_tokenizer():
    """Word i is "wi"; its end token has a name of its own."""
    vocabulary = {f"w{i}": i for i in range(CONFIG["vocab_size"]) if i != EOS} | {"</s>": EOS}
    t = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="w0"))
    t.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    return transformers.PreTrainedTokenizerFast(tokenizer_object=t, eos_token="</s>", pad_token="w0", unk_token="w0")


def texts_of(pairs):
    def text(ids):
        return "".join(f" w{i}" for i in ids)

    return datasets.Dataset.from_list([{"prompt": text(p["prompt"]), "chosen": text(p["chosen"][:-1]),
                                        "rejected": text(p["rejected"][:-1])} for p in pairs])


def in_order(trainer_class):
    class InOrder(trainer_class):
        def _get_train_sampler(self, *_):
            return torch.utils.data.SequentialSampler(self.train_dataset)

    return InOrder


def train_trl(case, pairs, where):
    common = dict(output_dir=where, per_device_train_batch_size=PAIRS, max_steps=UPDATES, logging_steps=1, learning_rate=LR,
                  lr_scheduler_type="constant", adam_beta1=BETAS[0], adam_beta2=BETAS[1], adam_epsilon=EPS,
                  weight_decay=WEIGHT_DECAY, max_grad_norm=MAX_GRAD_NORM, optim="adamw_torch", use_cpu=True, bf16=False,
                  gradient_checkpointing=False, report_to=[], save_strategy="no", max_length=LENGTH + 8,
                  beta=case["beta"], disable_tqdm=True, dataloader_pin_memory=False)
    if case["loss"] == "dpo":
        types = [case["variant"]] + (["sft"] if "sft_weight" in case else [])
        weights = [1.0, case["sft_weight"]] if "sft_weight" in case else None
        args = trl.DPOConfig(**common, loss_type=types, loss_weights=weights,
                             label_smoothing=case.get("label_smoothing", 0.0), precompute_ref_log_probs=True)
        trainer = in_order(trl.DPOTrainer)
    elif case["loss"] == "orpo":
        args, trainer = ORPOConfig(**common), in_order(ORPOTrainer)
    else:
        args = CPOConfig(**common, loss_type="simpo", simpo_gamma=case["gamma"], cpo_alpha=case.get("sft_weight", 0.0),
                         label_smoothing=case.get("label_smoothing", 0.0))
        trainer = in_order(CPOTrainer)
    model = transformers.AutoModelForCausalLM.from_pretrained(FOLDER, dtype=torch.float32)
    run = trainer(model=model, args=args, train_dataset=texts_of(pairs), processing_class=make_tokenizer())
    run.train()
    names = ["loss", "rewards/chosen", "rewards/rejected", "rewards/accuracies", "rewards/margins", "logps/chosen",
             "logps/rejected"]
    return [{name: entry[name] for name in names} for entry in run.state.log_history if "loss" in entry]


def main():
    generator = torch.Generator().manual_seed(29)
    make_golden.write_model(FOLDER, {"config": CONFIG, "storage": torch.float32}, generator)
    pairs = make_pairs(generator)
    references = references_of(pairs)
    document, gradients = {"length": LENGTH, "pairs_of_an_update": PAIRS, "pairs": pairs, "references": references,
                           "trl": trl.__version__, "cases": {}}, {}
    for name, case in CASES.items():
        logged, of = train_fp64(case, pairs, references)
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
