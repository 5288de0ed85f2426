"""`keyed-sum` on Flink SQL. The Python of Flink's own environment runs this file, so it imports nothing of Headgate.

The program reads requests from standard input, one JSON line for each run:
`{"query": "one-phase" | "two-phase" | "source-only", "rows": n, "rate": rows per second}`. It answers on standard
output with `{"seconds": s}` or `{"error": text}`. All runs share one JVM, so Flink is warm after the first one.
"""

from __future__ import annotations

import json
import sys
import time

from pyflink.table import EnvironmentSettings, TableEnvironment

SOURCE = """
create table source_{run} (k bigint, v double, ts as localtimestamp, watermark for ts as ts)
with ('connector' = 'datagen', 'rows-per-second' = '{rate}', 'number-of-rows' = '{rows}',
      'fields.k.min' = '0', 'fields.k.max' = '999')
"""
WINDOWS = "create table windows_{run} (k bigint, w timestamp(3), s double, c bigint) with ('connector' = 'blackhole')"
KEYED_SUM = """
insert into windows_{run}
select k, window_end, sum(v), count(*)
from table(tumble(table source_{run}, descriptor(ts), interval '1' second))
group by k, window_start, window_end
"""
ROWS = "create table rows_{run} (k bigint, v double, ts timestamp(3)) with ('connector' = 'blackhole')"
COPY = "insert into rows_{run} select k, v, ts from source_{run}"

#: For each query: the statements, and the strategy that splits the aggregation into phases.
QUERIES = {
    "one-phase": ((SOURCE, WINDOWS, KEYED_SUM), "ONE_PHASE"),
    "two-phase": ((SOURCE, WINDOWS, KEYED_SUM), "TWO_PHASE"),
    "source-only": ((SOURCE, ROWS, COPY), "AUTO"),
}


def execute(query: str, rows: int, rate: int, parallelism: int, run: int) -> float:
    """Run the query. Return the seconds from submitting the job to its end, start-up included."""
    statements, phases = QUERIES[query]
    environment = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    config = environment.get_config()
    config.set("parallelism.default", str(parallelism))
    config.set("table.optimizer.agg-phase-strategy", phases)
    for statement in statements[:-1]:
        environment.execute_sql(statement.format(run=run, rows=rows, rate=rate))
    began = time.perf_counter()
    environment.execute_sql(statements[-1].format(run=run)).wait()
    return time.perf_counter() - began


def main() -> None:
    parallelism = int(sys.argv[1])
    for run, line in enumerate(sys.stdin):
        request = json.loads(line)
        try:
            seconds = execute(request["query"], request["rows"], request["rate"], parallelism, run)
            answer: dict[str, object] = {"seconds": seconds}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {str(error)[:2000]}"}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
