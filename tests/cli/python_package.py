"""What tests/cli/test_python_package.sh asks of the package ndparallel: python_package.py CASE [ARGUMENT]."""
import ast
import ctypes
import gc
import inspect
import json
import math
import os
import pathlib
import signal
import sys
from array import array

import ndparallel
from ndparallel import Accelerator, AdamW, AutoModelForCausalLM, Error, ParallelismConfig, Trainer, get_scheduler, set_seed
from ndparallel import _declarations as declarations

ROWS, LENGTH = 4, 16
MODEL = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 64, "hidden_size": 16,
         "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1, 
         "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "hidden_act": "silu", "tie_word_embeddings": True,
         "bos_token_id": 0, "eos_token_id": 1}


def rows_of(update):
    """Rows of an update: ids, and how many of them are tokens."""
    return [([2 + (update * 31 + row * 17 + i * (1 + row % 3)) % 60 for i in range(LENGTH)], LENGTH - (update + row) % 5)
            for row in range(ROWS)]


def batch_of(rows, left=False):
    """As a collator of transformers gives it."""
    batch = {"input_ids": [], "attention_mask": [], "labels": []}
    for ids, n in rows:
        pad = LENGTH - n
        for name, tokens, padding in (("input_ids", ids[:n], 1), ("attention_mask", [1] * n, 0), ("labels", ids[:n], -100)):
            batch[name].append([padding] * pad + tokens if left else tokens + [padding] * pad)
    return batch


def accelerator_of(loader, layout=None, project=None, **options):
    settings = {"train.threads": 1, "train.force_memory": True}
    a = Accelerator(ParallelismConfig(**(layout or {})), project_dir=project, settings=settings, **options)
    set_seed(7)
    model = AutoModelForCausalLM.from_config(MODEL)
    optimizer = AdamW(model.parameters(), lr=1e-2)
    return (a, *a.prepare(model, optimizer, loader, get_scheduler("linear", optimizer, 2 * a.num_processes, 10 * a.num_processes)))


def update(a, model, optimizer, scheduler, batch, max_norm=1.0):
    with a.accumulate(model):
        outputs = model(**batch)
        a.backward(outputs.loss)
        if a.sync_gradients and max_norm:
            a.clip_grad_norm_(model.parameters(), max_norm)
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
    return outputs


def train(loader, steps=3, **options):
    """(loss, norm) of each update, exactly."""
    a, model, optimizer, loader, scheduler = accelerator_of(loader, **options)
    out = []
    for batch in loader:
        update(a, model, optimizer, scheduler, batch)
        if a.sync_gradients:
            out.append((a.last_update.loss, a.last_update.grad_norm))
    a.end_training()
    return out[:steps]


# ---- cases ----

def thin():
    """At most 600 lines of code: without blank lines, comments and doc strings, and beside the declarations."""
    total = 0
    for path in pathlib.Path(ndparallel.__file__).parent.glob("*.py"):
        text, documentation = path.read_text(), set()
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(node):
                documentation.update(range(node.body[0].lineno, node.body[0].end_lineno + 1))
        total += sum(bool(line.strip()) and line.strip()[0] != "#" and number not in documentation
                     for number, line in enumerate(text.split("\n"), 1)) * (path.name != "_declarations.py")
    assert total <= 600, f"{total} lines"


def sizes(headers):
    """A C program that compares sizes, offsets and initial values with what the declarations say."""
    print(*(f"#include <ndparallel/{name}>\n" for name in sorted(os.listdir(headers))))
    print('#include <stdio.h>\n#define SAME(WHAT, N) if ((long)(WHAT) != N) '
          'printf("%s is %ld in C, " #N " here\\n", #WHAT, (long)(WHAT));\nint main(void) {')
    for name, kind in inspect.getmembers(declarations, inspect.isclass):
        if issubclass(kind, ctypes.Structure) and name.startswith("ndp_"):
            print(f"SAME(sizeof({name}), {ctypes.sizeof(kind)})")
            for field, _ in kind._fields_:
                print(f"SAME(offsetof({name}, {field}), {getattr(kind, field).offset})")
    for name in ("OK", "EBUG", "DIVIDE_NUMBER", "GRADIENT", "MEASURES", "VERIFY_STEPS"):
        print(f"SAME(NDP_{name}, {getattr(declarations, name)})")
    print("return 0; }")


def loop(layout, calls):
    """Losses and norms of three updates, to the last bit, by the loop of Accelerate."""
    layout, calls = json.loads(layout), int(calls)
    each = ROWS // layout.get("dp_shard_size", 1) // layout.get("dp_replicate_size", 1) // calls
    loader = [batch_of(rows_of(u)[i:i + each]) for u in range(3) for i in range(0, ROWS, each)]
    show(train(loader, layout=layout, gradient_accumulation_steps=calls))


def own(layout, calls):
    """The same by the library's own functions."""
    calls, found = int(calls), []
    a, model, optimizer, _, _ = accelerator_of([], json.loads(layout))
    each = ROWS // a.data_ranks // calls
    settings = {**a.settings, **optimizer.settings, **model.settings, "train.seed": 7, "train.steps": 10,
                "data.sequence_length": LENGTH, "batch.micro_batch_size": each, "batch.global_batch_size": each * a.data_ranks}
    with Trainer(settings) as t:
        for u, rate in enumerate((0, 5e-3, 1e-2)):
            rows = rows_of(u)
            t.begin("number", sum(n - 1 for _, n in rows), rate, 1.0, calls)
            for call in range(calls):
                at = (call * a.data_ranks + t.shape().data_rank) * each
                t.forward_backward({"ids": [ids for ids, _ in rows[at:at + each]], "lengths": [n for _, n in rows[at:at + each]]})
            info = t.update()
            found.append((info.loss, info.grad_norm))
    show(found)


def show(found):
    if ndparallel.lib.ndp_world_launched_rank() == 0:
        print(*(number.hex() for pair in found for number in pair))


def losses():
    """Before backward, after it, scaled, padded on the left; a loader that ends with fewer batches; late numbers."""
    a, model, optimizer, loader, scheduler = accelerator_of([batch_of(rows_of(u)) for u in range(3)])
    assert len(loader) == 3 and len(a.skip_first_batches(loader, 1)) == 2
    batch = next(iter(loader))
    first = model(**batch)
    before = first.loss.item()
    assert abs((first.loss / 2).item() - before / 2) < 1e-9 and f"{2 * first.loss:.3f}" == f"{2 * before:.3f}"
    assert abs(model(**batch_of(rows_of(0), left=True)).loss.item() - before) < 1e-6
    assert abs(sum(v for row in first.log_probs for v in row) + before * sum(n - 1 for _, n in rows_of(0))) < 1e-4
    assert len(first.predictions) == ROWS and len(first.entropies[0]) == LENGTH
    again = update(a, model, optimizer, scheduler, batch)
    assert abs(again.loss.item() - before) < 1e-6 and abs(a.last_update.loss - before) < 1e-6
    refused("the weights have changed", lambda: first.log_probs)
    # Accumulated by hand, halves of a mean each, and no clipping: as one batch of both where they have as many tokens.
    whole = [(ids, LENGTH) for ids, _ in rows_of(1)]
    results = []
    for parts in (1, 2):
        a.end_training()
        a, model, optimizer, loader, scheduler = accelerator_of([batch_of(whole[i::parts]) for i in range(parts)])
        for batch in loader:
            a.backward(model(**batch).loss / parts)
        optimizer.step()
        results.append((a.last_update.loss, a.last_update.grad_norm))
    assert all(abs(x / y - 1) < 1e-5 for x, y in zip(*results)), results
    print("losses", f"{before:.4f}")


def groups():
    """Groups of named_parameters() are those that the library makes of keys: weight decay and rate by name."""
    found = []
    for settings in (None, {"optimizer.groups": [{"params": ["embed_tokens"], "weight_decay": 0.5, "lr_scale": 0.5}]}):
        a = Accelerator(settings={"train.threads": 1, "train.force_memory": True, **(settings or {})})
        set_seed(7)
        model = AutoModelForCausalLM.from_config(MODEL)
        named = model.named_parameters()
        optimizer = AdamW(model.parameters(), lr=1e-2, weight_decay=0.1, decay_vectors=False) if settings else AdamW([
            {"params": [p for n, p in named if "embed" in n], "weight_decay": 0.5, "lr": 5e-3},
            {"params": [p for n, p in named if "norm" in n], "weight_decay": 0},
            {"params": [p for n, p in named if "embed" not in n and "norm" not in n and p.requires_grad]},
        ], lr=1e-2, weight_decay=0.1)
        prepared = a.prepare(model, optimizer, ndparallel.get_constant_schedule(optimizer))
        for _ in range(3):
            update(a, *prepared, batch_of(rows_of(0)))
            found.append((a.last_update.loss, a.last_update.grad_norm))
        assert [name for name, _ in named] == list(a.trainer.tensors()), named
        a.end_training()
    assert found[:3] == found[3:], found
    print("groups")


def functions():
    """Losses that are functions of log-probabilities or of logits; an exception in one."""
    model = AutoModelForCausalLM.from_config(MODEL)
    with Trainer({**model.settings, "data.sequence_length": LENGTH, "batch.global_batch_size": ROWS, "batch.micro_batch_size": 2,
                  "train.threads": 1, "train.force_memory": True, "train.own_logits": True}) as t:
        rows = {"ids": [ids for ids, _ in rows_of(0)], "lengths": array("q", [n for _, n in rows_of(0)])}
        t.begin("number", 1)
        plain = t.forward_backward({**rows, "weights": [[0.5] * LENGTH] * ROWS})
        norm = t.norm()

        def half(logp, slopes):
            total = 0.0
            for s in range(logp.shape[0]):
                for i in range(logp.shape[1]):
                    if logp[s, i]:
                        slopes[s, i], total = -0.5, total - 0.5 * logp[s, i]
            return total

        t.begin("number", 1)
        own = t.forward_backward_with(rows, half)
        assert abs(own.loss / plain.sum - 1) < 1e-6 and abs(t.norm() / norm - 1) < 1e-5, (own.loss, plain.sum)

        def cross_entropy(some):
            for i, (row, label) in enumerate(zip(some.logits.tolist(), some.labels)):
                e = [math.exp(x) for x in row]
                some.losses[i] = math.log(sum(e)) - row[label]
                for j, x in enumerate(e):
                    some.slopes[i, j] = x / sum(e) - (j == label)

        t.begin("number", 2)
        own = t.forward_backward_logits(rows, cross_entropy)
        assert abs(own.sum / 2 / plain.sum - 1) < 1e-6 and abs(t.norm() / norm - 1) < 1e-5, (own.sum, plain.sum)
        for function in (t.forward_backward_with, t.forward_backward_logits):
            t.begin("number", 1)
            try:
                function(rows, lambda *given: 1 / 0)
                raise AssertionError("no exception")
            except ZeroDivisionError:
                pass
        t.begin()
        t.forward_backward(rows)
        assert t.update().applied and t.updates == 1
        name = next(iter(t.tensors()))
        assert len(t.read(name)) == t.tensors()[name] and any(t.read(name, "gradient"))
        refused("a batch: no 'id'; did you mean ids", lambda: t.forward_backward({"id": [[1]]}))
        refused("labels has shape", lambda: t.forward_backward({"ids": [[1, 2]], "labels": [[1]]}))
        refused("the model: no 'model.nothing", lambda: t.read("model.nothing.weight"))
    closed(t)
    print("functions")


def closed(t):
    """Everything that a trainer has is refused after its end."""
    values = {"batches": rows_of(0)[:0], "loss": print, "values": [1.0], "name": "x", "data": b"", "numbers": {}, "number": 0,
              "error": None, "config": ndparallel.Config()}

    def ask(name):
        asked = getattr(t, name)
        asked(*(values[p.name] for p in inspect.signature(asked).parameters.values() if p.default is p.empty))

    for name in (name for name in dir(Trainer) if name[0] != "_" and name != "close"):
        refused("the trainer is closed", lambda name=name: ask(name))
    t.close()


def refused(words, call):
    """An error of ours with these words."""
    try:
        call()
    except Error as e:
        assert words in str(e) and e.status in ("EINVAL", "ENOTSUP"), f"'{words}' is not in '{e}'"
        return
    raise AssertionError(f"'{words}': nothing was refused")


def misuse():
    """What cannot be is an error that says what to use."""
    a, model, optimizer, loader, scheduler = accelerator_of([batch_of(rows_of(0))])
    batch = next(iter(loader))
    outputs = model(**batch)

    class Foreign(list):
        named_parameters = None

    for words, call in (
            ("use our AutoModelForCausalLM", lambda: a.prepare(Foreign())),
            ("a int; use our", lambda: a.prepare(3)),
            ("no 'deepspeed_plugin'; use parallelism_config", lambda: Accelerator(deepspeed_plugin=1)),
            ("did you mean tp_size?", lambda: ParallelismConfig(tp_sise=2)),
            ("has 2 ranks, this is one of 1", lambda: Accelerator(ParallelismConfig(tp_size=2))),
            ("parallelism_config is a int", lambda: Accelerator(parallelism_config=3)),
            ("fp16 is not supported", lambda: start(mixed_precision="fp16")),
            ("no modules in Python", lambda: model.register_forward_hook(print)),
            ("a group of AdamW: no 'momentum'", lambda: AdamW([{"params": [model], "momentum": 0.9}])),
            ("one AdamW", lambda: AdamW(model.parameters(), fused=True)),
            ("must be model.parameters()", lambda: AdamW([1, 2])),
            ("did you mean cosine?", lambda: get_scheduler("cosin", optimizer)),
            ("needs num_training_steps", lambda: get_scheduler("linear", optimizer)),
            ("predictions", lambda: outputs.logits),
            ("accelerator.backward", lambda: outputs.loss.backward()),
            ("it must be a number", lambda: outputs.loss * outputs.loss),
            ("give outputs.loss", lambda: a.backward(1.0)),
            ("clip_grad_norm_", lambda: a.clip_grad_value_(1)),
            ("there is no gradient", lambda: optimizer.step()),
            ("no 'pixel_values'", lambda: model(**batch, pixel_values=1)),
            ("leave it out", lambda: model(**batch, output_attentions=True)),
            ("needs input_ids", lambda: model(labels=batch["labels"])),
            ("labels has shape [1, 1]", lambda: model(input_ids=[[1, 2]], labels=[[1]])),
            ("zeros between ones", lambda: model(input_ids=[[1, 2, 3]], attention_mask=[[1, 0, 1]])),
            ("several lengths", lambda: model(input_ids=[[1, 2], [3]])),
            ("input_ids is a list", lambda: model(input_ids=[["a", "b"]])),
            ("data.sequence_length", lambda: model(input_ids=[[1] * (LENGTH + 1)]).predictions),
            ("64", lambda: model(input_ids=[[64]], labels=[[64]]).loss.item()),
            ("no checkpoint", lambda: a.load_state("nowhere")),
            ("a list is no batch", lambda: next(iter(accelerator_of([[1]])[3]))),
            ("prepare the loader", lambda: a.skip_first_batches([], 1)),
            ("use ParallelismConfig", lambda: ndparallel.FullyShardedDataParallelPlugin),
            ("did you mean", lambda: ndparallel.Config({"optimizer.rate": 1}))):
        refused(words, call)
    assert not hasattr(a, "surely_not") and not hasattr(ndparallel, "surely_not")
    print("misuse")


def start(**options):
    a, model, *_ = accelerator_of([], **options)
    model(**batch_of(rows_of(0)))


def stops(project):
    """Ctrl-C in an update ends and saves it; on any rank."""
    loader = [batch_of(rows_of(u)[i:i + 1]) for u in range(9) for i in range(ROWS)]
    a, model, optimizer, loader, scheduler = accelerator_of(loader, {"dp_shard_size": 2}, project)
    for i, batch in enumerate(loader):
        update(a, model, optimizer, scheduler, batch)
        if i == 2 and a.process_index == 1:
            ready, begun = os.pipe()
            child = os.fork()  # as that of a loader: goes on at Ctrl-C, and ends by SIGTERM
            if child == 0:
                os.write(begun, b"1")
                signal.pause()
                os._exit(1)
            os.read(ready, 1)
            os.kill(child, signal.SIGINT)
            os.kill(child, signal.SIGTERM)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGTERM
            os.kill(os.getpid(), signal.SIGINT)
    print("not stopped")


def fails():
    """Rank 1 gives rows that cannot be."""
    a, model, *_ = accelerator_of([], {"dp_shard_size": 2})
    model(**batch_of(rows_of(0))).loss.item()
    model(input_ids=[[1, 2], [3]] if a.process_index else [[1]])
    model(**batch_of(rows_of(0))).loss.item()


class Counter:
    def __init__(self, n):
        self.n = n

    def state_dict(self):
        return {"n": self.n}

    def load_state_dict(self, state):
        self.n = state["n"]


def numbers():
    """Numbers of two data ranks, of which the loader ends with a batch for one; tp has no part in it."""
    layout = {"dp_shard_size": 2, "tp_size": 2}
    a, model, optimizer, loader, scheduler = accelerator_of([batch_of(rows_of(u)) for u in range(3)], layout)
    for i, batch in enumerate(loader):
        rank = a.data_rank
        mean = model(**batch).loss.item()
        assert a.gather([rank, 10.0] if rank else [rank]) == [0, 1, 10]
        assert a.reduce(rank + 1) == [3] and a.reduce([2], "mean") == [2]
        assert a.gather_for_metrics((rank, mean)) == (([0, 1], [mean, mean]) if i == 0 else ([0], [mean]))
    a.wait_for_everyone()
    name = next(iter(a.trainer.tensors()))
    a.trainer.write(name, [2 * x for x in a.trainer.read(name)])
    assert len(loader) == i + 1 == 2 and a.trainer.reduce([a.process_index], "max", by_data=False) == [3]
    a.print("numbers")


def resumes(project):
    """A run in two parts has the bits of one."""
    loader = [batch_of(rows_of(u)) for u in range(4)]
    whole = train(loader, 4)
    a, model, optimizer, prepared, scheduler = accelerator_of(loader[:2], project=project)
    for batch in prepared:
        update(a, model, optimizer, scheduler, batch)
    a.register_for_checkpointing(Counter(5))
    a.save_state()
    a.save_model(model, f"{project}/model")
    a.log({"reward": 0.5})
    a.end_training()
    a, model, optimizer, prepared, scheduler = accelerator_of(loader, project=project)
    counter = Counter(0)
    a.register_for_checkpointing(counter)
    a.load_state()
    assert counter.n == 5
    assert a.trainer.updates == scheduler.count == 2
    found = []
    for batch in a.skip_first_batches(prepared, 2):
        update(a, model, optimizer, scheduler, batch)
        found.append((a.last_update.loss, a.last_update.grad_norm))
    assert found == whole[2:], (found, whole)
    line = json.loads(open(f"{project}/metrics.jsonl").readline())
    assert line["step"] == 2 and line["reward"] == 0.5 and os.path.exists(f"{project}/model/config.json")
    a.end_training()
    a, model, optimizer, prepared, scheduler = accelerator_of(iter(loader[3:]), project=project)
    a.load_state()  # with the first batch
    assert not a.trainer
    for batch in prepared:
        assert a.trainer.updates == scheduler.count == 2
    print("resumed")


def tensors():
    """The same losses from arrays of others, int64 or int32, and beside a forked loader."""
    expected = train([batch_of(rows_of(u)) for u in range(2)])
    for name, make in (("numpy", lambda m, x: m.array(x)), ("numpy", lambda m, x: m.array(x, dtype="int32")),
                       ("torch", lambda m, x: m.tensor(x)), ("torch", lambda m, x: m.tensor(x, dtype=m.int32))):
        try:
            module = __import__(name)
        except ImportError:
            print(f"no {name}", end=" ")
            continue
        found = train([{key: make(module, x) for key, x in batch_of(rows_of(u)).items()} for u in range(2)])
        assert found == expected, (name, found, expected)
    if "torch" in sys.modules:
        torch = sys.modules["torch"]
        rows = [{key: torch.tensor(x[i]) for key, x in batch_of(rows_of(u)).items()} for u in range(2) for i in range(ROWS)]
        assert train(torch.utils.data.DataLoader(rows, batch_size=ROWS, num_workers=1)) == expected
        refused("a Linear; use our AutoModel", lambda: Accelerator().prepare(torch.nn.Linear(2, 2)))
        refused("is not contiguous", lambda: start_with(torch.ones(4, 6, dtype=torch.int64).t()))
        x = torch.arange(8, dtype=torch.int32)
        m, _ = ndparallel._trainer.array_of(x, ctypes.c_int32, "x")
        assert ctypes.addressof(m) == x.data_ptr()
        del m, x
        gc.collect()
    print("tensors")


def start_with(ids):
    a, model, *_ = accelerator_of([])
    model(input_ids=ids)


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
