"""The loop of Accelerate itself beside that of the package ndparallel, in one process: check_accelerate.py [STEPS]. The same script
text runs twice, on the same weights and batches, in fp32; prints both losses of each update and fails where they differ by more than
2e-5. Batches of an `accumulate` have as many tokens, where both divide alike. Then the scripts of tests/cli/accelerate run as they
are, and with the names of the package being Accelerate's; the losses that they print are compared. Needs accelerate, torch and
transformers, and ndparallel on PYTHONPATH (build/python)."""
import math
import pathlib
import re
import runpy
import subprocess
import sys
import tempfile
from types import SimpleNamespace

import accelerate
import torch
import transformers

import ndparallel

ROOT = pathlib.Path(__file__).parents[2]
STEPS, ROWS, LENGTH, ACCUMULATE, BOUND = int((sys.argv + [20])[1]) if "as" not in sys.argv else 0, 4, 48, 2, 2e-5


def make_model(folder):
    torch.manual_seed(5)
    config = transformers.LlamaConfig(vocab_size=256, hidden_size=64, intermediate_size=128, num_hidden_layers=3, num_attention_heads=4,
                                      num_key_value_heads=2, max_position_embeddings=128, tie_word_embeddings=False)
    transformers.LlamaForCausalLM(config).save_pretrained(folder)


def make_batches():
    """Rows of a text with some order in it, padded on the right or on the left."""
    generator = torch.Generator().manual_seed(6)
    for call in range(STEPS * ACCUMULATE):
        start = torch.randint(0, 256, (ROWS, 1), generator=generator)
        ids = (start + torch.arange(LENGTH) * (1 + start % 3)) % 256
        mask = torch.ones_like(ids)
        for row, pad in enumerate((0, 5, 11, 20)):
            mask[row, LENGTH - pad:] = 0
        if call % 3 == 2:  # transformers would predict the first token from padding, and we do not
            mask = mask.flip(1)
        seen = mask * torch.nn.functional.pad(mask[:, :-1], (1, 0), value=1)
        yield {"input_ids": ids, "attention_mask": mask, "labels": ids.masked_fill(seen == 0, -100)}


def train(api, folder, batches):
    """The script; `api` is where its names come from. Returns losses, before and after backward alike, and norms."""
    accelerator = api.Accelerator(gradient_accumulation_steps=ACCUMULATE, **api.options)
    model = api.AutoModelForCausalLM.from_pretrained(folder)
    optimizer = api.AdamW(model.parameters(), lr=3e-3, betas=(0.9, 0.99), weight_decay=0.1)
    scheduler = api.get_scheduler("cosine", optimizer=optimizer, num_warmup_steps=3, num_training_steps=STEPS)
    model, optimizer, dataloader, scheduler = accelerator.prepare(model, optimizer, batches, scheduler)
    found = []
    model.train()
    for batch in dataloader:
        with accelerator.accumulate(model):
            outputs = model(**batch)
            accelerator.backward(outputs.loss)
            norm = None
            if accelerator.sync_gradients:
                norm = accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
        found.append((outputs.loss.detach().float().item(), norm and float(norm), scheduler.get_last_lr()[0]))
    return found


theirs = SimpleNamespace(Accelerator=accelerate.Accelerator, AutoModelForCausalLM=transformers.AutoModelForCausalLM,
                         AdamW=torch.optim.AdamW, get_scheduler=transformers.get_scheduler, options={"cpu": True})
ours = SimpleNamespace(**{name: getattr(ndparallel, name) for name in vars(theirs) if name != "options"},
                       options={"settings": {"train.force_memory": True}})


def run_as(whose, script):
    """Runs a script with the names of the package, or with Accelerate's under them."""
    if whose == "theirs":
        names = dict(vars(theirs), set_seed=transformers.set_seed, get_constant_schedule=transformers.get_constant_schedule,
                     ParallelismConfig=accelerate.ParallelismConfig, DistributedType=accelerate.DistributedType)
        names["Accelerator"] = lambda cpu=True, **options: accelerate.Accelerator(cpu=True, **options)
        sys.modules["ndparallel"] = SimpleNamespace(**names)
    runpy.run_path(script, run_name="__main__")


def printed(whose, script, *words):
    """The losses that a script prints, in their order."""
    done = subprocess.run([sys.executable, __file__, "as", whose, ROOT / "tests/cli/accelerate" / script, *words], check=True,
                          capture_output=True, text=True)
    return [float(x) for x in re.findall(r"(?:epoch|loss:?) (\d+\.\d+)", done.stdout)]


def compare_script(script, *words):
    pairs = list(zip(printed("theirs", script, *words), printed("ours", script, *words)))
    far = max(abs(x - y) / x for x, y in pairs)
    print(f"{script}: {len(pairs)} losses, from {pairs[0][0]} to {pairs[-1][0]}, differ by at most {far:.1e}")
    return far


if sys.argv[1:2] == ["as"]:
    whose, script = sys.argv[2:4]
    sys.argv = sys.argv[3:]
    run_as(whose, script)
    sys.exit()
worst = 0
with tempfile.TemporaryDirectory() as folder:
    make_model(folder)
    batches = list(make_batches())
    loader = torch.utils.data.DataLoader(batches, batch_size=None)
    for call, (a, b) in enumerate(zip(train(theirs, folder, loader), train(ours, folder, loader))):
        far = [abs(x - y) / abs(x) if x else abs((x or 0) - (y or 0)) for x, y in zip(a, b)]
        worst = max(worst, far[0], far[2])
        if a[1]:
            print(f"update {call // ACCUMULATE + 1}: loss {a[0]:.7f} {b[0]:.7f}  norm {a[1]:.6f} {b[1]:.6f}  lr {a[2]:.3e} {b[2]:.3e}")
    text = pathlib.Path(folder, "text")
    text.write_text((ROOT / "examples/data/text.txt").read_text() * 3)
    common = ("--gradient_accumulation_steps", "2")
    worst = max(worst, compare_script(
        "clm_no_trainer.py", *common, "--train_file", text, "--model_name_or_path", folder, "--block_size", "48", "--learning_rate",
        "1e-3", "--weight_decay", "0.1", "--num_warmup_steps", "3", "--per_device_train_batch_size", "4", "--max_train_steps", "24"))
    worst = max(worst, compare_script("count_tokens.py", *common, "--file", text, "--model", folder, "--per_device_batch_size", "4"))
print(f"the losses differ by at most {worst:.1e} (bound {BOUND:.0e})")
sys.exit(worst > BOUND or math.isnan(worst))
