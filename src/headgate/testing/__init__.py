"""The test kit for pipelines, `hg.testing.run(pipeline, rows)`, and for connectors, `check_source` and `check_sink`.

The kit works with every test runner: it has no fixtures, only functions and classes that raise ordinary errors.
"""

from headgate.testing.between_rows import AdvanceClock, AdvanceWatermark, Restart
from headgate.testing.moments import at
from headgate.testing.operator_harness import OperatorHarness
from headgate.testing.pipeline_harness import PipelineHarness
from headgate.testing.pipeline_run import PipelineResult, run
from headgate.testing.same_rows import assert_same_rows
from headgate.testing.sink_contract import check_sink
from headgate.testing.source_contract import check_source

__all__ = [
    "AdvanceClock",
    "AdvanceWatermark",
    "OperatorHarness",
    "PipelineHarness",
    "PipelineResult",
    "Restart",
    "assert_same_rows",
    "at",
    "check_sink",
    "check_source",
    "run",
]
