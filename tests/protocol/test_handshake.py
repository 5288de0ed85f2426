"""The handshake against those who listen in, replay, reflect or change what is said."""

from __future__ import annotations

import pytest

from headgate.config import FlowControl
from headgate.errors import ExchangeError
from headgate.protocol.handshake import (
    ANSWER_BYTES,
    CONTROL_LINK,
    DATA_LINK,
    HELLO_BYTES,
    NONCE_BYTES,
    PROOF_BYTES,
    PROTOCOL_VERSION,
    Credentials,
    Dialler,
    Listener,
)

SECRET = b"a secret of the job"
OURS = Credentials(b"j" * 16, 3, SECRET)
UNKNOWN = "does not know this job's secret"


def nonce(number: int) -> bytes:
    return bytes([number]) * NONCE_BYTES


def dialler(number: int = 1, credentials: Credentials = OURS, kind: int = DATA_LINK) -> Dialler:
    return Dialler(credentials, kind, 5, nonce(number))


def listener(number: int = 101, credentials: Credentials = OURS, kind: int = DATA_LINK) -> Listener:
    return Listener(credentials, kind, nonce(number))


@pytest.mark.parametrize("kind", [DATA_LINK, CONTROL_LINK])
def test_the_parts_have_the_lengths_that_are_read(kind: int) -> None:
    ours, theirs = dialler(kind=kind), listener(kind=kind)
    answer = theirs.answer(ours.hello)
    proof = ours.prove(answer)
    assert (len(ours.hello), len(answer), len(proof)) == (HELLO_BYTES, ANSWER_BYTES, PROOF_BYTES)
    assert theirs.refused is None
    assert theirs.check(proof) == 5


REFUSALS = {
    "magic": (b"HTTP" + dialler().hello[4:], "this is not a Headgate link"),
    "version": (
        dialler().hello[:4] + (PROTOCOL_VERSION + 1).to_bytes(2, "big") + dialler().hello[6:],
        f"protocol version {PROTOCOL_VERSION + 1}, but the listener has {PROTOCOL_VERSION}",
    ),
    "kind": (dialler(kind=CONTROL_LINK).hello, "wrong kind of link"),
    "job": (dialler(credentials=Credentials(b"k" * 16, 3, SECRET)).hello, "another job"),
    "attempt": (dialler(credentials=Credentials(b"j" * 16, 2, SECRET)).hello, "attempt 2, but the listener has 3"),
    "flow control": (
        dialler(credentials=Credentials(b"j" * 16, 3, SECRET, FlowControl.TCP)).hello,
        "flow control tcp, but the listener has credit",
    ),
    "no flow control": (
        dialler().hello[:7] + b"\xff" + dialler().hello[8:],
        "flow control unknown, but the listener has credit",
    ),
}


@pytest.mark.parametrize("what", REFUSALS)
def test_what_does_not_fit_is_refused_with_the_reason_and_no_proof(what: str) -> None:
    hello, reason = REFUSALS[what]
    theirs = listener()
    answer = theirs.answer(hello)
    assert theirs.refused == reason
    assert len(answer) == ANSWER_BYTES
    assert OURS.proof(b"listener", hello, nonce(101)) not in answer
    assert nonce(101) not in answer
    with pytest.raises(ExchangeError, match=f"the peer refused the connection: {reason}$"):
        dialler().prove(answer)
    with pytest.raises(ExchangeError, match=UNKNOWN):
        theirs.check(OURS.proof(b"dialler", hello, nonce(101)))


def test_a_proof_before_the_hello_is_refused() -> None:
    with pytest.raises(ExchangeError, match=UNKNOWN):
        listener().check(OURS.proof(b"dialler", b"", nonce(101)))


def test_each_side_finds_out_when_the_other_has_a_wrong_secret() -> None:
    wrong = Credentials(b"j" * 16, 3, b"a guess")
    ours, theirs = dialler(credentials=wrong), listener()
    with pytest.raises(ExchangeError, match=UNKNOWN):
        ours.prove(theirs.answer(ours.hello))
    with pytest.raises(ExchangeError, match=UNKNOWN):
        theirs.check(wrong.proof(b"dialler", ours.hello, nonce(101)))


def test_a_recorded_handshake_opens_no_second_link() -> None:
    ours, first = dialler(), listener(101)
    hello = ours.hello
    proof = ours.prove(first.answer(hello))
    assert first.check(proof) == 5
    second = listener(102)
    second.answer(hello)
    with pytest.raises(ExchangeError, match=UNKNOWN):
        second.check(proof)


def test_a_recorded_answer_satisfies_no_other_dialler() -> None:
    answer = listener().answer(dialler(1).hello)
    with pytest.raises(ExchangeError, match=UNKNOWN):
        dialler(2).prove(answer)


def test_a_listener_cannot_be_made_to_prove_for_a_dialler() -> None:
    """The attacker dials us and hands our own proof back, also through a second link."""
    hello = dialler().hello
    theirs = listener(101)
    answer = theirs.answer(hello)
    with pytest.raises(ExchangeError, match=UNKNOWN):
        theirs.check(answer[1 + NONCE_BYTES :])
    oracle = listener(101)
    oracle_proof = oracle.answer(hello)[1 + NONCE_BYTES :]
    with pytest.raises(ExchangeError, match=UNKNOWN):
        theirs.check(oracle_proof)


def test_a_dialler_does_not_take_its_own_proof_for_a_listeners() -> None:
    ours = dialler()
    own = OURS.proof(b"dialler", ours.hello, nonce(9))
    with pytest.raises(ExchangeError, match=UNKNOWN):
        ours.prove(b"\x01" + nonce(9) + own)


def test_a_man_in_the_middle_cannot_change_the_dialler() -> None:
    ours, theirs = dialler(), listener()
    hello = bytearray(ours.hello)
    hello[10] ^= 1  # the peer's number
    with pytest.raises(ExchangeError, match=UNKNOWN):
        ours.prove(theirs.answer(bytes(hello)))


def test_the_secret_is_never_sent_or_shown() -> None:
    ours, theirs = dialler(), listener()
    answer = theirs.answer(ours.hello)
    proof = ours.prove(answer)
    theirs.check(proof)
    said = ours.hello + answer + proof
    assert SECRET not in said
    shown = " ".join(f"{thing!r} {thing!s}" for thing in (OURS, ours, theirs))
    assert SECRET.decode() not in shown
    assert SECRET.hex() not in shown
