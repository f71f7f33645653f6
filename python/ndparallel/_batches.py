"""Batches as transformers has them become those of the library; a prepared loader deals them out to data ranks."""
import itertools

from ._library import fail, unknown
from ._tensors import rows_of

INPUTS = ("input_ids", "labels", "attention_mask", "position_ids")


def _span(at, mask):
    """Where the tokens of a row begin and end."""
    kept = [i for i, seen in enumerate(mask) if seen]
    first, end = (kept[0], kept[-1] + 1) if kept else (0, 0)
    len(kept) == end - first or fail(f"attention_mask of sample {at} has zeros between ones; padding begins or ends a row")
    return first, end


def _cut(rows, spans, skip, pad):
    """The tokens of each row without the first ones, and padding after them."""
    return rows and [row[first + skip:end] + [pad] * (len(row) - end + first + skip) for row, (first, end) in zip(rows, spans)]


def read_batch(batch):
    """input_ids, labels that are not shifted, attention_mask and position_ids, [samples, length], as an ndp_batch."""
    unknown("model", batch, INPUTS)
    batch.get("input_ids") is not None or fail("a batch needs input_ids, [samples, length]")
    ids, labels, masks, positions = given = [batch.get(name) is not None and rows_of(batch[name], name) for name in INPUTS]
    for name, rows in zip(INPUTS, given):
        if rows and [*map(len, rows)] != [*map(len, ids)]:
            fail(f"{name} has shape {[len(rows), len(rows[0])]}, input_ids {[len(ids), len(ids[0]) if ids else 0]}")
    spans = [_span(at, mask) for at, mask in enumerate(masks or [[1] * len(row) for row in ids])]
    out = {"lengths": [end - first for first, end in spans], "ids": _cut(ids, spans, 0, 0),
           "labels": _cut(labels, spans, 1, -100) or None, "positions": _cut(positions, spans, 0, 0) or None}
    if positions and not masks:  # as of packed rows: a position 0 begins a document
        out["documents"] = [list(itertools.accumulate(int(p == 0) for p in row)) for row in positions]
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

    __len__ = lambda self: max(0, -(-len(self.batches) // self.accelerator.data_ranks) - self.skipped)

    def _rounds(self):
        it = iter(self.batches)
        for batch in it:
            self.accelerator.trainer or self.accelerator.start(batch)
            yield Round([batch, *itertools.islice(it, self.accelerator.data_ranks - 1)], self.accelerator.data_rank)

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
