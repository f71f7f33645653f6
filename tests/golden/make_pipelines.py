"""Pipeline schedules both ways: torch writes the CSV files of tests/golden/pipeline, and reads ours.

    python make_pipelines.py              writes the files of four schedules, p 4, m 8, in both formats
    python make_pipelines.py FILE.csv ... loads files of ours, lowers them to messages and simulates them
"""

import csv
import pathlib
import sys
import types

from torch.distributed.pipelining import schedules

HERE = pathlib.Path(__file__).parent / "pipeline"
RANKS, MICRO_BATCHES = 4, 8
WRITTEN = {"interleaved": "Interleaved1F1B", "interleaved_zero_bubble": "InterleavedZeroBubble",
           "zbv": "ZBVZeroBubble", "dualpipev": "DualPipeV"}


def stages(ranks, per_rank):
    """What a schedule reads of its stages: rank 0's, without modules or process group."""
    return [types.SimpleNamespace(num_stages=ranks * per_rank, group_size=ranks, group_rank=0, stage_index=ranks * i,
                                  is_first=i == 0, is_last=i == per_rank - 1, submod=None) for i in range(per_rank)]


def simulate(schedule):
    """Adds messages, and fails if the ranks deadlock. The simulator knows neither pairs nor sharding: pairs run in sequence."""
    rows = {rank: [leaf for a in row if a for leaf in a.sub_actions or (a,)] for rank, row in schedule.pipeline_order.items()}
    rank_of = schedule.stage_index_to_group_rank
    rows = schedules._add_send_recv(rows, lambda stage: rank_of[stage], schedule._num_stages)
    schedules._simulate_comms_compute(rows, lambda stage: rank_of[stage], schedule._num_stages)


def write():
    HERE.mkdir(exist_ok=True)
    for name, torch_name in WRITTEN.items():
        schedule = schedules.get_schedule_class(torch_name)(stages(RANKS, 2), MICRO_BATCHES)
        schedule._dump_csv(HERE / f"{name}.csv", "compute_only")
        schedule._dump_csv(HERE / f"{name}_comms.csv", "compute_comms")
        simulate(schedule)


def read(path):
    with open(path, newline="") as file:
        actions = [schedules._Action.from_str(cell) for row in csv.reader(file) for cell in row]
    flat = [leaf for a in actions if a for leaf in a.sub_actions or (a,)]
    n_stages = 1 + max(a.stage_index for a in flat)
    n_micro_batches = 1 + max(a.microbatch_index for a in flat)
    with open(path) as file:
        ranks = sum(1 for _ in file)
    schedule = schedules._PipelineScheduleRuntime(stages(ranks, n_stages // ranks), n_micro_batches)
    schedule._load_csv(path)  # validates, and adds messages
    simulate(schedule)
    print(f"{path}: {ranks} ranks, {n_stages} stages, {n_micro_batches} micro-batches: loaded")


if len(sys.argv) > 1:
    for path in sys.argv[1:]:
        read(path)
else:
    write()
