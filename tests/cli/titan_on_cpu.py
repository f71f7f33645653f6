"""Runs tools/dump/torchtitan_step.py on CPUs, on the tiny model of dump_cases.py: titan_on_cpu.py TOOLS MODEL OUT [ARGUMENT...]

torchtitan is for GPUs: here it is told that CPUs are its devices, attention is not compiled, and rows are random."""

import dataclasses
import json
import pathlib
import sys

import torch
import torch._utils

torch._utils._get_available_device_type = lambda: "cpu"
torch.compile = lambda function=None, **options: function if function else lambda f: f
tools, model, out, *arguments = sys.argv[1:]
sys.path.insert(0, tools)
import torchtitan.components.metrics as metrics
from torch.distributed.fsdp import FSDPModule
from torch.nn.attention.flex_attention import create_mask
from torchtitan.components.dataloader import BaseDataLoader
from torchtitan.components.loss import CrossEntropyLoss
from torchtitan.components.optimizer import default_adamw
from torchtitan.components.tokenizer import BaseTokenizer
from torchtitan.config import TrainingConfig
from torchtitan.distributed import utils
from torchtitan.models import llama3
from torchtitan.models.common import Embedding, Linear, RMSNorm
from torchtitan.models.common.rope import ComplexRoPE
from torchtitan.models.common.attention import FlexAttention
from torchtitan.trainer import Trainer

import dump
import torchtitan_step

LENGTH, ROWS = 32, 4
CONFIG = json.loads((pathlib.Path(model) / "config.json").read_text())


class Memory:
    """What a CPU has none of."""
    device_name = "cpu"

    def get_peak_stats(self):
        return metrics.DeviceMemStats(0, 0, 0, 0, 0, 0)

    def reset_peak_stats(self):
        pass


def attend(query, key, value, *, block_mask, scale, enable_gqa, **others):
    """Flex attention has no backward on CPUs."""
    mask = create_mask(block_mask.mask_mod, len(query), None, query.shape[2], key.shape[2], device="cpu")
    out = torch.nn.functional.scaled_dot_product_attention(query, key, value, mask, scale=scale, enable_gqa=enable_gqa)
    return out, None


def divide(module, factor):
    """Gloo has no sum with a factor."""
    set_factor(module, factor)
    module.set_force_sum_reduction_for_comms(True)


set_factor = FSDPModule.set_gradient_divide_factor


class Rows(BaseDataLoader):
    @dataclasses.dataclass(kw_only=True, slots=True)
    class Config(BaseDataLoader.Config):
        pass

    def __init__(self, config, *, dp_world_size, dp_rank, local_batch_size, **others):
        rows = dump.rows_of(None, CONFIG["vocab_size"], LENGTH)
        self.rows = dump.share(rows, dp_rank, dp_world_size)
        self.size = local_batch_size

    def __iter__(self):
        labels = torch.nn.functional.pad(self.rows["labels"][:, 1:], (0, 1), value=7)  # the last one, of a token that follows
        for at in range(0, len(labels), self.size):
            part = slice(at, at + self.size)
            yield {"input": self.rows["input_ids"][part], "positions": self.rows["position_ids"][part]}, labels[part]

    def state_dict(self):
        return {}

    def load_state_dict(self, state):
        pass


class NoTokenizer(BaseTokenizer):
    @dataclasses.dataclass(kw_only=True, slots=True)
    class Config(BaseTokenizer.Config):
        pass

    def __init__(self, config, **others):
        super().__init__()

    def encode(self, *arguments, **options):
        raise NotImplementedError

    decode = get_vocab_size = encode


def tiny():
    """The configuration of the model folder, random rows, one step."""
    spec = llama3.model_registry("debugmodel")
    dim, heads, vocabulary = CONFIG["hidden_size"], CONFIG["num_attention_heads"], CONFIG["vocab_size"]
    eps = CONFIG["rms_norm_eps"]
    rope = ComplexRoPE.Config(dim=dim // heads, max_seq_len=64, theta=CONFIG["rope_theta"])
    layers = llama3._build_llama3_layers(
        n_layers=CONFIG["num_hidden_layers"], dim=dim, n_heads=heads, n_kv_heads=CONFIG["num_key_value_heads"],
        hidden_dim=CONFIG["intermediate_size"], rope=rope, attn_backend="flex")
    for layer in layers:
        layer.attention_norm.eps = layer.ffn_norm.eps = eps
    tied = CONFIG["tie_word_embeddings"]
    table = llama3._EMBEDDING_SKIP_INIT if tied else llama3._EMBEDDING_INIT
    spec.model = llama3.Llama3Model.Config(
        dim=dim, vocab_size=vocabulary, enable_weight_tying=tied, layers=layers,
        tok_embeddings=Embedding.Config(num_embeddings=vocabulary, embedding_dim=dim, param_init=table),
        norm=RMSNorm.Config(normalized_shape=dim, eps=eps, param_init=llama3._NORM_INIT),
        lm_head=Linear.Config(in_features=dim, out_features=vocabulary, param_init=llama3._output_linear_init(dim)))
    return Trainer.Config(
        model_spec=spec, hf_assets_path=model, dump_folder=f"{out}-run", tokenizer=NoTokenizer.Config(), dataloader=Rows.Config(),
        optimizer=default_adamw(lr=1e-3), loss=CrossEntropyLoss.Config(global_vocab_size=vocabulary),
        training=TrainingConfig(local_batch_size=1, global_batch_size=ROWS, seq_len=LENGTH, steps=1,
                                mixed_precision_param="float32", disable_cuda_graphs=True))


if __name__ == "__main__":
    metrics.build_device_memory_monitor = Memory
    FlexAttention._compiled_flex_attn = staticmethod(attend)
    FSDPModule.set_gradient_divide_factor = divide
    utils.set_pg_timeouts = lambda **others: None  # of a GPU's index
    sys.modules["titan_tiny"] = sys.modules["__main__"]
    torchtitan_step.main(out, "--module", "titan_tiny", "--config", "tiny", "--checkpoint.enable",
                         "--checkpoint.initial_load_in_hf", "--checkpoint.initial_load_path", str(pathlib.Path(model).resolve()),
                         *arguments)
