"""Makes tests/golden/tables: the same conversations as .jsonl, .parquet, .arrow (a stream and a file), and rows of all
types as .parquet, with what they are as records. Needs pyarrow; run it in tests/golden.
"""
import datetime
import json
import math

import pyarrow
import pyarrow.parquet

FOLDER = "tables/"


def conversation(i):
    messages = [{"role": "user", "content": f'What is "{i}", in words?\nSay it {"é" * (i % 5)}.'},
                {"role": "assistant", "content": f"It is {i} {'and more ' * (i % 7)}."}]
    return {"messages": messages, "id": 2**60 + i, "score": i / 3}


def write_lines(name, rows):
    with open(FOLDER + name, "w") as file:
        for row in rows:
            file.write(json.dumps(row, ensure_ascii=False) + "\n")


rows = [conversation(i) for i in range(40)]
table = pyarrow.Table.from_pylist(rows)
write_lines("chat.jsonl", rows)
pyarrow.parquet.write_table(table, FOLDER + "chat.parquet", row_group_size=15, compression="zstd")
with pyarrow.OSFile(FOLDER + "chat.arrow", "wb") as file, pyarrow.ipc.new_stream(file, table.schema) as writer:
    writer.write_table(table, max_chunksize=13)
with pyarrow.OSFile(FOLDER + "chat-file.arrow", "wb") as file, pyarrow.ipc.new_file(file, table.schema) as writer:
    writer.write_table(table, max_chunksize=13)

types = pyarrow.table({
    "text": ["first", "second"],
    "large": [2**62 + 1, -5],
    "unsigned": pyarrow.array([2**64 - 1, None], pyarrow.uint64()),
    "number": [math.nan, math.inf],
    "numbers": [[1.5, math.nan], None],
    "day": [datetime.date(2020, 1, 2), None],
    "time": pyarrow.array([1600000000000000001, None], pyarrow.timestamp("ns")),
    "word": pyarrow.array(["a", "b"]).dictionary_encode(),
    "nested": [{"when": datetime.datetime(2020, 1, 2, 3, 4, 5), "none": None, "list": [{"x": True}]}, None],
})
pyarrow.parquet.write_table(types, FOLDER + "types.parquet", compression="none")
write_lines("types.jsonl", [
    {"text": "first", "large": 2**62 + 1, "unsigned": 2**64 - 1, "number": None, "numbers": [1.5, None], "day": "2020-01-02",
     "time": "2020-09-13T12:26:40.000000001", "word": "a",
     "nested": {"when": "2020-01-02T03:04:05", "none": None, "list": [{"x": True}]}},
    {"text": "second", "large": -5, "unsigned": None, "number": None, "numbers": None, "day": None, "time": None, "word": "b",
     "nested": None}])
image = pyarrow.table({"text": ["a"], "image": [{"bytes": b"\0", "path": "x"}]})
pyarrow.parquet.write_table(image, FOLDER + "image.parquet")

# Small files of large tables: one text of 256 KiB in 20000 rows, in each way to store it once; and rows of nothing.
LONG, ROWS = "long " * 52429, 20000
once = pyarrow.DictionaryArray.from_arrays(pyarrow.array([0] * ROWS, pyarrow.int8()), pyarrow.array([LONG]))
packed = pyarrow.ipc.IpcWriteOptions(compression="zstd")


def write_bomb(name, column, title="text"):
    bomb = pyarrow.table({title: column})
    with pyarrow.OSFile(FOLDER + name, "wb") as file, pyarrow.ipc.new_stream(file, bomb.schema, options=packed) as writer:
        writer.write_table(bomb)


write_bomb("dictionary.arrow", once)
write_bomb("struct.arrow", pyarrow.StructArray.from_arrays([once], names=["inside"]))
write_bomb("runs.arrow", pyarrow.RunEndEncodedArray.from_arrays(pyarrow.array([ROWS], pyarrow.int32()), pyarrow.array([LONG])))
write_bomb("row.arrow", pyarrow.ListArray.from_arrays(pyarrow.array([0, ROWS], pyarrow.int32()), once))
write_bomb("nulls.arrow", pyarrow.NullArray.from_buffers(pyarrow.null(), 2**31 - 1, [None]), "n" * 400)
pyarrow.parquet.write_table(pyarrow.table({"text": once}), FOLDER + "dictionary.parquet", compression="zstd", store_schema=False)
pyarrow.parquet.write_table(pyarrow.table({"text": [LONG] * 2000}), FOLDER + "prefixes.parquet", compression="zstd",
                            use_dictionary=False, column_encoding={"text": "DELTA_BYTE_ARRAY"}, store_schema=False)
