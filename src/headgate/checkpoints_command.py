"""`headgate checkpoints list|show|verify URI`: what there is, what is in one, and whether it is whole.

It needs the folder alone, no job and no Spark.
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

_LONGEST = 50


def main(argv: Sequence[str]) -> int:
    """Run the command; returns its exit code: 0 done, 1 something is broken, 2 wrong usage (argparse exits). Raises
    CheckpointError when there is nothing to look at."""
    arguments = _parser().parse_args(argv)
    console = PlainConsole(stderr=arguments.json == "-")
    report, is_well = _COMMANDS[arguments.command](_found(arguments.uri), console)
    write_json(arguments.json, json.loads(redacted(json.dumps(report))))
    return 0 if is_well else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="headgate checkpoints", description="Look at checkpoints and savepoints.")
    what = "list: all there are; show: what is in one, the newest; verify: read all files, compare their checksums"
    parser.add_argument("command", choices=list(_COMMANDS), help=what)
    uri = "a checkpoint's folder, that of a job, or that which all jobs write to: a path or a URI"
    parser.add_argument("uri", metavar="URI", help=uri)
    add_json_option(parser)
    return parser


def _found(uri: str) -> list[str]:
    folders = find_checkpoints(uri)
    if not folders:
        raise CheckpointError(f"{uri}: there are no checkpoints; give the folder that jobs write them to")
    return folders


# --- the commands: a report, and whether all is well


def _list(folders: Sequence[str], console: Console) -> tuple[Any, bool]:
    table = _table("id", "job", "taken (UTC)", "seconds", "bytes", "tasks", "state")
    report: list[dict[str, Any]] = []
    for folder in folders:
        parent, _, name = folder.rpartition("/")
        metadata, state = _load(folder)
        if metadata is None:
            table.add_row(name.removeprefix("chk-"), parent.rpartition("/")[2], "", "", "", "", state.partition(":")[0])
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
    for broken in (each["state"] for each in report if each["state"].startswith("broken")):
        console.print(broken, soft_wrap=True, style="red")
    return report, True


def _load(folder: str) -> tuple[CheckpointMetadata | None, str]:
    """The metadata, and the checkpoint's state by it alone."""
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
        for each in positions:
            sources.add_row(each["source"], str(each["subtask"]), _brief(_unwrapped(each["position"])))
        console.print(sources)
    size = {"size": metadata.size, "in_flight_bytes": metadata.in_flight_bytes, "uri": folder}
    return {**asdict(metadata), **size, "positions": positions}, is_well


def _newest_whole(folders: Sequence[str], console: Console) -> tuple[str, CheckpointMetadata, bool]:
    """The newest checkpoint whose metadata can be read, and whether no newer one is broken: such are named. Raises
    CheckpointError for the first where there is none."""
    broken: list[str] = []
    for folder in folders:
        metadata, state = _load(folder)
        if metadata is not None:
            for each in broken:
                console.print(each, soft_wrap=True, style="red")
            return folder, metadata, not broken
        if state.startswith("broken"):
            broken.append(state)
    return folders[0], load_checkpoint(folders[0]), False


def _positions(metadata: CheckpointMetadata) -> list[dict[str, Any]]:
    """Return what readers resume from, by source and subtask."""
    sources = {node.key for node in metadata.nodes if node.kind == "source"}
    found = []
    for vertex in metadata.vertices:
        for subtask, task in enumerate(vertex.tasks if vertex.key in sources else ()):
            values = _values(task).get(vertex.key)
            if values is not None:
                found.append({"source": vertex.key, "subtask": subtask, "position": values})
    return found


def _values(task: TaskState) -> dict[str, Any]:
    if isinstance(task, Finished):
        return dict(task.positions)
    with checkpoint_errors(task.path):
        return {key: snapshot.values for key, snapshot in decode(read_state(task)).items()}


def _verify(folders: Sequence[str], console: Console) -> tuple[Any, bool]:
    """Whole checkpoints, and those that are not complete and so not in the way."""
    report = []
    for folder in folders:
        metadata, state = _load(folder)
        problems = [state.removeprefix("broken: ")] if metadata is None and state != "not complete" else []
        with console.status(Text(printable(f"{folder}: reading"))):  # on a terminal
            for file in metadata.files if metadata is not None else ():
                try:
                    verify_state(file)
                except CheckpointError as error:
                    problems.append(str(error))
        said = "broken" if problems else state
        console.print(f"{folder}: {said}", soft_wrap=True)
        for problem in problems:
            console.print(f"  {problem}", soft_wrap=True, style="red")
        report.append({"uri": folder, "state": said, "problems": problems})
    return report, not any(each["problems"] for each in report)


_COMMANDS = {"list": _list, "show": _show, "verify": _verify}


# --- how things are written


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
    """Of what a source keeps, where its reader stands."""
    return values.get("position", values) if isinstance(values, dict) else values


def _size_of(task: TaskState) -> str:
    return _bytes(task.size) if isinstance(task, StateFile) else "finished"


def _in_flight_of(task: TaskState) -> int:
    return task.in_flight_bytes if isinstance(task, StateFile) else 0


def _brief(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 4]} ..."
