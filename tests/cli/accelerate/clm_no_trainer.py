"""A script of the structure of transformers' run_clm_no_trainer.py, of what it calls in its order: groups of tensors with and without
weight decay, a schedule over the batches of the loader, epochs with an evaluation, its perplexity and a checkpoint, a folder at
the end. Tokens are bytes of a text. Its imports are those of the package; tests/golden/check_accelerate.py gives it Accelerate's."""
import argparse
import json
import math
import os

import torch
from torch.utils.data import DataLoader
from tqdm.auto import tqdm
from transformers import AutoConfig

from ndparallel import Accelerator, AdamW, AutoModelForCausalLM, ParallelismConfig, get_scheduler, set_seed


def parse_args():
    parser = argparse.ArgumentParser(description="Trains a causal model on the bytes of a text")
    parser.add_argument("--train_file", required=True)
    parser.add_argument("--validation_split_percentage", type=int, default=10)
    parser.add_argument("--model_name_or_path", help="a folder of Hugging Face; otherwise random weights of --config_name")
    parser.add_argument("--config_name")
    parser.add_argument("--per_device_train_batch_size", type=int, default=8)
    parser.add_argument("--per_device_eval_batch_size", type=int, default=8)
    parser.add_argument("--learning_rate", type=float, default=5e-5)
    parser.add_argument("--weight_decay", type=float, default=0.0)
    parser.add_argument("--num_train_epochs", type=int, default=3)
    parser.add_argument("--max_train_steps", type=int)
    parser.add_argument("--gradient_accumulation_steps", type=int, default=1)
    parser.add_argument("--lr_scheduler_type", default="linear")
    parser.add_argument("--num_warmup_steps", type=int, default=0)
    parser.add_argument("--output_dir")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--block_size", type=int, default=64)
    parser.add_argument("--checkpointing_steps", help="a number of updates, or epoch")
    parser.add_argument("--resume_from_checkpoint")
    parser.add_argument("--with_tracking", action="store_true")
    parser.add_argument("--report_to", default="all")
    for axis in ("dp_replicate", "dp_shard", "cp", "tp"):
        parser.add_argument(f"--{axis}_size", type=int, default=1)
    return parser.parse_args()


def group_texts(data, block_size):
    total_length = len(data) // block_size * block_size
    blocks = [list(data[i:i + block_size]) for i in range(0, total_length, block_size)]
    return [{"input_ids": block, "attention_mask": [1] * block_size, "labels": list(block)} for block in blocks]


def data_collator(rows):
    return {name: torch.tensor([row[name] for row in rows]) for name in rows[0]}


def main():
    args = parse_args()
    accelerator_kwargs = {}
    if args.with_tracking:
        accelerator_kwargs["log_with"] = args.report_to
        accelerator_kwargs["project_dir"] = args.output_dir
    sizes = {axis: getattr(args, axis) for axis in ("dp_replicate_size", "dp_shard_size", "cp_size", "tp_size")}
    if math.prod(sizes.values()) > 1:
        accelerator_kwargs["parallelism_config"] = ParallelismConfig(**sizes)
    accelerator = Accelerator(gradient_accumulation_steps=args.gradient_accumulation_steps, **accelerator_kwargs)
    if args.seed is not None:
        set_seed(args.seed)
    if accelerator.is_main_process and args.output_dir is not None:
        os.makedirs(args.output_dir, exist_ok=True)
    accelerator.wait_for_everyone()

    if args.model_name_or_path:
        config = AutoConfig.from_pretrained(args.model_name_or_path)
        model = AutoModelForCausalLM.from_pretrained(args.model_name_or_path, config=config)
    else:
        model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(args.config_name))
    with accelerator.main_process_first():
        with open(args.train_file, "rb") as file:
            blocks = group_texts(file.read(), args.block_size)
    held_out = max(1, len(blocks) * args.validation_split_percentage // 100)
    train_dataset, eval_dataset = blocks[held_out:], blocks[:held_out]
    train_dataloader = DataLoader(train_dataset, collate_fn=data_collator, batch_size=args.per_device_train_batch_size)
    eval_dataloader = DataLoader(eval_dataset, collate_fn=data_collator, batch_size=args.per_device_eval_batch_size)

    no_decay = ["bias", "layernorm.weight", "norm.weight"]
    optimizer_grouped_parameters = [
        {"params": [p for n, p in model.named_parameters() if not any(nd in n for nd in no_decay) and p.requires_grad],
         "weight_decay": args.weight_decay},
        {"params": [p for n, p in model.named_parameters() if any(nd in n for nd in no_decay) and p.requires_grad],
         "weight_decay": 0.0},
    ]
    optimizer = AdamW(optimizer_grouped_parameters, lr=args.learning_rate)

    overrode_max_train_steps = False
    num_update_steps_per_epoch = math.ceil(len(train_dataloader) / args.gradient_accumulation_steps)
    if args.max_train_steps is None:
        args.max_train_steps = args.num_train_epochs * num_update_steps_per_epoch
        overrode_max_train_steps = True
    lr_scheduler = get_scheduler(
        name=args.lr_scheduler_type, optimizer=optimizer, num_warmup_steps=args.num_warmup_steps * accelerator.num_processes,
        num_training_steps=args.max_train_steps if overrode_max_train_steps else args.max_train_steps * accelerator.num_processes)
    model, optimizer, train_dataloader, eval_dataloader, lr_scheduler = accelerator.prepare(
        model, optimizer, train_dataloader, eval_dataloader, lr_scheduler)
    num_update_steps_per_epoch = math.ceil(len(train_dataloader) / args.gradient_accumulation_steps)
    if overrode_max_train_steps:
        args.max_train_steps = args.num_train_epochs * num_update_steps_per_epoch
    args.num_train_epochs = math.ceil(args.max_train_steps / num_update_steps_per_epoch)

    checkpointing_steps = args.checkpointing_steps
    if checkpointing_steps is not None and checkpointing_steps.isdigit():
        checkpointing_steps = int(checkpointing_steps)
    if args.with_tracking:
        accelerator.init_trackers("clm_no_trainer", vars(args))
    total_batch_size = args.per_device_train_batch_size * accelerator.num_processes * args.gradient_accumulation_steps
    accelerator.print(f"{len(train_dataset)} examples, {args.num_train_epochs} epochs, {total_batch_size} examples an update, "
                      f"{args.max_train_steps} updates")
    progress_bar = tqdm(range(args.max_train_steps), disable=True)
    completed_steps, starting_epoch, resume_step = 0, 0, None
    if args.resume_from_checkpoint:
        accelerator.load_state(args.resume_from_checkpoint)
        training_difference = os.path.splitext(os.path.basename(args.resume_from_checkpoint))[0]
        if "epoch" in training_difference:
            starting_epoch = int(training_difference.replace("epoch_", "")) + 1
            completed_steps = starting_epoch * num_update_steps_per_epoch
        else:
            resume_step = int(training_difference.replace("step_", "")) * args.gradient_accumulation_steps
            starting_epoch = resume_step // len(train_dataloader)
            completed_steps = resume_step // args.gradient_accumulation_steps
            resume_step -= starting_epoch * len(train_dataloader)
    progress_bar.update(completed_steps)

    for epoch in range(starting_epoch, args.num_train_epochs):
        model.train()
        total_loss, total_samples = 0, 0
        if args.resume_from_checkpoint and epoch == starting_epoch and resume_step is not None:
            active_dataloader = accelerator.skip_first_batches(train_dataloader, resume_step)
        else:
            active_dataloader = train_dataloader
        for batch in active_dataloader:
            with accelerator.accumulate(model):
                outputs = model(**batch)
                loss = outputs.loss
                batch_size = batch["input_ids"].shape[0]
                total_loss += loss.detach().float() * batch_size
                total_samples += batch_size
                accelerator.backward(loss)
                optimizer.step()
                lr_scheduler.step()
                optimizer.zero_grad()
            if accelerator.sync_gradients:
                progress_bar.update(1)
                completed_steps += 1
                accelerator.print(f"step {completed_steps}: mean of the epoch {total_loss.item() / total_samples:.7f}, "
                                  f"lr {lr_scheduler.get_last_lr()[0]:.4e}")
            if isinstance(checkpointing_steps, int) and completed_steps % checkpointing_steps == 0 and accelerator.sync_gradients:
                accelerator.save_state(os.path.join(args.output_dir or "", f"step_{completed_steps}"))
            if completed_steps >= args.max_train_steps:
                break

        model.eval()
        losses = []
        for batch in eval_dataloader:
            with torch.no_grad():
                outputs = model(**batch)
            losses.append(accelerator.gather_for_metrics(outputs.loss.repeat(batch["input_ids"].shape[0])))
        losses = torch.cat(losses)
        try:
            eval_loss = torch.mean(losses)
            perplexity = math.exp(eval_loss)
        except OverflowError:
            perplexity = float("inf")
        accelerator.print(f"epoch {epoch}: perplexity {perplexity:.4f}, eval_loss {eval_loss:.6f}")
        if args.with_tracking:
            accelerator.log({"perplexity": perplexity, "eval_loss": eval_loss, "train_loss": total_loss.item() / total_samples,
                             "epoch": epoch, "step": completed_steps}, step=completed_steps)
        if args.checkpointing_steps == "epoch":
            accelerator.save_state(os.path.join(args.output_dir or "", f"epoch_{epoch}"))

    if args.output_dir is not None:
        accelerator.wait_for_everyone()
        unwrapped_model = accelerator.unwrap_model(model)
        unwrapped_model.save_pretrained(args.output_dir, is_main_process=accelerator.is_main_process, save_function=accelerator.save)
        if accelerator.is_main_process:
            with open(os.path.join(args.output_dir, "all_results.json"), "w") as file:
                json.dump({"perplexity": perplexity}, file)
    accelerator.wait_for_everyone()
    accelerator.end_training()


if __name__ == "__main__":
    main()
