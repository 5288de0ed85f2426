"""The `headgate` command."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from headgate.errors import HeadgateError
from headgate.json_option import add_json_option, write_json

_USAGE = """\
usage: headgate COMMAND [OPTIONS]

Back-pressured streaming pipelines on Spark, from Python.

commands:
  run       run your script; --from resumes its jobs from a checkpoint
  demo      run a year of flights through a pipeline on Spark, and compare the answer with Spark SQL's
  bench     measure the exchange and keyed aggregation on this machine, and compare with other engines
  lab       run experiments that test what the documents say about the exchange
  checkpoints
            list, show and verify the checkpoints in a folder
  connectors
            list the sources and sinks, what each needs, and whether it is installed
  doctor    read a recording of a job, and say where it was slow, why, and what to do
  version   print the versions of Headgate and of the packages that it uses

`headgate COMMAND --help` says more. Exit codes: 0 done, 1 failed or a target missed, 2 wrong arguments,
130 interrupted.
"""


@contextmanager
def _ending_with_children() -> Iterator[None]:
    """Let SIGTERM raise SystemExit within the block, so that the block ends the servers and processes it started."""
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _run(argv: Sequence[str]) -> int:
    from headgate.api.run import main

    return main(argv)


def _demo(argv: Sequence[str]) -> int:
    from headgate.demo.demo_command import main

    return main(argv)


def _bench(argv: Sequence[str]) -> int:
    from headgate.bench.bench_command import main

    with _ending_with_children():
        return main(argv)


def _lab(argv: Sequence[str]) -> int:
    from headgate.lab.lab_command import main

    with _ending_with_children():
        return main(argv)


def _checkpoints(argv: Sequence[str]) -> int:
    from headgate.checkpoints_command import main

    return main(argv)


def _connectors(argv: Sequence[str]) -> int:
    from headgate.connectors_command import main

    return main(argv)


def _doctor(argv: Sequence[str]) -> int:
    from headgate.doctor_command import main

    return main(argv)


def _version(argv: Sequence[str]) -> int:
    description = "Print the versions of Headgate and its packages. Please give them when you report a problem."
    parser = argparse.ArgumentParser(prog="headgate version", description=description)
    add_json_option(parser, nargs="?", const="-")
    arguments = parser.parse_args(argv)
    from headgate.runtime.compiled import versions

    numbers = versions()
    write_json(arguments.json, numbers)
    if arguments.json is None:
        print("\n".join(f"{name} {number}" for name, number in numbers.items()))
    return 0


#: The commands by name.
COMMANDS: dict[str, Callable[[Sequence[str]], int]] = {
    "run": _run,
    "demo": _demo,
    "bench": _bench,
    "lab": _lab,
    "checkpoints": _checkpoints,
    "connectors": _connectors,
    "doctor": _doctor,
    "version": _version,
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command that `argv` names (None: the arguments of the process). Return the exit code."""
    arguments = sys.argv[1:] if argv is None else list(argv)
    if not arguments or arguments[0] in ("-h", "--help"):
        print(_USAGE, end="")
        return 0 if arguments else 2
    command = _version if arguments[0] == "--version" else COMMANDS.get(arguments[0])
    if command is None:
        print(f"headgate: unknown command {arguments[0]!r}\n\n{_USAGE}", end="", file=sys.stderr)
        return 2
    try:
        return command(arguments[1:])
    except HeadgateError as error:
        print(f"headgate {arguments[0]}: {type(error).__name__}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"headgate {arguments[0]}: interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
