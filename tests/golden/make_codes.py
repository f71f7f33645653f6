"""Makes codes.json: the dynamic maps of bitsandbytes, what it makes of some tensors, and steps of its 8-bit AdamW, on the CPU.
README.md says what is in the file.

    python make_codes.py

Needs bitsandbytes==0.50.2 besides requirements.txt, on a little-endian machine. Tensors are made by `numbers`, which the tests do again, so the file has
results alone.
"""

import json
import pathlib

import bitsandbytes
import numpy as np
import torch
from bitsandbytes.functional import create_dynamic_map, quantize_blockwise

HERE = pathlib.Path(__file__).parent
BLOCK = 256
TENSORS = [(2048, True), (1000, True), (256, False), (1500, False), (70, True)]
ELEMENTS, STEPS = 700, 3
OPTIONS = {"lr": 0.01, "betas": (0.9, 0.95), "eps": 1e-8, "weight_decay": 0.1}


def numbers(n, key):
    """n numbers of both signs over five decades, in fp32."""
    h = (np.arange(n, dtype=np.uint64) * 2654435761 + np.uint64(key) * 40503 + 12345) % (1 << 32)
    h = (h ^ (h >> np.uint64(15))) * 2246822519 % (1 << 32)
    scales = np.array([1.0, 0.1, 0.01, 0.001, 0.0001])
    return ((h.astype(np.float64) / 2147483648.0 - 1.0) * scales[(h >> np.uint64(8)) % 5]).astype(np.float32)


def floats(x):
    return [float(v) for v in np.asarray(x, dtype=np.float32)]


def tensor(key, n, signed):
    x = torch.from_numpy(numbers(n, key) if signed else np.abs(numbers(n, key)))
    codes, state = quantize_blockwise(x, code=create_dynamic_map(signed), blocksize=BLOCK)
    assert state.absmax.numel() == (n + BLOCK - 1) // BLOCK
    return {"elements": n, "signed": signed, "absmax": floats(state.absmax), "codes": bytes(codes.tolist()).hex()}


def adamw():
    """Weights and states after each step."""
    w = torch.nn.Parameter(torch.from_numpy(numbers(ELEMENTS, 100)))
    optimizer = bitsandbytes.optim.AdamW8bit([w], min_8bit_size=1, **OPTIONS)
    steps = []
    for step in range(STEPS):
        w.grad = torch.from_numpy(numbers(ELEMENTS, 101 + step))
        optimizer.step()
        state = optimizer.state[w]
        assert state["state1"].dtype == torch.uint8
        steps.append({"weights": w.detach().numpy().tobytes().hex(),
                      "m": bytes(state["state1"].tolist()).hex(), "v": bytes(state["state2"].tolist()).hex(),
                      "m_absmax": floats(state["absmax1"]), "v_absmax": floats(state["absmax2"])})
    return {**OPTIONS, "elements": ELEMENTS, "steps": steps}


def main():
    out = {"made_with": {"bitsandbytes": bitsandbytes.__version__, "torch": torch.__version__},
           "signed": floats(create_dynamic_map(True)),
           "unsigned": floats(create_dynamic_map(False)),
           "tensors": [tensor(k, *t) for k, t in enumerate(TENSORS)],
           "adamw": adamw()}
    (HERE / "codes.json").write_text(json.dumps(out) + "\n")


main()
