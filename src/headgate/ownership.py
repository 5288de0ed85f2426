"""One owner of a folder: the program that claimed it last.

A driver that was paused and replaced wakes up beside its successor. Each program that starts or resumes a job claims
the job's folder with an epoch, one above all claims before; the claim is a file that exactly one program can create.
Whoever holds the highest epoch owns the folder. The others find out at their next `check`, and end.

A program has one epoch for all that it owns: a job's checkpoints, and the results of its sinks. A claim to the results
that comes late does not count then, for its epoch is an older one.

A check alone protects nothing: a program may be paused between its check and what it does then. So the names of files
carry their owner's epoch, a program renames and removes files of its own and of older epochs only, and a new owner
first commits or removes what older ones left hidden. What an older program then still does finds no file.

`<folder>/<epoch>` is a claim, and says who made it; `<folder>/<epoch>.note` is what that owner wants its successors to
know. Only the owner of an epoch writes them.
"""

from __future__ import annotations

import json
import os
import re
import socket
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, Final

from headgate.errors import CheckpointError, Superseded
from headgate.filesystems import listing, locate, make_for_files, read_whole, write_new, write_whole

#: So many digits: more than any job needs.
LAST_EPOCH: Final = 10**15
_CLAIM: Final = re.compile(r"([1-9][0-9]{0,15})")
_NOTE: Final = re.compile(r"([1-9][0-9]{0,15})\.note")
#: Bytes: more than any program writes.
_LONGEST: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class Program:
    """Who claims: the run of a job, and the process that runs it. `since` is in seconds since the epoch."""

    run: str
    host: str
    pid: int
    since: float

    @staticmethod
    def this(run: str) -> Program:
        """The calling process."""
        return Program(run, socket.gethostname(), os.getpid(), time.time())

    def __str__(self) -> str:
        since = datetime.fromtimestamp(self.since, UTC)
        return f"run {self.run}, process {self.pid} on {self.host}, since {since:%Y-%m-%d %H:%M:%S} UTC"


class Ownership:
    """A program's claim to a folder, by path or URI. `epoch` is 0 before `claim`.

    Methods raise what the filesystem raises, and ConfigError where it cannot create a file exclusively.
    """

    def __init__(self, folder: str, program: Program) -> None:
        self.folder = folder
        self.epoch = 0
        self._program = program

    def claim(self, least: int = 1) -> int:
        """Become the owner, with an epoch above all there are, `least` or more. The folder is made if it is not
        there."""
        while True:
            epoch = max(least, 1 + self.newest())
            if epoch > LAST_EPOCH:
                raise CheckpointError(f"{self.folder}: {epoch - 1} is no epoch of a program; remove that file")
            # A program that slept after it had listed may create an epoch that others have passed and removed.
            if self.claim_as(epoch) and self.newest() == epoch:
                return epoch

    def claim_as(self, epoch: int) -> bool:
        """Claim the folder with the epoch that the program has elsewhere; whether no other program has that one here.
        A newer one may own the folder all the same."""
        filesystem, inside = locate(self.folder)
        content = json.dumps(asdict(self._program)).encode()
        for is_last in (False, False, True):
            make_for_files(filesystem, inside)
            try:
                is_new = write_new(f"{self.folder}/{epoch}", content)
                break
            except FileNotFoundError:  # another program has removed the empty folder
                if is_last:
                    raise
        if is_new:
            self.epoch = epoch
        return is_new

    def newest(self) -> int:
        """The owner's epoch; 0 for none."""
        return max(self.epochs(), default=0)

    def check(self) -> None:
        """Raise Superseded if another program has claimed the folder since, or has removed the claim."""
        newest = self.newest()
        if not newest:
            raise Superseded(
                f"{self.folder}: was removed, and with it what says that this program owns the job, by hand or by "
                "another job that writes there with mode='overwrite'; it has ended and left everything as it is. Leave "
                "the folders of checkpoints and results to one job while it runs"
            )
        if newest != self.epoch:
            raise Superseded(
                f"another program took over {self.folder} ({self._who(newest)}); this one has ended and left the "
                "results to it. If both are to run, give each job a name or a folder of its own"
            )

    def note(self, content: Mapping[str, Any]) -> None:
        """Replace the owner's note, durably."""
        write_whole(f"{self.folder}/{self.epoch}.note", json.dumps(content).encode())

    def notes(self, known: Collection[int] = ()) -> dict[int, Any]:
        """What owners noted, by epoch, but for those of `known` epochs. A note without a claim does not count: a
        program wrote it that slept until a newer owner had removed both. Raises ValueError for what is no note."""
        found: dict[int, Any] = {}
        claims, noted = self._found(_CLAIM, _NOTE)
        for epoch in sorted(set(noted).intersection(claims).difference(known)):
            with suppress(FileNotFoundError):  # a newer owner has removed it
                found[epoch] = self._read(f"{epoch}.note")
        return found

    def runs(self) -> dict[int, str]:
        """Which run made each claim, by epoch; of those that say so."""
        found = {}
        for epoch in self.epochs():
            with suppress(OSError, ValueError, KeyError, TypeError):  # a newer owner has removed it, or it is damaged
                found[epoch] = str(self._read(str(epoch))["run"])
        return found

    def epochs(self) -> list[int]:
        """All claims there are."""
        return self._found(_CLAIM)[0]

    def forget(self, last: int) -> None:
        """Remove the claims and notes of epochs up to `last`, but none of newer owners."""
        claims, noted = self._found(_CLAIM, _NOTE)
        for epoch in {*claims, *noted}:
            if epoch <= min(last, self.epoch):
                self._remove(f"{epoch}.note")
                self._remove(str(epoch))

    def _remove(self, name: str) -> None:
        filesystem, inside = locate(f"{self.folder}/{name}")
        with suppress(FileNotFoundError):
            filesystem.delete_file(inside)

    def _found(self, *patterns: re.Pattern[str]) -> list[list[int]]:
        """The epochs in the names of files, for each pattern."""
        filesystem, inside = locate(self.folder)
        names = [entry.base_name for entry in listing(filesystem, inside)]
        return [[int(found[1]) for name in names if (found := pattern.fullmatch(name))] for pattern in patterns]

    def _read(self, name: str) -> Any:
        """Raises ValueError for what no program wrote."""
        try:
            return json.loads(read_whole(f"{self.folder}/{name}", _LONGEST))
        except RecursionError:
            raise ValueError(f"{name} is nested too deep") from None
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None

    def _who(self, epoch: int) -> str:
        try:
            values = self._read(str(epoch))
            return str(Program(str(values["run"]), str(values["host"]), int(values["pid"]), float(values["since"])))
        except (OSError, ValueError, KeyError, TypeError, OverflowError):
            return "it does not say which"
