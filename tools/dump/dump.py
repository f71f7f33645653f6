"""One update of a trainer as the folder that `ndparallel verify job.yaml --against FOLDER` reads (README.md here).

What needs all ranks (gathering a sharded tensor) runs on every rank; rank 0 writes."""

import os
import pathlib
import re

import safetensors.torch
import torch
import torch.distributed as dist
import transformers
from transformers.core_model_loading import revert_weight_conversion

IGNORED = -100
WRAPPERS = re.compile(r"(?<![^.])(?:module|_orig_mod|_checkpoint_wrapped_module|_fsdp_wrapped_module)\.")


def start():
    """Joins the other ranks; the device of this one: a GPU, if each rank of the host has one."""
    rank, ranks = int(os.environ["LOCAL_RANK"]), int(os.environ["LOCAL_WORLD_SIZE"])
    device = torch.device("cuda", rank) if torch.cuda.device_count() >= ranks else torch.device("cpu")
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    return device


def load(folder, device=None, **layout):
    """The model in fp32, with the mask of packed documents that transformers makes of position_ids."""
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, **layout)
    return (model.to(device) if device else model).train()


def ranks():
    return dist.get_world_size() if dist.is_initialized() else 1


def rows_of(file, vocabulary, length=32, packed=True):
    """Rows [B, S] as the batch.safetensors `file` has them (`verify --dump` writes one); without a file two rows a rank of
    random tokens: if packed two documents a row, and ignored labels at its end, another number in each of a few rows."""
    if file:
        tensors = safetensors.torch.load_file(file)
        ids = tensors["input_ids"]
        positions = tensors.get("position_ids", torch.arange(ids.shape[1]).expand(ids.shape))
        return {"input_ids": ids.long(), "labels": tensors["labels"].long(), "position_ids": positions.long().contiguous()}
    rows = 2 * max(2, ranks())
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(vocabulary, (rows, length), generator=generator)
    starts = torch.randint(length // 4, length // 2, (rows, 1), generator=generator) if packed else length
    positions = torch.arange(length).expand(rows, -1)
    positions = torch.where(positions < starts, positions, positions - starts)
    labels = ids.masked_fill(positions == 0, IGNORED)
    for row in range(rows):
        labels[row, length - 3 * row % (length // 2) :] = IGNORED
    return {"input_ids": ids, "labels": labels, "position_ids": positions.contiguous()}


def share(rows, index, of, device="cpu"):
    """Part `index` of `of` equal parts of the rows: those of a rank, or of a micro-batch."""
    n = len(rows["input_ids"])
    assert n % of == 0, f"{n} rows do not divide into {of} equal parts"
    return {name: t.chunk(of)[index].to(device) for name, t in rows.items()}


def tokens_of(labels):
    """The number of labels that count: transformers moves them by one, so a row's first label is not a target."""
    return (labels[:, 1:] != IGNORED).sum()


def mask_of(position_ids):
    """[B, 1, S, S], true where a token sees another: one of its document, and not after it. A document begins where the
    positions do not go on."""
    document = torch.nn.functional.pad(position_ids.diff() != 1, (1, 0)).cumsum(-1)
    same = document[:, None, :, None] == document[:, None, None, :]
    return same & torch.ones_like(same).tril()


def total(value):
    """The sum over all ranks."""
    value = value.detach().clone()
    if ranks() > 1:
        dist.all_reduce(value)
    return value


def all_rows(rows, copies=1):
    """The rows of all ranks, from the rows that each rank loaded; `copies` ranks, one after another, loaded the same."""
    if ranks() == 1:
        return rows
    parts = {name: [torch.empty_like(t) for _ in range(ranks())] for name, t in rows.items()}
    for name, t in rows.items():
        dist.all_gather(parts[name], t.contiguous())
    return {name: torch.cat(p[::copies]) for name, p in parts.items()}


def whole(tensor):
    """A DTensor with all its shards, and its summands added."""
    tensor = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
    return tensor.detach().cpu().clone(memory_format=torch.contiguous_format)


def named_as_in_files(model, tensors):
    """By the names in the model's file, where a stack of experts is a tensor for each of them."""
    model = getattr(model, "module", model)
    tensors = {WRAPPERS.sub("", name): whole(t) for name, t in tensors}
    return revert_weight_conversion(model, tensors) if isinstance(model, transformers.PreTrainedModel) else tensors


def gradients_of(model):
    """A tied table is there once."""
    return named_as_in_files(model, [(name, p.grad) for name, p in model.named_parameters() if p.grad is not None])


def weights_of(model):
    """With buffers that files have, as biases of routers are."""
    kept = model.state_dict().keys()
    buffers = [(name, b) for name, b in model.named_buffers() if name in kept]
    return named_as_in_files(model, [*model.named_parameters(), *buffers])


def write(folder, file, tensors):
    """`batch`, `gradients` or `weights`, by rank 0."""
    if not dist.is_initialized() or dist.get_rank() == 0:
        pathlib.Path(folder).mkdir(parents=True, exist_ok=True)
        tensors = {name: t.cpu().contiguous() for name, t in tensors.items()}
        safetensors.torch.save_file(tensors, f"{folder}/{file}.safetensors")


def leave():
    """The end of a rank. Threads of a process group sometimes abort the interpreter while it ends, so the process ends first."""
    os._exit(0)
