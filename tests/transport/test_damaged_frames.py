"""Random and damaged frames, to both ends of links of another process: each closes only its own link."""

from __future__ import annotations

import json
import random
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headgate.protocol import handshake
from headgate.protocol.handshake import DATA_LINK, Dialler, Listener
from headgate.protocol.messages import (
    DATA_BUFFER,
    EVENT_BUFFER,
    AckAllUserRecordsProcessed,
    AddCredit,
    BacklogAnnouncement,
    CancelPartitionRequest,
    CloseRequest,
    ErrorResponse,
    NewBufferSize,
    PartitionRequest,
    ResumeConsumption,
    encode,
    encode_buffer_response,
)
from headgate.records.arrow import BatchCodec
from headgate.records.events import Alignment, CheckpointBarrier, EndOfData, EndOfPartition, encode_event
from headgate.records.spanning import serialize
from tests.records.mutations import mutated
from tests.transport.target import CREDENTIALS, PATIENCE, SCHEMA, SUBPARTITIONS, rows

ROOT = Path(__file__).parents[2]
NONCE = bytes(handshake.NONCE_BYTES)


class Target:
    """The other process."""

    def __init__(self) -> None:
        self.errors = tempfile.TemporaryFile()  # noqa: SIM115
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.transport.target"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
            cwd=ROOT,
        )
        self.port = self._answer()["port"]

    def _answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"the process is gone: {self._said()}"
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _said(self) -> str:
        self.errors.seek(0)
        return self.errors.read().decode()

    def tell(self, line: object) -> dict[str, Any]:
        """Returns the answer."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()
        return self._answer()

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), PATIENCE)

    def end(self) -> dict[str, Any]:
        """The healthy pair comes to its end; returns what it says."""
        answer = self.tell("")
        assert self.process.wait(PATIENCE) == 0, self._said()
        assert self._said() == ""
        return answer

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()
        self.errors.close()


@pytest.fixture
def target() -> Iterator[Target]:
    target = Target()
    yield target
    target.close()


def say_last(sock: socket.socket, data: bytes) -> bytes:
    """Send this and nothing more; returns what comes until the other end closes."""
    heard = b""
    try:
        sock.sendall(data)
        sock.shutdown(socket.SHUT_WR)
        while part := sock.recv(1 << 16):
            heard += part
    except TimeoutError as error:
        raise AssertionError("it neither reads nor closes") from error
    except OSError:  # it closed before it had read all of what it was sent
        pass
    return heard


def shaken(sock: socket.socket) -> socket.socket:
    """We know the secret."""
    dialler = Dialler(CREDENTIALS, DATA_LINK, 2, NONCE)
    sock.sendall(dialler.hello)
    sock.sendall(dialler.prove(sock.recv(handshake.ANSWER_BYTES, socket.MSG_WAITALL)))
    return sock


def requests(chance: random.Random) -> bytes:
    """What a consumer says, in an order that makes little sense."""
    receiver = chance.randrange(3)
    request = PartitionRequest(
        chance.randrange(3), 0, chance.randrange(SUBPARTITIONS + 2), receiver, chance.randrange(9)
    )
    others = [
        AddCredit(chance.randint(1, 1 << 31), receiver),
        ResumeConsumption(receiver),
        AckAllUserRecordsProcessed(receiver),
        NewBufferSize(chance.randint(1, 1 << 20), receiver),
        CancelPartitionRequest(receiver),
        CloseRequest(),
    ]
    return b"".join(map(encode, [request, *chance.sample(others, 3), request, *chance.sample(others, 3)]))  # type: ignore[arg-type]


def responses(chance: random.Random) -> bytes:
    """What a producer says to channel 0: a message in frames of any size, and events."""
    data = b"".join(map(bytes, serialize(rows(0, 20), BatchCodec(SCHEMA))))
    cut = chance.randint(1, min(len(data) - 1, 256))
    barrier = CheckpointBarrier(1, 0, chance.choice(list(Alignment)))
    buffers = [(DATA_BUFFER, data[:cut]), (DATA_BUFFER, data[cut : cut + 256])]
    buffers += [(EVENT_BUFFER, encode_event(event)) for event in (barrier, EndOfData(), EndOfPartition())]
    chance.shuffle(buffers)
    frames = [
        encode_buffer_response(0, number, chance.choice([0, 1, 1 << 30]), kind, len(payload)) + payload
        for number, (kind, payload) in enumerate(buffers)
    ]
    frames += [encode(BacklogAnnouncement(chance.randint(1, 1 << 31), 0)), encode(ErrorResponse("no", 0, True))]
    return b"".join(frames)


def damaged(data: bytes, chance: random.Random) -> bytes:
    for _ in range(chance.randint(1, 3)):
        data = mutated(data, chance) or b"\0"
    return data


@pytest.mark.parametrize("seed", [1, 2])
def test_damaged_frames_close_their_connection_only(target: Target, seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(12):
        _knock(target, chance)
        _be_random_consumer(target, chance)
        _be_consumer(target, chance)
        _be_consumer(target, chance)
    ends = [_be_producer(target, chance) for _ in range(25)]
    assert sum("stream corrupted" in reason for reason in ends) >= 6, ends
    result = target.end()
    assert result["rows"] > 0
    assert result["files"] <= 0
    assert sum("stream corrupted" in reason for reason in result["refused"]) >= 12


def _knock(target: Target, chance: random.Random) -> None:
    """We do not know the secret, nor what to say."""
    hello = Dialler(CREDENTIALS, DATA_LINK, 2, NONCE).hello
    said = chance.choice([chance.randbytes(chance.randint(1, 500)), damaged(hello, chance)])
    with target.connect() as sock:
        assert len(say_last(sock, said)) <= handshake.ANSWER_BYTES


def _be_random_consumer(target: Target, chance: random.Random) -> None:
    """It is closed without our leave, with an error frame."""
    with shaken(target.connect()) as sock:
        sock.sendall(b"\0\0\0\x20" + chance.randbytes(chance.randint(20, 500)))
        heard = b""
        while part := sock.recv(1 << 16):
            heard += part
        assert b"stream corrupted" in heard


def _be_consumer(target: Target, chance: random.Random) -> None:
    """What is damaged may by chance mean something, or be the beginning of something: then our leave ends it."""
    with shaken(target.connect()) as sock:
        say_last(sock, damaged(requests(chance), chance))


def _be_producer(target: Target, chance: random.Random) -> str:
    """It dials us and asks for a channel. Returns how that ended for it."""
    with socket.create_server(("127.0.0.1", 0)) as door:
        door.settimeout(PATIENCE)
        assert target.process.stdin is not None
        target.process.stdin.write(f"{door.getsockname()[1]}\n")
        target.process.stdin.flush()
        sock, _ = door.accept()
        with sock:
            sock.settimeout(PATIENCE)
            listener = Listener(CREDENTIALS, DATA_LINK, NONCE)
            answer = listener.answer(sock.recv(handshake.HELLO_BYTES, socket.MSG_WAITALL))
            if chance.random() < 0.1:
                answer = damaged(answer, chance)
            kinds = [chance.randbytes(chance.randint(20, 500)), damaged(responses(chance), chance)]
            say_last(sock, answer + chance.choices(kinds, [1, 4])[0])
    return str(target._answer()["ended"])
