"""What the Kafka source and sink have in common: options of librdkafka, and its errors in words."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from headgate.errors import ConfigError, HeadgateError

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, Producer

log = logging.getLogger(__name__)

#: Seconds in which a broker must answer a request for metadata or offsets.
ANSWER_TIMEOUT: Final = 30.0
#: Only what is critical: librdkafka logs each attempt to connect as an error.
_LOG_LEVEL: Final = 2
#: Errors that no retry mends.
_FINAL: Final = frozenset(
    (
        "_AUTHENTICATION", "_FATAL", "_SSL", "_UNSUPPORTED_FEATURE", "CLUSTER_AUTHORIZATION_FAILED",
        "SASL_AUTHENTICATION_FAILED", "TOPIC_AUTHORIZATION_FAILED", "UNSUPPORTED_SASL_MECHANISM",
        "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
    )
)  # fmt: skip
#: Errors of a partition whose leader has just started or changed. They pass. `_NOENT`: librdkafka found no leaders.
_PASSING: Final = frozenset(
    (
        "FENCED_LEADER_EPOCH", "LEADER_NOT_AVAILABLE", "NOT_LEADER_FOR_PARTITION", "OFFSET_NOT_AVAILABLE",
        "UNKNOWN_LEADER_EPOCH", "_NOENT", "_TIMED_OUT",
    )
)  # fmt: skip
#: What the names of options with secret values contain.
_SECRET: Final = re.compile(r"password|passphrase|secret|token|oauthbearer\.config|\.pem$|\.key$")
#: What to do about an error, by its name.
_ADVICE: Final = {
    "_TRANSPORT": "check the servers= and that a broker runs there",
    "_TIMED_OUT": "check the servers= and that a broker runs there",
    "_ALL_BROKERS_DOWN": "check the servers= and that a broker runs there",
    "_RESOLVE": "check the host names in servers=",
    "_AUTHENTICATION": "check user name and password in options=",
    "SASL_AUTHENTICATION_FAILED": "check user name and password in options=",
    "_SSL": "check the certificates in options=",
    "TOPIC_AUTHORIZATION_FAILED": "give the user the right to use this topic",
    "CLUSTER_AUTHORIZATION_FAILED": "give the user the right to use this topic",
    "GROUP_AUTHORIZATION_FAILED": "give the user the right to use this group",
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": "give the user the right to use this transactional id",
    "UNKNOWN_TOPIC_OR_PART": "create the topic, or correct its name",
    "_UNKNOWN_TOPIC": "create the topic, or correct its name",
    "_UNKNOWN_PARTITION": "create the topic again, or start without resume",
    "INVALID_TIMESTAMP": "raise message.timestamp.before.max.ms and message.timestamp.after.max.ms of the topic",
    "INVALID_RECORD": "a compacted topic takes no message without a key; filter rows whose key is null, or set "
    "cleanup.policy=delete of the topic",
    "MSG_SIZE_TOO_LARGE": "raise max.message.bytes of the topic, and message.max.bytes in options=",
}


def kafka_library() -> Any:
    """Return the module `confluent_kafka`. Raises ConfigError if it is not installed."""
    try:
        return import_module("confluent_kafka")
    except ImportError as error:
        raise ConfigError(f"Kafka needs the package confluent-kafka ({error}): pip install 'headgate[kafka]'") from None


@dataclass(frozen=True, slots=True)
class KafkaClient:
    """The servers, and options that every client gets. `repr` shows no option, since options may hold secrets."""

    servers: str
    options: Mapping[str, Any] = field(repr=False)

    @staticmethod
    def checked(what: str, servers: str, options: Mapping[str, Any] | None, reserved: Sequence[str]) -> KafkaClient:
        """Check the options without a connection. Raises ConfigError, which names an option, but not its value."""
        if not isinstance(servers, str) or not servers.strip(", ") or "http://" in servers or "https://" in servers:
            raise ConfigError(f"{what}: servers={servers!r} must be hosts and ports, such as 'host1:9092,host2:9092'")
        options = {} if options is None else options
        if not isinstance(options, Mapping) or not all(isinstance(name, str) for name in options):
            raise ConfigError(f"{what}: options= must be a dict of librdkafka's options by name")
        if taken := [name for name in options if name in ("bootstrap.servers", *reserved)]:
            raise ConfigError(f"{what}: options= has {taken[0]!r}, which {what} sets itself: see its arguments")
        return KafkaClient(servers, dict(options))

    def consumer(self, fail: Callable[[KafkaError], None], **own: Any) -> Consumer:
        """Return a consumer, which calls `fail` with an error that no retry mends. `own` are further options, with `_`
        for the dots of their names."""
        made: Consumer = self._made("Consumer", fail, own)
        return made

    def producer(self, fail: Callable[[KafkaError], None], **own: Any) -> Producer:
        """Return a producer. `fail` and `own` are as for `consumer`."""
        made: Producer = self._made("Producer", fail, own)
        return made

    def admin(self) -> Any:
        """Return an admin client."""
        admin = import_module("confluent_kafka.admin")
        return admin.AdminClient(
            {"log_level": _LOG_LEVEL, **self.options, "bootstrap.servers": self.servers}, logger=log
        )

    def topic_options(self, topic: str) -> dict[str, str]:
        """Return the options of a topic, by name, as the brokers have them. It is empty without the right to ask."""
        module = import_module("confluent_kafka.admin")
        resource, client = module.ConfigResource(module.ResourceType.TOPIC, topic), self.admin()
        try:
            asked = client.describe_configs([resource], request_timeout=ANSWER_TIMEOUT)
            found = asked[resource].result(ANSWER_TIMEOUT)
        except (kafka_library().KafkaException, TimeoutError):
            return {}
        return {name: option.value for name, option in found.items() if option.value is not None}

    def _made(self, kind: str, fail: Callable[[KafkaError], None], own: Mapping[str, Any]) -> Any:
        library = kafka_library()

        told: set[str] = set()

        def on_error(error: KafkaError) -> None:
            if error.fatal() or error.name() in _FINAL:
                fail(error)
            elif error.name() not in told:  # librdkafka connects again by itself, and repeats such errors each second
                told.add(error.name())
                log.warning("Kafka: %s", error.str())

        settings = {name if name == "on_delivery" else name.replace("_", "."): value for name, value in own.items()}
        defaults = {"log_level": _LOG_LEVEL, "client.id": "headgate", "bootstrap.servers": self.servers}
        try:
            return getattr(library, kind)({**defaults, **settings, **self.options, "error_cb": on_error}, logger=log)
        except (library.KafkaException, TypeError, ValueError) as error:
            raise ConfigError(f"Kafka refuses an option: {self._without_secrets(in_words(error))}") from None

    def _without_secrets(self, text: str) -> str:
        """Return a text of librdkafka, which may quote the value of an option, without the values of secret ones."""
        for name, value in self.options.items():
            if isinstance(value, str) and value and _SECRET.search(name):
                text = text.replace(value, "***")
        return text


def inner_of(error: Any) -> Any:
    """Return the KafkaError of an exception of the library. Return another error as it is."""
    return error.args[0] if isinstance(error, Exception) and error.args else error


def passes(error: Any) -> bool:
    """Return whether brokers may soon answer the same question without this error."""
    inner = inner_of(error)
    return hasattr(inner, "name") and inner.name() in _PASSING


def is_about_group(error: Any) -> bool:
    """Return whether a consumer's error only says that the user may not use the consumer's group.

    librdkafka looks for the group's coordinator also if nobody uses the group, because no consumer is without one.
    """
    return bool(error.name() == "GROUP_AUTHORIZATION_FAILED")


def in_words(error: Any) -> str:
    """Return librdkafka's error in words, and what to do about it."""
    inner = inner_of(error)
    if not hasattr(inner, "name"):
        return str(inner)
    advice = _ADVICE.get(inner.name())
    return f"{inner.str()} ({inner.name()})" + (f"; {advice}" if advice else "")


def cause(error: Any, client: Any, told: Sequence[Any]) -> Any:
    """Return why a request had no answer: the first final error in `told`, such as a wrong password, or `error`."""
    client.poll(0)  # serves the callback of errors
    return told[0] if told else error


def failed(kind: type[HeadgateError], what: str, error: Any) -> HeadgateError:
    """Return the error of a connector for an error of librdkafka."""
    return kind(f"{what}: {in_words(error)}")
