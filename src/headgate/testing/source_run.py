"""The readers of a source under test, through stops and restarts, with the rows that they returned."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping
from typing import Any, Final

import cloudpickle
import pyarrow as pa

from headgate.connectors.connector import ReaderContext, Source, SourceReader
from headgate.connectors.schemas import shown

#: Seconds that one call of `read` or `close` may take. A longer call delays checkpoints, and the job's cancel.
LONGEST_CALL: Final = 5.0
#: Seconds until a reader that waits is asked again, if it does not call `wake`.
_PAUSE: Final = 0.001


class SourceRun:
    """The readers of one source. `stop` takes their positions, from which the next `start` resumes.

    `expected` is the number of rows that the input has, including `sides`, the side outputs that the job reads. The
    clock of the readers moves only when a reader waits for a time.
    """

    def __init__(self, source: Source, expected: int, timeout: float, sides: tuple[str, ...] = ()) -> None:
        source.prepare()
        self.source = source
        self.expected = expected
        self.positions: list[Any] | None = None
        self.readers: list[SourceReader] = []
        self.reads = 0
        #: The keys of the splits whose rows have come.
        self.split_keys: set[str] = set()
        self._commits = 0
        self._batches: list[pa.RecordBatch] = []
        self._sides: dict[str, list[pa.RecordBatch]] = {tag: [] for tag in sides}
        self._timeout = timeout
        self._now = self._started_at = time.time()
        self._woken = threading.Event()

    def start(self, parallelism: int) -> None:
        """Open a reader for each subtask, each from a pickled copy of the source."""
        self._split_of_key: dict[str, tuple[int, int]] = {}
        for position in self.positions or ():
            self.source.check_position(position)
        copies = [cloudpickle.loads(cloudpickle.dumps(self.source)) for _ in range(parallelism)]
        self.readers = [copy.reader(self._context(subtask, parallelism)) for subtask, copy in enumerate(copies)]

    def _context(self, subtask: int, parallelism: int) -> ReaderContext:
        return ReaderContext(
            job="test",
            operator="source",
            subtask=subtask,
            parallelism=parallelism,
            wake=self._woken.set,
            started_at=self._started_at,
            clock=lambda: self._now,
            positions=self.positions,
            sides={tag: batches.append for tag, batches in self._sides.items()},
        )

    def step(self, subtask: int) -> bool:
        """Call `read` of one reader, and return whether it returned a batch."""
        reader, began = self.readers[subtask], time.monotonic()
        batch = reader.read()
        took = time.monotonic() - began
        if took > LONGEST_CALL:
            raise AssertionError(f"read() took {took:.1f} s: let a thread wait, and call `wake` when rows have come")
        if batch is None:
            return False
        if not batch.schema.equals(self.source.schema):
            raise AssertionError(
                f"read() returned ({shown(batch.schema)}); the source has ({shown(self.source.schema)})"
            )
        by_split = reader.rows_by_split
        if reader.open_splits is not None and sum(rows for _, rows in by_split) != batch.num_rows:
            raise AssertionError(f"read() returned {batch.num_rows} rows, and rows_by_split says {list(by_split)}")
        for split in {split for split, rows in by_split if rows}:
            self._add_key(reader.split_key(split), (subtask, split))
        self.reads += 1
        self._batches.append(batch)
        return True

    def _add_key(self, key: str | None, split: tuple[int, int]) -> None:
        if key is not None:
            if self._split_of_key.setdefault(key, split) != split:
                raise AssertionError(f"split_key() returned {key!r} for two splits; no other split may have it")
            self.split_keys.add(key)

    def read(self, *subtasks: int) -> bool:
        """Read until one of these readers returns a batch. Return False at their end, and when all rows have come.

        Raises AssertionError if no batch comes in time.
        """
        until = time.monotonic() + self._timeout
        while not self.has_all and not all(self.readers[subtask].finished for subtask in subtasks):
            for subtask in subtasks:
                if not self.readers[subtask].finished and self.step(subtask):
                    return True
            if time.monotonic() > until:
                raise AssertionError(
                    f"read() returned no batch for {self._timeout:g} s, after {self.rows} of {self.expected} rows: a "
                    "reader without rows must call `wake` later or have a `next_read`, and set `finished` at its end"
                )
            self._wait(*subtasks)
        return False

    def _wait(self, *subtasks: int) -> None:
        times = [at for subtask in subtasks if (at := self.readers[subtask].next_read()) is not None]
        self._now = max(self._now, min(times, default=self._now))
        self._woken.wait(_PAUSE)
        self._woken.clear()

    def finish(self, parallelism: int) -> None:
        """Resume with so many readers, and read to the end, or until all rows have come."""
        self.start(parallelism)
        while self.read(*range(parallelism)):
            pass
        self.stop()

    @property
    def has_all(self) -> bool:
        """Whether all rows of an unbounded source have come. False for a bounded source, whose readers end by
        themselves."""
        return not self.source.bounded and self.rows >= self.expected

    @property
    def rows(self) -> int:
        """How many rows have come so far, with those of side outputs."""
        return sum(batch.num_rows for batches in (self._batches, *self._sides.values()) for batch in batches)

    def stop(self) -> None:
        """Take the positions, as a checkpoint does, let the source commit, and close the readers."""
        self.positions = [_as_json("position()", reader.position()) for reader in self.readers]
        to_commit = [_as_json("to_commit()", reader.to_commit()) for reader in self.readers]
        if pending := [values for values in to_commit if values is not None]:
            self._commits += 1
            self.source.commit(pending, self._commits)
        self.close()

    def move_to(self, source: Source) -> None:
        """Let another program resume, with this source. It restores what the first program had prepared."""
        prepared = _as_json("prepared()", self.source.prepared())
        self.source.release()
        self.source = source
        source.prepare() if prepared is None else source.restore(prepared)

    def close(self) -> None:
        """Close the readers. Raises AssertionError if one takes longer than `LONGEST_CALL`, or is stuck."""
        readers, self.readers = self.readers, []
        for subtask, reader in enumerate(readers):
            began = time.monotonic()
            reader.close()
            took = time.monotonic() - began
            if took > LONGEST_CALL or reader.is_stuck():
                raise AssertionError(
                    f"close() of subtask {subtask} took {took:.1f} s; it must end all waits of a reader"
                )

    def tables(self) -> Mapping[str, pa.Table]:
        """Return the rows that have come: those of the source as "rows", and those of side outputs by tag."""
        sides = {tag: pa.Table.from_batches(batches, self.source.sides[tag]) for tag, batches in self._sides.items()}
        return {"rows": pa.Table.from_batches(self._batches, self.source.schema), **sides}


def _as_json(call: str, values: Any) -> Any:
    """Return what a call returned as it is after a checkpoint has stored it."""
    try:
        return json.loads(json.dumps(values))
    except (TypeError, ValueError) as error:
        raise AssertionError(f"{call} returned {values!r}, not JSON values: {error}") from None
