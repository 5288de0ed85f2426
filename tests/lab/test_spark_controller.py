"""SparkPid beside Spark Streaming: the load, the report, and what Spark's controller did in a recorded run."""

from __future__ import annotations

import json
import socket
import time
from pathlib import Path

import pytest

import headgate as hg
from headgate.errors import HeadgateError
from headgate.lab.mechanisms.observed import MechanismRun
from headgate.lab.originals.controlled_load import ControlledBatch, ControlledLoad
from headgate.lab.originals.line_server import line_server
from headgate.lab.spark_controller import ORIGINAL, OURS, _enough, original, ours, report
from headgate.throttle.pid_rate_estimator import PidRateEstimator

SHORT = ControlledLoad(rate=2000, cost=0.0005, interval=0.2, batches=6, initial_rate=500)
#: The batches of Spark Streaming 4.3.0 under `FULL`, in order.
TRACE = Path(__file__).parents[1] / "fixtures" / "spark-streaming-4.3.0.json"


def batches_at(rows: int, then: int, seconds: float = 0.9) -> list[ControlledBatch]:
    made = [ControlledBatch(rows=rows, scheduling=0.0, processing=seconds)] * SHORT.half
    return made + [ControlledBatch(rows=then, scheduling=0.0, processing=seconds)] * SHORT.half


def test_rates_and_times_within_a_quarter_are_the_same() -> None:
    result = report({ORIGINAL: [batches_at(100, 200)], OURS: [batches_at(120, 160)]}, SHORT)
    assert result.met
    medians = {figure.name: figure.median for figure in result.figures}
    assert medians["Spark Streaming: rows/s at first"] == pytest.approx(500)
    assert medians["ratio: rows/s after the cost has halved"] == pytest.approx(0.8)
    both = [SHORT.batches] * 2
    assert [[len(series.y) for series in plot.series] for plot in result.plots] == [both, [*both, 2], [*both, 2]]


def test_the_report_says_what_our_side_cost() -> None:
    cost = MechanismRun(seconds=40.0, signals=20, driver_s=2.0)
    result = report({ORIGINAL: [batches_at(100, 200)], OURS: [batches_at(120, 160)]}, SHORT, [cost])
    figures = {figure.name: (figure.unit, figure.values) for figure in result.figures}
    assert figures["SparkPid: signals"] == ("per second", (0.5,))
    assert figures["SparkPid: processor time of the driver"] == ("s per s", (0.05,))
    assert "SparkPid: rows sent for a written row" not in figures


def test_another_rate_is_a_miss() -> None:
    result = report({ORIGINAL: [batches_at(100, 200)], OURS: [batches_at(100, 280)]}, SHORT)
    assert not result.met
    assert result.target.endswith("; missed: rows/s after the cost has halved")


def test_a_slow_client_gets_all_lines_later() -> None:
    with line_server(1_000_000) as port, socket.create_connection(("127.0.0.1", port)) as client:
        text = b""
        while len(text) < 8_000_000:  # more than the buffers of the sockets hold
            text += client.recv(1 << 16)
    assert set(text.split(b"\n")[:-1]) == {b"row"}


def test_a_server_without_a_client_ends_at_once() -> None:
    began = time.monotonic()
    with line_server(1000):
        pass
    assert time.monotonic() - began < 10


def test_too_few_batches_are_an_error() -> None:
    with pytest.raises(HeadgateError, match=r"SparkPid completed 1 of 6 batches within 32 s"):
        _enough(OURS, batches_at(100, 200)[:1], SHORT)


def test_ours_reports_its_batches() -> None:
    batches, cost = ours(SHORT)
    assert len(batches) == SHORT.batches
    assert sum(batch.rows for batch in batches) > 0
    assert all(batch.processing > 0 for batch in batches if batch.rows)
    assert cost.signals > 0, "the controller sets rates"
    assert cost.driver_s is not None
    assert cost.seconds >= SHORT.batches * SHORT.interval


def test_a_run_of_ours_in_which_an_input_stopped_reading_is_void(monkeypatch: pytest.MonkeyPatch) -> None:
    metrics = hg.JobHandle.metrics
    stopped = {"tasks": {"null[0]": {"reader_stops": 3}}}
    monkeypatch.setattr(hg.JobHandle, "metrics", lambda job: {**metrics(job), **stopped})
    with pytest.raises(HeadgateError, match="the run is void: inputs stopped reading 3 times"):
        ours(SHORT)


@pytest.mark.soak
def test_the_original_reports_its_batches() -> None:
    batches = original(SHORT)
    assert len(batches) == SHORT.batches
    assert all(batch.processing > 0 for batch in batches)


def test_our_estimator_gives_the_rates_that_sparks_receiver_followed() -> None:
    """A batch's rate is set while the next one is being received. So it shows in the batch after that one."""
    batches = [ControlledBatch(**row) for row in json.loads(TRACE.read_text())]
    estimator = PidRateEstimator(1000)
    compared = []
    for number, batch in enumerate(batches[:-2]):
        ends = round((number + batch.scheduling + batch.processing) * 1000)
        rate = estimator.compute(ends, batch.rows, round(batch.processing * 1000), round(batch.scheduling * 1000))
        if rate is not None and number >= len(batches) // 4 and batch.scheduling < 0.05 and batch.processing < 1:
            compared.append(batches[number + 2].rows / rate)
    assert len(compared) >= 10
    assert sorted(compared)[len(compared) // 2] == pytest.approx(1, abs=0.1)
