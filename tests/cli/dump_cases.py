"""Dumps by the scripts of tools/dump that they do not make as they are. Run by long_dump.sh.

    dump_cases.py TOOLS models FOLDER    writes the model folders FOLDER/tied and FOLDER/one-kv
    dump_cases.py TOOLS right FOLDER     writes FOLDER/NAME for each layout of Accelerate that it has for GPUs only, and
                                         FOLDER/golden-NAME for each model of tests/golden
    dump_cases.py TOOLS wrong FOLDER     writes FOLDER/NAME for each mistake, which breaks what a script calls
"""

import contextlib
import functools
import json
import os
import pathlib
import socket
import sys

sys.path.insert(0, sys.argv[1])
import accelerate
import accelerate.state
import torch
import torch.distributed as dist
import torch.distributed.tensor.experimental._context_parallel._attention as ring
import transformers

import accelerate_step
import context_parallel
import ddp
import dump
import fsdp2
import one_process
import tensor_parallel

CONFIG = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "hidden_size": 32,
          "intermediate_size": 48, "num_attention_heads": 4, "num_hidden_layers": 2, "vocab_size": 260,
          "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "rope_theta": 100.0, "bos_token_id": 1, "eos_token_id": 2}
MODELS = {"tied": {"num_key_value_heads": 2, "tie_word_embeddings": True},
          "one-kv": {"num_key_value_heads": 1, "tie_word_embeddings": False},
          "mixture": {"architectures": ["MixtralForCausalLM"], "model_type": "mixtral", "num_key_value_heads": 2,
                      "num_local_experts": 8, "num_experts_per_tok": 2, "tie_word_embeddings": False, "sliding_window": None}}
RIGHT, WRONG = {}, {}


def write_models(folder):
    """Random weights that matter: wider than an initialization, norms off 1."""
    torch.manual_seed(7)
    for name, keys in MODELS.items():
        keys = CONFIG | keys
        config = transformers.AutoConfig.for_model(**keys)
        model = transformers.AutoModelForCausalLM.from_config(config)
        with torch.no_grad():
            for p in model.parameters():
                p.copy_(0.15 * torch.randn(p.shape) + (p.ndim == 1))
        model.save_pretrained(folder / name)
        (folder / name / "config.json").write_text(json.dumps(keys))


def case(script, model="tied", cases=WRONG):
    """Registers a function that changes the trainer before main() of `script` runs."""
    def add(function):
        cases[function.__name__] = (script, model, function)
        return function
    return add


# ---- Accelerate on CPUs ----

def launched(**environment):
    """As `accelerate launch` does it. Accelerate has these layouts for GPUs only; nothing in them depends on one, so it is told
    that these processes have some."""
    os.environ.update(environment, ACCELERATE_TORCH_DEVICE="cpu")
    dist.init_process_group("gloo")
    gpus = accelerate.utils.DistributedType.MULTI_GPU
    accelerate.state.PartialState._prepare_backend = lambda *arguments: ("gloo", gpus)


FSDP2 = {"ACCELERATE_USE_FSDP": "true", "FSDP_VERSION": "2", "FSDP_AUTO_WRAP_POLICY": "TRANSFORMER_BASED_WRAP"}


@case(accelerate_step, cases=RIGHT)
def accelerate_fsdp2():
    launched(**FSDP2)


@case(accelerate_step, cases=RIGHT)
def accelerate_tp():
    launched(ACCELERATE_USE_PARALLELISM_CONFIG="true", PARALLELISM_CONFIG_TP_SIZE="2")


@case(accelerate_step, cases=RIGHT)
def accelerate_cp():
    """The ring in torch has kernels for GPUs only. In its place attention gathers keys and values, in the order of tokens that
    torch gives the ranks: rank r of n has parts r and 2n - 1 - r of 2n."""
    launched(**FSDP2, ACCELERATE_USE_PARALLELISM_CONFIG="true", PARALLELISM_CONFIG_CP_SIZE="2")
    attend = torch.nn.functional.scaled_dot_product_attention

    def gathered(query, key, value, attn_mask, is_causal, **others):
        assert is_causal and attn_mask is None
        n, rank, length = dist.get_world_size(), dist.get_rank(), query.shape[2] // 2
        order = torch.cat([torch.arange(p * length, (p + 1) * length) for r in range(n) for p in (r, 2 * n - 1 - r)])
        places = order.chunk(n)[rank]
        key, value = (context_parallel.Gathered.apply(t) for t in (key, value))
        return attend(query, key, value, places[:, None] >= order[None, :], **others)

    def enable(on):
        torch.nn.functional.scaled_dot_product_attention = gathered if on else attend
    ring._enable_context_parallel_dispatcher_impl = lambda **arguments: enable(True)
    ring._disable_context_parallel_dispatcher_impl = functools.partial(enable, False)


# ---- every family ----

def of_family(config, packed):
    """What a family needs, before its script runs."""
    if "experts" in config:  # their products on a CPU need rows of whole 16 bytes otherwise
        load = dump.load
        dump.load = lambda *arguments: load(*arguments, experts_implementation="eager")
    rows_of = dump.rows_of
    dump.rows_of = lambda *arguments: rows_of(*arguments, packed=packed)


# Not those of fewer bits, whose activations transformers rounds too. In some families documents of a row meet: gpt_oss makes
# its mask without positions, and layers with a state go on.
for folder in sorted((pathlib.Path(__file__).resolve().parents[1] / "golden").iterdir()):
    config = (folder / "config.json").read_text() if list(folder.glob("model*.safetensors")) else "quantization_config"
    if "quantization_config" not in config:
        mixed = '"gpt_oss"' in config or '"linear_num_key_heads"' in config
        RIGHT["golden-" + folder.name] = (one_process, str(folder), functools.partial(of_family, config, not mixed))
        if mixed:
            WRONG["packed-" + folder.name] = (one_process, str(folder), functools.partial(of_family, config, True))


# ---- mistakes ----

def after_load(change):
    """The trainer's model is changed as soon as it is loaded."""
    load = dump.load

    def changed(*arguments):
        model = load(*arguments)
        change(model)
        return model
    dump.load = changed


def after_backward(script, change):
    """The trainer's gradients are changed before they are dumped."""
    backward = script.backward

    def changed(model, *arguments):
        result = backward(model, *arguments)
        change(model)
        return result
    script.backward = changed


def in_gradients(change):
    """The dump's gradients are changed, by name."""
    gradients_of = dump.gradients_of

    def changed(model):
        gradients = gradients_of(model)
        change(gradients)
        return gradients
    dump.gradients_of = changed


# ---- mistakes that have a name ----

@case(ddp)
def mean_of_each_rank():
    """Every rank divides by its own tokens, and DDP takes the mean of these means."""
    total, backward = dump.total, ddp.backward
    dump.total = lambda value: total(value) if value.is_floating_point() else value * dist.get_world_size()
    ddp.backward = lambda model, rows: (backward(model, rows)[0], total(dump.tokens_of(rows["labels"])))


@case(tensor_parallel)
def norms_not_summed():
    """Norms see a part of the sequence on each rank, and their gradients are not summed."""
    whole = dump.whole

    def local(tensor):
        partial = hasattr(tensor, "placements") and any(p.is_partial() for p in tensor.placements) and tensor.ndim == 1
        return whole(tensor.to_local() if partial else tensor)
    dump.whole = local


@case(context_parallel)
def labels_lost_at_the_cut():
    """Labels are cut before they are moved: the last token of a part has none."""
    inputs_of = context_parallel.inputs_of

    def lost(rows):
        inputs = inputs_of(rows)
        inputs["shift_labels"] = torch.nn.functional.pad(inputs["labels"][:, 1:], (0, 1), value=dump.IGNORED)
        return inputs
    context_parallel.inputs_of = lost


@case(one_process)
def tied_head_not_summed():
    """The gradient of a tied table lacks its part as a head."""
    def detach(model):
        model.lm_head.forward = lambda x: torch.nn.functional.linear(x, model.lm_head.weight.detach())
    after_load(detach)


@case(one_process)
def no_document_mask():
    """Tokens see those of the documents before theirs."""
    def attend_all(model):
        forward = model.forward
        model.forward = lambda **inputs: forward(**inputs, attention_mask=torch.ones_like(inputs["input_ids"]))
    after_load(attend_all)


@case(ddp)
def gradient_doubled():
    """One tensor is reduced twice."""
    after_load(lambda model: model.model.layers[1].mlp.up_proj.weight.register_hook(lambda g: 2 * g))


@case(one_process)
def accumulation_not_divided():
    """The gradients of two micro-batches are added, each of a mean over its own tokens."""
    def own_mean(model):
        forward = model.forward
        model.forward = lambda num_items_in_batch, **inputs: forward(**inputs)
    after_load(own_mean)


@case(ddp)
def divided_by_ranks_twice():
    """The loss is divided by all tokens, and DDP divides by the ranks."""
    backward = ddp.backward

    def divided(model, rows):
        size, dump.ranks = dist.get_world_size, lambda: 2
        dist.get_world_size = lambda: 1
        result = backward(model, rows)
        dist.get_world_size = size
        return result
    ddp.backward = divided


@case(ddp)
def samples_of_one_rank():
    """Gradients are not reduced, and rank 0 writes its own."""
    backward = ddp.backward

    def alone(model, rows):
        with model.no_sync():
            return backward(model, rows)
    ddp.backward = alone


@case(one_process)
def weight_decay_inside():
    """L2 regularization instead of decoupled weight decay."""
    def add(model):
        for p in model.parameters():
            p.grad += one_process.WEIGHT_DECAY * p.detach()
    after_backward(one_process, add)


@case(fsdp2)
def clipped():
    """The gradients are those after clipping."""
    after_backward(fsdp2, lambda model: torch.nn.utils.clip_grad_norm_(model.parameters(), one_process.MAX_GRAD_NORM))


@case(one_process, "one-kv")
def kv_gradient_of_one_rank():
    """Two ranks hold copies of one kv head, and the gradients of the copies are not summed: those of rank 0 come from its
    half of the query heads."""
    def copies(model):
        for layer in model.model.layers:
            layer.self_attn.num_key_value_groups //= 2
            for projection in (layer.self_attn.k_proj, layer.self_attn.v_proj):
                linear = projection.forward
                frozen = lambda x, p=projection: torch.nn.functional.linear(x, p.weight.detach())
                projection.forward = lambda x, linear=linear, frozen=frozen: torch.cat((linear(x), frozen(x)), -1)
    after_load(copies)


# ---- mistakes without a name ----

@case(one_process)
def noise():
    def add(gradients):
        g = gradients["model.layers.0.mlp.down_proj.weight"]
        g += 0.01 * g.std() * torch.randn(g.shape, generator=torch.Generator().manual_seed(3))
    in_gradients(add)


@case(one_process)
def transposed():
    def transpose(gradients):
        name = "model.layers.1.self_attn.q_proj.weight"
        gradients[name] = gradients[name].T.contiguous()
    in_gradients(transpose)


@case(one_process)
def row_of_zeros():
    in_gradients(lambda gradients: gradients["model.layers.0.self_attn.o_proj.weight"][5].zero_())


@case(one_process)
def other_theta():
    def rotate(model):
        model.config.rope_parameters["rope_theta"] *= 2
        model.model.rotary_emb = type(model.model.rotary_emb)(model.config)
    after_load(rotate)


@case(one_process)
def other_eps():
    def soften(model):
        for module in model.modules():
            if hasattr(module, "variance_epsilon"):
                module.variance_epsilon = 1e-2
    after_load(soften)


# ---- running them ----

def run(cases, name, folder, rank, ranks):
    """One rank of one case, in this process."""
    script, model, change = cases[name]
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(ranks), LOCAL_WORLD_SIZE=str(ranks))
    change()
    script.main(str(folder / model), str(folder / name))


def run_all(cases, folder):
    """Every rank of every case in a process of its own: what a case changes stays there."""
    os.environ.update(MASTER_ADDR="127.0.0.1")
    for name, (script, _, _) in cases.items():
        ranks = 1 if script is one_process else 2
        with socket.create_server(("127.0.0.1", 0)) as free:
            os.environ["MASTER_PORT"] = str(free.getsockname()[1])
        children = []
        for rank in range(ranks):
            child = os.fork()
            if child == 0:
                with contextlib.suppress(KeyboardInterrupt):
                    run(cases, name, folder, rank, ranks)
                    os._exit(0)
            children.append(child)
        if any([os.waitpid(child, 0)[1] for child in children]):
            sys.exit(f"{name}: no dump")


if __name__ == "__main__":
    what, folder = sys.argv[2], pathlib.Path(sys.argv[3])
    if what == "models":
        write_models(folder)
    else:
        run_all({"right": RIGHT, "wrong": WRONG}[what], folder)
