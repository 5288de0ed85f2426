"""The table `headgate_commits`: who owns a sink's results, and up to which checkpoint they are in the user's table.

There is one row for each run of a sink; other programs may resume the run. Each commit changes this row, and so locks
it, in the transaction that adds the user's rows. Therefore a program that was replaced adds nothing any more, even if
it was paused in the middle of a commit.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from headgate.connectors.adbc.database import LOCKED, DatabaseConnection, quoted
from headgate.connectors.connector import Claim
from headgate.errors import SinkError, Superseded

NAME: Final = "headgate_commits"
#: How often a program tries to create the table while others do the same.
_ATTEMPTS: Final = 3


@dataclass(frozen=True, slots=True)
class CommittedRun:
    """The row of one run.

    `owner` is the epoch of the program that owns the results. `checkpoint` is the last checkpoint whose rows are in the
    table, or 0, and `taken_by` is the run of the program that took it. `claims` has the epochs and runs of all owners,
    in order.
    """

    owner: int
    checkpoint: int
    taken_by: str
    claims: Sequence[Sequence[Any]]

    def has(self, checkpoint: int, run: str) -> bool:
        """Return whether the rows of the checkpoint that the program `run` took are in the table."""
        if not checkpoint or not self.checkpoint:
            return False
        if run == self.taken_by:
            return checkpoint <= self.checkpoint
        return self._epoch(run) < self._epoch(self.taken_by)  # runs follow each other in the order of their claims

    def shown_after(self, checkpoint: int, run: str) -> int:
        """Return the last checkpoint in the table that `checkpoint` of `run` does not contain, or 0."""
        if not run or run == self.taken_by:
            return self.checkpoint if self.checkpoint > checkpoint else 0
        return 0 if self._epoch(run) > self._epoch(self.taken_by) else self.checkpoint

    def _epoch(self, run: str) -> int:
        return next((epoch for epoch, claimed_by in self.claims if claimed_by == run), 0)


class CommitTable:
    """The table in one schema of a database, or in the default schema. Each method is a part of a transaction."""

    def __init__(self, schema: str | None) -> None:
        self.name = quoted(NAME) if schema is None else f"{quoted(schema)}.{quoted(NAME)}"

    def create(self, connection: DatabaseConnection) -> None:
        """Create the table if it is not there. Commits the transaction."""
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                connection.execute(self.definition)
                return connection.commit()
            except Exception as error:  # PostgreSQL fails if another program creates the table at this moment
                connection.roll_back()
                if attempt == _ATTEMPTS or getattr(error, "sqlstate", None) == LOCKED:
                    raise

    @property
    def definition(self) -> str:
        return (
            f"create table if not exists {self.name} (run text primary key, results text not null, home text, "
            "owner bigint not null, checkpoint bigint not null, taken_by text not null, claims text not null)"
        )

    def find(self, connection: DatabaseConnection, run: str) -> CommittedRun | None:
        """Return the row of a run, or None."""
        columns = "owner, checkpoint, taken_by, claims"
        return _first(connection.execute(f"select {columns} from {self.name} where run = $1", run))

    def claim(self, connection: DatabaseConnection, run: str, results: str, claim: Claim) -> bool:
        """Record a program as the owner. Returns False if another program has the same epoch or a higher one.

        `results` names the user's table. Commits the transaction.
        """
        found = self.find(connection, run)
        claims = json.dumps([*(found.claims if found else ()), [claim.epoch, claim.program.run]])
        if found is None:
            changed = connection.execute(
                f"insert into {self.name} (run, results, home, owner, checkpoint, taken_by, claims) "
                "values ($1, $2, $3, $4, 0, '', $5) on conflict (run) do nothing returning owner",
                run, results, claim.home or "", claim.epoch, claims,
            )  # fmt: skip
        else:
            changed = connection.execute(
                f"update {self.name} set home = $1, owner = $2, claims = $3 where run = $4 and owner = $5 "
                "and owner < $6 returning owner",
                claim.home or "", claim.epoch, claims, run, found.owner, claim.epoch,
            )  # fmt: skip
        connection.commit()
        return bool(changed)

    def locked(self, connection: DatabaseConnection, run: str, owner: int) -> CommittedRun:
        """Return the row of a run, and lock it until the end of the transaction. Raises Superseded."""
        found = _first(
            connection.execute(
                f"update {self.name} set owner = owner where run = $1 and owner = $2 "
                "returning owner, checkpoint, taken_by, claims", run, owner,
            )
        )  # fmt: skip
        if found is None:
            raise Superseded(f"{self.name}: another program has taken over the results of run {run}")
        return found

    def is_locked(self, connection: DatabaseConnection, run: str) -> bool:
        """Return whether a transaction of the driver has locked the row of a run. Only for PostgreSQL."""
        try:
            connection.execute(f"select 1 from {self.name} where run = $1 for share nowait", run)
        except Exception as error:
            if getattr(error, "sqlstate", None) != LOCKED:
                raise
            return True
        return False

    def record(self, connection: DatabaseConnection, run: str, checkpoint: int, taken_by: str) -> None:
        """Record that the rows of a checkpoint are in the table."""
        statement = f"update {self.name} set checkpoint = $1, taken_by = $2 where run = $3"
        connection.execute(statement, checkpoint, taken_by, run)

    def runs_of(self, connection: DatabaseConnection, results: str, home: str) -> list[str]:
        """Return the runs that wrote into a table for the job whose checkpoints are in `home`."""
        found = connection.execute(f"select run from {self.name} where results = $1 and home = $2", results, home)
        return [run for (run,) in found]

    def take(self, connection: DatabaseConnection, run: str, owner: int) -> bool:
        """Become the owner of a run that no program will resume. Returns False if a newer program owns it."""
        statement = f"update {self.name} set owner = $1 where run = $2 and owner < $3 returning owner"
        return bool(connection.execute(statement, owner, run, owner))

    def remove(self, connection: DatabaseConnection, run: str, owner: int) -> None:
        """Remove the row of a run if it has committed no checkpoint, and no newer program owns it."""
        statement = f"delete from {self.name} where run = $1 and owner <= $2 and checkpoint = 0"
        connection.execute(statement, run, owner)


def _first(rows: Sequence[Sequence[Any]]) -> CommittedRun | None:
    if not rows:
        return None
    owner, checkpoint, taken_by, claims = rows[0]
    try:
        return CommittedRun(int(owner), int(checkpoint), str(taken_by), json.loads(claims))
    except ValueError as error:
        raise SinkError(f"{NAME}: a row is damaged ({error}); restore it") from None
