"""Shed: a full input queue drops messages, as S4 does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from headgate.errors import ConfigError
from headgate.throttle.mechanism import JobOptions, Mechanism, Overflow, QueuePolicy
from headgate.throttle.validation import whole_number


@dataclass(frozen=True, slots=True)
class Shed(Mechanism):
    """Drop a message when an input queue already holds `messages` messages: the newest or the oldest one.

    No task has to slow down, and memory stays bounded. **Rows are lost.** Raises ConfigError for impossible values.
    The defaults are those of S4 0.3: its queues hold 1000 messages, and drop the newest one.

    >>> hg.throttle.Shed(messages=200, drop="oldest")
    Shed(messages=200, drop='oldest')
    """

    messages: int = 1000
    drop: Literal["newest", "oldest"] = "newest"

    def __post_init__(self) -> None:
        whole_number("messages", self.messages, least=1)
        if self.drop not in tuple(Overflow):
            raise ConfigError(f'drop={self.drop!r} is unknown: it must be "newest" or "oldest"')

    def queue_policy(self) -> QueuePolicy:
        return QueuePolicy(self.messages, Overflow(self.drop))

    def check(self, job: JobOptions) -> None:
        if job.has_checkpoints:
            raise ConfigError(
                f"throttle={self} drops rows, and a job with checkpoint_dir must not lose any: leave one out"
            )
        if job.is_batch:
            raise ConfigError(
                f"throttle={self} would drop rows of finished operators, which wait in files with "
                "execution_mode='batch': leave one out"
            )
