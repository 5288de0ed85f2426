"""Which of several reports of a loss the job's error tells."""

from __future__ import annotations

from typing import cast

import headgate as hg
from headgate.errors import to_wire
from headgate.protocol.handshake import Credentials
from headgate.runtime.control_messages import Failed
from headgate.runtime.master.attempt import Attempt, Job
from tests.runtime.checkpointed_plan import three_vertices

CUT = "TaskManager 1 was lost: [Errno 32] Broken pipe (seen by TaskManager 0)"
CLOSED = "TaskManager 1 was lost: the connection was closed (seen by TaskManager 0)"
EXPLAINED = "TaskManager 0 was lost: TLS says bad record mac (seen by TaskManager 1)"


def told(*reports: str) -> str:
    """What the attempt says after these reports of TaskManagers, in this order."""
    attempt = Attempt(
        cast(Job, None),
        "job",
        plan=three_vertices(),
        config=hg.Config(),
        deployment=hg.LocalDeployment(1, processes=False),
        credentials=Credentials(bytes(16), 1, b"secret"),
        checkpoint=0,
        restore=None,
    )
    for report in reports:
        attempt._on_message(attempt.members[0], Failed(error=to_wire(hg.TaskManagerLost(report))), b"")
    assert attempt._suspect is not None
    return attempt._suspect.message


def test_the_end_that_knows_why_a_link_ended_is_heard() -> None:
    """The other end sees only that the connection was cut, and may be the first to say so."""
    assert told(CUT, EXPLAINED) == EXPLAINED
    assert told(CLOSED, EXPLAINED) == EXPLAINED
    assert told(EXPLAINED, CUT) == EXPLAINED
    assert told(CUT, CLOSED) == CUT
