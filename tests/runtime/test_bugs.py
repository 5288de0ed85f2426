"""Bugs of ours, planted: they end the job with an error, they do not hang it."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import headgate as hg
from headgate.exchange.channels import RemoteInputChannel
from headgate.exchange.partition import ResultPartition
from headgate.runtime.checkpointing.driver_connectors import DriverConnectors
from headgate.runtime.taskmanager import taskmanager
from headgate.runtime.taskmanager.data_links import DataLinks
from headgate.runtime.taskmanager.taskmanager import TaskManager
from tests.conftest import WatchedPool
from tests.ending import END, within
from tests.runtime.jobs import NUMBERS, counted, environment, error_of, keyed

pytestmark = pytest.mark.alone


def broken(*_: Any, **__: Any) -> Any:
    raise AttributeError("planted")


@pytest.mark.parametrize(
    ("where", "method", "thread"),
    [
        (RemoteInputChannel, "on_event", "TaskManager"),
        (DataLinks, "_open_view", "TaskManager"),
        (TaskManager, "_start_tasks", "TaskManager"),
        (ResultPartition, "write_event", "task generate["),
        (DriverConnectors, "commit", "JobMaster"),
    ],
)
def test_it_ends_the_job(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, where: type, method: str, thread: str
) -> None:
    monkeypatch.setattr(where, method, broken)
    env = environment()
    keyed(counted(env)).sink_to(hg.sinks.null())
    with within(END):
        error = error_of(env.execute_async())
    assert type(error) is hg.HeadgateError
    assert error.message.startswith("unexpected AttributeError in")
    assert thread in error.message
    assert "planted" in error.message
    caplog.clear()  # its tracebacks look into network memory
    WatchedPool.alive.clear()


def test_a_segment_that_is_not_returned_fails_the_job_and_its_holder_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(taskmanager, "RETURN_TIMEOUT", 0.2)
    env = environment(taskmanagers=1, parallelism=1)
    lent: list[tuple[WatchedPool, Any]] = []

    def borrow(batch: pa.RecordBatch) -> pa.RecordBatch:
        if not lent:
            lent.extend((pool, pool.request_exclusive(1, "a borrower")) for pool in WatchedPool.alive)
        return batch

    counted(env).map_batches(borrow, schema=NUMBERS).sink_to(hg.sinks.null())
    with within(END):
        error = error_of(env.execute_async())
    assert type(error) is hg.ExchangeError
    assert "still lent: {'a borrower': 1}" in error.message
    [(pool, segments)] = lent
    pool.recycle_exclusive(segments, "a borrower")
    pool.close()
