"""Shows exported model folders to transformers: each must load and give the logits of the folder that it was made from.

    NDP_SOURCE_DIR=. NDP_EXPORTS=FOLDER build/test_exports && python check_exports.py FOLDER

Writes what it found into manifest.json.
"""

import json
import pathlib
import sys

import torch
import transformers

from make_golden import eager_experts

HERE = pathlib.Path(__file__).parent


def logits(folder, ids):
    experts = eager_experts(transformers.AutoConfig.from_pretrained(folder))
    model, info = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, output_loading_info=True,
                                                                    **experts)
    assert not info["missing_keys"] and not info["unexpected_keys"], f"{folder}: {info}"
    with torch.no_grad():
        return model(input_ids=ids, use_cache=False).logits


def main(exports):
    manifest = json.loads((HERE / "manifest.json").read_text())
    found = {}
    for folder in sorted(p for p in exports.iterdir() if (p / "config.json").exists()):
        config = transformers.AutoConfig.from_pretrained(folder)
        ids = torch.randint(config.vocab_size, (2, 30), generator=torch.Generator().manual_seed(1))
        here, there = logits(HERE / folder.name, ids), logits(folder, ids)
        found[folder.name] = (here - there).abs().max().item()
    manifest["exported_logits_off_by"] = found
    (HERE / "manifest.json").write_text(json.dumps(manifest, indent=2) + "\n")
    print(json.dumps(found, indent=2))
    assert all(off == 0 for off in found.values())


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
