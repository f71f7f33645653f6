"""What the scripts here use of torch, where there is none: tensors are lists of numbers, or of rows."""
from contextlib import nullcontext as no_grad  # noqa: F401


class Tensor(list):
    shape = property(lambda self: (len(self), len(self[0])) if self and isinstance(self[0], list) else (len(self),))
    flat = property(lambda self: [x for row in self for x in row] if len(self.shape) > 1 else list(self))
    ne = lambda self, value: Tensor([x != value for x in self.flat])
    sum = lambda self: Tensor([sum(self.flat)])
    item = __float__ = lambda self: self.flat[0]
    new_tensor = lambda self, values: Tensor(values)
    reshape = lambda self, shape: self
    __radd__ = lambda self, other: Tensor([self.item() + other])
    __add__ = lambda self, other: Tensor([self.item() + other.item()])
    __format__ = lambda self, form: format(self.item(), form)


def tensor(values):
    return Tensor(values)


def cat(tensors):
    return Tensor([x for each in tensors for x in each])


def mean(values):
    return Tensor([sum(values.flat) / len(values.flat)])


def manual_seed(seed):
    pass
