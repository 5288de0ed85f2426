"""Which jobs the page shows."""

from __future__ import annotations

from headgate.web.job_board import ENDED, JobBoard
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
