"""One update of transformers in one process: one_process.py MODEL OUT [BATCH.safetensors]"""

import sys

import torch

import dump

MICRO_BATCHES = 2
LR, BETAS, EPS, WEIGHT_DECAY, MAX_GRAD_NORM = 1e-3, (0.9, 0.95), 1e-8, 0.1, 1.0


def optimizer_of(model):
    matrices = [p for p in model.parameters() if p.ndim >= 2]
    others = [p for p in model.parameters() if p.ndim < 2]
    groups = [{"params": matrices, "weight_decay": WEIGHT_DECAY}, {"params": others, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=LR, betas=BETAS, eps=EPS)


def backward(model, rows):
    """The loss, the number of tokens and the logits of the update; the gradients in the model."""
    loss, tokens, logits = 0, dump.tokens_of(rows["labels"]), []
    for index in range(MICRO_BATCHES):
        out = model(**dump.share(rows, index, MICRO_BATCHES), use_cache=False, num_items_in_batch=tokens)
        out.loss.backward()
        loss += out.loss.detach()
        logits.append(out.logits.detach())
    return loss, tokens, torch.cat(logits)


def main(model, out, batch=None):
    model = dump.load(model)
    rows, optimizer = dump.rows_of(batch, model.config.vocab_size), optimizer_of(model)
    loss, tokens, logits = backward(model, rows)
    dump.write(out, "batch", rows | {"loss": loss, "tokens": tokens, "logits": logits, "lr": torch.tensor(LR)})
    dump.write(out, "gradients", dump.gradients_of(model))
    torch.nn.utils.clip_grad_norm_(model.parameters(), MAX_GRAD_NORM)
    optimizer.step()
    dump.write(out, "weights", dump.weights_of(model))


if __name__ == "__main__":
    main(*sys.argv[1:])
