"""A job whose function does not return is stuck, and says so: in the finding, and in the driver's log."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from itertools import count

import pyarrow as pa
import pytest

import headgate as hg
from headgate.observe.finding import Finding, Severity
from tests.runtime.jobs import NUMBERS, endless, environment, eventually


class Stands:
    """A function that returns from its first ten calls, and from the next one only when `opens` is set."""

    def __init__(self) -> None:
        self.opens = threading.Event()
        self._calls = count()

    def __call__(self, batch: pa.RecordBatch, _info: object = None) -> pa.RecordBatch:
        if next(self._calls) >= 10:
            self.opens.wait(120)
        return batch


@pytest.fixture
def stands() -> Iterator[Stands]:
    stands = Stands()
    yield stands
    stands.opens.set()


def in_a_function(rows: hg.DataStream, stands: Stands) -> None:
    rows.map_batches(stands, schema=NUMBERS).name("warehouse").sink_to(hg.sinks.null())


def in_a_sink(rows: hg.DataStream, stands: Stands) -> None:
    rows.sink_to(hg.sinks.for_each_batch(stands)).name("warehouse")


@pytest.mark.turns(2)  # each takes a quarter of a minute: the rule needs four windows without a row
@pytest.mark.parametrize(
    ("place", "cause", "subject"),
    [(in_a_function, "waiting_function", "its function"), (in_a_sink, "slow_sink", "its sink")],
)
def test_a_function_that_does_not_return_makes_its_job_stuck(
    place: Callable[[hg.DataStream, Stands], None],
    cause: str,
    subject: str,
    stands: Stands,
    caplog: pytest.LogCaptureFixture,
) -> None:
    env = environment(processes=False, taskmanagers=1, parallelism=1)
    place(endless(env).name("numbers").rebalance(), stands)
    job = env.execute_async("standing")

    def stuck() -> Finding | None:
        return next((each for each in job.diagnose() if each.severity is Severity.STUCK), None)

    try:
        finding: Finding = eventually(stuck)
        eventually(lambda: "is stuck" in caplog.text)
    finally:
        stands.opens.set()
        job.cancel()
    assert (finding.operator, finding.subtasks, finding.cause.name) == ("warehouse", (0,), cause)
    said = f"'numbers' waits for 'warehouse': {subject} has not returned from a batch"
    assert finding.sentence.startswith(said)
    [line] = [each for each in caplog.messages if "is stuck" in each]
    assert line.startswith(f"job 'standing' is stuck: {said}")
