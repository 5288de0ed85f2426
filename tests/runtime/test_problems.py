"""What could not be cleaned up is said once for all that failed in the same way."""

from __future__ import annotations

import pytest

from headgate.runtime.checkpointing.problems import Problem, sentences
from tests.runtime.jobs import NUMBERS, counted, environment, error_of
from tests.runtime.test_sinks_fail import Ledger

GONE = "is gone, with rows of a checkpoint; put it back"
THREE = [Problem("sink", name, f"/out/{name}/part-0: {GONE}") for name in ("a", "b", "c")]


def test_one_cause_is_one_sentence_that_lists_the_sinks() -> None:
    [sentence] = sentences(THREE)
    assert sentence == f"sinks a, b, c could not clean up: /out/a/part-0, /out/b/part-0, /out/c/part-0: {GONE}"
    assert sentences(THREE[:1]) == [f"sink a could not clean up: /out/a/part-0: {GONE}"]


def test_causes_that_differ_stay_apart() -> None:
    full = Problem("sink", "d", "the disk is full")
    assert sentences([*THREE[:1], full])[1:] == ["sink d could not clean up: the disk is full"]
    assert len(sentences([full, Problem("source", "d", "the disk is full")])) == 2


def test_the_sentences_do_not_repeat_the_jobs_error() -> None:
    known = f"/out/a/part-0: {GONE}"
    assert sentences(THREE[:1], known) == []
    assert sentences(THREE, known) == [
        "sinks b, c could not clean up for the same reason: /out/b/part-0, /out/c/part-0"
    ]


@pytest.mark.parametrize("count", [1, 3])
def test_of_a_job_with_several_sinks(count: int) -> None:
    env = environment(False)

    def fail(_batch: object) -> object:
        raise ValueError("no")

    stream = counted(env).map_batches(fail, schema=NUMBERS)
    for number in range(count):
        stream.sink_to(Ledger("abort")).name(f"books{number}")
    message = error_of(env.execute_async()).message
    assert message.count("the disk is full") == 1
    assert all(f"books{number}" in message for number in range(count))
