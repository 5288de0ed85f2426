"""`headgate bench [CASE...]`: run cases, show a table, write JSON.

Exit 1 when a target is missed, or a case or a peer could not run.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from headgate.bench.command import chosen, options, outcome, parser, table
from headgate.bench.report import CaseResult, run_description
from headgate.json_option import write_json
from headgate.terminal import PlainConsole

#: Cases by name, in the order they run; each module has `run(options) -> CaseResult`.
CASES = {
    "checkpoint": "headgate.bench.checkpoint",
    "exchange": "headgate.bench.exchange",
    "first-row": "headgate.bench.first_row",
    "keyed-sum": "headgate.bench.keyed_sum",
    "keys": "headgate.bench.many_keys",
    "latency": "headgate.bench.latency",
    "latency-adaptive": "headgate.bench.latency_adaptive",
    "slow-sink": "headgate.bench.slow_sink",
}
ABOUT = {
    "checkpoint": "what checkpoints cost, the gap that one makes, and how soon a killed job is back",
    "exchange": "bytes/s between two processes, beside bare loopback TCP",
    "first-row": "from `import headgate` to the first row of a small local job",
    "keyed-sum": "sums per key and second, beside Flink SQL (installed on first use) and Spark",
    "keys": "the same with 1,000 and with 1,000,000 keys, and the memory that each takes",
    "latency": "from when a row is due to the keyed operator, at 10 % and 50 % of full speed",
    "latency-adaptive": 'the same at 50 % with buffer_timeout="adaptive"',
    "slow-sink": "the memory of a job whose sinks are slow, for five minutes",
}
_DESCRIPTION = (
    "Measure Headgate, beside its peers. All of it takes 40 minutes or more; docs/evidence/benchmarks.md says more."
)


def main(argv: Sequence[str]) -> int:
    """Run the command and return its exit code: 0 all targets are met, 1 not; argparse exits with 2 on wrong usage."""
    argument_parser = parser("headgate bench", _DESCRIPTION, "case", ABOUT)
    arguments = argument_parser.parse_args(argv)
    names = chosen(argument_parser, "case", arguments.names, CASES)
    console = PlainConsole(stderr=arguments.json == "-")
    case_options = options(console, arguments.quick)
    run = run_description(shlex.join(["headgate", "bench", *argv]))
    case_options.say(f"package: {run['package']}")
    results: list[CaseResult] = []
    for name in names:
        case_options.say(f"{name} ...")
        result = outcome(name, CASES[name], CaseResult, case_options)
        console.print(table(result))
        results.append(result)
        if arguments.json != "-" or len(results) == len(names):  # a file survives a crash of the next case
            write_json(arguments.json, {"run": run, "cases": [result.to_json() for result in results]})
    return 0 if all(result.passed for result in results) else 1
