"""The certificates of one attempt of a job: its own authority, and identities for the driver and for the TaskManagers.

All TaskManagers share one identity. The authority's key is dropped once it has signed both identities. A TaskManager of
an older attempt has certificates of an older authority; links of the new attempt refuse these. No TaskManager can
impersonate the driver.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePrivateKey, generate_private_key
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from headgate.protocol.handshake import DRIVER, TASKMANAGER, Identity

#: How far back certificates are valid, because the clocks of machines differ.
_BACKDATED: Final = timedelta(days=1)
#: How long certificates are valid: longer than any attempt runs. The keys are gone when the attempt ends.
_LIFETIME: Final = timedelta(days=3650)
_AUTHORITY: Final = "authority"


class _Authority:
    """The certificate authority of one attempt. Its key exists only as long as this object."""

    def __init__(self) -> None:
        self._key = generate_private_key(SECP256R1())
        usage = x509.KeyUsage(
            False, False, False, False, False, True, True, False, False
        )  # it may sign certificates and revocation lists
        builder = _builder(_AUTHORITY, self._key)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        self.certificate = builder.add_extension(usage, critical=True).sign(self._key, SHA256())

    def identity(self, name: str, *uses: x509.ObjectIdentifier) -> Identity:
        """Return an identity for an end of a link. `uses` are the extended key usages of its certificate."""
        key = generate_private_key(SECP256R1())
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        certificate = (
            _builder(name, key)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(issuer, critical=False)
            .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
            .add_extension(x509.ExtendedKeyUsage(uses), critical=True)
            .sign(self._key, SHA256())
        )
        pem = Encoding.PEM
        private = key.private_bytes(pem, PrivateFormat.PKCS8, NoEncryption())
        return Identity(self.certificate.public_bytes(pem), certificate.public_bytes(pem), private)


def issue() -> tuple[Identity, Identity]:
    """Return the driver's identity and the TaskManagers' identity.

    The driver's identity can only accept connections. The TaskManagers' identity can connect and accept.
    """
    authority = _Authority()
    driver = authority.identity(DRIVER, ExtendedKeyUsageOID.SERVER_AUTH)
    both = ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH
    return driver, authority.identity(TASKMANAGER, *both)


def _builder(name: str, key: EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(_common_name(name))
        .issuer_name(_common_name(_AUTHORITY))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BACKDATED)
        .not_valid_after(now + _LIFETIME)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _common_name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"headgate {name}")])
