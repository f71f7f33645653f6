"""Makes windows.json: what transformers' perplexity guide finds in documents that are longer than a window. README.md
says what is in the file.

    python make_windows.py
    python make_windows.py MODEL_FOLDER TEXT_FILE STRIDE...    # prints it for one text, for the model's whole context

Everything in fp64, by the models of make_golden.py.
"""

import json
import math
import pathlib
import sys

import torch
import transformers

import make_golden

HERE = pathlib.Path(__file__).parent
MODELS = ["llama3-tied", "mistral", "phi3", "gpt2", "gemma2", "qwen3-moe"]  # phi3: longrope, other angles beyond 16 positions
LENGTHS = [154, 33, 9]  # of the documents; 154 = 9 * 17 + 1
CASES = [(40, 39), (40, 40), (40, 13), (17, 16), (17, 17), (17, 5), (17, 1)]  # tokens of a window, stride


def windows(n, length, stride):
    """Begin, end and the number of target tokens of each window of n tokens, as the guide has them."""
    covered = 0
    for begin in range(0, n, stride):
        end = min(begin + length, n)
        yield begin, end, end - covered
        covered = end
        if end == n:
            return


def sums(model_for, ids, length, stride):
    """For each window: the nll of its predictions, their number, and the weight that the guide gives to their mean."""
    batches = {}
    for begin, end, targets in windows(len(ids), length, stride):
        batches.setdefault((end - begin, targets), []).append(begin)
    for (n, targets), begins in batches.items():
        predictions = min(targets, n - 1)  # a model predicts all of its input but the first token
        if not predictions:
            continue
        model = model_for(n)
        for i in range(0, len(begins), 8):
            rows = torch.stack([ids[b:b + n] for b in begins[i:i + 8]])
            with torch.no_grad():
                logits = model(input_ids=rows, use_cache=False).logits[:, -predictions - 1:-1]
                nll = torch.nn.functional.cross_entropy(logits.flatten(0, 1), rows[:, -predictions:].flatten(),
                                                        reduction="none").view(len(rows), -1).sum(1)
            for x in nll.tolist():
                yield x, predictions, targets - 1


def check_loss(model_for, ids, length, stride):
    """The same by the guide's own means: labels of -100 and the loss of the model, which takes it in fp32."""
    for (begin, end, targets), (nll, predictions, _) in zip(windows(len(ids), length, stride),
                                                            sums(model_for, ids, length, stride)):
        rows = ids[None, begin:end]
        labels = rows.clone()
        labels[:, :-targets] = -100
        with torch.no_grad():
            loss = model_for(end - begin)(input_ids=rows, labels=labels, use_cache=False).loss
        assert abs(loss.item() - nll / predictions) < 2e-6 * loss.item()
        break


def score(model_for, documents, length, stride):
    """Mean over predictions, their number, and the guide's own average, which counts a prediction less in each window
    that follows another with an overlap."""
    found = [s for ids in documents for s in sums(model_for, ids, length, stride)]
    tokens = sum(n for _, n, _ in found)
    weights = sum(w for _, _, w in found)
    guide = sum(w * nll / n for nll, n, w in found) / weights
    return sum(nll for nll, _, _ in found) / tokens, tokens, guide


def loader(folder):
    """The model for windows of n tokens: the angles of some depend on n."""
    original = getattr(transformers.AutoConfig.from_pretrained(folder), "original_max_position_embeddings", None)
    models = {}

    def model_for(n):
        key = bool(original) and n > original
        if key not in models:
            models[key] = make_golden.load(folder, torch.float64, n).eval()
        return models[key]
    return model_for


def make():
    state = 1
    texts = []
    for n in LENGTHS:
        letters = []
        for _ in range(n):
            state = state * 1103515245 + 12345 & 0x7fffffff
            letters.append(chr(ord("a") + (state >> 16) % 16))
        texts.append("".join(letters))
    documents = [torch.tensor([ord(c) - ord("a") for c in text]) for text in texts]
    models = {}
    for name in MODELS:
        model_for = loader(HERE / name)
        results = []
        for length, stride in CASES:
            check_loss(model_for, documents[0], length, stride)
            mean, tokens, guide = score(model_for, documents, length, stride)
            results.append({"length": length, "stride": stride, "mean_nll": mean, "tokens": tokens,
                            "divided": sum(n > length for n in LENGTHS)})
            print(f"{name}, windows of {length}, stride {stride}: mean {mean:.9f} of {tokens}, guide {guide:.9f}")
        models[name] = results
    expected = {"made_with": {"torch": torch.__version__, "transformers": transformers.__version__}, "documents": texts,
                "models": models}
    (HERE / "windows.json").write_text(json.dumps(expected, indent=1) + "\n")


def show(folder, text, strides):
    # The file as it is: transformers 5 builds another tokenizer for the class that some tokenizer_config.json name.
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=str(pathlib.Path(folder) / "tokenizer.json"))
    ids = torch.tensor(tokenizer(pathlib.Path(text).read_text(), verbose=False).input_ids)
    length = transformers.AutoConfig.from_pretrained(folder).max_position_embeddings
    model_for = loader(folder)
    for stride in strides:
        check_loss(model_for, ids, length, stride)
        mean, tokens, guide = score(model_for, [ids], length, stride)
        print(f"stride {stride}: mean nll {mean:.9f} (perplexity {math.exp(mean):.4f}) over {tokens} predictions of "
              f"{len(ids)} tokens; guide {guide:.9f}, {guide - mean:+.1e}", flush=True)


if __name__ == "__main__":
    torch.set_num_threads(2 if len(sys.argv) > 1 else 1)
    if len(sys.argv) > 1:
        show(sys.argv[1], sys.argv[2], [int(s) for s in sys.argv[3:]])
    else:
        make()
