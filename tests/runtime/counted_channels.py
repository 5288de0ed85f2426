"""A job in which two subtasks send rows to two others, and the rows of each of its four channels are known."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa

import headgate as hg
from tests.runtime.jobs import NUMBERS, numbers

PRODUCERS: Final = 2
CONSUMERS: Final = 2
#: The rows of a batch of the source. Each consumer gets half of each batch.
BATCH_ROWS: Final = 256
SOURCE: Final = "numbers"
#: The operators in the chain of a consumer that keep the rows of one producer, in the order of the producers. Such an
#: operator has emitted as many rows as have come from its producer.
TAKEN: Final = ("from 0", "from 1")
#: A producer and a consumer.
Channel = tuple[int, int]


def options(**more: Any) -> dict[str, Any]:
    """Return the options of an environment for the job. Its buffers hold few rows."""
    return {"parallelism": PRODUCERS, "segment_size": 4096, "message_size": 4096, **more}


def send_in_turns(env: hg.StreamEnvironment, new_sink: Callable[[], hg.Sink]) -> None:
    """Send the numbers 0, 1, 2 ... to the consumers in turns, and the rows of each producer to a new sink."""
    rows = env.from_source(hg.sources.generate(numbers, batch_rows=BATCH_ROWS)).name(SOURCE).uid(SOURCE)
    turns = rows.partition_by(lambda batch, subtasks: np.mod(batch["n"].to_numpy(), subtasks))
    taken = turns.map_batches(_keep, schema=NUMBERS)
    for producer, name in enumerate(TAKEN):
        taken.map_batches(_rows_of(producer), schema=NUMBERS).name(name).uid(name).sink_to(new_sink())


def _keep(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch


def _rows_of(producer: int) -> Callable[[pa.RecordBatch], pa.RecordBatch]:
    """Return a function that keeps the rows of one producer, which reads every second batch of the source."""

    def keep(batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch.filter(pa.array(batch["n"].to_numpy() // BATCH_ROWS % PRODUCERS == producer))

    return keep


def sent(producers: Mapping[int, int]) -> dict[Channel, int]:
    """Return the rows of each channel, by the rows that each of these producers has sent in all."""
    return {(each, consumer): rows // CONSUMERS for each, rows in producers.items() for consumer in range(CONSUMERS)}
