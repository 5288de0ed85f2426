"""`headgate bench [CASE...]`: run cases, show a table, write JSON.

Exit with code 1 when a target is missed, or when a case or another engine could not run.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from headgate.bench.command import chosen, options, outcome, parser, table
from headgate.bench.report import CaseResult, run_description
from headgate.json_option import write_json
from headgate.terminal import PlainConsole

#: Cases by name, in the order in which they run. Each module has `run(options) -> CaseResult`.
CASES = {
    "checkpoint": "headgate.bench.checkpoint",
    "exchange": "headgate.bench.exchange",
    "first-row": "headgate.bench.first_row",
    "kafka": "headgate.bench.kafka_messages.kafka_case",
    "keyed-sum": "headgate.bench.keyed_sum",
    "keys": "headgate.bench.many_keys",
    "latency": "headgate.bench.latency",
    "latency-adaptive": "headgate.bench.latency_adaptive",
    "metrics": "headgate.bench.metrics_cost",
    "nexmark": "headgate.bench.nexmark_queries.nexmark_case",
    "operators": "headgate.bench.stateful_operators",
    "rows": "headgate.bench.python_rows",
    "slow-sink": "headgate.bench.slow_sink",
    "small-batches": "headgate.bench.small_batches",
}
ABOUT = {
    "checkpoint": "what checkpoints cost, how long they stop the output, and how soon a killed job is back",
    "exchange": "bytes/s between two processes, compared with bare loopback TCP",
    "first-row": "from `import headgate` to the first row of a small local job",
    "kafka": "messages/s from and to a Kafka broker, and the latency, compared with a bare loop and Spark",
    "keyed-sum": "rows/s of sums per key and second, compared with Flink SQL (installed on first use) and Spark",
    "keys": "rows/s of sums with 1,000 and with 1,000,000 keys, and the memory per key",
    "latency": "from the time when the source should make a row to the keyed operator, at 10 % and 50 % of full speed",
    "latency-adaptive": 'latency at 50 % of full speed with buffer_timeout="adaptive"',
    "metrics": "what metrics cost: the processor time of keyed-sum with and without them",
    "nexmark": "rows/s per core of the queries of Nexmark, compared with Flink SQL (installed on first use)",
    "operators": "rows/s and processor time of joins, sessions, top rows, quantiles and windows by count",
    "rows": "rows/s of Python functions on rows and with state, compared with Bytewax (installed on first use)",
    "slow-sink": "the memory of a job whose sinks are slow, for five minutes",
    "small-batches": "the processor time of small batches, paced and at full speed, compared with Flink SQL",
}
_DESCRIPTION = (
    "Measure Headgate, and compare it with other engines. All cases take 40 minutes or more; "
    "docs/evidence/benchmarks.md says more."
)


def main(argv: Sequence[str]) -> int:
    """Run the command and return its exit code: 0 if all targets are met, otherwise 1. Wrong usage exits with 2."""
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
        if arguments.json != "-" or len(results) == len(names):  # a file keeps results if the next case crashes
            write_json(arguments.json, {"run": run, "cases": [result.to_json() for result in results]})
    return 0 if all(result.passed for result in results) else 1
