"""One update of a mixture with transformers' expert parallelism:
torchrun --nproc-per-node 2 expert_parallel.py MODEL OUT [BATCH.safetensors | ""] [grouped_mm | batched_mm] [tp | fsdp]

Each rank has some of the experts. With tp all ranks have the same rows; with fsdp, which transformers 5.19 refuses, each has
its own."""

import sys

import torch.distributed as dist
from transformers.distributed import DistributedConfig

import dump


def layout(axis, ranks):
    """The experts are cut over the ranks of `axis`; 5.17 has no `ep_size`."""
    known = "ep_size" in DistributedConfig.__dataclass_fields__
    return DistributedConfig(**{f"{axis}_size": ranks}, **({"ep_size": ranks} if known else {"enable_expert_parallel": True}))


def main(model, out, batch=None, experts="grouped_mm", axis="tp"):
    dump.start()
    rank, ranks, own = dist.get_rank(), dist.get_world_size(), axis == "fsdp"
    model = dump.load(model, distributed_config=layout(axis, ranks), experts_implementation=experts)
    rows = dump.rows_of(batch, model.config.vocab_size)
    tokens = dump.tokens_of(rows["labels"])
    mine = dump.share(rows, rank, ranks) if own else rows
    loss = model(**mine, use_cache=False, num_items_in_batch=tokens).loss
    (loss * (ranks if own else 1)).backward()  # FSDP takes the mean over the ranks
    dump.write(out, "batch", rows | {"loss": dump.total(loss) if own else loss.detach(), "tokens": tokens})
    dump.write(out, "gradients", dump.gradients_of(model))
    dump.leave()


if __name__ == "__main__":
    main(*sys.argv[1:])
