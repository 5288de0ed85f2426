"""Network memory that is too small for the job is an error before anything runs."""

from __future__ import annotations

import pytest

import headgate as hg
from tests.runtime.jobs import END, counted, environment, error_of, keyed, within


@pytest.mark.parametrize("segments", range(1, 9))
def test_too_few_buffers(segments: int) -> None:
    """However far the building got, what was lent by then comes back."""
    env = environment(network_memory=segments * 512, segment_size=512)
    keyed(keyed(counted(env)).select("n")).sink_to(hg.sinks.null())
    job = env.execute_async("tight")
    with within(END):
        error = error_of(job)
    assert type(error) is hg.InsufficientBuffers
    assert error.job == "tight"
    for option in ("network_memory", "buffers_per_channel", "segment_size"):
        assert option in error.message
    assert "needs" in error.message and "network buffers of 512 bytes" in error.message
    assert "of aggregate" in error.message or "of generate" in error.message


def test_too_few_buffers_in_a_process() -> None:
    env = environment(processes=True, network_memory=4 * 512, segment_size=512)
    keyed(counted(env)).sink_to(hg.sinks.null())
    error = error_of(env.execute_async())
    assert type(error) is hg.InsufficientBuffers and "raise network_memory" in error.message


def test_just_enough_buffers() -> None:
    """Per TaskManager: an output of two channels takes three, an input two exclusive ones and a floating one."""
    env = environment(network_memory=6 * 512, segment_size=512)
    keyed(counted(env)).sink_to(hg.sinks.null())
    assert env.execute().rows_in == 1000


def test_memory_that_cannot_be_had() -> None:
    env = environment(network_memory="4096 gb", taskmanagers=1, segment_size="1 mb")
    keyed(counted(env)).sink_to(hg.sinks.null())
    error = error_of(env.execute_async())
    assert type(error) is hg.ConfigError
    assert "network_memory=4398046511104 bytes cannot be had" in error.message and "lower it" in error.message
