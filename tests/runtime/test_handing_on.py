"""How data are handed on: within a chain by a call, between tasks of one TaskManager through buffers and no socket."""

from __future__ import annotations

import threading

import numpy as np
import pyarrow as pa
import pytest

import headgate as hg

NUMBERS = pa.record_batch({"n": np.arange(1000)})


class Seen:
    """Passes batches on; tells on which thread it was called, and where the values lie in memory."""

    def __init__(self) -> None:
        self.threads: set[int] = set()
        self.addresses: set[int] = set()

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        self.threads.add(threading.get_ident())
        self.addresses.add(batch.column(0).buffers()[1].address)
        return batch


@pytest.mark.parametrize("chained", [True, False])
def test_a_chain_is_calls_and_two_tasks_meet_in_buffers(chained: bool) -> None:
    first, second = Seen(), Seen()
    env = hg.StreamEnvironment(deployment=hg.LocalDeployment(processes=False))
    stream = env.from_source(hg.sources.iterable([NUMBERS])).map_batches(first, schema=NUMBERS.schema)
    stream = stream.map_batches(second, schema=NUMBERS.schema)
    if not chained:
        stream.disable_chaining()
    stream.sink_to(hg.sinks.null())
    metrics = env.execute().metrics
    assert len(first.threads) == len(second.threads) == len(first.addresses) == 1
    assert (first.threads == second.threads) == chained
    assert (first.addresses == second.addresses) == chained, "the very same memory, or a copy"
    assert metrics["remote_bytes"] == 0
    assert list(metrics["edges"]) == ([] if chained else ["map_batches -> map_batches#2", "map_batches#2 -> null"])
    assert all(edge["bytes_out"] > NUMBERS.nbytes for edge in metrics["edges"].values()), "serialised all the same"
