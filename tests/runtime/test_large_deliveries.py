"""Rows that come back to the program in batches larger than a message may be."""

from __future__ import annotations

import pyarrow as pa
import pytest

import headgate as hg
from headgate.runtime.control_messages import DeliverRows
from headgate.runtime.taskmanager import driver_link
from headgate.transport import control_link

SCHEMA = pa.schema({"n": pa.int64(), "text": pa.string()})
FRAME, WINDOW, ROW = 100_000, 20_000, 90_000


@pytest.fixture(autouse=True)
def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_link, "MAX_FRAME", FRAME)
    monkeypatch.setattr(driver_link, "_DELIVERY_WINDOW", WINDOW)
    monkeypatch.setattr(driver_link, "_LARGEST_ROW", ROW)


def collected(texts: list[str]) -> list[str]:
    """A batch of these, made where it is delivered."""
    env = hg.StreamEnvironment(parallelism=1, deployment=hg.LocalDeployment(1, processes=False))
    rows = env.from_source(hg.sources.iterable([pa.record_batch({"n": [1]})]))
    made = pa.record_batch([pa.array(range(len(texts))), texts], schema=SCHEMA)
    found: list[str] = rows.map_batches(lambda batch: made, schema=SCHEMA).collect()["text"].to_pylist()
    return found


@pytest.mark.parametrize(
    "lengths",
    [[100] * 3000, [0] * 20_000, [1] * 50 + [80_000] + [1] * 50, [80_000] * 3, [15_000, 2, 70_000, 60_000, 3, 3]],
    ids=["many rows", "short rows", "one long row", "long rows", "both"],
)
def test_they_come_in_pieces(lengths: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """The link to the driver was lost, with an error that did not say why."""
    sizes: list[int] = []
    send = control_link.ControlLink.send

    def note(link: control_link.ControlLink, message: object, payload: bytes = b"") -> None:
        if isinstance(message, DeliverRows):
            sizes.append(len(payload))
        send(link, message, payload)

    monkeypatch.setattr(control_link.ControlLink, "send", note)
    texts = [chr(65 + at % 26) * length for at, length in enumerate(lengths)]
    assert collected(texts) == texts
    assert len(sizes) > 1
    assert sum(size > WINDOW for size in sizes) <= sum(length > WINDOW // 2 for length in lengths), "but for long rows"


def test_a_row_that_is_too_long() -> None:
    with pytest.raises(hg.DataError, match=rf"a row has \d+ bytes, and the driver takes at most {ROW}; leave"):
        collected(["short", "x" * ROW])


def test_another_message_that_is_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_link, "MAX_TEXT", 1000)
    with pytest.raises(hg.HeadgateError, match=r"TaskManager 0 has a message \(\w+\) that is too long for the driver"):
        collected(["short"])
