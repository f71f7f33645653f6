"""Makes own-head.json: what transformers computes of models whose configuration ties the head to the embedding
while their weights hold another head. README.md says what is in the file.

    python make_own_head.py

The models are those of this folder; their head is the embedding with its rows in reverse order.
"""

import json
import logging
import pathlib
import shutil
import tempfile

import safetensors
import safetensors.torch
import torch
import transformers

import make_golden

HERE = pathlib.Path(__file__).parent
MODELS = ["llama3-tied", "qwen2", "gemma2", "gpt2"]
DOCUMENTS = ["abcabcabdeadeaf", "ponmlkjihgfedcba", "aabbccddeeffgghhiijjkk"]  # letter i of the alphabet is token i


class Warnings(logging.Handler):
    def __init__(self):
        super().__init__()
        self.texts = []

    def emit(self, record):
        self.texts.append(record.getMessage())


def write(folder, name, reverse):
    """The model NAME with a head; reverse: other values than the embedding's."""
    weights = safetensors.torch.load_file(HERE / name / "model.safetensors")
    embedding = next(weights[n] for n in weights if n.endswith(("embed_tokens.weight", "wte.weight")))
    weights["lm_head.weight"] = (embedding.flip(0) if reverse else embedding.clone()).contiguous()
    shutil.copy(HERE / name / "config.json", folder)
    safetensors.torch.save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def mean_nll(folder):
    """In fp64, each document by itself."""
    rows = [torch.tensor([[ord(c) - ord("a") for c in text]]) for text in DOCUMENTS]
    model = make_golden.load(folder, torch.float64, max(r.shape[1] for r in rows)).eval()
    tied = model.get_output_embeddings().weight is model.get_input_embeddings().weight
    with torch.no_grad():
        sums = [make_golden.loss_of(model, r[:, :-1], r[:, 1:])[0] * (r.shape[1] - 1) for r in rows]
    return (sum(sums) / sum(r.shape[1] - 1 for r in rows)).item(), tied


def main():
    torch.set_num_threads(1)
    said = Warnings()
    transformers.utils.logging.get_logger("transformers").addHandler(said)
    models = {}
    for name in MODELS:
        results = {}
        for key, reverse in ("own", True), ("equal", False):
            said.texts.clear()
            with tempfile.TemporaryDirectory() as folder:
                write(pathlib.Path(folder), name, reverse)
                results[key], tied = mean_nll(folder)
            assert tied is not reverse and any("NOT tie" in text for text in said.texts) is reverse
        models[name] = results
    expected = {"made_with": {"torch": torch.__version__, "transformers": transformers.__version__},
                "documents": DOCUMENTS, "mean_nll": models}
    (HERE / "own-head.json").write_text(json.dumps(expected, indent=2) + "\n")
    print(json.dumps(models, indent=2))


if __name__ == "__main__":
    main()
