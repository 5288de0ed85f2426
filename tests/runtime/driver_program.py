"""Programs that run a random pipeline, each a process of its own, that a test can stop, kill and replace.

They are forks of one process that has its imports done. It takes a program in JSON from each line of its standard
input, and answers with the fork's process id.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import headgate as hg
from tests.exactly_once import environment
from tests.runtime.faults import Pull, behind_gate, cuts_one_connection, fills_the_disk, raises
from tests.runtime.random_pipelines import RandomPipeline

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, kw_only=True)
class Program:
    """`seed` is the pipeline's; `folder` is all jobs', and `answer` the file for what became of this one.

    `bug` is a module that has a BUG to plant in this process.
    """

    seed: int
    rows: int
    folder: str
    answer: str
    parallelism: int
    taskmanagers: int
    processes: bool
    options: dict[str, Any]
    bug: str = ""

    def pipeline(self) -> RandomPipeline:
        return RandomPipeline(self.seed, self.rows, self.parallelism)


def run(program: Program) -> dict[str, Any]:
    """Run the program and return its outcome."""
    folder = Path(program.folder)
    pulls = [raises(folder / "raise"), fills_the_disk(folder / "fill"), cuts_one_connection(folder / "cut")]
    pulled_by_driver(cuts_one_connection(folder / "cut-at-driver", waits=True))
    before = program.rows // (program.parallelism * 3)
    env = environment(
        folder,
        hg.LocalDeployment(program.taskmanagers, processes=program.processes),
        program.parallelism,
        restart=hg.restart.exponential(initial="10 ms", max="100 ms"),
        tolerable_failed_checkpoints=100,
        **program.options,
    )
    program.pipeline().build(env, folder, lambda source: behind_gate(source, folder, *pulls, before=before))
    try:
        with planted(program.bug):
            result = env.execute(resume="latest-if-any")
    except hg.HeadgateError as error:
        return {"error": type(error).__name__, "message": str(error)}
    return {"error": None, "restarts": result.restarts}


def pulled_by_driver(pull: Pull) -> None:
    """In a thread beside the job, until the program ends."""

    def pull_on() -> None:
        while True:
            pull()
            time.sleep(0.005)

    threading.Thread(target=pull_on, daemon=True).start()


def planted(bug: str) -> AbstractContextManager[None]:
    return importlib.import_module(bug).BUG.planted() if bug else nullcontext()


class Programs:
    """Starts them. `close` ends the process that they are forks of."""

    def __init__(self) -> None:
        environ = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
        command = [sys.executable, "-c", "from tests.runtime.driver_program import main; main()"]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environ, cwd=ROOT
        )

    def start(self, program: Program) -> int:
        """The process id."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(asdict(program)) + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def close(self) -> None:
        with self._process:
            assert self._process.stdin is not None
            self._process.stdin.close()


def main() -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for them
    for line in sys.stdin:
        process = os.fork()
        if process == 0:
            _become(Program(**json.loads(line)))
        print(process, flush=True)


def _become(program: Program) -> None:
    """In the fork, which never returns."""
    code = 1
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        with Path(program.answer + ".log").open("w") as log:
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            for stream in (1, 2):
                os.dup2(log.fileno(), stream)
        answer = Path(program.answer)
        hidden = answer.with_suffix(".hidden")
        hidden.write_text(json.dumps(run(program)))
        hidden.rename(answer)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)
