"""What a user may see of a job: errors, plans, logs, output, checkpoints, the page and recordings."""

from __future__ import annotations

import gzip
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import headgate as hg

SECRET = "hush-4711-hush"


class Shown:
    """What a user may see of a job that has failed."""

    def __init__(self, folder: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self.options: dict[str, Any] = {}
        self.deployment = hg.LocalDeployment(processes=False)
        self.texts: list[str] = []
        self.error: hg.HeadgateError | None = None
        self._caplog, self._capfd = caplog, capfd

    def without_secrets(self, build: Callable[[hg.StreamEnvironment], Any], *secrets: str) -> hg.HeadgateError | None:
        """Run a job until it fails, and return its error. No secret must show anywhere."""
        self.run(build)
        for secret in secrets or (SECRET,):
            assert not any(secret in text for text in self.all())
        return self.error

    def run(self, build: Callable[[hg.StreamEnvironment], Any]) -> None:
        """Build a job, show its plan, and run it until it fails."""
        config = hg.Config(checkpoint_dir=self.folder, checkpoint_interval="10 ms", restart=hg.restart.none(),
                           **self.options)  # fmt: skip
        env = hg.StreamEnvironment(parallelism=1, config=config, deployment=self.deployment)
        try:
            made = build(env)
            self.texts += [repr(made), str(env.explain())]
            job = env.execute_async("secrets")
            try:
                job.wait(60)
            finally:
                job.save_page(self.folder / "page.html")
        except hg.HeadgateError as error:
            self.error = error
            self.texts += [repr(error), *traceback.format_exception(error)]

    def all(self) -> list[str]:
        """Return all texts, with logs, output and files."""
        logs = [f"{record.getMessage()} {record.args} {record.exc_text}" for record in self._caplog.records]
        files = [_text(path) for path in self.folder.rglob("*") if path.is_file()]
        return [*self.texts, *logs, *self._capfd.readouterr(), *files]


def _text(path: Path) -> str:
    """Return the content of a file. Recordings are compressed."""
    content = path.read_bytes()
    return (gzip.decompress(content) if path.suffix == ".recording" else content).decode(errors="replace")
