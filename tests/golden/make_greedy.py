"""Makes greedy.json: what transformers generates greedily, with a cache. README.md says what is in the file.

    python make_greedy.py [NAME ...]
"""

import json
import sys

import torch
import transformers

import make_golden

PROMPTS = ["a", "ponmlkji", "abcabcabdeadeafhi"]  # letter i of the alphabet is token i
# Of models with a state, which chunks of 64 tokens hand on: shorter than the taps, and on both sides of a border.
STATE_PROMPTS = ["b", "cd", "ponm", "hello", "madame" * 8, "feed" * 16, "abcdefgh" * 8 + "a", "man" * 36, "image" * 37,
                 "bold" * 49]
NEW_TOKENS = 16
LEAST_GAP = 1e-4  # of the two best logits, 100 times what fp32 rounds


def generate(model, prompt):
    ids = torch.tensor([[ord(c) - ord("a") for c in prompt]])
    out = model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=NEW_TOKENS,
                         output_logits=True, return_dict_in_generate=True)
    gaps = [(best[0] - best[1]).item() for best in (step[0].topk(2).values for step in out.logits)]
    return out.sequences[0, ids.shape[1]:].tolist(), min(gaps)


def main(names):
    torch.set_num_threads(1)
    path = make_golden.HERE / "greedy.json"
    models = json.loads(path.read_text())["tokens"] if names else {}
    for name in names or make_golden.MODELS:
        model = make_golden.load(make_golden.HERE / name, torch.float32, None).eval()
        # phi3: where a text grows beyond the original length of longrope, transformers begins again with other angles.
        original = getattr(model.config, "original_max_position_embeddings", 0)
        models[name] = {}
        for prompt in PROMPTS + (STATE_PROMPTS if hasattr(model.config, "linear_num_key_heads") else []):
            if len(prompt) > original:
                models[name][prompt], gap = generate(model, prompt)
                assert gap > LEAST_GAP, f"{name}, {prompt}: a near-tie"
    before = json.loads(path.read_text())["made_with"] if names else None  # of most of them
    expected = {"made_with": before or {"torch": torch.__version__, "transformers": transformers.__version__},
                "tokens": models}
    path.write_text(json.dumps(expected, indent=2) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
