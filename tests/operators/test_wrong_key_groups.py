"""State with a wrong key group is refused: it would go to a subtask that does not get the key's rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import headgate as hg
from headgate.errors import UnusableState
from headgate.operators.keyed.keyed_process import KeyedProcess
from headgate.operators.operator import Operator
from headgate.operators.windows.window import WindowAggregate
from headgate.operators.windows.window_kinds import Windows
from headgate.state.keys import check_key_groups
from headgate.state.snapshot import KEY_GROUP, Snapshot
from tests.operators.test_restore import COUNT, SMALL, of_running, of_sessions, of_window, opened
from tests.operators.window_rig import GROUPS

ROWS = pa.record_batch([pa.array(range(9)), pa.array([1] * 9, pa.timestamp("us")), [1] * 9], schema=SMALL)


class Remember(hg.KeyedProcessFunction):
    seen = hg.ValueState(pa.int64())

    def process_element(self, row: dict[str, Any], context: Any) -> Any:
        self.seen.update(1)
        context.register_event_time_timer(row["t"])
        yield from ()

    def on_timer(self, time: int, context: Any) -> None: ...


def of_process() -> Operator:
    return opened(KeyedProcess(Remember(), ("key",), input_schema=SMALL, schema=SMALL, sides={}, time_column="t"))


def of_no_key() -> Operator:
    return opened(
        WindowAggregate(
            (), time_column="t", time_offset=0, windows=Windows(10, 10), aggregates=COUNT, input_schema=SMALL
        )
    )


@pytest.mark.parametrize("make", [of_running, of_window, of_sessions, of_process, of_no_key])
def test_it_is_refused(make: Callable[[], Operator]) -> None:
    operator = make()
    operator.process(ROWS)
    snapshot = operator.snapshot()
    assert snapshot is not None
    make().restore([snapshot])
    for name, table in ((name, table) for name, table in snapshot.tables.items() if table.num_rows):
        groups = table.column(KEY_GROUP).to_pylist()
        groups[-1] = (groups[-1] + 1) % GROUPS
        forged = {**snapshot.tables, name: table.set_column(0, KEY_GROUP, pa.array(groups, pa.int32()))}
        with pytest.raises(ValueError, match=f"a row of state names key group {groups[-1]}, but its key has "):
            make().restore([Snapshot(forged, snapshot.values)])


@pytest.mark.parametrize("group", [-1, GROUPS])
def test_key_groups_beyond_the_last_one_are_refused(group: int) -> None:
    """No subtask would resume from these rows."""
    table = pa.table({KEY_GROUP: pa.array([0, group, GROUPS - 1], pa.int32())})
    with pytest.raises(UnusableState, match=f"'t' has rows of key groups from .*, and the last group is {GROUPS - 1}"):
        Snapshot({"t": table}).check_groups(GROUPS)
    Snapshot({"t": table.take([0, 2]), "none": table.slice(0, 0)}).check_groups(GROUPS)


def test_a_table_without_rows_has_no_wrong_group() -> None:
    check_key_groups(pa.table({KEY_GROUP: pa.array([], pa.int32()), "key k": pa.array([], pa.string())}), 1, GROUPS)
