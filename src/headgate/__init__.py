"""Headgate: back-pressured streaming pipelines on Spark, from Python. `import headgate as hg` gives the whole API.

The package loads a name when a program first uses it. So the import is quick, and a local job never loads PySpark.
"""

from importlib import import_module as _import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headgate import restart, testing, throttle
    from headgate.api import lookups, sinks, sources
    from headgate.api.environment import StreamEnvironment
    from headgate.api.stream import DataStream, KeyedStream, WindowedStream
    from headgate.api.stream_sink import StreamSink
    from headgate.api.watermark import Watermark
    from headgate.config import Config
    from headgate.connectors.connector import (
        Claim,
        ReaderContext,
        Sink,
        SinkWriter,
        Source,
        SourceReader,
        WriterContext,
    )
    from headgate.connectors.for_each_batch_sink import BatchInfo
    from headgate.errors import (
        CheckpointError,
        ConfigError,
        DataError,
        ExchangeError,
        HeadgateError,
        InsufficientBuffers,
        JobCancelled,
        LostChangeWarning,
        NetworkMemoryFull,
        NotEnoughSlots,
        PlanError,
        ProfileError,
        SessionLost,
        SinkError,
        SourceError,
        SpillError,
        StateMemoryExceeded,
        Superseded,
        TaskManagerLost,
        TraceError,
        UserFunctionError,
    )
    from headgate.observe.channel_trace import ChannelTrace
    from headgate.observe.profile import Profile
    from headgate.operators.aggregates.aggregates import (
        approx_count_distinct,
        collect_list,
        count,
        count_distinct,
        first,
        last,
        max,
        mean,
        min,
        stddev,
        sum,
        var,
    )
    from headgate.operators.aggregates.quantile_sketches import quantile
    from headgate.operators.aggregates.user_aggregate import AggregateFunction
    from headgate.operators.keyed.batch_function import BatchContext, KeyedBatchFunction
    from headgate.operators.keyed.batch_keys import BatchKeys
    from headgate.operators.keyed.column_state import ColumnState
    from headgate.operators.keyed.keyed_state import ListState, MapState, ValueState
    from headgate.operators.keyed.process_function import KeyedProcessFunction, ProcessContext
    from headgate.operators.side_output import SideOutput
    from headgate.operators.windows.window_kinds import count_window, hop, session, tumble
    from headgate.runtime.checkpointing.checkpoint_record import CheckpointRecord
    from headgate.runtime.launch.local import LocalDeployment
    from headgate.runtime.master.job import JobHandle, JobResult
    from headgate.spark.spark_deployment import SparkDeployment

__version__ = "0.1.0"

_HOMES = {
    "headgate.api.environment": ("StreamEnvironment",),
    "headgate.api.stream": ("DataStream", "KeyedStream", "WindowedStream"),
    "headgate.api.stream_sink": ("StreamSink",),
    "headgate.api.watermark": ("Watermark",),
    "headgate.config": ("Config",),
    "headgate.connectors.connector": (
        "Claim", "ReaderContext", "Sink", "SinkWriter", "Source", "SourceReader", "WriterContext",
    ),
    "headgate.connectors.for_each_batch_sink": ("BatchInfo",),
    "headgate.errors": (
        "CheckpointError", "ConfigError", "DataError", "ExchangeError", "HeadgateError", "InsufficientBuffers",
        "JobCancelled", "LostChangeWarning", "NetworkMemoryFull", "NotEnoughSlots", "PlanError", "ProfileError",
        "SessionLost", "SinkError", "SourceError", "SpillError", "StateMemoryExceeded", "Superseded", "TaskManagerLost",
        "TraceError", "UserFunctionError",
    ),
    "headgate.observe.channel_trace": ("ChannelTrace",),
    "headgate.observe.profile": ("Profile",),
    "headgate.operators.aggregates.aggregates": (
        "approx_count_distinct", "collect_list", "count", "count_distinct", "first", "last", "max", "mean", "min",
        "stddev", "sum", "var",
    ),
    "headgate.operators.aggregates.quantile_sketches": ("quantile",),
    "headgate.operators.aggregates.user_aggregate": ("AggregateFunction",),
    "headgate.operators.keyed.batch_function": ("BatchContext", "KeyedBatchFunction"),
    "headgate.operators.keyed.batch_keys": ("BatchKeys",),
    "headgate.operators.keyed.column_state": ("ColumnState",),
    "headgate.operators.keyed.keyed_state": ("ListState", "MapState", "ValueState"),
    "headgate.operators.keyed.process_function": ("KeyedProcessFunction", "ProcessContext"),
    "headgate.operators.side_output": ("SideOutput",),
    "headgate.operators.windows.window_kinds": ("count_window", "hop", "session", "tumble"),
    "headgate.runtime.checkpointing.checkpoint_record": ("CheckpointRecord",),
    "headgate.runtime.master.job": ("JobHandle", "JobResult"),
    "headgate.runtime.launch.local": ("LocalDeployment",),
    "headgate.spark.spark_deployment": ("SparkDeployment",),
}  # fmt: skip
_MODULES = {
    "lookups": "headgate.api.lookups",
    "restart": "headgate.restart",
    "sinks": "headgate.api.sinks",
    "sources": "headgate.api.sources",
    "testing": "headgate.testing",
    "throttle": "headgate.throttle",
}
_NAMES = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "AggregateFunction", "BatchContext", "BatchInfo", "BatchKeys", "ChannelTrace", "CheckpointError",
    "CheckpointRecord", "Claim", "ColumnState", "Config", "ConfigError", "DataError", "DataStream", "ExchangeError",
    "HeadgateError", "InsufficientBuffers", "JobCancelled", "JobHandle", "JobResult", "KeyedBatchFunction",
    "KeyedProcessFunction", "KeyedStream", "ListState", "LocalDeployment", "LostChangeWarning", "MapState",
    "NetworkMemoryFull", "NotEnoughSlots", "PlanError", "ProcessContext", "Profile", "ProfileError", "ReaderContext",
    "SessionLost", "SideOutput", "Sink", "SinkError", "SinkWriter", "Source", "SourceError", "SourceReader",
    "SparkDeployment", "SpillError", "StateMemoryExceeded", "StreamEnvironment", "StreamSink", "Superseded",
    "TaskManagerLost", "TraceError", "UserFunctionError", "ValueState", "Watermark", "WindowedStream", "WriterContext",
    "__version__", "approx_count_distinct", "collect_list", "count", "count_distinct", "count_window", "first", "hop",
    "last", "lookups", "max", "mean", "min", "quantile", "restart", "session", "sinks", "sources", "stddev", "sum",
    "testing", "throttle", "tumble", "var",
]  # fmt: skip


def __getattr__(name: str) -> object:
    if name in _NAMES:
        value = getattr(_import_module(_NAMES[name]), name)
    elif name in _MODULES:
        value = _import_module(_MODULES[name])
    else:
        from headgate.other_names import missing

        raise missing("headgate", name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
