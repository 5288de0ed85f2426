"""What a task's parts hold at one point of their input, as it goes into a checkpoint: columns, and plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

#: First column (int32) of every table of keyed state: the key group of each row. A restored subtask gets the rows of
#: its own key groups, whatever the parallelism was.
KEY_GROUP = "key_group"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Of one operator, source reader or sink writer in one subtask, between two batches.

    `tables` is keyed state, by names of the owner's own; rows are in no order. `values` is the rest, as JSON has it;
    of these a restored subtask is given those of every subtask there was.
    """

    tables: Mapping[str, pa.Table] = field(default_factory=dict)
    values: Mapping[str, Any] = field(default_factory=dict)
