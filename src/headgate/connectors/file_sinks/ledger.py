"""What a sink's folder knows of a job's results: which program owns them, and up to which checkpoint they are shown.

`<folder>/.headgate/<run>` belongs to one run of one sink, which goes on in other programs by resuming. Spark and Arrow
pass over names that begin with a dot.
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
    """The ledger of one run of a sink that writes below `root`, a path or URI; `home` is the folder of the job's
    checkpoints, if it has any, and `resumed` the checkpoint that the program goes on from, with the run that took it.
    Methods raise SinkError; `check` raises Superseded, too."""

    def __init__(
        self, root: str, run: str, home: str | None, program: Program, resumed: tuple[int, str] = (0, "")
    ) -> None:
        self._root = f"{root.rstrip('/')}/{FOLDER}"
        self._program = program
        self._resumed = resumed
        self._ownership = Ownership(f"{self._root}/{run}", program)
        self._last = _Note(epoch=0, home=home, checkpoint=0, run="", taken_in=0, is_given_up=False)

    def newest_owner(self) -> int:
        """The highest epoch with which a program has claimed the results; 0 for none."""
        with writing(self._ownership.folder):
            return self._ownership.newest()

    def claim(self, epoch: int) -> bool:
        """Claim the results, unless another program has with the same epoch; whether that is done. Successors then find
        `home` and the last checkpoint that was shown."""
        with writing(self._ownership.folder):
            is_claimed = self._ownership.claim_as(epoch)
        if is_claimed:
            shown = max(self._notes(), key=lambda note: note.epoch, default=self._last)
            self._write(dataclasses.replace(shown, epoch=epoch, home=self._last.home, is_given_up=False))
        return is_claimed

    def check(self) -> None:
        """Raise Superseded if another program has taken over."""
        with writing(self._ownership.folder):
            self._ownership.check()

    @property
    def has_shown(self) -> bool:
        """Rows of a checkpoint are shown, by this program or one before."""
        return self._last.checkpoint > 0

    def published_after(self, checkpoint: int, run: str) -> int:
        """The last checkpoint whose rows a program has begun to show and which are not in this one, that `run` took;
        0: none. A run's checkpoints follow one another, and those of another run if that claimed the results before."""
        epochs = self._epochs()

        def holds(note: _Note) -> bool:
            if not run or not note.run or run == note.run:
                return checkpoint >= note.checkpoint
            return epochs.get(run, 0) > note.taken_in  # a claim that is not there any more is older than all that are

        return max((note.checkpoint for note in self._notes() if note.checkpoint and not holds(note)), default=0)

    def show(self, checkpoint: int) -> None:
        """Record, before any of its rows is shown, that those of this checkpoint are."""
        resumed, resumed_by = self._resumed
        run = resumed_by if checkpoint == resumed else self._program.run
        if run != self._last.run or checkpoint > self._last.checkpoint:
            taken_in = self._epochs().get(run, self._last.epoch - 1)
            self._write(dataclasses.replace(self._last, checkpoint=checkpoint, run=run, taken_in=taken_in))

    def give_up(self) -> bool:
        """No checkpoint refers to the run, and no program can go on with it: record that. Whether it was on record
        before: a program that still lives has found that out, and has written its last hidden file."""
        before = self.is_given_up()
        self._write(dataclasses.replace(self._last, is_given_up=True))
        return before

    def is_given_up(self) -> bool:
        """Whether a newer program has given up the run."""
        return any(note.is_given_up for note in self._notes())

    def forget_older(self) -> None:
        """Remove what older owners noted: this owner's note has it."""
        with writing(self._ownership.folder):
            self._ownership.forget(self._ownership.epoch - 1)

    def remove(self) -> None:
        """The run is over and cannot be resumed: leave nothing, but for what newer programs wrote."""
        with writing(self._ownership.folder):
            self._ownership.forget(self._ownership.epoch)
            filesystem, inside = locate(self._ownership.folder)
            for folder in (inside, posixpath.dirname(inside)):
                remove_if_empty(filesystem, folder)

    def _epochs(self) -> dict[str, int]:
        """With which epoch each run has claimed the results, of those that are on record."""
        with writing(self._ownership.folder):
            return {run: epoch for epoch, run in sorted(self._ownership.runs().items())}

    def _write(self, note: _Note) -> None:
        self._last = note
        try:
            with writing(self._ownership.folder):
                self._ownership.note(note.to_json())
        except SinkError:
            self.check()  # the folder is gone, if another job has emptied that of the results
            raise

    def _notes(self) -> list[_Note]:
        try:
            with writing(self._ownership.folder):
                return [_Note.of(epoch, note) for epoch, note in self._ownership.notes().items()]
        except ValueError as error:
            raise SinkError(
                f"{self._ownership.folder}: a note of what is shown is damaged ({error}); restore it, or write to "
                "another folder. Whoever removes it has to see to it that no row comes twice"
            ) from None


def abandoned(root: str, home: str, referenced: Collection[str], program: Program) -> Iterator[tuple[str, Ledger]]:
    """Runs below `root` of the job whose checkpoints are in `home` that none of its checkpoints refers to: programs
    that were lost, or replaced, before their first one. Each with its ledger, which is not taken over yet."""
    folder = f"{root.rstrip('/')}/{FOLDER}"
    with writing(folder):
        filesystem, inside = locate(folder)
        entries = listing(filesystem, inside)
    for run in sorted(entry.base_name for entry in entries if entry.type == fs.FileType.Directory):
        ledger = Ledger(root, run, home, program)
        newest = max(ledger._notes(), key=lambda note: note.epoch, default=None)
        if run not in referenced and newest is not None and newest.home == home:  # else another job goes on from it
            yield run, ledger


@dataclass(frozen=True, slots=True, kw_only=True)
class _Note:
    """What an owner says: the last checkpoint whose rows are shown, 0 for none, the run that took it, "" if that is not
    known, and an epoch that is no less than that run's."""

    epoch: int
    home: str | None
    checkpoint: int
    run: str
    taken_in: int
    is_given_up: bool

    def to_json(self) -> dict[str, Any]:
        said = {"home": self.home, "checkpoint": self.checkpoint, "run": self.run, "taken_in": self.taken_in}
        return {**said, "given_up": True} if self.is_given_up else said

    @staticmethod
    def of(epoch: int, values: Any) -> _Note:
        """Raises ValueError for what no owner said."""
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
                )  # of before notes said so
        raise ValueError(f"not a note of a sink: {str(values)[:80]}")
