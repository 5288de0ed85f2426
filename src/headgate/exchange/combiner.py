"""`Combiner`: makes an exchange send fewer rows, without a change of what its consumer makes of them."""

from __future__ import annotations

from typing import Protocol

import pyarrow as pa


class Combiner(Protocol):
    """The rule by which a writer leaves out rows of a batch before it sends them. Each writer has its own object.

    A combiner keeps no rows: what it returns depends on its consumer's work, and on nothing that was sent before.
    """

    def combine(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return at least one row of a batch: those rows from which the consumer gets the same result."""


class CombinerFactory(Protocol):
    """Makes the combiner of each writer of an exchange. It is picklable, because the driver sends it to the tasks. Its
    text says in a plan what the combiner does."""

    def __call__(self) -> Combiner:
        """Return the combiner of one writer."""
