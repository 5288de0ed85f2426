"""Files of checkpoints that are damaged, and whether a job may go on without them."""

from __future__ import annotations

import json
import random
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headgate.state.checkpoint_storage import load_checkpoint


@dataclass(frozen=True)
class Torn:
    """A file that has been damaged, and what was in it."""

    file: Path
    content: bytes

    def mend(self) -> None:
        with suppress(FileNotFoundError):  # its checkpoint is old by now
            self.file.write_bytes(self.content)


def tear(checkpoint: Path, chance: random.Random) -> Torn | None:
    """One of a checkpoint's files is cut short, has another byte somewhere, or is gone. None if all are empty."""
    files = [Path(file.path) for file in load_checkpoint(checkpoint).files if file.size]
    if not files:
        return None
    file = chance.choice(files)
    content, at = file.read_bytes(), chance.randrange(file.stat().st_size)
    match chance.choice(["cut short", "changed", "gone"]):
        case "cut short":
            file.write_bytes(content[:at])
        case "changed":
            file.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
        case _:
            file.unlink()
    return Torn(file, content)


def must_refuse(there: list[Path]) -> bool:
    """No job may go on without the newest of these checkpoints: its sinks had something to commit with it, and would
    get it a second time; or there is no other."""
    return bool(metadata(there[0])["pending"]) or len(there) == 1


def metadata(checkpoint: Path) -> Any:
    return json.loads((checkpoint / "_metadata").read_text())["checkpoint"]
