"""A training loop as Hugging Face Accelerate has it, with a layout of four sizes.

    ndparallel launch -n 4 accelerate_script.py --dp-replicate 2 --dp-shard 2
    python accelerate_script.py

The sizes are those of dp_replicate, dp_shard, cp and tp; their product is the number of ranks that `launch` starts, and the
losses are the same on every layout. The model is a small Llama with random weights, the corpus a sequence that it can predict.
Needs neither torch nor numpy: batches may be their tensors, or lists.
"""
import argparse

from ndparallel import Accelerator, AdamW, AutoModelForCausalLM, ParallelismConfig, get_scheduler, set_seed

LENGTH, SAMPLES, ROWS = 64, 96, 8  # tokens of a row; rows of the corpus, of an update
MODEL = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 64, "hidden_size": 32,
         "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, 
         "max_position_embeddings": LENGTH, "rms_norm_eps": 1e-5, "hidden_act": "silu", "tie_word_embeddings": False,
         "bos_token_id": 0, "eos_token_id": 1}


def corpus():
    """Rows of several lengths, each a walk around the vocabulary; padded, as a tokenizer would have it."""
    for row in range(SAMPLES):
        n = LENGTH - row * 5 % 23
        ids = [2 + (row * 7 + i * (1 + row % 3)) % 62 for i in range(n)]
        yield ids + [1] * (LENGTH - n), [1] * n + [0] * (LENGTH - n)


def batches(size):
    """Dictionaries as a DataLoader gives them; labels are not shifted, -100 is not trained on."""
    rows = list(corpus())
    for at in range(0, len(rows), size):
        ids, mask = zip(*rows[at:at + size])
        labels = [[token if seen else -100 for token, seen in zip(*row)] for row in zip(ids, mask)]
        yield {"input_ids": list(ids), "attention_mask": list(mask), "labels": labels}


def main():
    options = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    for axis in ("dp-replicate", "dp-shard", "cp", "tp"):
        options.add_argument(f"--{axis}", type=int, default=1)
    options.add_argument("--accumulate", type=int, default=1, help="batches of an update on each data rank")
    options.add_argument("--epochs", type=int, default=2)
    options.add_argument("--project", default="accelerate_run", help="folder of checkpoints, and of the trained model")
    options.add_argument("--resume", action="store_true")
    args = options.parse_args()

    accelerator = Accelerator(
        parallelism_config=ParallelismConfig(dp_replicate_size=args.dp_replicate, dp_shard_size=args.dp_shard, cp_size=args.cp,
                                             tp_size=args.tp),
        gradient_accumulation_steps=args.accumulate, project_dir=args.project)
    set_seed(42)
    # An update has the same rows on every layout.
    dataloader = list(batches(ROWS // (args.dp_replicate * args.dp_shard * args.accumulate)))
    # The scheduler advances by an update's batches, one for each data rank, as Accelerate's does.
    steps = args.epochs * SAMPLES // ROWS * accelerator.num_processes
    model = AutoModelForCausalLM.from_config(MODEL)
    optimizer = AdamW(model.parameters(), lr=3e-3)
    scheduler = get_scheduler("cosine", optimizer, num_warmup_steps=4 * accelerator.num_processes, num_training_steps=steps)
    model, optimizer, dataloader, scheduler = accelerator.prepare(model, optimizer, dataloader, scheduler)
    done = 0
    if args.resume:
        accelerator.load_state()
        done = accelerator.trainer.updates

    for epoch in range(args.epochs):
        for batch in accelerator.skip_first_batches(dataloader, max(0, done * args.accumulate - epoch * len(dataloader))):
            with accelerator.accumulate(model):
                outputs = model(**batch)
                accelerator.backward(outputs.loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
            if accelerator.sync_gradients:
                done += 1
                accelerator.print(f"step {done}  loss {accelerator.last_update.loss:.6f}  lr {scheduler.get_last_lr()[0]:.2e}")
    accelerator.wait_for_everyone()
    accelerator.save_state()
    accelerator.save_model(model, f"{args.project}/model")


if __name__ == "__main__":
    main()
