"""Every message comes out as it went in, and what is none is refused by its place: nothing else can happen."""

from __future__ import annotations

import json
import re
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.observe.channel_trace import TraceEvent
from headgate.records.events import Alignment
from headgate.runtime import control_messages
from headgate.runtime.control_messages import (
    OF_DRIVER,
    OF_TASKMANAGER,
    FromDriver,
    FromTaskManager,
    Part,
    ReportMetrics,
    TaskFinished,
)
from headgate.runtime.message_codec import MAX_NESTING
from headgate.state.checkpoint_metadata import InFlightFile, StateFile
from headgate.transport.control_link import Codec

TO_DRIVER = {kind.__name__: kind for kind in get_args(FromTaskManager)}
TO_TASKMANAGER = {kind.__name__: kind for kind in get_args(FromDriver)}


def json_of(floats: st.SearchStrategy[float]) -> st.SearchStrategy[Any]:
    return st.recursive(
        st.none() | st.booleans() | st.integers() | floats | st.text(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
        max_leaves=8,
    )


json_values = json_of(st.floats(allow_nan=False))
st.register_type_strategy(
    Part, st.fixed_dictionaries({"checkpoint": st.integers(), "task": st.text()}, optional={"aborted": st.booleans()})
)
in_flight = st.builds(InFlightFile, exchanges=st.lists(st.text(), max_size=2))
OBJECTS = st.dictionaries(st.text(), json_values, max_size=3)
#: What `Any` stands for.
FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "metrics": st.dictionaries(st.text(), json_of(st.floats(allow_nan=False, allow_infinity=False)), max_size=3),
    "pending": OBJECTS,
    "final": OBJECTS,
    "error": OBJECTS,
    "file": st.builds(StateFile, in_flight=st.none() | in_flight),
    "started_at": st.floats(allow_nan=False),
    "async_s": st.floats(allow_nan=False),
    "seconds": st.floats(allow_nan=False),
    "began_at": st.floats(allow_nan=False),
    "events": st.lists(st.builds(TraceEvent, at=st.floats(allow_nan=False)), max_size=3),
    "cpu_s": st.floats(allow_nan=False),
    "run_delay_s": st.none() | st.floats(allow_nan=False),
    "shares": st.lists(st.tuples(st.text(), st.floats(allow_nan=False)), max_size=3),
    "stacks": st.lists(st.tuples(st.lists(st.integers()), st.integers(), st.floats(allow_nan=False)), max_size=3),
}


def messages(kind: type) -> st.SearchStrategy[Any]:
    return st.builds(kind, **{name: values for name, values in FIELDS.items() if name in kind.__annotations__})


@pytest.mark.parametrize(
    ("codec", "kind"),
    [
        *((OF_DRIVER, kind) for kind in TO_DRIVER.values()),
        *((OF_TASKMANAGER, kind) for kind in TO_TASKMANAGER.values()),
    ],
    ids=lambda each: each.__name__ if isinstance(each, type) else "",
)
@given(data=st.data())
def test_each_message_comes_out_as_it_went_in(codec: Codec, kind: type, data: st.DataObject) -> None:
    message = data.draw(messages(kind))
    assert codec.decode(codec.encode(message)) == message


def test_every_message_has_one_direction_and_says_what_it_is() -> None:
    assert not TO_DRIVER.keys() & TO_TASKMANAGER.keys()
    classes = {
        name
        for name, value in vars(control_messages).items()
        if isinstance(value, type) and value.__module__ == control_messages.__name__ and name != "Part"
    }
    assert classes == TO_DRIVER.keys() | TO_TASKMANAGER.keys()
    assert all(kind.__doc__ for kind in (TO_DRIVER | TO_TASKMANAGER).values())


PART = {"checkpoint": 1, "task": "sum[0]"}
ABOUT = {"vertex": 1, "subtask": 0, "checkpoint": 3, "pending": {}, "task": "sum[0]"}


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ({}, "of the type 'None', which does not exist"),
        ({"type": "StartTasks"}, "of the type 'StartTasks', which does not exist"),
        ({"type": "x" * 1000}, "of the type '" + "x" * 80 + "', which does not exist"),
        ({"type": ["Ready"]}, "of the type \"['Ready']\", which does not exist"),
        ({"type": "Registered", "host": "h", "port": 1}, "Registered: Object missing required field `pid`"),
        ({"type": "Registered", "host": "h", "port": 1.5, "pid": 1}, "Registered: Expected `int`, got `float`"),
        ({"type": "Printed", "task": "t", "stream": "x", "lines": []}, "enum value 'x' - at `$.stream`"),
        ({"type": "Printed", "task": "t", "stream": "stdout", "lines": [1]}, "got `int` - at `$.lines[0]`"),
        ({"type": "Failed", "error": "text"}, "Failed: Expected `object`, got `str` - at `$.error`"),
        ({"type": "ReportCheckpointMetrics", "part": {}}, "missing required field `checkpoint` - at `$.part`"),
        ({"type": "ReportCheckpointMetrics", "part": {**PART, "aborted": 1}}, "got `int` - at `$.part.aborted`"),
        ({"type": "AcknowledgeCheckpoint", **ABOUT, "nodes": [], "async_s": 1, "file": {}}, "`path` - at `$.file`"),
    ],
)  # fmt: skip
def test_what_is_no_message_is_refused_by_its_place(message: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=re.escape(reason)):
        OF_DRIVER.decode(json.dumps(message).encode())


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b'{"a":' * 1_000_000 + b"1" + b"}" * 1_000_000, "nested too deep"),
        (b'{"a":' + b"[" * MAX_NESTING + b"]" * MAX_NESTING + b"}", "nested too deep"),
        (b'{"a":[' + b"[]," * 100 + b'{"b":' * 200 + b"1" + b"}" * 200 + b"]}", "nested too deep"),
        (b"[" * 100_000, ""),
        (b'{"a":' + b"9" * 5000 + b"}", ""),
        (b'{"a":"\xff"}', ""),
        (b"[1]", "of the type 'None', which does not exist"),
        (b"\x80\x04pickle", ""),
        (b"{", ""),
    ],
)
def test_what_is_no_plain_json_is_refused(text: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(reason)}"):
        OF_DRIVER.decode(text)


@given(st.binary(max_size=60) | json_values.map(lambda value: json.dumps(value).encode()))
def test_bytes_are_a_message_or_a_value_error(text: bytes) -> None:
    for codec in (OF_DRIVER, OF_TASKMANAGER):
        try:
            codec.decode(text)
        except ValueError:
            pass


def test_what_is_nested_no_deeper_than_may_be_is_a_message() -> None:
    deepest = b'{"type":"AllFinished","metrics":{"a":' + b"[" * (MAX_NESTING - 2) + b"]" * (MAX_NESTING - 2) + b"}}"
    assert OF_DRIVER.decode(deepest)


@pytest.mark.parametrize(
    ("sent", "received"),
    [
        ({"rows": np.int64(7), "lag_s": np.float64(0.5)}, {"rows": 7, "lag_s": 0.5}),
        ({"split": "part\udcff"}, {"split": "part\udcff"}),
    ],
    ids=["numbers of NumPy", "the name of any file"],
)
def test_metrics_come_out_as_plain_values(sent: dict[str, Any], received: dict[str, Any]) -> None:
    assert OF_DRIVER.decode(OF_TASKMANAGER.encode(ReportMetrics(metrics=sent))).metrics == received


@pytest.mark.parametrize("value", [b"bytes", {1}, object(), Alignment])
def test_what_json_does_not_have_is_not_sent(value: object) -> None:
    """A sink would get something else back than it gave."""
    with pytest.raises(TypeError, match="is not JSON serializable"):
        OF_DRIVER.encode(TaskFinished(vertex=0, subtask=0, took_part=0, pending={"sink": [value]}, final={}))
