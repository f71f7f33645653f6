"""Arrays of others where they are: what has the buffer protocol (array, numpy), tensors of torch, and lists. Neither
numpy nor torch is imported here."""
import ctypes
from array import array

from ._library import fail

_KINDS = {"int8": "b", "int16": "h", "int32": "i", "int64": "q", "uint8": "B", "float32": "f", "float64": "d", "bool": "?"}


def _of_torch(x, what):
    x.device.type == "cpu" or fail(f"{what} is on another device; give it as {what}.cpu()")
    x.is_contiguous() or fail(f"{what} is not contiguous; give {what}.contiguous()")
    kind = _KINDS.get(str(x.dtype)[6:]) or fail(f"{what} has {x.dtype}; give int32, int64, float32 or float64")
    room = (ctypes.c_char * (x.numel() * x.element_size())).from_address(x.data_ptr()) if x.numel() else b""
    return memoryview(room).cast("B").cast(kind), tuple(x.shape), x


def _of_list(x, what):
    shape = [len(x)]
    while x and isinstance(x[0], (list, tuple)):
        all(len(row) == len(x[0]) for row in x) or fail(f"rows of {what} have several lengths; pad them")
        shape.append(len(x[0]))
        x = [value for row in x for value in row]
    return memoryview(array("d" if any(isinstance(value, float) for value in x) else "q", x)), tuple(shape), None


def view(x, what):
    """(flat memoryview, shape, what must live as long) of an array, a tensor or a list."""
    try:
        if isinstance(x, (list, tuple)) or hasattr(x, "data_ptr"):
            return (_of_list if isinstance(x, (list, tuple)) else _of_torch)(x, what)
        m = memoryview(x)
        return m.cast("B").cast({"l": "q", "L": "Q"}.get(m.format, m.format)) if m.nbytes else m, m.shape, m
    except (TypeError, OverflowError) as e:
        fail(f"{what} is a {type(x).__name__} ({e}); give numbers as a list, an array, or a contiguous tensor")


def array_of(x, kind, what):
    """(array of ctypes, shape, what must live as long) of int32 "i", int64 "q" or double "d"; a copy where x has another kind."""
    m, shape, keep = view(x, what)
    if m.format != kind or m.readonly:
        try:
            m = memoryview(array(kind, m.tolist()))
        except (OverflowError, TypeError) as e:
            fail(f"{what}: {e}")
    return ({"i": ctypes.c_int32, "q": ctypes.c_int64, "d": ctypes.c_double}[kind] * len(m)).from_buffer(m), shape, (m, keep)


def rows_of(x, what):
    """A [samples, length] array as lists of numbers."""
    m, shape, _keep = view(x, what)
    len(shape) == 2 or fail(f"{what} has shape {list(shape)}; it must be [samples, length]")
    values = m.tolist()
    return [values[i * shape[1]:(i + 1) * shape[1]] for i in range(shape[0])]
