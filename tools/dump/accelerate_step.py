"""One update with Accelerate in the layout it is launched with (DDP, FSDP2, TP, CP):
accelerate launch --num_processes 2 ... accelerate_step.py MODEL OUT [BATCH.safetensors]"""

import sys

import accelerate
import torch
from transformers.distributed import DistributedConfig

import dump

MICRO_BATCHES = 2


def sizes_of(accelerator):
    """cp and tp: so many ranks, one after another, load the same rows."""
    config = accelerator.parallelism_config
    return (config.cp_size, config.tp_size) if config else (1, 1)


def backward(accelerator, model, rows):
    """The loss and the number of tokens of the update, over all ranks; the gradients in the model. DDP and FSDP take the
    mean over all ranks but those of tp and Accelerate divides by the micro-batches, so each loss is multiplied by both."""
    cp, tp = sizes_of(accelerator)
    loss, tokens = 0, dump.total(dump.tokens_of(rows["labels"])) // (cp * tp)
    rows = rows | {"shift_labels": torch.nn.functional.pad(rows["labels"][:, 1:], (0, 1), value=dump.IGNORED)}
    for index in range(MICRO_BATCHES):
        part = {name: t.clone() for name, t in dump.share(rows, index, MICRO_BATCHES, accelerator.device).items()}
        buffers = list(part.values())
        with accelerator.accumulate(model), accelerator.maybe_context_parallel(buffers, [1] * len(buffers), set(buffers)):
            out = model(**part, use_cache=False, num_items_in_batch=tokens)
            accelerator.backward(out.loss * (accelerator.num_processes // tp * MICRO_BATCHES))
        loss += out.loss.detach()
    return dump.total(loss) / tp, tokens


def main(model, out, batch=None):
    accelerator = accelerate.Accelerator(cpu=not torch.cuda.is_available(), gradient_accumulation_steps=MICRO_BATCHES)
    cp, tp = sizes_of(accelerator)
    model = dump.load(model, **{"distributed_config": DistributedConfig(tp_size=tp, tp_plan="auto")} if tp > 1 else {})
    rows = dump.rows_of(batch, model.config.vocab_size, packed=cp == 1)  # the attention of CP has no document mask
    model, _ = accelerator.prepare(model, torch.optim.AdamW(model.parameters()))
    groups = accelerator.num_processes // (cp * tp)
    rows = dump.share(rows, accelerator.process_index // (cp * tp), groups, accelerator.device)
    loss, tokens = backward(accelerator, model, rows)
    dump.write(out, "batch", dump.all_rows(rows, cp * tp) | {"loss": loss, "tokens": tokens})
    dump.write(out, "gradients", dump.gradients_of(model))
    dump.leave()


if __name__ == "__main__":
    main(*sys.argv[1:])
