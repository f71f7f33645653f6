"""One update with DTensor tensor parallelism, norms on a part of the sequence (sequence parallelism), of a model with the modules
of Llama: torchrun --nproc-per-node 2 tensor_parallel.py MODEL OUT [BATCH.safetensors]"""

import sys

import torch.distributed as dist
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (ColwiseParallel, PrepareModuleInput, RowwiseParallel, SequenceParallel,
                                               parallelize_module)

import dump

WHOLE, PART = Replicate(), Shard(1)  # of the sequence
LAYER = {"input_layernorm": SequenceParallel(), "post_attention_layernorm": SequenceParallel(),
         "self_attn": PrepareModuleInput(input_kwarg_layouts={"hidden_states": PART},
                                         desired_input_kwarg_layouts={"hidden_states": WHOLE}),
         "self_attn.o_proj": RowwiseParallel(output_layouts=PART),
         "mlp": PrepareModuleInput(input_layouts=PART, desired_input_layouts=WHOLE),
         "mlp.down_proj": RowwiseParallel(output_layouts=PART)}
LAYER |= {name: ColwiseParallel() for name in ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "mlp.gate_proj",
                                               "mlp.up_proj")}
MODEL = {"model.embed_tokens": RowwiseParallel(input_layouts=WHOLE, output_layouts=PART), "model.norm": SequenceParallel(),
         "lm_head": ColwiseParallel(input_layouts=PART, output_layouts=WHOLE)}


def parallelized(model):
    mesh = dist.init_device_mesh(model.device.type, (dist.get_world_size(),))
    tied = model.lm_head.weight is model.model.embed_tokens.weight
    parallelize_module(model, mesh, MODEL | {f"model.layers.*.{name}": plan for name, plan in LAYER.items()})
    if tied:
        model.lm_head.weight = model.model.embed_tokens.weight
    return model


def backward(model, rows):
    """The mask is given, since transformers would make one for the part of the sequence that the embedding returns."""
    tokens, mask = dump.tokens_of(rows["labels"]), dump.mask_of(rows["position_ids"])
    loss = model(**rows, attention_mask=mask, use_cache=False, num_items_in_batch=tokens).loss
    loss.backward()
    return dump.whole(loss), tokens


def main(model, out, batch=None):
    device = dump.start()
    model = parallelized(dump.load(model, device))
    rows = dump.share(dump.rows_of(batch, model.config.vocab_size), 0, 1, device)
    loss, tokens = backward(model, rows)
    dump.write(out, "batch", rows | {"loss": loss, "tokens": tokens})
    dump.write(out, "gradients", dump.gradients_of(model))
    dump.leave()


if __name__ == "__main__":
    main(*sys.argv[1:])
