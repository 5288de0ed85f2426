"""TLS, SASL and rights, with a real broker: secrets show nowhere, and what is wrong is one clear error."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

import headgate as hg
from headgate.bench.peers.kafka_broker import free_port
from headgate.connectors.kafka import kafka_offsets
from headgate.connectors.kafka.commits_topic import TOPIC as COMMITS
from headgate.connectors.kafka.commits_topic import CommitsTopic
from headgate.connectors.kafka.delivery import Delivery, wait_for
from headgate.connectors.kafka.kafka_client import ANSWER_TIMEOUT, KafkaClient
from headgate.runtime.master.certificates import issue
from tests.connectors.recorded_failures import assert_is_recorded, failing, record_in
from tests.connectors.shown import Shown
from tests.kafka_broker import Broker, broker_or_skip, values
from tests.runtime.faults import behind_gate, open_gate
from tests.runtime.jobs import endless, environment, error_of, eventually, numbers

SECRET = "hush-hush-4711"
N = pa.schema({"n": pa.int64()})
#: Options for a topic that is deleted. No message may time out before the producer knows that: the error would differ.
DELETED = {"topic.metadata.propagation.max.ms": 100, "message.timeout.ms": 15_000}
#: The first may do everything. The next ones have rights to topics, see `Secured.grant`.
USERS = ("headgate", "nobody", "no_commits", "no_transactions", "guest", "exact")


class Secured:
    """A broker with a port for SASL over TLS, and users with and without rights."""

    def __init__(self, folder: Path) -> None:
        identity, _ = issue()
        (folder / "broker.pem").write_bytes(identity.key + identity.certificate)
        self._authority = folder / "authority.pem"
        self._authority.write_bytes(identity.authority)
        port = free_port()
        self.servers = f"127.0.0.1:{port}"
        users = " ".join(f'user_{name}="{SECRET}"' for name in USERS)
        login = f"org.apache.kafka.common.security.plain.PlainLoginModule required {users};"
        self.broker: Broker = broker_or_skip(
            {"SASL_SSL": port},
            **{
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": folder / "broker.pem",
                "sasl.enabled.mechanisms": "PLAIN",
                "listener.name.sasl_ssl.plain.sasl.jaas.config": login,
                "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
                "auto.create.topics.enable": "false",
                "super.users": "User:ANONYMOUS;User:headgate",
            },
        )

    def grant_transactions(self, user: str) -> None:
        """Let a user use the transactional ids of the sink."""
        admin: Any = pytest.importorskip("confluent_kafka.admin")
        right = admin.AclBinding(
            admin.ResourceType.TRANSACTIONAL_ID, "headgate-", admin.ResourcePatternType.PREFIXED, f"User:{user}", "*",
            admin.AclOperation.ALL, admin.AclPermissionType.ALLOW,
        )  # fmt: skip
        self._ask("create_acls", [right])

    def grant(self, user: str, topic: str) -> None:
        """Let a user read and write a topic."""
        admin: Any = pytest.importorskip("confluent_kafka.admin")
        operations = (admin.AclOperation.READ, admin.AclOperation.WRITE, admin.AclOperation.DESCRIBE)
        self._ask("create_acls", [self._right(admin.AclBinding, user, topic, each) for each in operations])

    def let_see(self, user: str, topic: str) -> None:
        """Let a user only describe a topic."""
        admin: Any = pytest.importorskip("confluent_kafka.admin")
        self._ask("create_acls", [self._right(admin.AclBinding, user, topic, admin.AclOperation.DESCRIBE)])

    def revoke(self, user: str, topic: str) -> None:
        """Take all rights to a topic from a user."""
        admin: Any = pytest.importorskip("confluent_kafka.admin")
        self._ask("delete_acls", [self._right(admin.AclBindingFilter, user, topic, admin.AclOperation.ANY)])

    def _right(self, kind: Any, user: str, topic: str, operation: Any) -> Any:
        admin: Any = pytest.importorskip("confluent_kafka.admin")
        return kind(
            admin.ResourceType.TOPIC, topic, admin.ResourcePatternType.LITERAL, f"User:{user}", "*", operation,
            admin.AclPermissionType.ALLOW,
        )  # fmt: skip

    def _ask(self, call: str, rights: list[Any]) -> None:
        admin: Any = pytest.importorskip("confluent_kafka.admin")
        client = admin.AdminClient({"bootstrap.servers": self.broker.servers})  # it ends with its last reference
        for done in getattr(client, call)(rights).values():
            done.result(30)

    def options(self, user: str, password: str = SECRET) -> dict[str, Any]:
        return {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "PLAIN",
            "sasl.username": user,
            "sasl.password": password,
            "ssl.ca.location": str(self._authority),
            "ssl.endpoint.identification.algorithm": "none",  # the certificate has another name than 127.0.0.1
        }


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    secured = Secured(tmp_path_factory.mktemp("secured"))
    yield secured
    secured.broker.close()


def test_secrets_show_nowhere(secured: Secured, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    given, results = secured.broker.topic(1), secured.broker.topic(1)
    secured.broker.produce(given, [b'{"n": 1}', b'{"n": 2}'])
    options = secured.options("headgate")
    env = environment(checkpoint_dir=tmp_path, checkpoint_interval="20 ms")
    source = hg.sources.kafka(secured.servers, given, schema=N, group="g", stop="latest", options=options)
    sink = hg.sinks.kafka(secured.servers, results, options=options)
    env.from_source(source).sink_to(sink)
    job = env.execute_async()
    assert job.guarantee == "exactly-once"
    job.wait(60)
    job.save_page(tmp_path / "page.html")
    assert len(secured.broker.messages(results)) == 2
    shown = [caplog.text, repr(source.__dict__), repr(sink.__dict__), str(env.explain())]
    shown += [path.read_bytes().decode(errors="replace") for path in tmp_path.rglob("*") if path.is_file()]
    assert len(shown) > 5
    assert not any(SECRET in text for text in shown)


def test_a_recording_of_a_failed_job_has_no_secret(
    secured: Secured,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Neither the password of the user, nor the passphrase of the client's key, nor the key."""
    caplog.set_level(logging.DEBUG)
    shown, passphrase = Shown(tmp_path, caplog, capfd), "hush-key-4712"
    record_in(shown.folder, monkeypatch)
    identity, _ = issue()
    encryption = BestAvailableEncryption(passphrase.encode())
    key = load_pem_private_key(identity.key, None).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption).decode()
    options = secured.options("headgate") | {
        "ssl.certificate.pem": identity.certificate.decode(),
        "ssl.key.pem": key,
        "ssl.key.password": passphrase,
    }
    given, results = secured.broker.topic(1), secured.broker.topic(1)
    secured.broker.produce(given, [b'{"n": -1}'])

    def build(env: hg.StreamEnvironment) -> Any:
        rows = env.from_source(hg.sources.kafka(secured.servers, given, schema=N, options=options))
        return rows.union(failing(env, secured.servers)).sink_to(
            hg.sinks.kafka(secured.servers, results, options=options)
        )

    error = shown.without_secrets(build, SECRET, passphrase, *key.splitlines()[1:-1])
    assert isinstance(error, hg.UserFunctionError)
    assert_is_recorded(shown, error)
    assert secured.broker.messages(results), "the job wrote to the broker, with these secrets"


@pytest.mark.parametrize(
    ("user", "password", "message"),
    [
        ("headgate", "wrong-password", "check user name and password in options="),
        ("nobody", SECRET, "give the user the right to use this topic"),
    ],
)
def test_a_wrong_password_and_missing_rights(secured: Secured, user: str, password: str, message: str) -> None:
    """They are known soon: nothing waits for the answer to a question that no broker will answer."""
    topic, options = secured.broker.topic(1), secured.options(user, password)
    env = environment()
    env.from_source(hg.sources.kafka(secured.servers, topic, schema=N, options=options)).sink_to(hg.sinks.null())
    began = time.monotonic()
    with pytest.raises(hg.SourceError, match=message) as raised:
        env.execute()
    assert time.monotonic() - began < ANSWER_TIMEOUT
    assert password not in str(raised.value)
    env = environment()
    env.from_source(hg.sources.iterable([{"n": 1}])).sink_to(hg.sinks.kafka(secured.servers, topic, options=options))
    began = time.monotonic()
    with pytest.raises(hg.SinkError, match=message) as refused:
        env.execute()
    assert time.monotonic() - began < ANSWER_TIMEOUT
    assert password not in str(refused.value)


@pytest.mark.parametrize(
    ("user", "message"),
    [
        ("no_commits", "topic 'headgate-commits'.*give the user the right"),
        (
            "no_transactions",
            "TRANSACTIONAL_ID_AUTHORIZATION_FAILED.*give the user the right to use this trans",
        ),
    ],
)
def test_a_user_who_may_write_but_not_exactly_once(secured: Secured, tmp_path: Path, user: str, message: str) -> None:
    """The job fails before it writes a message. At least once, the same user may write."""
    given, topic = secured.broker.topic(1), secured.broker.topic(1)
    secured.broker.produce(given, [b'{"n": 1}', b'{"n": 2}'])
    secured.grant(user, topic)
    if user == "no_transactions":
        CommitsTopic(KafkaClient(secured.broker.servers, {})).partition_for("x")  # makes it
        secured.grant(user, COMMITS)

    def run(folder: str, **options: Any) -> None:
        env = environment(checkpoint_dir=tmp_path / folder, checkpoint_interval="20 ms", restart=hg.restart.none())
        rows = env.from_source(hg.sources.kafka(secured.broker.servers, given, schema=N, stop="latest"))
        rows.sink_to(hg.sinks.kafka(secured.servers, topic, options=secured.options(user), **options))
        env.execute()

    began = time.monotonic()
    with pytest.raises(hg.SinkError, match=message) as refused:
        run("exactly")
    assert time.monotonic() - began < ANSWER_TIMEOUT
    assert SECRET not in str(refused.value)
    assert secured.broker.messages(topic) == []
    run("at-least", guarantee="at-least-once")
    assert len(secured.broker.messages(topic)) == 2


def test_exactly_once_needs_no_rights_to_groups(secured: Secured, tmp_path: Path) -> None:
    """Several jobs, since brokers refuse a group at any time while a consumer reads the topic of commits."""
    topic = secured.broker.topic(1)
    CommitsTopic(KafkaClient(secured.broker.servers, {})).partition_for("x")  # makes it
    secured.grant("exact", topic)
    secured.grant("exact", COMMITS)
    secured.grant_transactions("exact")
    for run in range(5):
        env = environment(checkpoint_dir=tmp_path / str(run), restart=hg.restart.none())
        sink = hg.sinks.kafka(secured.servers, topic, guarantee="exactly-once", options=secured.options("exact"))
        env.from_source(hg.sources.iterable([{"n": run}])).sink_to(sink)
        env.execute()
    assert len(secured.broker.messages(topic)) == 5


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_no_broker(tmp_path: Path, guarantee: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The job fails before it reads a row, and says what did not answer."""
    pytest.importorskip("confluent_kafka")
    monkeypatch.setattr(kafka_offsets, "ANSWER_TIMEOUT", 1.0)
    env, servers, read = environment(checkpoint_dir=tmp_path), f"127.0.0.1:{free_port()}", tmp_path / "read"

    def rows(start: int, count: int) -> pa.RecordBatch:
        if count:
            read.touch()
        return numbers(start, count)

    source = env.from_source(hg.sources.generate(rows, rows=10))
    source.sink_to(hg.sinks.kafka(servers, "orders", guarantee=guarantee))
    with pytest.raises(hg.SinkError, match="'orders'.*check the servers=") as refused:
        env.execute()
    assert str(refused.value).count("\n") == 0
    assert not read.exists()


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_a_topic_that_is_deleted_while_it_is_written(
    secured: Secured, tmp_path: Path, caplog: pytest.LogCaptureFixture, guarantee: Any
) -> None:
    """The job restarts as its strategy says, then fails with an error that says what to do."""
    broker = secured.broker
    topic = broker.topic(1)
    env = environment(checkpoint_dir=tmp_path, checkpoint_interval="20 ms", restart=hg.restart.fixed(2, delay=0))
    endless(env, rate=1000).sink_to(hg.sinks.kafka(broker.servers, topic, guarantee=guarantee, options=DELETED))
    job = env.execute_async()
    eventually(lambda: broker.messages(topic))
    broker.delete_topic(topic)
    error = error_of(job)
    assert isinstance(error, hg.SinkError)
    assert topic in str(error)
    assert "create the topic" in str(error)
    assert len([line for line in caplog.messages if "starts again from" in line]) == 2
    if guarantee == "at-least-once":  # with "exactly-once", a restart fails when it commits the last checkpoint
        assert job.restarts == 2


@pytest.mark.parametrize("end", ["source", "sink"])
def test_rights_that_are_revoked_while_a_job_runs(secured: Secured, tmp_path: Path, end: str) -> None:
    """The job restarts as its strategy says, then fails with an error that says what to do."""
    broker, topic = secured.broker, secured.broker.topic(1)
    secured.grant("guest", topic)
    options = {**secured.options("guest"), "topic.metadata.refresh.interval.ms": 100}
    env = environment(checkpoint_dir=tmp_path, checkpoint_interval="20 ms", restart=hg.restart.fixed(2, delay=0))
    if end == "source":
        source = hg.sources.kafka(secured.servers, topic, schema=N, options=options, discovery_interval="100 ms")
        env.from_source(source).sink_to(hg.sinks.null())
        broker.produce(topic, [b'{"n": 1}'])
    else:
        sink = hg.sinks.kafka(secured.servers, topic, guarantee="at-least-once", options=options)
        endless(env, rate=1000).sink_to(sink)
    job = env.execute_async()
    eventually(lambda: job.metrics()["rows_in"] > 0 and broker.messages(topic))
    secured.revoke("guest", topic)
    error = error_of(job)
    assert isinstance(error, hg.SourceError if end == "source" else hg.SinkError)
    assert topic in str(error)
    assert "give the user the right to use this topic" in str(error)
    assert job.restarts == 2


def test_a_user_who_may_only_see_a_topic(secured: Secured) -> None:
    """The producer gets no id, and each message fails because the producer has. The sink's error says why."""
    topic = secured.broker.topic(1)
    secured.let_see("nobody", topic)
    delivery = Delivery(KafkaClient(secured.servers, secured.options("nobody")), topic, wait_for)

    def is_refused() -> bool:
        try:
            delivery.producer.produce(topic, b"1")
        except pytest.importorskip("confluent_kafka").KafkaException:
            return True
        return False

    eventually(is_refused)
    with pytest.raises(hg.SinkError, match="give the user the right to use this topic") as raised:
        delivery.give(pa.record_batch({"value": [b"1"]}))
    assert topic in str(raised.value)
    delivery.close()


def test_a_deleted_output_topic_loses_no_staged_row(secured: Secured, tmp_path: Path) -> None:
    """The checkpoint is stored, and its commit fails. Once the topic is there again, a resumed job commits it."""
    broker, topic, checkpoints = secured.broker, secured.broker.topic(1), tmp_path / "checkpoints"

    def start() -> hg.JobHandle:
        env = environment(
            parallelism=1, checkpoint_dir=checkpoints, checkpoint_interval="20 ms", restart=hg.restart.none()
        )
        source = behind_gate(hg.sources.generate(numbers, rows=4000, batch_rows=100), tmp_path, before=2000)
        env.from_source(source).sink_to(hg.sinks.kafka(broker.servers, topic, options=DELETED))
        return env.execute_async("deleted", resume="latest-if-any")

    job = start()
    eventually(lambda: len(broker.messages(topic)) == 2000)
    broker.delete_topic(topic)
    open_gate(tmp_path)
    assert "create the topic" in str(error_of(job))
    assert list(checkpoints.rglob("*.arrow")), "rows are staged"
    broker.make_topic(topic, 1)
    assert start().wait(60).restarts == 0
    assert sorted(json.loads(value)["n"] for value in values(broker.messages(topic))) == list(range(2000, 4000))


@pytest.mark.parametrize("name", ["sasl.password", "sasl.oauthbearer.assertion.private.key.passphrase"])
def test_an_option_whose_value_is_refused_hides_secrets(name: str) -> None:
    pytest.importorskip("confluent_kafka")
    options = {name: SECRET, "sasl.mechanism": f"PLAIN {SECRET}"}
    with pytest.raises(hg.ConfigError, match="Kafka refuses an option") as refused:
        hg.sinks.kafka("127.0.0.1:1", "x", options=options)
    assert SECRET not in str(refused.value)
