"""One update of a mixture with transformers' expert parallelism: torchrun --nproc-per-node 2 expert_parallel.py MODEL OUT
[BATCH.safetensors] [grouped_mm | batched_mm | eager]; all ranks have the same rows, and some of the experts each."""

import sys

import torch
import torch.distributed as dist
import transformers
from transformers.distributed import DistributedConfig

import dump


def layout(ranks):
    """Experts are cut over the ranks, whose number is that of transformers' tp; 5.17 has no `ep_size`."""
    own = DistributedConfig.__dataclass_fields__
    return DistributedConfig(tp_size=ranks, **({"ep_size": ranks} if "ep_size" in own else {"enable_expert_parallel": True}))


def main(model, out, batch=None, experts="grouped_mm"):
    dump.start()
    model = dump.load(model, distributed_config=layout(dist.get_world_size()), experts_implementation=experts)
    rows = dump.rows_of(batch or None, model.config.vocab_size)
    tokens = dump.tokens_of(rows["labels"])
    loss = model(**rows, use_cache=False, num_items_in_batch=tokens).loss
    loss.backward()
    dump.write(out, "batch", rows | {"loss": loss.detach(), "tokens": tokens})
    dump.write(out, "gradients", dump.gradients_of(model))
    dump.leave()


if __name__ == "__main__":
    main(*sys.argv[1:])
