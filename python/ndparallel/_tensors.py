"""Arrays of others where they are: what has the buffer protocol (array, numpy), what has DLPack (torch), and lists. Neither
numpy nor torch is imported here."""
import ctypes
from array import array

from ._library import fail

_KINDS = {(0, 8): "b", (0, 16): "h", (0, 32): "i", (0, 64): "q", (1, 8): "B", (2, 32): "f", (2, 64): "d", (6, 8): "?"}


class _Tensor(ctypes.Structure):
    """DLTensor of dlpack.h, with which a DLManagedTensor begins."""
    _fields_ = [("data", ctypes.c_void_p), ("device", ctypes.c_int32 * 2), ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8),
                ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)), ("offset", ctypes.c_uint64)]


_pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
_pointer_of.restype, _pointer_of.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]


def _by_dlpack(x, what):
    """The capsule, which is not consumed, frees the tensor when it ends."""
    x.__dlpack_device__()[0] == 1 or fail(f"{what} is on another device; give it as {what}.cpu()")
    capsule = (x.detach() if hasattr(x, "detach") else x).__dlpack__()
    t, size = _Tensor.from_address(_pointer_of(capsule, b"dltensor")), 1
    shape = tuple(t.shape[:t.ndim])
    (t.code, t.bits) in _KINDS or fail(f"{what} has {t.bits} bits of DLPack's kind {t.code}; give int32, int64, float or double")
    for axis in reversed(range(t.ndim)):
        t.strides and shape[axis] > 1 and t.strides[axis] != size and fail(f"{what} is not contiguous; give {what}.contiguous()")
        size *= shape[axis]
    room = (ctypes.c_char * (size * t.bits // 8)).from_address(t.data + t.offset) if size else b""
    return memoryview(room).cast("B").cast(_KINDS[t.code, t.bits]), shape, capsule


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
        if isinstance(x, (list, tuple)) or (hasattr(x, "__dlpack__") and not hasattr(x, "__array_interface__")):  # numpy: below
            return (_of_list if isinstance(x, (list, tuple)) else _by_dlpack)(x, what)
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
