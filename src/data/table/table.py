"""Prints the rows of a table, FILE, as JSON, one line each: .csv and .tsv by the module csv, .parquet and .arrow by pyarrow.
The last line is "end N", the number of rows, or "error TEXT". At most MOST rows are read; 0: all.

usage: table.py FILE MOST LONGEST MEMORY    (LONGEST: bytes of a field of .csv; MEMORY: bytes that the process may use)

A small file may stand for far more than its bytes (dictionaries, runs, views, compression), so only one row at a time
becomes Python's values, and the kernel limits the memory.
"""
import csv
import json
import resource
import sys

SAFE_PYARROW = (14, 0, 1)  # older ones run code that a table contains (CVE-2023-47248)
BATCH_BYTES = 16 << 20
BATCH_ROWS = 64


class Refused(Exception):
    """An error of the file; its text follows the file's name in a message."""


def plain(value):
    """What JSON has no form for: dates and times in ISO form, others as Python writes them."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        raise Refused("has binary values, which are not text")
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def finite(value):
    """JSON has no NaN and no infinity: null."""
    if isinstance(value, float):
        return value if value - value == 0 else None
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(item) for item in value]
    return value


def line_of(record):
    form = {"ensure_ascii": False, "separators": (",", ":"), "allow_nan": False, "default": plain}
    try:
        text = json.dumps(record, **form)
    except ValueError:
        text = json.dumps(finite(record), **form)
    return text.encode("utf-8") + b"\n"


def check_names(names):
    seen = set()
    for name in names:
        if name in seen:
            raise Refused(f"two columns are named '{name}'")
        seen.add(name)


def rows_of_csv(path, longest):
    guard(path)
    csv.field_size_limit(longest)
    number = 0
    with open(path, encoding="utf-8-sig", newline="") as file:
        rows = csv.reader(file, delimiter="\t" if path.lower().endswith(".tsv") else ",", strict=True)
        try:
            header = next(rows, None)
            if header is None:
                raise Refused("is empty; its first line must name the columns")
            check_names(header)
            for row in rows:
                if not row:
                    continue
                number += 1
                if len(row) != len(header):
                    raise Refused(f"row {number} (line {rows.line_num}) has fields: {len(row)}, but the header has {len(header)}")
                yield dict(zip(header, row))
        except csv.Error as error:
            raise Refused(f"row {number + 1} (line {rows.line_num}): {error}") from None
        except UnicodeDecodeError as error:
            raise Refused(f"not valid UTF-8 after row {number}: {error.reason}; convert the file, for instance with iconv") from None


def binary_in(kind, types):
    if types.is_dictionary(kind) or (hasattr(types, "is_run_end_encoded") and types.is_run_end_encoded(kind)):
        return binary_in(kind.value_type, types)
    if types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind):
        return True
    return any(binary_in(kind.field(i).type, types) for i in range(kind.num_fields))


def check_schema(schema, types):
    check_names(schema.names)
    for field in schema:
        if binary_in(field.type, types):
            raise Refused(f"the column '{field.name}' is binary ({field.type}); write the file without it")


def batches_of_parquet(path, pyarrow, most):
    """Few rows at a time: a page may repeat a text of a megabyte thousands of times in a few bytes."""
    file = pyarrow.parquet.ParquetFile(path, buffer_size=1 << 20, pre_buffer=False)
    check_schema(file.schema_arrow, pyarrow.types)
    groups = [file.metadata.row_group(i) for i in range(file.metadata.num_row_groups)]
    widest = max((group.total_byte_size // max(group.num_rows, 1) for group in groups), default=0)
    size = max(1, min(BATCH_ROWS, BATCH_BYTES // max(widest, 1), most or BATCH_ROWS))
    yield from file.iter_batches(batch_size=size, use_threads=False)


def batches_of_arrow(path, pyarrow, most):
    """A file, or a stream as `datasets` writes it. Mapped: a batch that is not compressed takes no memory."""
    with pyarrow.memory_map(path) as file:
        is_file = file.read(6) == b"ARROW1"
        file.seek(0)
        reader = pyarrow.ipc.open_file(file) if is_file else pyarrow.ipc.open_stream(file)
        check_schema(reader.schema, pyarrow.types)
        for batch in map(reader.get_batch, range(reader.num_record_batches)) if is_file else reader:
            for first in range(0, batch.num_rows, BATCH_ROWS):
                yield batch.slice(first, BATCH_ROWS)


def readable(column, pyarrow):
    """Nanoseconds do not fit in Python's times: Arrow writes these columns."""
    if pyarrow.types.is_timestamp(column.type) and column.type.unit == "ns":
        return pyarrow.compute.replace_substring(column.cast("string"), " ", "T")
    return column


def rows_of_batch(batch, number, pyarrow):
    columns = [readable(column, pyarrow) for column in batch.columns]
    for i in range(batch.num_rows):
        try:
            yield {name: column[i].as_py() for name, column in zip(batch.schema.names, columns)}
        except ValueError as error:
            raise Refused(f"row {number + i + 1}: {error}") from None


def import_pyarrow():
    try:
        import pyarrow

        if version_of(pyarrow) < SAFE_PYARROW:
            raise Refused(
                f"reading it needs Python's pyarrow 14.0.1 or newer, and {sys.executable} has {pyarrow.__version__}, which "
                f"lets a table run any code (CVE-2023-47248): {sys.executable} -m pip install 'pyarrow>=14.0.1'"
            )
        import pyarrow.compute
        import pyarrow.ipc
        import pyarrow.parquet
    except ImportError as error:
        raise Refused(
            f"reading it needs Python's pyarrow, which {sys.executable} lacks ({error}): python3 -m venv VENV && "
            "VENV/bin/pip install pyarrow, and set NDP_PYTHON to VENV/bin/python"
        ) from None
    pyarrow.set_memory_pool(pyarrow.system_memory_pool())  # others take a gigabyte in advance
    return pyarrow


def rows_of_arrow(path, most):
    pyarrow = import_pyarrow()
    guard(path)
    number = 0
    read = batches_of_parquet if path.lower().endswith(".parquet") else batches_of_arrow
    try:
        for batch in read(path, pyarrow, most):
            yield from rows_of_batch(batch, number, pyarrow)
            number += batch.num_rows
    except MemoryError:  # also Arrow's
        raise MemoryError from None
    except (pyarrow.ArrowException, OSError) as error:
        text = " ".join(str(error).split())
        raise Refused(f"after row {number}: {text}") from None


def write(path, most, longest, out):
    rows = rows_of_csv(path, longest) if path.lower().endswith((".csv", ".tsv")) else rows_of_arrow(path, most)
    number = 0
    try:
        for row in rows:
            if most and number == most:
                break
            number += 1
            try:
                out.write(line_of(row))
            except Refused as error:
                raise Refused(f"row {number} {error}") from None
            except UnicodeEncodeError:
                raise Refused(f"row {number}: not valid Unicode") from None
        out.write(b"end %d\n" % number)
    except Refused as error:
        out.write(f"error {error}\n".encode("utf-8", "replace"))
    except MemoryError:
        most = resource.getrlimit(resource.RLIMIT_DATA)[0] >> 20
        out.write(b"error after row %d: the next one needs more memory than the %d MiB that its reader may use\n" % (number, most))
    out.flush()


if __name__ == "__main__":
    lower_limit(resource.RLIMIT_DATA, int(sys.argv[4]))
    write(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.stdout.buffer)
