"""Arrays of others where they are: what has the buffer protocol (array, numpy), tensors of torch, and lists. Neither
numpy nor torch is imported here."""
import ctypes
from array import array

from ._library import fail

_KINDS = {"int8": "b", "int16": "h", "int32": "i", "int64": "l", "uint8": "B", "float32": "f", "float64": "d", "bool": "?"}


def _of_torch(x, what):
    x.device.type == "cpu" or fail(f"{what} is on another device; give it as {what}.cpu()")
    x.is_contiguous() or fail(f"{what} is not contiguous; give {what}.contiguous()")
    kind = _KINDS.get(str(x.dtype)[6:]) or fail(f"{what} has {x.dtype}; give int32, int64, float32 or float64")
    room = (ctypes.c_char * (x.numel() * x.element_size())).from_address(x.data_ptr())
    room.owner = x  # lives as long as the view
    return memoryview(room).cast("B").cast(kind), tuple(x.shape)


def _of_list(x, what):
    shape = [len(x)]
    while x and isinstance(x[0], (list, tuple)):
        all(len(row) == len(x[0]) for row in x) or fail(f"rows of {what} have several lengths; pad them")
        shape.append(len(x[0]))
        x = [value for row in x for value in row]
    return memoryview(array("d" if any(isinstance(value, float) for value in x) else "l", x)), tuple(shape)


def view(x, what, kind=None):
    """(flat memoryview, shape) of a number, an array, a tensor or a list; a copy where it has not the `kind` that is wanted."""
    try:
        x = [float(x)] if hasattr(x, "__float__") and not hasattr(x, "shape") else x
        if isinstance(x, (list, tuple)) or hasattr(x, "data_ptr"):
            m, shape = (_of_list if isinstance(x, (list, tuple)) else _of_torch)(x, what)
        else:
            m = memoryview(x)
            m, shape = m.cast("B").cast({"q": "l", "Q": "L"}.get(m.format, m.format)) if m.nbytes else m, m.shape
        return memoryview(array(kind, m.tolist())) if kind and (m.format != kind or m.readonly) else m, shape
    except (TypeError, OverflowError) as e:
        fail(f"{what} is a {type(x).__name__} ({e}); give numbers as a list, an array, or a contiguous tensor")


def array_of(x, kind, what):
    """(array of this kind of ctypes, shape); a copy where x has another one."""
    m, shape = view(x, what, kind._type_)
    return (kind * len(m)).from_buffer(m), shape


def rows_of(x, what):
    """A [samples, length] array as lists of numbers."""
    m, shape = view(x, what)
    len(shape) == 2 or fail(f"{what} has shape {list(shape)}; it must be [samples, length]")
    return [m[i * shape[1]:(i + 1) * shape[1]].tolist() for i in range(shape[0])]
