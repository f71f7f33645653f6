"""Trains a step with every built-in chat template and compares tokens with those of transformers, beside the result:

    chat_templates.py PROGRAM

The tokenizers are bytes, one that puts a begin token before texts and has another template, one without a begin token. The
rows of the training are those of `verify --dump`; a prompt is what stands there before the first answer.
"""

import json
import pathlib
import shutil
import subprocess
import sys

import safetensors.torch
import tokenizers
import transformers

PROGRAM = sys.argv[1]
TALKS = [
    [("user", "Hi"), ("assistant", "Hello!")],
    [("system", "Be brief."), ("user", " 1 "), ("assistant", "2\n"), ("user", "é"), ("assistant", " ok ")],
    [("system", ""), ("user", "Hi"), ("assistant", "Hello!")],
    [("user", "u"), ("assistant", "<think>\nwhy\n</think>\n\nA"), ("user", "?"), ("assistant", "<think>\nb\n</think>\n\nB")],
]
MARKS = ["<|im_start|>", "<|im_end|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<start_of_turn>"]


def messages(talk):
    return [{"role": role, "content": content} for role, content in talk]


def make_tokenizer(folder, bos, config):
    """Bytes, some tokens of templates, and one to end texts."""
    folder.mkdir()
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    t = tokenizers.Tokenizer(tokenizers.models.BPE({c: i for i, c in enumerate(sorted(alphabet))}, []))
    t.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.decoder = tokenizers.decoders.ByteLevel()
    t.add_special_tokens([bos, "</s>", *MARKS])
    if "bos_token" in config:
        t.post_processor = tokenizers.processors.TemplateProcessing(
            single=f"{bos} $A", pair=f"{bos} $A $B", special_tokens=[(bos, t.token_to_id(bos))])
    t.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps(
        {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "</s>", "model_max_length": 10**30} | config))
    return str(folder)


def run(*words):
    done = subprocess.run([PROGRAM, *map(str, words)], capture_output=True, text=True)
    assert done.returncode == 0, f"{words}: {done.stderr}"
    return done.stdout


def templates():
    """Of the message that lists them."""
    job = {"model": {"config": "config.json", "init": "random"}, "data": {"files": ["talks.jsonl"], "tokenizer": "bytes"}}
    pathlib.Path("none.yaml").write_text(json.dumps(job))
    said = subprocess.run([PROGRAM, "train", "none.yaml", "--dry-run"], capture_output=True, text=True).stderr
    return said.split("built-in one: ")[1].strip().split(", ")


def job_of(tokenizer, template, talks, out):
    pathlib.Path("talks.jsonl").write_text("".join(json.dumps({"messages": messages(t)}) + "\n" for t in talks))
    job = {"model": {"config": "config.json", "init": "random"},
           "data": {"files": ["talks.jsonl"], "tokenizer": tokenizer, "chat_template": template, "packing": False,
                    "sequence_length": 512, "template_date": "2025-03-02"},
           "batch": {"global_batch_size": len(talks)},
           "train": {"steps": 1, "threads": 1, "output_dir": out, "transport": "local", "force_memory": True}}
    vocab = 258 if tokenizer == "bytes" else 256 + 2 + len(MARKS)
    pathlib.Path("config.json").write_text(json.dumps(
        {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": vocab, "hidden_size": 8,
         "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8, "max_position_embeddings": 512}))
    pathlib.Path("job.yaml").write_text(json.dumps(job))
    return "job.yaml"


def ids_of(tokenizer, talk, prompt):
    return tokenizer.apply_chat_template(messages(talk), add_generation_prompt=prompt, tokenize=True, return_dict=False)


def check_rows(folder, talks):
    """Whole conversations, and their first prompts; how many prompts were compared."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    batch = safetensors.torch.load_file("dump/batch.safetensors")
    rows = [(ids.tolist(), labels.tolist()) for ids, labels in zip(batch["input_ids"], batch["labels"])]
    prompts = 0
    for talk in talks:
        whole = ids_of(tokenizer, talk, False)
        row = next((r for r in rows if r[0][:len(whole)] == whole), None)
        assert row, f"{folder}: no row of the training is {tokenizer.decode(whole)!r}"
        first = next(i for i, (role, _) in enumerate(talk) if role == "assistant")
        begin = next(i for i, label in enumerate(row[1]) if label >= 0)
        prompt = ids_of(tokenizer, talk[:first], True)
        if prompt[:begin] == row[0][:begin]:
            prompts += len(prompt) == begin
        else:  # a system prompt that is written only where a question is last
            assert talk[0][0] == "system", f"{folder}: the prompt is {tokenizer.decode(prompt)!r}"
    return prompts


def refuses(tokenizer, template, talk):
    job = job_of(tokenizer, template, [talk], "nowhere")
    return subprocess.run([PROGRAM, "train", job, "--dry-run"], capture_output=True).returncode != 0


def check(name, tokenizer, template):
    talks = [t for t in TALKS if not refuses(tokenizer, template, t)]
    if not talks:
        return
    out = f"{template}-{name}"
    job = job_of(tokenizer, template, talks, out)
    run("train", job)
    shutil.rmtree("dump", ignore_errors=True)
    run("verify", job, "--dump", "dump")
    prompts = check_rows(f"{out}/model", talks)
    assert prompts or template == "deepseek-r1", f"{out}: no prompt was compared"  # whose prompts begin a thought
    run("train", job, "--set", "adapter.type=lora", "--set", f"model.path={base(tokenizer, name)}", "--set",
        "model.init=pretrained", "--set", "model.config=null", "--set", f"train.output_dir={out}-lora")
    check_rows(f"{out}-lora/adapter", talks)
    text = pathlib.Path(out, "model", "chat_template.jinja").read_text()
    old = json.loads(pathlib.Path(out, "model", "tokenizer_config.json").read_text()).get("chat_template", text)
    assert old == text, f"{out}: two templates"
    print(f"{out}: {len(talks)} conversations and {prompts} prompts have the tokens of the training")


BASES = {}


def base(tokenizer, name):
    if name not in BASES:
        BASES[name] = f"base-{name}"
        run("train", "job.yaml", "--set", f"train.output_dir={BASES[name]}")
    return f"{BASES[name]}/model"


def main():
    kinds = {"bytes": "bytes",
             "begins": make_tokenizer(pathlib.Path("begins"), "<s>", {"bos_token": "<s>", "chat_template": "{{ 'old' }}"}),
             "plain": make_tokenizer(pathlib.Path("plain"), "<unused>", {})}
    job_of("bytes", None, TALKS, "nowhere")
    for template in templates():
        for name, tokenizer in kinds.items():
            check(name, tokenizer, template)


main()
