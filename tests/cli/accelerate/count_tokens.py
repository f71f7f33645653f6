"""A script of the structure of Accelerate's gradient_accumulation_for_autoregressive_models.py, of what it calls in its order: the
batches of an update are read first, their tokens counted and gathered, and the loss of each is divided by all of them; rows are
words of a text, of several lengths. Its imports are those of the package; tests/golden/check_accelerate.py gives it Accelerate's."""
import argparse
import contextlib
import math

import torch
from torch.utils.data import DataLoader

from ndparallel import Accelerator, AdamW, AutoModelForCausalLM, DistributedType, get_constant_schedule, set_seed

EVAL_BATCH_SIZE, PAD = 8, 0


def get_dataloaders(accelerator, file, batch_size=16, max_training_samples=160):
    with accelerator.local_main_process_first():
        with open(file, "rb") as text:
            words = text.read().split()
    rows, held_out = [], []
    with accelerator.main_process_first():
        while len(rows) < max_training_samples:  # lines of 4 to 9 words
            n = 4 + len(rows) % 6
            rows.append({"input_ids": list(b" ".join(words[:n]))})
            words = words[n:]
        rest = b" ".join(words)
        held_out = [{"input_ids": list(rest[at:at + 48])} for at in range(0, 24 * 48, 48)]

    def collate_fn(examples):
        max_length = 128 if accelerator.distributed_type == DistributedType.XLA else max(len(e["input_ids"]) for e in examples)
        if accelerator.mixed_precision != "no":
            max_length = -(-max_length // 8) * 8
        batch = {"input_ids": [], "attention_mask": [], "labels": []}
        for ids in (e["input_ids"] for e in examples):
            pad = max_length - len(ids)
            batch["input_ids"].append(ids + [PAD] * pad)
            batch["attention_mask"].append([1] * len(ids) + [0] * pad)
            batch["labels"].append(ids + [-100] * pad)
        return {name: torch.tensor(value) for name, value in batch.items()}

    return (DataLoader(rows, shuffle=False, collate_fn=collate_fn, batch_size=batch_size),
            DataLoader(held_out, shuffle=False, collate_fn=collate_fn, batch_size=min(EVAL_BATCH_SIZE, batch_size)))


def training_function(config, args):
    gradient_accumulation_steps = int(args.gradient_accumulation_steps)
    if args.with_tracking:
        accelerator = Accelerator(cpu=args.cpu, mixed_precision=args.mixed_precision, log_with="tensorboard", project_dir="tracked",
                                  gradient_accumulation_steps=gradient_accumulation_steps)
    else:
        accelerator = Accelerator(cpu=args.cpu, mixed_precision=args.mixed_precision,
                                  gradient_accumulation_steps=gradient_accumulation_steps)
    if accelerator.distributed_type == DistributedType.XLA and gradient_accumulation_steps > 1:
        raise NotImplementedError("gradient accumulation on TPUs")
    if args.with_tracking:
        accelerator.init_trackers("count_tokens", config, init_kwargs={})

    set_seed(config["seed"])
    train_dataloader, eval_dataloader = get_dataloaders(accelerator, args.file, config["batch_size"])
    model = AutoModelForCausalLM.from_pretrained(args.model)
    model = model.to(accelerator.device)
    optimizer = AdamW(params=model.parameters(), lr=config["lr"])
    lr_scheduler = get_constant_schedule(optimizer=optimizer)
    model, optimizer, train_dataloader, eval_dataloader, lr_scheduler = accelerator.prepare(
        model, optimizer, train_dataloader, eval_dataloader, lr_scheduler)

    num_samples_in_epoch = len(train_dataloader)
    remainder = num_samples_in_epoch % gradient_accumulation_steps or gradient_accumulation_steps
    total_gradient_updates = math.ceil(num_samples_in_epoch / gradient_accumulation_steps)
    for epoch in range(config["num_epochs"]):
        model.train()
        training_iterator = iter(train_dataloader)
        for update_step in range(total_gradient_updates):
            num_batches_in_step = gradient_accumulation_steps if update_step != total_gradient_updates - 1 else remainder
            batch_samples = [next(training_iterator) for _ in range(num_batches_in_step)]
            local_num_items_in_batch = sum([batch["labels"].ne(-100).sum() for batch in batch_samples])
            num_items_in_batch = accelerator.gather(local_num_items_in_batch).sum().item()
            losses = []
            for i, batch in enumerate(batch_samples):
                last = i == len(batch_samples) - 1
                ctx = contextlib.nullcontext if last or accelerator.num_processes == 1 else model.no_sync
                with ctx():
                    outputs = model(**batch, use_cache=False, num_items_in_batch=num_items_in_batch)
                    loss = outputs.loss * gradient_accumulation_steps * accelerator.num_processes
                    accelerator.backward(loss)
                    losses.append(loss.detach())

            grad_norm = accelerator.clip_grad_norm_(model.parameters(), config["max_grad_norm"])
            optimizer.step()
            lr_scheduler.step()
            optimizer.zero_grad()
            losses = accelerator.gather(sum(losses)).sum().item() / (accelerator.num_processes * gradient_accumulation_steps)
            grad_norm = grad_norm.detach().item() if isinstance(grad_norm, torch.Tensor) else grad_norm
            accelerator.print(f"epoch {epoch} - update step {update_step}:: grad norm: {grad_norm:.5f} ::train loss: {losses:.7f}")
            if args.with_tracking:
                accelerator.log({"train/grad_norm": grad_norm, "train/epoch": epoch, "train/loss": losses},
                                step=update_step + total_gradient_updates * epoch)
        model.eval()
        losses = []
        for batch in eval_dataloader:
            with torch.no_grad():
                outputs = model(**batch, use_cache=False)
            losses.append(accelerator.gather_for_metrics(outputs.loss.repeat(EVAL_BATCH_SIZE)))
        losses = torch.cat(losses)
        try:
            eval_loss = torch.mean(losses)
            perplexity = math.exp(eval_loss)
        except OverflowError:
            perplexity = float("inf")
        accelerator.print(f"epoch {epoch}:: eval perplexity: {perplexity:.4f} eval_loss: {eval_loss:.6f}")
        if args.with_tracking:
            accelerator.log({"eval/perplexity": perplexity, "eval/loss": eval_loss, "eval/epoch": epoch},
                            step=update_step + total_gradient_updates * epoch)
    accelerator.end_training()


def main():
    parser = argparse.ArgumentParser(description="Simple example of training script.")
    parser.add_argument("--mixed_precision", type=str, default=None, choices=["no", "fp16", "bf16", "fp8"])
    parser.add_argument("--gradient_accumulation_steps", type=int, default=1)
    parser.add_argument("--per_device_batch_size", type=int, default=2)
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--with_tracking", action="store_true")
    parser.add_argument("--model", required=True)
    parser.add_argument("--file", required=True)
    args = parser.parse_args()
    config = {"lr": 5e-4, "num_epochs": 2, "seed": 42, "batch_size": args.per_device_batch_size, "max_grad_norm": 1.0}
    training_function(config, args)


if __name__ == "__main__":
    main()
