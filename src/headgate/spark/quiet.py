"""Keeping off the terminal what Spark says of the tasks of our jobs.

A TaskManager that is killed, or ended by force, is a failed task to Spark, which then writes several stack traces of
thirty lines; what they come to is in our error (see `failures`). Only messages that name a stage of ours are kept back,
and only on the terminal: log files, other jobs and lost executors are none of our business.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from py4j.protocol import Py4JError
from pyspark import SparkContext

#: Who speaks of tasks that fail.
_SPEAKERS = ("org.apache.spark.executor.Executor", "org.apache.spark.scheduler.TaskSetManager")

#: When the JVM is gone, or logs by other means than Spark's own: then there is nothing to be done.
_NO_LOG = (Py4JError, TypeError, OSError)


class Terminal:
    """The JVM's terminal, as far as Spark speaks there of failed tasks as it does by default: with warnings at the
    most, and where the user has set no level for those who speak."""

    def __init__(self, context: SparkContext) -> None:
        self._log4j: Any = context._jvm.org.apache.logging.log4j  # type: ignore[union-attr]
        self._appenders: list[Any] = []
        with suppress(*_NO_LOG):
            self._appenders = self._find()

    @contextmanager
    def without(self, stages: Collection[int]) -> Iterator[None]:
        """Meanwhile it shows nothing about these stages."""
        silenced: list[tuple[Any, Any]] = []
        with suppress(*_NO_LOG):
            for appender in self._appenders if stages else ():
                ours = self._filter(stages)
                appender.addFilter(ours)
                silenced.append((appender, ours))
        try:
            yield
        finally:
            with suppress(*_NO_LOG):
                for appender, ours in silenced:
                    appender.removeFilter(ours)

    def _find(self) -> list[Any]:
        logging = self._log4j.LogManager.getContext(False)
        configuration = logging.getConfiguration()
        if any(configuration.getLoggerConfig(speaker).getName() == speaker for speaker in _SPEAKERS):
            return []
        wordy = [self._information(speaker) for speaker in _SPEAKERS if logging.getLogger(speaker).isInfoEnabled()]
        appenders = [each for each in configuration.getAppenders().values() if _is_console(each)]
        return [each for each in appenders if all(each.isFiltered(event) for event in wordy)]

    def _information(self, speaker: str) -> Any:
        """What would be said at level INFO. Spark takes us for a shell, where filters decide about it, not levels."""
        builder = self._log4j.core.impl.Log4jLogEvent.newBuilder()
        return builder.setLoggerName(speaker).setLevel(self._log4j.Level.INFO).build()

    def _filter(self, stages: Collection[int]) -> Any:
        result = self._log4j.core.Filter.Result
        return self._log4j.core.filter.RegexFilter.createFilter(about(stages), None, False, result.DENY, result.NEUTRAL)


def about(stages: Collection[int]) -> str:
    """The pattern of messages whose first line names one of the stages: "Lost task 1.0 in stage 3.0 (TID 7) ..."."""
    return rf"(?s)[^\n]*?\bin stage ({'|'.join(map(str, stages))})\b.*"


def _is_console(appender: Any) -> bool:
    return bool(appender.getClass().getSimpleName() == "ConsoleAppender")
