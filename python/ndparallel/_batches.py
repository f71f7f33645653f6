"""Batches as transformers has them become those of the library; a prepared loader deals them out to data ranks."""
import itertools
import math

from ._library import fail, unknown
from ._tensors import rows_of

INPUTS = ("input_ids", "labels", "attention_mask", "position_ids")
_IGNORED = -100  # the label of what is not trained on


def _read_row(at, ids, labels, mask, positions):
    """The tokens of a sample without padding: ids, labels, each at the token before, positions, documents."""
    kept = [i for i, seen in enumerate(mask) if seen] if mask else range(len(ids))
    first, end = (kept[0], kept[-1] + 1) if kept else (0, 0)
    len(kept) == end - first or fail(f"attention_mask of sample {at} has zeros between ones; padding begins or ends a row")
    documents = [0] * (end - first)
    if positions and not mask:  # as of packed rows without a mask: a position 0 begins a document
        documents = list(itertools.accumulate(int(p == 0) for p in positions))
    shifted = [max(label, _IGNORED) for label in labels[first + 1:end]] + [_IGNORED] if labels and kept else []
    return ids[first:end], shifted, positions[first:end] if positions else [], documents


def read_batch(batch):
    """input_ids, labels that are not shifted, attention_mask and position_ids, [samples, length], as an ndp_batch."""
    unknown("a batch", batch, INPUTS)
    given = [rows_of(batch[name], name) if batch.get(name) is not None else None for name in INPUTS]
    given[0] is not None or fail("a batch needs input_ids, [samples, length]")
    length = len(given[0][0]) if given[0] else 0
    for name, rows in zip(INPUTS, given):
        if rows and (len(rows), len(rows[0])) != (len(given[0]), length):
            fail(f"{name} has shape {[len(rows), len(rows[0])]}, input_ids {[len(given[0]), length]}")
    rows = [_read_row(i, *(rows[i] if rows else None for rows in given)) for i in range(len(given[0]))]
    out = {"lengths": [len(row[0]) for row in rows]}
    for part, name, pad, present in ((0, "ids", 0, True), (1, "labels", _IGNORED, given[1]), (2, "positions", 0, given[3]),
                                     (3, "documents", -1, True)):
        out[name] = [row[part] + [pad] * (length - len(row[part])) for row in rows] if present else None
    return out


class Round:
    """A batch for each data rank. `shown` is this rank's; where there is none the first one, of which it computes nothing."""
    def __init__(self, batches, data_rank):
        self.batches, self.window, self._read = batches, None, {}
        self.shown = dict(batches[data_rank if data_rank < len(batches) else 0])
        self._own = [data_rank] if data_rank < len(batches) else []

    read = lambda self, i: self._read.get(i) or self._read.setdefault(i, read_batch(self.batches[i]))
    own = lambda self: [dict(self.read(i)) for i in self._own]
    all = lambda self: [{**self.read(i), "everywhere": True} for i in range(len(self.batches))]
    tokens = lambda self: sum(label >= 0 for batch in self.all() for row in batch["labels"] or () for label in row)


def longest(loader):
    """Of the rows of a loader, where they are a list of dictionaries or a table of the library datasets; else 0."""
    rows = getattr(loader.batches, "dataset", ())
    if "input_ids" not in getattr(rows, "column_names", ()):
        rows = {"input_ids": [r.get("input_ids", ()) for r in rows if isinstance(r, dict)] if isinstance(rows, list) else ()}
    return max(map(len, rows["input_ids"]), default=0)


class Loader:
    """A prepared loader: batch i is of data rank i % data_ranks; the rounds of an update, its window, are read ahead."""
    def __init__(self, accelerator, batches, skipped=0):
        self.accelerator, self.batches, self.skipped = accelerator, batches, skipped

    __len__ = lambda self: max(0, math.ceil(len(self.batches) / self.accelerator.data_ranks) - self.skipped)

    def _rounds(self):
        it = iter(self.batches)
        for batch in it:
            self.accelerator.trainer or self.accelerator.start(batch)
            batches = [batch, *itertools.islice(it, self.accelerator.data_ranks - 1)]
            yield Round(batches, self.accelerator.data_rank)

    def __iter__(self):
        rounds = itertools.islice(self._rounds(), self.skipped, None)
        while window := list(itertools.islice(rounds, self.accelerator.gradient_accumulation_steps)):
            for round_ in window:
                round_.window, self.accelerator.round = window, round_
                yield round_.shown


def skip_first_batches(loader, num_batches=0):
    """The prepared loader without the first batches of each rank."""
    isinstance(loader, Loader) or fail("skip_first_batches: prepare the loader first")
    return Loader(loader.accelerator, loader.batches, loader.skipped + num_batches)
