"""Snapshots of a job that never ran: what each task does in a second is given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from headgate.observe.channel_columns import columns_of
from headgate.observe.metrics_snapshot import MetricsSnapshot
from headgate.observe.topology import EdgeShape, OperatorShape, Topology, VertexShape

#: What a task does in a second if nothing else is said: it waits for input.
_TASK = {
    "busy_s": 0.0, "idle_s": 0.0, "soft_backpressured_s": 0.0, "hard_backpressured_s": 0.0, "checkpoint_wait_s": 0.0,
    "throttle_wait_s": 0.0, "interpreter_wait_s": 0.0, "input_s": 0.0, "output_s": 0.0, "snapshot_s": 0.0, "cpu_s": 0.0,
    "run_delay_s": 0.0, "disk_wait_s": None, "at_lock_s": None, "running_s": None,
}  # fmt: skip
#: The other times that add up to the time of the task.
_STATES = ("busy_s", "soft_backpressured_s", "hard_backpressured_s", "checkpoint_wait_s", "throttle_wait_s")
_MACHINE = {
    "cores": 8, "machine_cpu_s": 0.0, "cpu_s": 0.0, "collection_s": 0.0, "steal_s": 0.0, "throttled_s": 0.0,
    "io_pressure_s": 0.0,
    "disk_read_bytes": 0.0, "disk_written_bytes": 0.0, "block_delay_s": 0.0, "lock_wait_s": 0.0, "lock_probes": 4.0,
}  # fmt: skip
_TOTALS = {
    "buffers_sent", "bytes_sent", "credits_granted", "credit_wait_s", "without_buffer_s", "busy_s", "rwnd_limited_s",
    "sndbuf_limited_s",
}  # fmt: skip
Does = Mapping[str, Any]
Tasks = Mapping[tuple[int, int], Does]
Channels = Mapping[tuple[str, int, int], Mapping[str, Any]]


def line(*vertices: str, parallelism: int = 2) -> Topology:
    """Return vertices in a row. A name like "a -> b" is a chain. The first operator is a source, the last a sink."""
    shapes: list[VertexShape] = []
    last = vertices[-1].split(" -> ")[-1]
    number = 0
    for vertex, name in enumerate(vertices):
        operators = []
        for each in name.split(" -> "):
            kind = "source" if number == 0 else "sink" if each == last else "map_batches"
            operators.append(OperatorShape(number, each, kind))
            number += 1
        shapes.append(VertexShape(vertex, name, parallelism, tuple(operators)))
    edges = tuple(
        EdgeShape(
            f"{one.operators[-1].name} -> {two.operators[0].name}", one.id, one.operators[-1].id, two.id, "rebalance"
        )
        for one, two in pairwise(shapes)
    )
    return Topology("job", tuple(shapes), edges)


def branches(names: Sequence[str], *sends: tuple[int, int]) -> Topology:
    """Return vertices with one subtask each. `sends` has (producer, consumer) for each exchange."""
    targets, sources = {target for _, target in sends}, {source for source, _ in sends}
    kinds = ["source" if each not in targets else "map_batches" if each in sources else "sink" for each in range(9)]
    vertices = tuple(
        VertexShape(id_, name, 1, (OperatorShape(id_, name, kinds[id_]),)) for id_, name in enumerate(names)
    )
    edges = tuple(
        EdgeShape(f"{names[source]} -> {names[target]}", source, source, target, "rebalance")
        for source, target in sends
    )
    return Topology("job", vertices, edges)


def snapshots(
    topology: Topology,
    tasks: Tasks,
    *,
    count: int = 12,
    machine: Mapping[str, float] | None = None,
    channels: Channels | None = None,
    link: Mapping[str, Any] | None = None,
    edges: Mapping[str, Mapping[str, float]] | None = None,
    memory_usage: float = 0.5,
    driver: Mapping[str, Any] | None = None,
    attempt: int = 0,
    begin: float = 1000.0,
) -> list[MetricsSnapshot]:
    """Return snapshots a second apart. All tasks run in one process.

    Each task does in each second what `tasks` says, by vertex and subtask: shares of time, `rows`, `batches`, `lag_s`.
    It waits for input for the rest. Its busy time is that of its operator `in`, the first one if not given, unless
    `in_s` says otherwise. `channels` says the same of channels, by exchange, producer and consumer, and `link` of a
    connection of the process to itself. `edges` says what exchanges carry in a second: `rows_out`, `bytes_out`,
    `buffers_out`; and how full their buffers are: `out_pool_usage`. `driver` says how many
    processors the driver uses: `cpu_s`.
    """
    made = [_report(topology, tasks, second, machine or {}) for second in range(count)]
    for second, report in enumerate(made):
        report["channels"] = columns_of(
            [
                {"edge": edge, "producer": producer, "consumer": consumer, **_totals(does, second)}
                for (edge, producer, consumer), does in (channels or {}).items()
            ]
        )
        report["links"] = [] if link is None else [{"peer": 0, "number": 0, "bytes_sent": 0, **_totals(link, second)}]
        report["edges"] = [
            {
                "name": name,
                "producer": 0,
                **{each: value if each == "out_pool_usage" else value * second for each, value in does.items()},
            }
            for name, does in (edges or {}).items()
        ]
        report["network_memory"] = {"requested_usage": memory_usage, "segment_size": 32768}
    return [
        MetricsSnapshot(
            at=begin + at,
            attempt=attempt,
            reports=(report,),
            driver=None if driver is None else _of_driver(driver, at),
        )
        for at, report in enumerate(made)
    ]


def _of_driver(does: Mapping[str, Any], second: int) -> dict[str, Any]:
    return {"host": "one", "pid": 1, **does, "cpu_s": does["cpu_s"] * second, "clock_s": float(second)}


def _totals(does: Mapping[str, Any], second: int) -> dict[str, Any]:
    """Return the counters of a channel or link: totals have grown for so many seconds, other values stay."""
    return {name: value * second if name in _TOTALS and value is not None else value for name, value in does.items()}


def _report(topology: Topology, tasks: Tasks, second: int, machine: Mapping[str, float]) -> dict[str, Any]:
    rows: list[dict[str, Any]] = []
    operators: list[dict[str, Any]] = []
    for vertex in topology.vertices:
        for subtask in range(vertex.parallelism):
            does = tasks.get((vertex.id, subtask), {"idle_s": 1.0})
            rest = max(0.0, 1 - sum(does.get(name, 0.0) for name in _STATES))
            given = {**_TASK, "idle_s": rest, **{name: does[name] for name in _TASK.keys() & does.keys()}}
            totals = {name: None if value is None else value * second for name, value in given.items()}
            rows.append(
                {
                    **totals,
                    "name": f"{vertex.name}[{subtask}]",
                    "vertex": vertex.id,
                    "subtask": subtask,
                    "ended": does.get("ended", False),
                    "in_pool_usage": 0.0,
                    "out_pool_usage": 0.0,
                    "input_queue": 0,
                }
            )
            operators += _operators(vertex.operators, subtask, does, second)
    return {
        "clock_s": float(second),
        "host": "one",
        "tasks": rows,
        "operators": operators,
        "machine": {
            name: value * second if name in _MACHINE.keys() - {"cores"} else value
            for name, value in {**_MACHINE, **machine}.items()
        },
    }


def _operators(
    operators: Sequence[OperatorShape], subtask: int, does: Mapping[str, Any], second: int
) -> list[dict[str, Any]]:
    busy_one = does.get("in", operators[0].name)
    return [
        {
            "node": each.id,
            "name": each.name,
            "subtask": subtask,
            "busy_s": (does.get("in_s", does.get("busy_s", 0.0)) if each.name == busy_one else 0.0) * second,
            "rows_in": does.get("rows", 0) * second,
            "rows_out": does.get("rows", 0) * second,
            "batches_in": does.get("batches", 0) * second,
            "lookup_wait_s": does.get("lookup_wait_s", 0.0) * second,
            "lag_s": None if "lag_s" not in does else does["lag_s"] * second,
            "unread": None if "unread" not in does else {"topic[0]": does["unread"] * second},
            "watermark": does.get("watermark", 0) + round(does["event_time"] * second * 1e6)
            if "event_time" in does
            else does.get("watermark"),
            "latency_s": None if "latency_s" not in does else does["latency_s"] * second,
            "is_idle": does.get("is_idle", False),
            "split": does.get("split"),
            "split_has_rows": does.get("split_has_rows"),
            "split_silent_s": does.get("split_silent_s"),
        }
        for each in operators
    ]
