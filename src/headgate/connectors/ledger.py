"""What a sink's folder knows of a job's results: which program owns them, and up to which checkpoint they are shown.

`<folder>/.headgate/<run>` belongs to one run of one sink, which goes on in other programs by resuming. Spark and Arrow
pass over names that begin with a dot.
"""

from __future__ import annotations

import posixpath
from collections.abc import Collection, Iterator
from typing import Any, Final

from pyarrow import fs

from headgate.connectors.file_writer import remove_if_empty, writing
from headgate.errors import SinkError
from headgate.filesystems import listing, locate
from headgate.ownership import Ownership, Program

FOLDER: Final = ".headgate"


class Ledger:
    """The ledger of one run of a sink that writes below `root`, a path or URI; `home` is the folder of the job's
    checkpoints, if it has any. Methods raise SinkError; `check` raises Superseded, too."""

    def __init__(self, root: str, run: str, home: str | None, program: Program) -> None:
        self._root = f"{root.rstrip('/')}/{FOLDER}"
        self._home = home
        self._ownership = Ownership(f"{self._root}/{run}", program)
        self._shown = 0

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
            self._shown = self.shown()
            self._note()
        return is_claimed

    def check(self) -> None:
        """Raise Superseded if another program has taken over."""
        with writing(self._ownership.folder):
            self._ownership.check()

    def shown(self) -> int:
        """The last checkpoint whose rows any owner has begun to show; 0: none."""
        return max((_number(note) for note in self._notes()), default=0)

    def show(self, checkpoint: int) -> None:
        """Record, before any of its rows is shown, that those of this checkpoint are."""
        if checkpoint > self._shown:
            self._shown = checkpoint
            self._note()

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

    def _note(self) -> None:
        with writing(self._ownership.folder):
            self._ownership.note({"home": self._home, "checkpoint": self._shown})

    def _notes(self) -> list[Any]:
        try:
            with writing(self._ownership.folder):
                return list(self._ownership.notes().values())
        except ValueError as error:
            raise SinkError(f"{self._ownership.folder}: is damaged ({error}); restore it, or write elsewhere") from None


def abandoned(root: str, home: str, referenced: Collection[str], program: Program) -> Iterator[tuple[str, Ledger]]:
    """Runs below `root` of the job whose checkpoints are in `home` that none of its checkpoints refers to: programs
    that were lost, or replaced, before their first one. Each with its ledger, which is not taken over yet."""
    folder = f"{root.rstrip('/')}/{FOLDER}"
    with writing(folder):
        filesystem, inside = locate(folder)
        entries = listing(filesystem, inside)
    for run in sorted(entry.base_name for entry in entries if entry.type == fs.FileType.Directory):
        ledger = Ledger(root, run, home, program)
        if run not in referenced and any(isinstance(n, dict) and n.get("home") == home for n in ledger._notes()):
            yield run, ledger


def _number(note: Any) -> int:
    match note:
        case {"checkpoint": int(number)} if number >= 0:
            return number
    raise SinkError(f"not a note of a sink: {str(note)[:80]}; restore it, or write elsewhere")
