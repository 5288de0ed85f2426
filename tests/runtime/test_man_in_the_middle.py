"""Somebody relays the links of a job and changes what crosses. Without TLS he changes sums; with TLS the job fails and
says why, and no wrong result is there."""

from __future__ import annotations

import socket
import ssl
import struct
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import xxhash

import headgate as hg
from headgate.protocol.handshake import ANSWER_BYTES, DRIVER, TASKMANAGER
from headgate.protocol.messages import BUFFER_RESPONSE, BUFFER_RESPONSE_ID, DATA_BUFFER
from headgate.records.arrow import CHECKSUM_BYTES
from headgate.records.elements import Tag
from headgate.runtime.master import certificates
from headgate.transport.tls import server_context
from tests.hosts import why_no_hosts
from tests.runtime.middle import CONTROL, DATA, Edit, Loopback, Meddle, Middle, Namespaces, relay

GROUNDS = ["loopback", "namespaces"]
if reason := why_no_hosts():
    warnings.warn(f"the man in the middle stands on loopback alone, not between two machines: {reason}", stacklevel=1)
    GROUNDS.remove("namespaces")

#: What each row has, and what it is changed to.
GIVEN, FORGED = 1_000_003, 9_000_003
ROWS = 20_000

Play = Callable[..., "Scene"]


class Scene:
    """A job with somebody in the middle."""

    def __init__(self, ground: Loopback | Namespaces, middle: Middle, options: dict[str, object]) -> None:
        self._ground = ground
        self.came = middle.came
        config = hg.Config(
            registration_timeout=60, segment_size="1 mb", network_memory="32 mb", **{**ground.options, **options}
        )
        self._env = hg.StreamEnvironment(parallelism=2, config=config, deployment=ground.deployment)

    def total(self) -> int:
        """The job's answer: the sum of all rows. Raises what it fails with."""

        def values(start: int, n: int) -> pa.RecordBatch:
            key = pa.array(np.arange(start, start + n) % 64)
            text = pa.array([f"{number:05}" for number in range(start, start + n)], pa.string())
            return pa.RecordBatch.from_arrays([key, pa.array(np.full(n, GIVEN)), text], names=["key", "value", "text"])

        stream = self._env.from_source(hg.sources.generate(values, rows=ROWS, batch_rows=1000)).key_by("key")
        sums = stream.aggregate(total=hg.sum("value"), last=hg.max("text"), final=True)
        table = self._ground.run(sums.collect)
        return int(sum(table["total"].to_pylist()))


@pytest.fixture(params=GROUNDS)
def play(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Play]:
    middles: list[Middle] = []
    grounds: list[Loopback | Namespaces] = []

    def begin(meddle: Meddle, **options: Any) -> Scene:
        middles.append(Middle(meddle))
        at_namespaces = request.param == "namespaces"
        grounds.append(Namespaces(middles[-1]) if at_namespaces else Loopback(middles[-1], monkeypatch))
        return Scene(grounds[-1], middles[-1], options)

    yield begin
    for middle in middles:
        middle.leave()
    for ground in grounds:
        ground.close()


def honest(_kind: str, sock: socket.socket, onwards: Callable[[], socket.socket]) -> None:
    with onwards() as far:
        relay(sock, far)


def meddling(what: str, make: Callable[[], Edit]) -> Meddle:
    """Changes what dialled ends of one kind of link are told, or what they say on a control link."""

    def meddle(kind: str, sock: socket.socket, onwards: Callable[[], socket.socket]) -> None:
        with onwards() as far:
            edit = make() if kind == what else bytes
            if kind == CONTROL:
                relay(sock, far, upstream=edit)
            else:
                relay(sock, far, downstream=edit)

    return meddle


class Forger:
    """Waits for the end of the handshake, then rewrites the Arrow messages in the frames, with their checksums."""

    def __init__(self, change: Callable[[bytes], bytes]) -> None:
        self._change = change
        self._waiting = bytearray()
        self._is_let_in = False

    def __call__(self, data: bytes) -> bytes:
        self._waiting += data
        done = b""
        if not self._is_let_in and len(self._waiting) >= ANSWER_BYTES:
            self._is_let_in, done = True, self._take(ANSWER_BYTES)
        while self._is_let_in and len(self._waiting) >= 4:
            (length,) = struct.unpack_from(">I", self._waiting)
            if len(self._waiting) < length:
                break
            done += self._forged(self._take(length))
        return done

    def _take(self, count: int) -> bytes:
        taken = bytes(self._waiting[:count])
        del self._waiting[:count]
        return taken

    def _forged(self, frame: bytes) -> bytes:
        if frame[8] != BUFFER_RESPONSE_ID or frame[BUFFER_RESPONSE.size - 5] != DATA_BUFFER:
            return frame
        forged, at = bytearray(frame), BUFFER_RESPONSE.size
        while at < len(frame):
            length, tag = struct.unpack_from(">IB", frame, at)
            assert at + 4 + length <= len(frame), "a message in several frames"
            if tag == Tag.RECORDS:
                begin = at + 5 + CHECKSUM_BYTES
                message = self._change(frame[begin : at + 4 + length])
                forged[at + 5 : at + 4 + length] = xxhash.xxh3_64_digest(message) + message
            at += 4 + length
        return bytes(forged)


def raised(message: bytes) -> bytes:
    return message.replace(struct.pack("<q", GIVEN), struct.pack("<q", FORGED))


def out_of_bounds(message: bytes) -> bytes:
    """The offsets of a column of texts of five letters; all end far behind what there is."""
    return message.replace(struct.pack("<3i", 0, 5, 10), struct.pack("<3i", 0, 0x7FFF0000, 0x7FFF0001))


def test_an_honest_relay_changes_nothing(play: Play) -> None:
    """Also with TLS: who only listens and relays is not noticed, and gets nothing but noise."""
    heard: list[bytes] = []

    def listen_in(_kind: str, sock: socket.socket, onwards: Callable[[], socket.socket]) -> None:
        def note(data: bytes) -> bytes:
            heard.append(data)
            return data

        with onwards() as far:
            relay(sock, far, note, note)

    scene = play(listen_in, tls="on")
    assert scene.total() == ROWS * GIVEN
    assert {CONTROL, DATA} == set(scene.came)
    all_heard = b"".join(heard)
    assert len(all_heard) > 100_000
    assert struct.pack("<q", GIVEN) not in all_heard
    assert b"registered" not in all_heard
    assert b"total" not in all_heard


def test_without_tls_sums_change_unnoticed(play: Play) -> None:
    scene = play(meddling(DATA, lambda: Forger(raised)), tls="off")
    total = scene.total()
    forged, rest = divmod(total - ROWS * GIVEN, FORGED - GIVEN)
    assert rest == 0
    assert 0.2 * ROWS < forged < 0.8 * ROWS, "what crossed between the two: about a half"


def test_without_tls_forged_offsets_end_the_job_and_not_the_process(play: Play) -> None:
    """For every batch is validated then."""
    with pytest.raises(
        hg.HeadgateError, match="stream corrupted: a message of [0-9]+ bytes is not a record batch"
    ) as raised_error:
        play(meddling(DATA, lambda: Forger(out_of_bounds)), tls="off").total()
    assert "was lost" not in str(raised_error.value)


def flips_a_bit() -> Edit:
    """One, behind the handshake, which takes some 1,600 bytes, and before what any job says at the least."""
    left = 3000

    def edit(data: bytes) -> bytes:
        nonlocal left
        at, left = left, left - len(data)
        if not 0 <= at < len(data):
            return data
        return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]

    return edit


@pytest.mark.turns(2)
@pytest.mark.parametrize("kind", [DATA, CONTROL])
def test_with_tls_one_changed_bit_ends_the_job(play: Play, kind: str) -> None:
    """The end that receives it says so, or the other one, which it tells."""
    with pytest.raises(hg.TaskManagerLost, match="TLS says .*bad record mac"):
        play(meddling(kind, flips_a_bit), tls="on").total()


@pytest.mark.turns(2)
@pytest.mark.parametrize(("kind", "whom"), [(DATA, TASKMANAGER), (CONTROL, DRIVER)])
def test_with_tls_an_impostor_is_refused(play: Play, kind: str, whom: str, capfd: pytest.CaptureFixture[str]) -> None:
    """He answers in the place of who was dialled, with a certificate for the same name by an authority of his own. A
    process that cannot reach the driver says so at its own standard error."""
    driver, taskmanager = certificates.issue()
    context = server_context(driver if whom == DRIVER else taskmanager)
    refused: list[str] = []

    def impostor(came: str, sock: socket.socket, onwards: Callable[[], socket.socket]) -> None:
        if came != kind:
            honest(came, sock, onwards)
            return
        try:
            context.wrap_socket(sock, server_side=True).recv(1)
        except ssl.SSLError as error:
            refused.append(str(error.reason))

    with pytest.raises(hg.TaskManagerLost) as lost:
        play(impostor, tls="on").total()
    assert "the peer has no certificate of this attempt of the job" in f"{lost.value} {capfd.readouterr().err}"
    assert kind == CONTROL or "no certificate" in str(lost.value)
    assert refused
    assert all("ALERT" in each for each in refused), "and the first thing that he is told is an alert"
