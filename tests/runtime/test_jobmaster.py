"""What the driver keeps of a job that runs for long."""

from __future__ import annotations

import headgate as hg
from headgate.runtime.control_messages import ReportCheckpointMetrics
from headgate.runtime.master.jobmaster import JobMaster
from headgate.runtime.master.member import Member
from tests.runtime.checkpointed_plan import three_vertices


def test_the_reports_of_tasks_on_the_last_ten_checkpoints_stay() -> None:
    master = JobMaster(
        "job", "run-0", plan=three_vertices(), config=hg.Config(), deployment=hg.LocalDeployment(1, processes=False)
    )
    for checkpoint in range(1, 101):
        for task in ("read[0]", "write[0]"):
            told = ReportCheckpointMetrics(part={"checkpoint": checkpoint, "task": task})
            master.on_message(Member(0), told, b"")
    assert [n for n in range(1, 101) if master.checkpoint_parts(n)] == list(range(91, 101))
    assert master.checkpoint_parts(90) == {}
    assert set(master.checkpoint_parts(100)) == {"read[0]", "write[0]"}
