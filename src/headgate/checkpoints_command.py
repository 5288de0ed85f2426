"""`headgate checkpoints list|show|verify URI`: list checkpoints, show the content of one, and check their files.

The commands need the folder of the checkpoints, but no job and no Spark.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from headgate.errors import CheckpointError, printable
from headgate.json_option import add_json_option, write_json
from headgate.redaction import redacted
from headgate.state.checkpoint_files import is_there, read_state, verify_state
from headgate.state.checkpoint_metadata import METADATA_FILE, CheckpointMetadata, Finished, StateFile, TaskState
from headgate.state.checkpoint_storage import find_checkpoints, load_checkpoint
from headgate.state.snapshot import checkpoint_errors, decode
from headgate.terminal import PlainConsole

#: The longest position or pending commit that a table shows, in characters.
_LONGEST = 50


def main(argv: Sequence[str]) -> int:
    """Run the command. Return its exit code: 1 if `show` or `verify` found a damaged checkpoint, otherwise 0.

    Wrong usage exits with code 2. Raises CheckpointError if the folder has no checkpoints.
    """
    arguments = _parser().parse_args(argv)
    console = PlainConsole(stderr=arguments.json == "-")
    report, is_well = _COMMANDS[arguments.command](_folders(arguments.uri), console)
    write_json(arguments.json, json.loads(redacted(json.dumps(report))))
    return 0 if is_well else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="headgate checkpoints", description="Look at checkpoints and savepoints.")
    commands = "list: all checkpoints; show: the content of the newest one; verify: read all files, compare checksums"
    parser.add_argument("command", choices=list(_COMMANDS), help=commands)
    uri = "path or URI of a folder: one checkpoint, one job, or the checkpoint_dir of all jobs"
    parser.add_argument("uri", metavar="URI", help=uri)
    add_json_option(parser)
    return parser


def _folders(uri: str) -> list[str]:
    folders = find_checkpoints(uri)
    if not folders:
        raise CheckpointError(f"{uri}: there are no checkpoints; give the folder to which jobs write them")
    return folders


# --- the commands: each returns a report, and whether the exit code is 0


def _list(folders: Sequence[str], console: Console) -> tuple[Any, bool]:
    table = _table("id", "job", "taken (UTC)", "seconds", "bytes", "tasks", "state")
    report: list[dict[str, Any]] = []
    for folder in folders:
        job_folder, _, name = folder.rpartition("/")
        metadata, state = _load(folder)
        if metadata is None:
            job = job_folder.rpartition("/")[2]
            table.add_row(name.removeprefix("chk-"), job, "", "", "", "", state.partition(":")[0])
            report.append({"uri": folder, "state": state})
        else:
            tasks = sum(len(vertex.tasks) for vertex in metadata.vertices)
            numbers = f"{metadata.duration:.3g}", f"{metadata.size:,}", str(tasks)
            shown = "savepoint" if metadata.kind == "savepoint" else state
            table.add_row(str(metadata.id), metadata.job, _time(metadata.timestamp), *numbers, shown)
            report.append(
                {"uri": folder, "id": metadata.id, "job": metadata.job, "timestamp": metadata.timestamp,
                 "duration": metadata.duration, "size": metadata.size, "tasks": tasks, "state": state,
                 "kind": metadata.kind}
            )  # fmt: skip
    console.print(table)
    for problem in (entry["state"] for entry in report if entry["state"].startswith("broken")):
        console.print(problem, soft_wrap=True, style="red")
    return report, True


def _load(folder: str) -> tuple[CheckpointMetadata | None, str]:
    """Return the metadata, or None if it cannot be read, and the state: "complete", "not complete" or "broken: ..."."""
    if not is_there(f"{folder}/{METADATA_FILE}"):
        return None, "not complete"
    try:
        return load_checkpoint(folder), "complete"
    except CheckpointError as error:
        return None, f"broken: {error}"


def _show(folders: Sequence[str], console: Console) -> tuple[Any, bool]:
    folder, metadata, is_well = _newest_whole(folders, console)
    console.print(f"{metadata.kind} {metadata.id} of job {metadata.job!r}, attempt {metadata.attempt}: {folder}")
    took = f"{metadata.duration:.3g} s"
    console.print(f"taken {_time(metadata.timestamp)} UTC, took {took}, {_bytes(metadata.size)}")
    tasks = _table("task", "of", "key groups", "state", "in flight")
    for vertex in metadata.vertices:
        for subtask, task in enumerate(vertex.tasks):
            groups = str(vertex.max_parallelism)
            sizes = _size_of(task), _bytes(_in_flight_of(task))
            tasks.add_row(f"{vertex.name}[{subtask}]", str(len(vertex.tasks)), groups, *sizes)
    console.print(tasks)
    if metadata.pending:
        sinks = _table("sink", "pending")
        for key, pending in metadata.pending.items():
            sinks.add_row(key, _brief(pending))
        console.print(sinks)
    positions = _positions(metadata)
    if positions:
        sources = _table("source", "subtask", "position")
        for entry in positions:
            sources.add_row(entry["source"], str(entry["subtask"]), _brief(_unwrapped(entry["position"])))
        console.print(sources)
    size = {"size": metadata.size, "in_flight_bytes": metadata.in_flight_bytes, "uri": folder}
    return {**asdict(metadata), **size, "positions": positions}, is_well


def _newest_whole(folders: Sequence[str], console: Console) -> tuple[str, CheckpointMetadata, bool]:
    """Return the newest checkpoint with readable metadata: its folder, its metadata, and whether no newer checkpoint is
    damaged.

    Print what is damaged in newer checkpoints. Raises CheckpointError if no metadata can be read.
    """
    problems: list[str] = []
    for folder in folders:
        metadata, state = _load(folder)
        if metadata is not None:
            for problem in problems:
                console.print(problem, soft_wrap=True, style="red")
            return folder, metadata, not problems
        if state.startswith("broken"):
            problems.append(state)
    return folders[0], load_checkpoint(folders[0]), False


def _positions(metadata: CheckpointMetadata) -> list[dict[str, Any]]:
    """Return the positions from which readers resume, by source and subtask."""
    sources = {node.key for node in metadata.nodes if node.kind == "source"}
    positions = []
    for vertex in metadata.vertices:
        for subtask, task in enumerate(vertex.tasks if vertex.key in sources else ()):
            values = _values(task).get(vertex.key)
            if values is not None:
                positions.append({"source": vertex.key, "subtask": subtask, "position": values})
    return positions


def _values(task: TaskState) -> dict[str, Any]:
    if isinstance(task, Finished):
        return dict(task.positions)
    with checkpoint_errors(task.path):
        return {key: snapshot.values for key, snapshot in decode(read_state(task)).items()}


def _verify(folders: Sequence[str], console: Console) -> tuple[Any, bool]:
    """Read all files of complete checkpoints. Ignore incomplete checkpoints, because no job resumes from them."""
    report = []
    for folder in folders:
        metadata, state = _load(folder)
        problems = [state.removeprefix("broken: ")] if metadata is None and state != "not complete" else []
        with console.status(Text(printable(f"{folder}: reading"))):  # shown on a terminal only
            for file in metadata.files if metadata is not None else ():
                try:
                    verify_state(file)
                except CheckpointError as error:
                    problems.append(str(error))
        verdict = "broken" if problems else state
        console.print(f"{folder}: {verdict}", soft_wrap=True)
        for problem in problems:
            console.print(f"  {problem}", soft_wrap=True, style="red")
        report.append({"uri": folder, "state": verdict, "problems": problems})
    return report, not any(entry["problems"] for entry in report)


_COMMANDS = {"list": _list, "show": _show, "verify": _verify}


# --- how values are shown


def _table(*headings: str) -> Table:
    table = Table()
    for heading in headings:
        table.add_column(heading, overflow="fold")
    return table


def _time(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S}"


def _bytes(size: int) -> str:
    return f"{size:,} bytes"


def _unwrapped(values: Any) -> Any:
    """Return only the reader's position. Some sources store it with other values, under the name "position"."""
    return values.get("position", values) if isinstance(values, dict) else values


def _size_of(task: TaskState) -> str:
    return _bytes(task.size) if isinstance(task, StateFile) else "finished"


def _in_flight_of(task: TaskState) -> int:
    return task.in_flight_bytes if isinstance(task, StateFile) else 0


def _brief(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 4]} ..."
