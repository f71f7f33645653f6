"""The first update of torchtitan 0.3: torchrun --nproc-per-node 2 torchtitan_step.py OUT, then the arguments of torchtitan.train, with
--checkpoint.enable --checkpoint.initial_load_in_hf --checkpoint.initial_load_path MODEL --training.mixed_precision_param float32"""

import sys
from unittest import mock

import torch
import torch.distributed as dist
import torchtitan.distributed.utils
import torchtitan.train

import dump


def rows_of(batches):
    """As transformers takes them: labels of torchtitan are one column ahead, so one more column has the last of them."""
    ids, positions = (torch.cat([inputs[name] for inputs, _ in batches]) for name in ("input", "positions"))
    labels = torch.cat([labels for _, labels in batches])
    return {"input_ids": torch.cat((ids, labels[:, -1:].clamp(min=0)), 1),
            "labels": torch.nn.functional.pad(labels, (1, 0), value=dump.IGNORED),
            "position_ids": torch.cat((positions, positions[:, -1:] + 1), 1)}


def gradients_of(trainer):
    """They are the weights for a moment, as torchtitan gives weights their names and the order of Hugging Face."""
    parameters = [p for part in trainer.model_parts for p in part.parameters()]
    weights = [p.detach().clone() for p in parameters]
    with torch.no_grad():
        for p in parameters:
            p.copy_(p.grad)
        state = {name: dump.whole(t) for part in trainer.model_parts for name, t in part.state_dict().items()}
        for p, w in zip(parameters, weights):
            p.copy_(w)
    return trainer.config.model_spec.state_dict_adapter(trainer.model_config, None).to_hf(state)


def step_of(trainer, train_step, data, out):
    assert not trainer.parallel_dims.pp_enabled, "a pipeline has its gradients on several ranks"
    batches, found, log = [], {}, trainer.metrics_processor.log
    clip = torchtitan.distributed.utils.clip_grad_norm_

    def kept():
        for inputs, labels in data:
            batches.append((dict(inputs), labels))
            yield inputs, labels

    def clip_later(*arguments, **options):
        found["gradients"] = gradients_of(trainer)
        return clip(*arguments, **options)

    def log_loss(step, loss, *arguments, **options):
        found["loss"] = torch.tensor(loss)
        log(step, loss, *arguments, **options)

    with mock.patch.object(torchtitan.distributed.utils, "clip_grad_norm_", clip_later), \
            mock.patch.object(trainer.metrics_processor, "log", log_loss):
        train_step(trainer, kept())
    loaders = trainer.parallel_dims.get_mesh("batch").size() if trainer.parallel_dims.dp_enabled else 1
    rows = {name: t.to(trainer.device) for name, t in rows_of(batches).items()}
    rows = dump.all_rows(rows, dist.get_world_size() // loaders)
    dump.write(out, "batch", rows | {"loss": found["loss"], "tokens": dump.tokens_of(rows["labels"])})
    dump.write(out, "gradients", found["gradients"])


def main(out, *arguments):
    trainer, train_step = torchtitan.train.Trainer, torchtitan.train.Trainer.train_step
    first = lambda self, data: step_of(self, train_step, data, out) if self.step == 1 else train_step(self, data)
    with mock.patch.object(trainer, "train_step", first), mock.patch.object(sys, "argv", [sys.argv[0], *arguments]):
        torchtitan.train.main()
    dump.leave()


if __name__ == "__main__":
    main(*sys.argv[1:])
