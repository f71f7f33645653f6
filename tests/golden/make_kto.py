"""Makes kto/: a job of single answers, and what TRL's KTOTrainer logs for it, where an update is one micro-batch of one
process. README.md says what is in the files.

    python make_kto.py        # with trl besides requirements.txt

Texts are bytes, as for ndparallel's tokenizer `bytes`; TRL computes in fp32.
"""

import json
import pathlib
import tempfile

import datasets
import tokenizers
import torch
import transformers
import trl

import make_golden
from make_golden import BETAS, EPS, LR, MAX_GRAD_NORM, WEIGHT_DECAY

HERE = pathlib.Path(__file__).parent
FOLDER = HERE / "kto"
UPDATES, ANSWERS, LENGTH, BOS, EOS = 6, 8, 40, 256, 257
CONFIG = make_golden.COMMON | {
    "vocab_size": 258, "hidden_size": 16, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 8,
    "intermediate_size": 24, "num_hidden_layers": 2, "rms_norm_eps": 1e-5, "attention_bias": False, "mlp_bias": False,
    "tie_word_embeddings": False, "max_position_embeddings": 64, "rope_theta": 1000.0, "rope_scaling": None,
    "bos_token_id": None, "eos_token_id": EOS}
# How many answers are wanted decides whether the estimate of the KL divergence is above 0.
CASES = {
    "wanted": dict(beta=0.1, share=0.9),
    "mixed": dict(beta=0.3, share=0.5, desirable_weight=0.8, undesirable_weight=1.4),
    "unwanted": dict(beta=0.1, share=0.1),
    "apo-zero": dict(beta=0.2, share=0.6, desirable_weight=1.3, loss_type="apo_zero_unpaired"),
}


def make_records(generator, share):
    """Some prompts and answers are longer together than a row, some only beside another prompt."""
    def draw(least, most):
        n = torch.randint(least, most + 1, (1,), generator=generator).item()
        return "".join(chr(97 + i) for i in torch.randint(0, 12, (n,), generator=generator).tolist())

    return [{"prompt": draw(1, 20), "completion": " " + draw(1, 26),
             "label": torch.rand(1, generator=generator).item() < share} for _ in range(UPDATES * ANSWERS)]


def make_tokenizer():
    """Ids of ASCII characters are their codes; a text begins with 256."""
    vocabulary = {chr(i): i for i in range(128)} | {f"<{i}>": i for i in range(128, EOS)} | {"</s>": EOS}
    t = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="<128>"))
    t.pre_tokenizer = tokenizers.pre_tokenizers.Split(tokenizers.Regex("."), behavior="isolated")
    t.post_processor = tokenizers.processors.TemplateProcessing(single="<256> $A", special_tokens=[("<256>", BOS)])
    return transformers.PreTrainedTokenizerFast(tokenizer_object=t, eos_token="</s>", pad_token="<128>", unk_token="<128>")


def train(case, records):
    with tempfile.TemporaryDirectory() as where:
        args = trl.KTOConfig(
            output_dir=where, per_device_train_batch_size=ANSWERS, max_steps=UPDATES, logging_steps=1, learning_rate=LR,
            lr_scheduler_type="constant", adam_beta1=BETAS[0], adam_beta2=BETAS[1], adam_epsilon=EPS,
            weight_decay=WEIGHT_DECAY, max_grad_norm=MAX_GRAD_NORM, optim="adamw_torch", use_cpu=True, bf16=False,
            gradient_checkpointing=False, report_to=[], save_strategy="no", max_length=LENGTH, beta=case["beta"],
            loss_type=case.get("loss_type", "kto"),
            desirable_weight=case.get("desirable_weight", 1.0), undesirable_weight=case.get("undesirable_weight", 1.0),
            disable_tqdm=True, dataloader_pin_memory=False)
        model = transformers.AutoModelForCausalLM.from_pretrained(FOLDER, dtype=torch.float32)
        run = trl.KTOTrainer(model=model, args=args, train_dataset=datasets.Dataset.from_list(records),
                             processing_class=make_tokenizer())
        run.train()
    names = ["loss", "grad_norm", "kl", "rewards/chosen", "rewards/rejected", "logps/chosen", "logps/rejected"]
    return [{name: entry[name] for name in names if name in entry} for entry in run.state.log_history if "loss" in entry]


def main():
    generator = torch.Generator().manual_seed(31)
    make_golden.write_model(FOLDER, {"config": CONFIG, "storage": torch.float32}, generator)
    document = {"length": LENGTH, "answers_of_an_update": ANSWERS, "trl": trl.__version__, "cases": {}}
    for name, case in CASES.items():
        records = make_records(generator, case["share"])
        (FOLDER / f"{name}.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))
        document["cases"][name] = case | {"updates": train(case, records)}
        print(name, [round(u["kl"], 4) for u in document["cases"][name]["updates"]])
    (FOLDER / "cases.json").write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
