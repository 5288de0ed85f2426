"""A TaskManager that was taken over: it has the job's credentials and says what it likes on a real link to the driver.
Terminals, logs and the user's program take no harm."""

from __future__ import annotations

import json
import logging
import queue
import struct
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import headgate as hg
from headgate.protocol.handshake import CONTROL_LINK
from headgate.runtime.deployment import Gang, OnExit, TaskManagerSpec
from headgate.runtime.message_codec import MAX_NESTING
from headgate.transport.control_link import Codec, ControlLink
from headgate.transport.network_thread import NetworkThread
from headgate.transport.sockets import Dial
from tests.runtime.jobs import counted, error_of, keyed

#: Clears the screen, sets the title, hides text, turns it around, and cannot be encoded.
EVIL = "\x1b[2J\x1b]0;title\x07\x9b8m\r\u202e\u2028\ud800\x00"
ESCAPED = r"\x1b[2J\x1b]0;title\x07\x9b8m\r\u202e\u2028\ud800\x00"

#: It may say anything.
JSON = Codec(lambda message: json.dumps(message).encode(), json.loads)
#: What it does with its link, on the network thread.
Speech = Callable[[ControlLink], None]


class TakenOver(hg.LocalDeployment):
    """Two TaskManagers; the second is not one of ours."""

    def __init__(self, speech: Speech, network: NetworkThread) -> None:
        super().__init__(2, processes=False)
        self._speech = speech
        self._network = network
        self.gone: queue.SimpleQueue[str] = queue.SimpleQueue()

    def launch(self, spec: TaskManagerSpec, count: int, on_exit: OnExit) -> Gang:
        dial = Dial(
            self._network,
            spec.control_address,
            credentials=spec.credentials,
            kind=CONTROL_LINK,
            peer=1,
            established=self._established,
            failed=self.gone.put,
        )
        self._network.post(dial.start)
        return super().launch(spec, 1, on_exit)

    def _established(self, sock: Any) -> None:
        link = ControlLink(
            self._network,
            sock,
            heartbeat_timeout=60,
            codec=JSON,
            on_message=lambda message, payload: link._lose("it was told"),
            on_lost=self.gone.put,
        )
        link.start()
        self._speech(link)


@pytest.fixture
def network() -> Iterator[NetworkThread]:
    network = NetworkThread("taken-over")
    network.start()
    yield network
    network.stop(60)


def error_after(speech: Speech, network: NetworkThread, **options: Any) -> hg.HeadgateError:
    """How a job ends of which one TaskManager speaks so."""
    deployment = TakenOver(speech, network)
    env = hg.StreamEnvironment(parallelism=2, config=hg.Config(**options), deployment=deployment)
    keyed(counted(env)).sink_to(hg.sinks.null())
    error = error_of(env.execute_async("rows"))
    assert deployment.gone.get(timeout=60)
    return error


def is_harmless(text: str) -> bool:
    """A terminal does nothing but show it, and any file takes it."""
    return all(character in "\n\t" or character.isprintable() for character in text) and bool(text.encode())


REGISTERED = {"type": "Registered", "host": "127.0.0.1", "port": 1, "pid": 1}


@pytest.mark.parametrize("tls", ["auto", "on"])
def test_an_error_of_its_making(network: NetworkThread, caplog: pytest.LogCaptureFixture, tls: str) -> None:
    fields = {"kind": "UserFunctionError", "message": f"{EVIL}\n\tin a function", "operator": EVIL, "subtask": 0}

    def speech(link: ControlLink) -> None:
        link.send({**REGISTERED, "host": EVIL})
        link.send({"type": "Stuck", "operators": [EVIL]})
        link.send({"type": "Failed", "error": fields})

    with caplog.at_level(logging.WARNING):
        error = error_after(speech, network, tls=tls)
    assert isinstance(error, hg.UserFunctionError)
    assert is_harmless(f"{error} {error.operator}")
    assert str(error).startswith(f"{ESCAPED}[0]: {ESCAPED}\n\tin a function")
    assert all(is_harmless(record.getMessage()) for record in caplog.records)


def test_a_name_that_is_shown_when_it_is_lost(network: NetworkThread) -> None:
    def speech(link: ControlLink) -> None:
        link.send({**REGISTERED, "host": EVIL + "x" * 100_000})
        network.call_later(0.1, lambda: link._lose("it leaves"))

    error = error_after(speech, network)
    assert is_harmless(str(error))
    assert ESCAPED in str(error)
    assert len(str(error)) < 1000


def test_an_endless_message_of_an_error_is_cut(network: NetworkThread) -> None:
    fields = {"kind": "no such kind", "message": "x" * 10_000_000, "operator": "y" * 10_000_000, "job": 5}
    error = error_after(lambda link: link.send({"type": "Failed", "error": fields}), network)
    assert type(error) is hg.HeadgateError
    assert len(str(error)) < 200_000


def test_what_it_prints(network: NetworkThread, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [f"a{EVIL}b", "one line\nanother | that is not its own", "z" * 1_000_000]

    def speech(link: ControlLink) -> None:
        for stream in ("stdout", "stderr"):
            link.send({"type": "Printed", "task": f"{EVIL}\nmap[0]", "stream": stream, "lines": lines})
        link.send({"type": "Failed", "error": {"message": "done"}})

    error_after(speech, network)
    for text in capsys.readouterr():
        assert is_harmless(text)
        assert len(text) < 50_000
        first, second, third = text.splitlines()
        assert first == rf"{ESCAPED}\nmap[0] | a{ESCAPED}b"
        assert second.endswith(r" | one line\nanother | that is not its own")
        assert third.endswith("zzz")


DAMAGED = {
    "nesting that no stack takes": b'{"type":' * 500_000 + b"1" + b"}" * 500_000,
    "nesting that a walk might not take": b'{"type":"x","a":' + b"[" * MAX_NESTING + b"]" * MAX_NESTING + b"}",
    "no JSON": b"\x1b[2J\xff",
    "a list": b"[]",
}  # fmt: skip


@pytest.mark.parametrize("text", DAMAGED.values(), ids=DAMAGED)
def test_a_message_that_is_none_ends_its_link(network: NetworkThread, text: bytes) -> None:
    def speech(link: ControlLink) -> None:
        link._outgoing.append(struct.pack(">II", 8 + len(text), len(text)) + text)
        link.on_marked()

    error = error_after(speech, network)
    assert isinstance(error, hg.TaskManagerLost)
    assert "TaskManager 1 was lost: it sent bytes that are not a message: " in str(error)
    assert is_harmless(str(error))


#: Of the right kind, and with something wrong in it.
WRONG: dict[str, dict[str, Any]] = {
    "no type": {"a": 1},
    "a type that is none": {"type": [1]},
    "fields that are missing": {"type": "Registered"},
    "a number that is a text": {**REGISTERED, "port": EVIL},
    "a number without end": {**REGISTERED, "port": float("inf")},
    "an error that is none": {"type": "Failed", "error": EVIL},
    "lines that are none": {"type": "Printed", "task": 1, "stream": "stdout", "lines": 7},
}


@pytest.mark.parametrize("message", WRONG.values(), ids=WRONG)
def test_a_message_that_makes_no_sense_ends_the_job_with_an_error(
    network: NetworkThread, message: dict[str, Any]
) -> None:
    def speech(link: ControlLink) -> None:
        link.send(message)
        network.call_later(0.1, lambda: link._lose("it leaves"))  # one that says nothing of use is waited for

    assert is_harmless(str(error_after(speech, network)))
