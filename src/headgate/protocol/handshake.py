"""Who is there? Both ends of a new link prove that they know the job's secret, without sending it.

The dialling side sends `hello | nonce`, the listening side answers `nonce | proof`, the dialling side sends its
`proof`.
A proof is HMAC-SHA256 over the role and both nonces, so neither side can be made to prove for the other. Version, job,
attempt and flow control are part of the hello, and of what is proved: a survivor of an older attempt, another job,
another release or an end that counts credit otherwise is refused with a reason. The same handshake serves data links
and control links; `kind` keeps them apart. Where links are encrypted it takes place inside TLS.
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


#: Who has a certificate. A data link joins two TaskManagers; a control link is dialled by a TaskManager.
DRIVER: Final = "driver"
TASKMANAGER: Final = "taskmanager"


@dataclass(frozen=True, slots=True)
class Identity:
    """With what an end of a link proves itself under TLS, and whom it trusts; each part is PEM. The authority issues
    for one attempt of one job, so no other certificate passes."""

    authority: bytes
    certificate: bytes
    key: bytes

    def __repr__(self) -> str:  # a key must not end up in a log
        return "Identity()"


@dataclass(frozen=True, slots=True)
class Credentials:
    """What both ends must share, and this end's identity, without which links are not encrypted. `job` is 16 bytes; the
    secret and the identity's key never leave the process but in the task closure."""

    job: bytes
    attempt: int
    secret: bytes
    flow_control: FlowControl = FlowControl.CREDIT
    identity: Identity | None = None

    def __repr__(self) -> str:  # a secret must not end up in a log
        return f"Credentials(job={self.job.hex()}, attempt={self.attempt})"

    def proof(self, role: bytes, hello: bytes, nonce: bytes) -> bytes:
        return hmac.new(self.secret, role + hello + nonce, hashlib.sha256).digest()


class Dialler:
    """The side that connects. Send `hello`, pass `answer`'s bytes to `prove`, send what it returns."""

    def __init__(self, credentials: Credentials, kind: int, peer: int, nonce: bytes) -> None:
        self._credentials = credentials
        mode = _MODE_NUMBERS[credentials.flow_control]
        fields = (_MAGIC, PROTOCOL_VERSION, kind, mode, peer, credentials.job, credentials.attempt)
        self.hello = _HELLO.pack(*fields) + nonce

    def prove(self, answer: bytes) -> bytes:
        """Check the listener's proof and return ours. Raises ExchangeError when it refuses or cannot prove itself."""
        if answer[:1] != _ACCEPTED:
            raise ExchangeError(
                f"the peer refused the connection: {answer[1:].rstrip(bytes(1)).decode(errors='replace')}"
            )
        nonce, proof = answer[1 : 1 + NONCE_BYTES], answer[1 + NONCE_BYTES :]
        if not hmac.compare_digest(proof, self._credentials.proof(b"listener", self.hello, nonce)):
            raise ExchangeError("the peer does not know this job's secret")
        return self._credentials.proof(b"dialler", self.hello, nonce)


class Listener:
    """The side that was dialled. `answer(hello)` gives the bytes to send, then `check(proof)` the peer's number."""

    def __init__(self, credentials: Credentials, kind: int, nonce: bytes) -> None:
        self._credentials = credentials
        self._kind = kind
        self._nonce = nonce
        self._hello = b""
        self.refused: str | None = None

    def answer(self, hello: bytes) -> bytes:
        """The answer to a hello; when `refused` is set afterwards, send it and close."""
        magic, version, kind, mode, _, job, attempt = _HELLO.unpack_from(hello)
        ours = self._credentials
        flow_control = _MODES.get(mode, "unknown")
        for is_wrong, reason in (
            (magic != _MAGIC, "this is not a Headgate link"),
            (version != PROTOCOL_VERSION, f"protocol version {version}, here {PROTOCOL_VERSION}"),
            (kind != self._kind, "wrong kind of link"),
            (job != ours.job, "another job"),
            (attempt != ours.attempt, f"attempt {attempt}, here {ours.attempt}"),
            (flow_control != ours.flow_control, f"flow control {flow_control}, here {ours.flow_control}"),
        ):
            if is_wrong:
                self.refused = reason
                return (_REFUSED + reason.encode()).ljust(ANSWER_BYTES, b"\x00")[:ANSWER_BYTES]
        self._hello = hello
        return _ACCEPTED + self._nonce + ours.proof(b"listener", hello, self._nonce)

    def check(self, proof: bytes) -> int:
        """The dialler's peer number. Raises ExchangeError when it cannot prove that it knows the secret."""
        if not self._hello or not hmac.compare_digest(
            proof, self._credentials.proof(b"dialler", self._hello, self._nonce)
        ):
            raise ExchangeError("a peer that does not know this job's secret was refused")
        peer: int = _HELLO.unpack_from(self._hello)[4]
        return peer
