"""The handshake of a new link: both ends prove that they know the job's secret, without sending the secret.

The dialling side sends `hello | nonce`, the listening side answers `nonce | proof`, and the dialling side sends its
`proof`. A proof is HMAC-SHA256 over the role, the hello and both nonces, so one side cannot reuse the other's proof.
The proof covers the version, job, attempt and flow control in the hello. The listener refuses a peer of an older
attempt, another job, another release or another flow control. It sends the reason to the peer. Data links and control
links use the same handshake, with a different `kind`. On encrypted links the handshake runs inside TLS.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from dataclasses import dataclass
from typing import Final

from headgate.config import FlowControl
from headgate.errors import ExchangeError

PROTOCOL_VERSION: Final = 2
NONCE_BYTES: Final = 32
_PROOF_BYTES: Final = 32
_HELLO: Final = struct.Struct(">4sHBBI16sI")  # magic, version, kind, flow control, peer, job, attempt
_MAGIC: Final = b"HGT1"
HELLO_BYTES: Final = _HELLO.size + NONCE_BYTES
ANSWER_BYTES: Final = 1 + NONCE_BYTES + _PROOF_BYTES
PROOF_BYTES: Final = _PROOF_BYTES
_ACCEPTED, _REFUSED = b"\x01", b"\x00"

DATA_LINK: Final = 1
CONTROL_LINK: Final = 2

_MODES: Final = dict(enumerate(FlowControl))
_MODE_NUMBERS: Final = {mode: number for number, mode in _MODES.items()}


#: The owners of certificates. A data link joins two TaskManagers; a TaskManager dials the driver's control link.
DRIVER: Final = "driver"
TASKMANAGER: Final = "taskmanager"


@dataclass(frozen=True, slots=True)
class Identity:
    """The certificate and key of one end of a TLS link, and the authority that this end trusts.

    All three are in PEM. The authority issues certificates for one attempt of one job only, so no other certificate is
    valid.
    """

    authority: bytes
    certificate: bytes
    key: bytes

    def __repr__(self) -> str:  # a key must not end up in a log
        return "Identity()"


@dataclass(frozen=True, slots=True)
class Credentials:
    """The values that both ends must share, and this end's identity. Without an identity, links are not encrypted.

    `job` is 16 bytes. The secret and the identity's key leave the process only in the task closure.
    """

    job: bytes
    attempt: int
    secret: bytes
    flow_control: FlowControl = FlowControl.CREDIT
    identity: Identity | None = None

    def __repr__(self) -> str:  # a secret must not end up in a log
        return f"Credentials(job={self.job.hex()}, attempt={self.attempt})"

    def proof(self, role: bytes, hello: bytes, nonce: bytes) -> bytes:
        """Return the proof that one side knows the secret.

        It is the HMAC-SHA256 over this side's role, the dialler's hello (which ends with the dialler's nonce), and the
        listener's nonce.
        """
        return hmac.new(self.secret, role + hello + nonce, hashlib.sha256).digest()


class Dialler:
    """The side of a handshake that connects. `peer` is this side's own number, which it tells the listener.

    The caller sends `hello`, passes the listener's answer to `prove`, and sends the bytes that `prove` returns.
    """

    def __init__(self, credentials: Credentials, kind: int, peer: int, nonce: bytes) -> None:
        self._credentials = credentials
        mode = _MODE_NUMBERS[credentials.flow_control]
        fields = (_MAGIC, PROTOCOL_VERSION, kind, mode, peer, credentials.job, credentials.attempt)
        self.hello = _HELLO.pack(*fields) + nonce

    def prove(self, answer: bytes) -> bytes:
        """Check the listener's proof and return this side's proof.

        Raises ExchangeError when the listener refuses the link or its proof is wrong.
        """
        if answer[:1] != _ACCEPTED:
            raise ExchangeError(
                f"the peer refused the connection: {answer[1:].rstrip(bytes(1)).decode(errors='replace')}"
            )
        nonce, proof = answer[1 : 1 + NONCE_BYTES], answer[1 + NONCE_BYTES :]
        if not hmac.compare_digest(proof, self._credentials.proof(b"listener", self.hello, nonce)):
            raise ExchangeError("the peer does not know this job's secret")
        return self._credentials.proof(b"dialler", self.hello, nonce)


class Listener:
    """The side of a handshake that accepts.

    The caller sends the bytes of `answer(hello)`. `check(proof)` then returns the peer's number.
    """

    def __init__(self, credentials: Credentials, kind: int, nonce: bytes) -> None:
        self._credentials = credentials
        self._kind = kind
        self._nonce = nonce
        self._hello = b""
        self.refused: str | None = None

    def answer(self, hello: bytes) -> bytes:
        """Return the answer to a hello. If `refused` is set afterwards, send the answer and then close the link."""
        magic, version, kind, mode, _, job, attempt = _HELLO.unpack_from(hello)
        ours = self._credentials
        flow_control, expected = _MODES.get(mode, "unknown"), ours.flow_control
        for is_wrong, reason in (
            (magic != _MAGIC, "this is not a Headgate link"),
            (version != PROTOCOL_VERSION, f"protocol version {version}, but the listener has {PROTOCOL_VERSION}"),
            (kind != self._kind, "wrong kind of link"),
            (job != ours.job, "another job"),
            (attempt != ours.attempt, f"attempt {attempt}, but the listener has {ours.attempt}"),
            (flow_control != expected, f"flow control {flow_control}, but the listener has {expected}"),
        ):
            if is_wrong:
                self.refused = reason
                return (_REFUSED + reason.encode()).ljust(ANSWER_BYTES, b"\x00")[:ANSWER_BYTES]
        self._hello = hello
        return _ACCEPTED + self._nonce + ours.proof(b"listener", hello, self._nonce)

    def check(self, proof: bytes) -> int:
        """Return the dialler's peer number. Raises ExchangeError when the dialler's proof of the secret is wrong."""
        if not self._hello or not hmac.compare_digest(
            proof, self._credentials.proof(b"dialler", self._hello, self._nonce)
        ):
            raise ExchangeError("a peer that does not know this job's secret was refused")
        peer: int = _HELLO.unpack_from(self._hello)[4]
        return peer
