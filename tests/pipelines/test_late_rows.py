"""Which rows are late: those beyond the bound, as far as the watermark has come, and no others."""

from __future__ import annotations

from datetime import timedelta

import headgate as hg
from tests.pipelines.pipeline_rig import ROWS, stream_of

#: Rows and watermarks travel in many small steps, so that watermarks do not come when all rows are there already.
SMALL_STEPS = hg.Config(buffer_timeout=0, message_size=256)


def test_rows_beyond_the_bound_are_counted_as_late() -> None:
    env = hg.StreamEnvironment(parallelism=2, config=SMALL_STEPS)
    source = stream_of(env, bound=timedelta(seconds=1)).set_parallelism(1)
    collected = hg.sinks.collect()
    source.key_by("name").window(hg.tumble("1 s")).aggregate(rows=hg.count()).sink_to(collected)
    result = env.execute("late rows")
    assert result.rows_in == ROWS
    assert result.late_rows > 0
    assert sum(collected.to_table()["rows"].to_pylist()) + result.late_rows == ROWS


def test_no_row_is_late_within_the_bound() -> None:
    env = hg.StreamEnvironment(parallelism=2, config=SMALL_STEPS)
    collected = hg.sinks.collect()
    stream_of(env).key_by("name").window(hg.tumble("1 s")).aggregate(rows=hg.count()).sink_to(collected)
    result = env.execute("no late rows")
    assert result.late_rows == 0
    assert sum(collected.to_table()["rows"].to_pylist()) == ROWS
