"""Network memory that is too small for the job is an error before anything runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import headgate as hg
from headgate.runtime.master import jobmaster
from tests.ending import END, within
from tests.runtime.jobs import counted, environment, error_of, keyed


def test_execute_says_how_many_buffers_are_needed_in_all() -> None:
    """Per TaskManager: outputs of two channels take three each, inputs two exclusive ones and a floating one."""
    env = environment(network_memory=11 * 512, segment_size=512)
    keyed(keyed(counted(env)).select("n")).sink_to(hg.sinks.null())
    with pytest.raises(hg.InsufficientBuffers) as caught:
        env.execute_async("tight")
    assert caught.value.job == "tight"
    for fact in ("needs 12 network buffers of 512 bytes in all", "6 for outputs", "4 exclusive", "2 floating",
                 "network_memory=5632 holds 11", "raise network_memory to 6144", "buffers_per_channel (now 2)",
                 "segment_size"):  # fmt: skip
        assert fact in caught.value.message


def test_the_taskmanager_that_needs_most_is_named() -> None:
    """Three subtasks on two TaskManagers: two of them share the first."""
    env = environment(network_memory=20 * 512, segment_size=512, parallelism=3)
    keyed(keyed(counted(env)).select("n")).sink_to(hg.sinks.null())
    with pytest.raises(hg.InsufficientBuffers, match="TaskManager 0 needs 28 network buffers"):
        env.execute_async()


@pytest.mark.alone
@pytest.mark.parametrize("segments", range(1, 12))
def test_a_need_computed_wrongly_ends_the_job_all_the_same(segments: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """However far the building got, what was lent by then comes back."""
    monkeypatch.setattr(jobmaster, "check_network_memory", lambda plan, config: None)
    env = environment(network_memory=segments * 512, segment_size=512)
    keyed(keyed(counted(env)).select("n")).sink_to(hg.sinks.null())
    with within(END):
        error = error_of(env.execute_async("tight"))
    assert type(error) is hg.InsufficientBuffers
    assert error.job == "tight"
    assert "of aggregate" in error.message or "of generate" in error.message


@pytest.mark.parametrize("processes", [False, True])
def test_just_enough_buffers(processes: bool) -> None:
    """Per TaskManager: an output of two channels takes three, an input two exclusive ones and a floating one."""
    env = environment(processes=processes, network_memory=6 * 512, segment_size=512)
    keyed(counted(env)).sink_to(hg.sinks.null())
    assert env.execute().rows_in == 1000


@pytest.mark.parametrize("processes", [False, True])
def test_stages_of_a_batch_job_use_the_same_buffers_one_after_the_other(processes: bool, tmp_path: Path) -> None:
    """The stages need 3, 6 and 3 buffers in each TaskManager."""
    options: dict[str, Any] = {"execution_mode": "batch", "spill_dir": str(tmp_path), "segment_size": 512}
    for network_memory in (6 * 512, 5 * 512):
        env = environment(processes, network_memory=network_memory, **options)
        keyed(keyed(counted(env)).select("n")).sink_to(hg.sinks.null())
        if network_memory == 6 * 512:
            assert env.execute().rows_out == 1000
        else:
            with pytest.raises(hg.InsufficientBuffers, match="needs 6 network buffers"):
                env.execute()


def test_stages_that_may_run_together_need_their_buffers_together(tmp_path: Path) -> None:
    """Two chains of three stages: while one runs its second stage of 6, so may the other."""
    env = environment(network_memory=11 * 512, segment_size=512, execution_mode="batch", spill_dir=str(tmp_path))
    for _ in range(2):
        keyed(keyed(counted(env)).select("n")).sink_to(hg.sinks.null())
    with pytest.raises(hg.InsufficientBuffers, match="needs 18 network buffers"):
        env.execute()


def test_memory_that_cannot_be_had() -> None:
    env = environment(network_memory="4096 gb", taskmanagers=1, segment_size="1 mb")
    keyed(counted(env)).sink_to(hg.sinks.null())
    error = error_of(env.execute_async())
    assert type(error) is hg.ConfigError
    assert "network_memory=4398046511104 bytes cannot be allocated" in error.message
    assert "lower it" in error.message
