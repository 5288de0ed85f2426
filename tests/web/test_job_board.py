"""Which jobs the page shows."""

from __future__ import annotations

from headgate.web.job_board import ENDED, ENDED_BYTES, JobBoard
from tests.web.fake_job import slow_job


def test_the_last_ended_jobs_stay_and_older_ones_go() -> None:
    board = JobBoard()
    jobs = [slow_job(id=f"job-{number}") for number in range(ENDED + 3)]
    for job in jobs:
        board.add(job)
    for job in reversed(jobs[1:]):
        job.end(2000.0 - int(job.id[4:]))
    assert [job.id for job in board.jobs()] == [f"job-{number}" for number in range(ENDED + 1)]
    assert board.find("job-11") is None
    assert board.find("job-0") is jobs[0]


def test_a_job_that_could_not_start_is_shown_no_longer() -> None:
    board = JobBoard()
    board.add(slow_job(id="one"))
    board.add(slow_job(id="two"))
    board.remove(slow_job(id="one"))
    board.remove(slow_job(id="none"))
    assert [job.id for job in board.jobs()] == ["two"]


def test_ended_jobs_take_no_more_memory_than_one_job_may() -> None:
    board = JobBoard()
    jobs = [slow_job(id=f"job-{number}", nbytes=ENDED_BYTES // 3) for number in range(5)]
    for at, job in enumerate(jobs):
        board.add(job)
        job.end(2000.0 + at)
    assert [job.id for job in board.jobs()] == ["job-2", "job-3", "job-4"]
    running = slow_job(id="running", nbytes=2 * ENDED_BYTES)
    board.add(running)
    assert len(board.jobs()) == 4, "one that runs does not count"
    running.end(3000.0)
    assert [job.id for job in board.jobs()] == ["running"], "the last one stays"
