"""A job resumes with windows that allow rows to be less late than before."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

import headgate as hg
from headgate.testing import OperatorHarness, at


def test_a_window_that_has_fired_takes_no_row_after_a_resume_with_less_lateness() -> None:
    schema = pa.schema({"k": pa.string(), "n": pa.int64(), "at": pa.timestamp("us", "UTC")})

    def sums(lateness: str | None) -> Callable[[hg.DataStream], hg.DataStream]:
        def pipeline(rows: hg.DataStream) -> hg.DataStream:
            windows = rows.key_by("k").window(hg.tumble("1 min"))
            return (windows.allowed_lateness(lateness) if lateness else windows).aggregate(n=hg.sum("n"))

        return pipeline

    harness = OperatorHarness(sums("1 h"), schema=schema, event_time="at")
    harness.push({"k": "a", "n": 1, "at": at("10 s")})
    assert [row["n"] for row in harness.advance_watermark(at("2 min"))] == [1]
    harness._operator = sums(None)
    harness.restart()
    assert harness.push({"k": "a", "n": 5, "at": at("20 s")}) == []
    assert harness.advance_watermark(at("3 min")) == []
    assert harness.late_rows == 1
