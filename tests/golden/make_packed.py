"""Makes packed.safetensors: five matrices as bitsandbytes packs and unpacks them on a CPU, nf4 with double quantization
and int8 by rows. README.md says what is in the file.

    venv/bin/pip install bitsandbytes==0.50.2
    venv/bin/python make_packed.py
"""

import pathlib

import bitsandbytes.functional as bnb
import safetensors.torch
import torch

HERE = pathlib.Path(__file__).parent
BLOCK, NEST = 64, 256


def matrices():
    generator = torch.Generator().manual_seed(29)

    def normal(rows, columns, scale=0.02):
        return scale * torch.randn(rows, columns, generator=generator)

    zeros, outliers = normal(24, 96), normal(48, 80)
    zeros[5] = 0  # a row, and whole blocks in it
    zeros[20:22, :70] = 0
    outliers[::7, 3] *= 60
    return {"blocks": normal(8, 128), "odd": normal(37, 91, 0.5), "nested": normal(130, 130), "zeros": zeros,
            "outliers": outliers}


def portable(op, *args):
    """By the kernel in Python that serves all devices, not that of the library for CPUs."""
    return op.default.redispatch(torch._C.DispatchKeySet(torch._C.DispatchKey.CompositeExplicitAutograd), *args)


def nearest_scales(absmax, offset, code):
    """Codes of absmax, of which those of the library for CPUs are not always the nearest."""
    quantize = torch.ops.bitsandbytes.quantize_blockwise
    rest = absmax - offset
    codes, nested = portable(quantize, rest, code, NEST)
    theirs, theirs_nested = quantize(rest, code, NEST)
    assert torch.equal(nested, theirs_nested)
    scaled = rest / nested.repeat_interleave(NEST)[: rest.numel()]
    assert ((code[codes.long()] - scaled).abs() <= (code[theirs.long()] - scaled).abs()).all()
    return codes, nested, int((codes != theirs).sum())


def mean(absmax, theirs):
    """Rounded once. That of torch depends on how many numbers a CPU adds at a time, and so may be the next fp32."""
    offset = absmax.double().mean().float()
    assert abs(offset - theirs) <= torch.finfo(torch.float32).eps * offset
    return offset


def unpacked(packed, state):
    """The library for CPUs takes blocks to begin with a row: it is right where a row is whole blocks."""
    absmax = bnb.dequantize_blockwise(state.absmax, state.state2) + state.offset
    values = portable(torch.ops.bitsandbytes.dequantize_4bit, packed, absmax, BLOCK, "nf4", state.shape, torch.float32)
    assert state.shape[1] % BLOCK or torch.equal(values, bnb.dequantize_4bit(packed, state))
    return values


def nf4(x):
    packed, state = bnb.quantize_4bit(x, blocksize=BLOCK, quant_type="nf4", compress_statistics=True)
    _, plain = bnb.quantize_4bit(x, blocksize=BLOCK, quant_type="nf4", compress_statistics=False)
    said = f"{plain.absmax.numel()} blocks; bitsandbytes has the offset {state.offset:.9g}"
    state.offset = mean(plain.absmax, state.offset)
    state.absmax, state.state2.absmax, others = nearest_scales(plain.absmax, state.offset, state.state2.code)
    said += f", here {state.offset:.9g}; its library for CPUs has {others} other scales"
    return {"nf4": packed.flatten(), "absmax": plain.absmax, "scales": state.absmax, "nested": state.state2.absmax,
            "offset": state.offset.reshape(1), "nf4_values": unpacked(packed, state)}, said


def int8(x):
    codes, absmax, _ = bnb.int8_vectorwise_quant(x)
    codes[absmax == 0] = 0  # a row of zeros divides by 0
    return {"int8": codes.view(torch.uint8), "rows": absmax,
            "int8_values": torch.ops.bitsandbytes.int8_vectorwise_dequant(codes, absmax)}


def main():
    torch.set_num_threads(1)
    made = {}
    for name, x in matrices().items():
        four, said = nf4(x)
        made |= {f"{name}.{what}": t.contiguous() for what, t in ({"x": x} | four | int8(x)).items()}
        print(name, tuple(x.shape), said)
    made["dynamic"] = bnb.create_dynamic_map()
    safetensors.torch.save_file(made, HERE / "packed.safetensors")


if __name__ == "__main__":
    main()
