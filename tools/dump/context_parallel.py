"""One update with context parallelism in torch: each rank has a part of every row and gathers the keys and values of the others.
torchrun --nproc-per-node 2 context_parallel.py MODEL OUT [BATCH.safetensors]"""

import sys

import torch
import torch.distributed as dist
import transformers

import dump


def part(t, dim):
    return t.chunk(dist.get_world_size(), dim)[dist.get_rank()].contiguous()


class Gathered(torch.autograd.Function):
    """Keys or values [B, heads, S, D] of all ranks; the backward sums what the queries of all ranks have for this part."""

    @staticmethod
    def forward(ctx, t):
        parts = [torch.empty_like(t, memory_format=torch.contiguous_format) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, t.contiguous())
        return torch.cat(parts, 2)

    @staticmethod
    def backward(ctx, gradient):
        gradient = gradient.contiguous()
        dist.all_reduce(gradient)
        return part(gradient, 2)


def attention(module, query, key, value, attention_mask, scaling=None, **kwargs):
    key, value = (Gathered.apply(t).repeat_interleave(module.num_key_value_groups, 1) for t in (key, value))
    out = torch.nn.functional.scaled_dot_product_attention(query, key, value, attention_mask, scale=scaling)
    return out.transpose(1, 2).contiguous(), None


def inputs_of(rows):
    """This rank's part of a batch: labels are moved before they are cut, the mask has this part's queries and all keys."""
    labels = torch.nn.functional.pad(rows["labels"][:, 1:], (0, 1), value=dump.IGNORED)
    inputs = {name: part(t, 1) for name, t in rows.items()}
    return inputs | {"shift_labels": part(labels, 1), "attention_mask": part(dump.mask_of(rows["position_ids"]), 2)}


def backward(model, rows):
    tokens = dump.tokens_of(rows["labels"])
    loss = model(**inputs_of(rows), use_cache=False, num_items_in_batch=tokens).loss
    loss.backward()
    for p in model.parameters():
        dist.all_reduce(p.grad)
    return dump.total(loss), tokens


def main(model, out, batch=None):
    device = dump.start()
    transformers.AttentionInterface.register("gathered", attention)
    model = dump.load(model, device)
    model.set_attn_implementation("gathered")
    rows = dump.share(dump.rows_of(batch, model.config.vocab_size), 0, 1, device)
    loss, tokens = backward(model, rows)
    dump.write(out, "batch", rows | {"loss": loss, "tokens": tokens})
    dump.write(out, "gradients", dump.gradients_of(model))
    dump.leave()


if __name__ == "__main__":
    main(*sys.argv[1:])
