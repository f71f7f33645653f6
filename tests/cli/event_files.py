"""event_files RUN: TensorBoard's own reader finds in RUN/tb all numbers of RUN/metrics.jsonl, in fp32, and nothing else;
and the job as a text. `event_files` alone ends with 1 where there is no such reader."""
import json
import logging
import struct
import sys

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

logging.disable(logging.WARNING)  # it says that it drops the steps of runs before


def wanted(run):
    tags = {}
    with open(run + "/metrics.jsonl", encoding="utf-8") as lines:
        for line in map(json.loads, lines):
            step = line.pop("step")
            for key, value in line.items():
                tag = "eval/" + key[5:] if key.startswith("eval_") else "train/" + key
                if value is not None:
                    tags.setdefault(tag, []).append((step, struct.unpack("f", struct.pack("f", value))[0]))
    return tags


def main(run):
    reader = EventAccumulator(run + "/tb", size_guidance={"scalars": 0, "tensors": 0})
    reader.Reload()
    found = {tag: [(e.step, e.value) for e in reader.Scalars(tag)] for tag in reader.Tags()["scalars"]}
    expected = wanted(run)
    for tag in sorted(set(found) | set(expected)):
        if found.get(tag) != expected.get(tag):
            sys.exit(f"{tag}: {found.get(tag)}, expected {expected.get(tag)}")
    assert reader.SummaryMetadata("job").plugin_data.plugin_name == "text"
    assert b"    train:\n" in reader.Tensors("job")[-1].tensor_proto.string_val[0]
    print(f"{sum(map(len, found.values()))} scalars, {len(found)} tags: equal")


if len(sys.argv) > 1:
    main(sys.argv[1])
