"""A job over a line with a long delay: what it reports and how that is explained."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest

import headgate as hg
from headgate.observe.finding import Cause, Remedy
from tests.observe.delayed_links import delayed_links
from tests.runtime.jobs import NUMBERS, endless, environment, eventually

ROUND_TRIP = 0.2


@pytest.fixture
def delayed() -> Iterator[None]:
    """All links between TaskManagers that are threads take `ROUND_TRIP` seconds."""
    with delayed_links(ROUND_TRIP):
        yield


@pytest.mark.usefixtures("delayed")
def test_producers_over_a_long_line_wait_for_credit_to_come_back() -> None:
    env = environment(processes=False, segment_size=4096, message_size=4096, bind_host="127.0.0.1")
    source = endless(env).set_parallelism(1).name("numbers")
    rows = source.partition_by(lambda batch, _: np.full(batch.num_rows, 1))
    rows.map_batches(_same, schema=NUMBERS).name("relay").sink_to(hg.sinks.null())
    job = env.execute_async()
    try:
        cause, remedy = eventually(lambda: (found := _of_the_exchange(job)) and is_the_line(found[0]) and found, 60.0)
        assert cause.name == "credit_round_trip"
        assert remedy.gain > 1.5
        assert "buffers_per_channel" in remedy.text
    finally:
        job.cancel()


def is_the_line(cause: Cause) -> bool:
    """Whether the wait is that for the line. In its first seconds on a slow machine, a job waits for other things."""
    waits, took = cause.evidence.get("credit_wait", 0.0), cause.evidence["round_trip_s"]
    return waits > 0.7 and ROUND_TRIP * 0.7 < took < ROUND_TRIP * 3


def _same(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch


def _of_the_exchange(job: hg.JobHandle) -> tuple[Cause, Remedy] | None:
    """What is found about the exchange, once a window has all of its values."""
    for finding in job.diagnose():
        if finding.place == "the exchange 'numbers -> relay'" and "round_trip_s" in finding.cause.evidence:
            return finding.cause, finding.remedy
    return None
