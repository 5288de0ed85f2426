"""The ledger in a sink's folder: it records which program owns a job's results, and up to which checkpoint they are
visible.

The folder `<folder>/.headgate/<run>` is the ledger of one run of one sink. Other programs may resume the run. Spark and
Arrow skip names that begin with a dot.
"""

from __future__ import annotations

import dataclasses
import posixpath
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any, Final

from pyarrow import fs

from headgate.connectors.file_sinks.file_writer import remove_if_empty, writing
from headgate.errors import SinkError
from headgate.filesystems import listing, locate
from headgate.ownership import Ownership, Program

FOLDER: Final = ".headgate"


class Ledger:
    """The ledger of one run of a sink that writes below `root`, which is a path or URI.

    `home` is the folder of the job's checkpoints, or None without checkpoints. `resumed` is the checkpoint that the
    program resumes from, and the run that took this checkpoint. All methods may raise SinkError; `check` may also raise
    Superseded.
    """

    def __init__(
        self, root: str, run: str, home: str | None, program: Program, resumed: tuple[int, str] = (0, "")
    ) -> None:
        self._root = f"{root.rstrip('/')}/{FOLDER}"
        self._program = program
        self._resumed = resumed
        self._ownership = Ownership(f"{self._root}/{run}", program)
        self._last = _Note(epoch=0, home=home, checkpoint=0, run="", taken_in=0, is_given_up=False)

    def newest_owner(self) -> int:
        """Return the highest epoch with which a program has claimed the results, or 0 if there is no claim."""
        with writing(self._ownership.folder):
            return self._ownership.newest()

    def claim(self, epoch: int) -> bool:
        """Claim the results, and record `home` and the last visible checkpoint for later programs.

        Returns False if another program has claimed the results with the same epoch.
        """
        with writing(self._ownership.folder):
            is_claimed = self._ownership.claim_as(epoch)
        if is_claimed:
            newest = max(self._notes(), key=lambda note: note.epoch, default=self._last)
            self._write(dataclasses.replace(newest, epoch=epoch, home=self._last.home, is_given_up=False))
        return is_claimed

    def has_owner_besides(self, epoch: int) -> bool:
        """Return whether a program with another epoch has claimed the results. If not, the ledger was removed, or the
        run is new."""
        with writing(self._ownership.folder):
            return any(other != epoch for other in self._ownership.epochs())

    def check(self) -> None:
        """Raise Superseded if a newer program has claimed the results."""
        with writing(self._ownership.folder):
            self._ownership.check()

    def published_after(self, checkpoint: int, run: str) -> int:
        """Return the last checkpoint after `checkpoint` that a program began to make visible, or 0.

        `run` is the run that took `checkpoint`. Checkpoints of one run are in the order of their numbers. Checkpoints
        of two runs are in the order in which the runs claimed the results.
        """
        epochs = self._epochs()

        def holds(note: _Note) -> bool:
            """Whether `checkpoint` contains the rows of the note's checkpoint."""
            if not run or not note.run or run == note.run:
                return checkpoint >= note.checkpoint
            return epochs.get(run, 0) > note.taken_in  # a removed claim is older than all claims on record

        return max((note.checkpoint for note in self._notes() if note.checkpoint and not holds(note)), default=0)

    def show(self, checkpoint: int) -> None:
        """Record that the rows of this checkpoint become visible. The caller calls this before the first row becomes
        visible."""
        resumed, resumed_by = self._resumed
        run = resumed_by if checkpoint == resumed else self._program.run
        if run != self._last.run or checkpoint > self._last.checkpoint:
            taken_in = self._epochs().get(run, self._last.epoch - 1)
            self._write(dataclasses.replace(self._last, checkpoint=checkpoint, run=run, taken_in=taken_in))

    def give_up(self) -> bool:
        """Record that no checkpoint names the run, so that no program can resume it.

        Returns whether this was recorded before. In this case, a program that is still alive has already read the
        record, and writes no more hidden files.
        """
        was_given_up = self.is_given_up()
        self._write(dataclasses.replace(self._last, is_given_up=True))
        return was_given_up

    def is_given_up(self) -> bool:
        """Return whether a newer program has recorded that the run is given up."""
        return any(note.is_given_up for note in self._notes())

    def is_over(self) -> bool:
        """Return whether a newer program has given up the run, or has finished it, and so removed this claim."""
        with writing(self._ownership.folder):
            is_claimed = self._ownership.epoch in self._ownership.epochs()
        return not is_claimed or self.is_given_up()

    def close(self, keep: bool) -> None:
        """Remove what later programs do not need. The run is over, or given up.

        The ledger stays if rows of a checkpoint are visible, or with `keep`: a program may resume from a savepoint of
        the run, and must see which rows are there. Then only the notes of older owners are removed, because the note
        of this owner contains their facts.
        """
        if not keep and not self._last.checkpoint:
            return self.remove()
        with writing(self._ownership.folder):
            self._ownership.forget(self._ownership.epoch - 1)

    def remove(self) -> None:
        """Remove the ledger, except for notes of newer programs. The run is over, and no program can resume it."""
        with writing(self._ownership.folder):
            self._ownership.forget(self._ownership.epoch)
            filesystem, inside = locate(self._ownership.folder)
            for folder in (inside, posixpath.dirname(inside)):
                remove_if_empty(filesystem, folder)

    def _epochs(self) -> dict[str, int]:
        """Return the epoch with which each run has claimed the results, by run."""
        with writing(self._ownership.folder):
            return {run: epoch for epoch, run in sorted(self._ownership.runs().items())}

    def _write(self, note: _Note) -> None:
        self._last = note
        try:
            with writing(self._ownership.folder):
                self._ownership.note(note.to_json())
        except SinkError:
            self.check()  # another job may have emptied the folder, including the ledger
            raise

    def _notes(self) -> list[_Note]:
        try:
            with writing(self._ownership.folder):
                return [_Note.of(epoch, note) for epoch, note in self._ownership.notes().items()]
        except ValueError as error:
            raise SinkError(
                f"{self._ownership.folder}: a note in this ledger is damaged ({error}); restore it, or write to "
                "another folder. Without the note the sink cannot tell which rows are visible, and may write rows twice"
            ) from None


def abandoned(root: str, home: str, referenced: Collection[str], program: Program) -> Iterator[tuple[str, Ledger]]:
    """Yield the abandoned runs below `root`, each with its ledger. `program` has not claimed these ledgers yet.

    An abandoned run belongs to the job whose checkpoints are in `home`, but no checkpoint names it. Its program was
    lost, or replaced, before its first checkpoint. `referenced` has the runs that checkpoints name.
    """
    folder = f"{root.rstrip('/')}/{FOLDER}"
    with writing(folder):
        filesystem, inside = locate(folder)
        entries = listing(filesystem, inside)
    for run in sorted(entry.base_name for entry in entries if entry.type == fs.FileType.Directory):
        ledger = Ledger(root, run, home, program)
        newest = max(ledger._notes(), key=lambda note: note.epoch, default=None)
        # A run of another home belongs to another job, which may resume it.
        if run not in referenced and newest is not None and newest.home == home:
            yield run, ledger


@dataclass(frozen=True, slots=True, kw_only=True)
class _Note:
    """A note in the ledger, which one owner has written."""

    #: The owner's epoch.
    epoch: int
    #: The folder of the job's checkpoints, or None without checkpoints.
    home: str | None
    #: The last checkpoint whose rows are visible, or 0 if there is none.
    checkpoint: int
    #: The run that took this checkpoint, or "" if the run is not known.
    run: str
    #: The epoch with which `run` claimed the results, or a higher epoch.
    taken_in: int
    #: Whether the owner has given up the run of this ledger.
    is_given_up: bool

    def to_json(self) -> dict[str, Any]:
        fields = {"home": self.home, "checkpoint": self.checkpoint, "run": self.run, "taken_in": self.taken_in}
        return {**fields, "given_up": True} if self.is_given_up else fields

    @staticmethod
    def of(epoch: int, values: Any) -> _Note:
        """Return the note for these JSON values. Raises ValueError for values that an owner never writes."""
        match values:
            case {"home": str() | None as home, "checkpoint": int(number)} if number >= 0:
                match values:
                    case {"run": str(run), "taken_in": int(taken_in)}:
                        return _Note(
                            epoch=epoch,
                            home=home,
                            checkpoint=number,
                            run=run,
                            taken_in=taken_in,
                            is_given_up=values.get("given_up") is True,
                        )
                return _Note(
                    epoch=epoch, home=home, checkpoint=number, run="", taken_in=0, is_given_up=False
                )  # notes of earlier versions do not have the run
        raise ValueError(f"not a note of a sink: {str(values)[:80]}")
