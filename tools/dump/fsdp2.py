"""One update with torch's FSDP2 (fully_shard): torchrun --nproc-per-node 2 fsdp2.py MODEL OUT [BATCH.safetensors]"""

import sys

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

import dump

MICRO_BATCHES = 2


def sharded(model):
    for layer in model.get_submodule(model.base_model_prefix).layers:
        fully_shard(layer)
    return fully_shard(model)


def backward(model, rows):
    """The loss and the number of tokens of the update, over all ranks; the gradients in the model. FSDP takes the mean over
    the ranks, so each multiplies its loss by their number."""
    loss, tokens, world = 0, dump.total(dump.tokens_of(rows["labels"])), dist.get_world_size()
    for index in range(MICRO_BATCHES):
        model.set_requires_gradient_sync(index == MICRO_BATCHES - 1)
        out = model(**dump.share(rows, index, MICRO_BATCHES), use_cache=False, num_items_in_batch=tokens)
        (out.loss * world).backward()
        loss += out.loss.detach()
    return dump.total(loss), tokens


def main(model, out, batch=None):
    device = dump.start()
    model = sharded(dump.load(model, device))
    rows = dump.rows_of(batch, model.config.vocab_size)
    rows = dump.share(rows, dist.get_rank(), dist.get_world_size(), device)
    loss, tokens = backward(model, rows)
    dump.write(out, "batch", dump.all_rows(rows) | {"loss": loss, "tokens": tokens})
    dump.write(out, "gradients", dump.gradients_of(model))
    dump.leave()


if __name__ == "__main__":
    main(*sys.argv[1:])
