"""Hides Spark's messages about Headgate's tasks from the terminal.

Spark treats a killed TaskManager as a failed task, and writes several stack traces of thirty lines. Headgate's error
already contains the cause (see `failures`). So this module hides messages that name a stage of Headgate. It does not
change log files, or messages about other jobs and lost executors.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from py4j.protocol import Py4JError
from pyspark import SparkContext

#: The loggers that report failed tasks.
_LOGGERS = ("org.apache.spark.executor.Executor", "org.apache.spark.scheduler.TaskSetManager")

#: The errors of Py4J if the JVM has ended, or does not log with Spark's own library. Then no message is hidden.
_NO_LOG = (Py4JError, TypeError, OSError)


class Terminal:
    """Filters what Spark's JVM logs to the terminal.

    The filter applies only to Spark's default logging. If the user has set a level for one of the loggers, the filter
    hides nothing.
    """

    def __init__(self, context: SparkContext) -> None:
        self._log4j: Any = context._jvm.org.apache.logging.log4j  # type: ignore[union-attr]
        self._appenders: list[Any] = []
        with suppress(*_NO_LOG):
            self._appenders = self._find()

    @contextmanager
    def without(self, stages: Collection[int]) -> Iterator[None]:
        """Show no messages about these stages while the context is open."""
        filters: list[tuple[Any, Any]] = []
        with suppress(*_NO_LOG):
            for appender in self._appenders if stages else ():
                stage_filter = self._filter(stages)
                appender.addFilter(stage_filter)
                filters.append((appender, stage_filter))
        try:
            yield
        finally:
            with suppress(*_NO_LOG):
                for appender, stage_filter in filters:
                    appender.removeFilter(stage_filter)

    def _find(self) -> list[Any]:
        """Return the log4j appenders that write to the terminal and do not show messages of level INFO."""
        logging = self._log4j.LogManager.getContext(False)
        configuration = logging.getConfiguration()
        if any(configuration.getLoggerConfig(name).getName() == name for name in _LOGGERS):
            return []
        events = [self._info_event(name) for name in _LOGGERS if logging.getLogger(name).isInfoEnabled()]
        appenders = [appender for appender in configuration.getAppenders().values() if _is_console(appender)]
        return [appender for appender in appenders if all(appender.isFiltered(event) for event in events)]

    def _info_event(self, logger: str) -> Any:
        """Create a log event of level INFO. Spark treats this program as a shell, and hides such events in a shell."""
        builder = self._log4j.core.impl.Log4jLogEvent.newBuilder()
        return builder.setLoggerName(logger).setLevel(self._log4j.Level.INFO).build()

    def _filter(self, stages: Collection[int]) -> Any:
        result = self._log4j.core.Filter.Result
        return self._log4j.core.filter.RegexFilter.createFilter(about(stages), None, False, result.DENY, result.NEUTRAL)


def about(stages: Collection[int]) -> str:
    """Return a pattern for messages whose first line names a stage: "Lost task 1.0 in stage 3.0 (TID 7) ..."."""
    return rf"(?s)[^\n]*?\bin stage ({'|'.join(map(str, stages))})\b.*"


def _is_console(appender: Any) -> bool:
    return bool(appender.getClass().getSimpleName() == "ConsoleAppender")
