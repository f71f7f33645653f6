"""One update with torch's DistributedDataParallel: torchrun --nproc-per-node 2 ddp.py MODEL OUT [BATCH.safetensors]"""

import contextlib
import sys

import torch
import torch.distributed as dist

import dump

MICRO_BATCHES = 2


def backward(model, rows):
    """The loss and the number of tokens of the update, over all ranks; the gradients in the model. DDP takes the mean over
    the ranks, so each multiplies its loss by their number."""
    loss, tokens, world = 0, dump.total(dump.tokens_of(rows["labels"])), dist.get_world_size()
    for index in range(MICRO_BATCHES):
        last = index == MICRO_BATCHES - 1
        with contextlib.nullcontext() if last else model.no_sync():
            out = model(**dump.share(rows, index, MICRO_BATCHES), use_cache=False, num_items_in_batch=tokens)
            (out.loss * world).backward()
        loss += out.loss.detach()
    return dump.total(loss), tokens


def main(model, out, batch=None):
    device = dump.start()
    model = torch.nn.parallel.DistributedDataParallel(dump.load(model, device))
    rows = dump.rows_of(batch, model.module.config.vocab_size)
    rows = dump.share(rows, dist.get_rank(), dist.get_world_size(), device)
    loss, tokens = backward(model, rows)
    dump.write(out, "batch", dump.all_rows(rows) | {"loss": loss, "tokens": tokens})
    dump.write(out, "gradients", dump.gradients_of(model))
    dump.leave()


if __name__ == "__main__":
    main(*sys.argv[1:])
