"""One owner of a folder: the program that claimed it last.

The problem: a driver may be paused and replaced, and then wake up beside its successor.

The rule: each program that starts or resumes a job claims the job's folder with an epoch that is one above all earlier
epochs. The claim is a file that exactly one program can create. The program with the highest epoch owns the folder. The
other programs notice at their next `check`, and end.

A program has one epoch for everything that it owns: a job's checkpoints, and the results of its sinks. So a program
that claims the results too late does not own them, because its epoch is older.

A check alone protects nothing, since a program may be paused between the check and its next action. Therefore:

- The names of files carry their owner's epoch.
- A program renames and removes only its own files and those of older epochs.
- A new owner first commits or removes the hidden files of older owners. A later action of an older owner then finds no
  file.

`<folder>/<epoch>` is a claim, and names the program that made it. `<folder>/<epoch>.note` is a note of that owner to
its successors. Only the owner of an epoch writes these two files.
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

#: The highest epoch: more than any job needs.
LAST_EPOCH: Final = 10**15
_CLAIM: Final = re.compile(r"([1-9][0-9]{0,15})")
_NOTE: Final = re.compile(r"([1-9][0-9]{0,15})\.note")
#: The longest claim or note in bytes: more than any program writes.
_LONGEST: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class Program:
    """The program that makes a claim: the run of a job, and the process of the run.

    `since` is the time when the process started, in seconds since 1970.
    """

    run: str
    host: str
    pid: int
    since: float

    @staticmethod
    def this(run: str) -> Program:
        """Return the calling process as the program of a run."""
        return Program(run, socket.gethostname(), os.getpid(), time.time())

    def __str__(self) -> str:
        since = datetime.fromtimestamp(self.since, UTC)
        return f"run {self.run}, process {self.pid} on {self.host}, since {since:%Y-%m-%d %H:%M:%S} UTC"


class Ownership:
    """A program's claim to a folder, which is a path or URI. `epoch` is 0 before `claim`.

    Methods raise what the filesystem raises, and ConfigError if it cannot create a file exclusively.
    """

    def __init__(self, folder: str, program: Program) -> None:
        self.folder = folder
        self.epoch = 0
        self._program = program

    def claim(self, least: int = 1) -> int:
        """Become the owner. Return the new epoch, which is above all existing epochs and at least `least`.

        Make the folder if it does not exist. Raises CheckpointError if a file there has the highest possible epoch.
        """
        while True:
            epoch = max(least, 1 + self.newest())
            if epoch > LAST_EPOCH:
                raise CheckpointError(
                    f"{self.folder}: the file {epoch - 1} is not a program's claim: epochs end at {LAST_EPOCH}; remove "
                    "that file"
                )
            # If this program was paused after `newest`, newer owners may have removed this epoch since. So ask again.
            if self.claim_as(epoch) and self.newest() == epoch:
                return epoch

    def claim_as(self, epoch: int) -> bool:
        """Claim the folder with the epoch that the program has elsewhere. Return whether the claim succeeded.

        The claim fails if another program has this epoch in the folder. After a successful claim, a program with a
        newer epoch may still be the owner.
        """
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
        """Return the owner's epoch, or 0 if there is no owner."""
        return max(self.epochs(), default=0)

    def check(self) -> None:
        """Raise Superseded if another program has claimed the folder since `claim`, or if all claims are gone."""
        newest = self.newest()
        if not newest:
            raise Superseded(
                f"{self.folder}: was removed, by hand or by another job that writes there with mode='overwrite'. The "
                f"claim of this program (epoch {self.epoch}) was in it, so this program has ended and changed nothing "
                "more. Leave the folders of checkpoints and results to one job while it runs"
            )
        if newest != self.epoch:
            raise Superseded(
                f"another program took over {self.folder} ({self._who(newest)}); this one has ended and left the "
                "results to it. If both must run, give each job a name or a folder of its own"
            )

    def note(self, content: Mapping[str, Any]) -> None:
        """Write or replace the owner's note, durably. `content` must be JSON values."""
        write_whole(f"{self.folder}/{self.epoch}.note", json.dumps(content).encode())

    def notes(self, known: Collection[int] = ()) -> dict[int, Any]:
        """Return the notes of all owners by epoch, except those of `known` epochs.

        A note without a claim does not count: a newer owner had removed both, and the paused program then wrote the
        note again. Raises ValueError for a file that is no note.
        """
        notes: dict[int, Any] = {}
        claims, noted = self._epochs_of(_CLAIM, _NOTE)
        for epoch in sorted(set(noted).intersection(claims).difference(known)):
            with suppress(FileNotFoundError):  # a newer owner has removed it
                notes[epoch] = self._read(f"{epoch}.note")
        return notes

    def runs(self) -> dict[int, str]:
        """Return the run that made each claim, by epoch. Claims that cannot be read are left out."""
        runs = {}
        for epoch in self.epochs():
            with suppress(OSError, ValueError, KeyError, TypeError):  # a newer owner has removed it, or it is damaged
                runs[epoch] = str(self._read(str(epoch))["run"])
        return runs

    def epochs(self) -> list[int]:
        """Return the epochs of all claims."""
        return self._epochs_of(_CLAIM)[0]

    def forget(self, last: int) -> None:
        """Remove the claims and notes of epochs up to `last`, but none of owners newer than this program."""
        claims, noted = self._epochs_of(_CLAIM, _NOTE)
        for epoch in {*claims, *noted}:
            if epoch <= min(last, self.epoch):
                self._remove(f"{epoch}.note")
                self._remove(str(epoch))

    def _remove(self, name: str) -> None:
        filesystem, inside = locate(f"{self.folder}/{name}")
        with suppress(FileNotFoundError):
            filesystem.delete_file(inside)

    def _epochs_of(self, *patterns: re.Pattern[str]) -> list[list[int]]:
        """Return the epochs in the names of files that match each pattern. All come from one listing."""
        filesystem, inside = locate(self.folder)
        names = [entry.base_name for entry in listing(filesystem, inside)]
        return [[int(match[1]) for name in names if (match := pattern.fullmatch(name))] for pattern in patterns]

    def _read(self, name: str) -> Any:
        """Return the values in a claim or note. Raises ValueError for content that no program wrote."""
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
            return "its claim cannot be read"
