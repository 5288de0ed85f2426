"""No error, log, plan or checkpoint shows the headers of requests or the path of the address; TLS is checked."""

from __future__ import annotations

import base64
import logging
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

import headgate as hg
from tests.runtime.jobs import counted, environment, error_of
from tests.webhook.test_webhook_sink import sink
from tests.webhook.webhook_service import Answer, Service, running

TOKEN, PART, PASSWORD = "hush-token-4711", "hush-path-4712", "hush-password-4713"
BASIC = base64.b64encode(f"user:{PASSWORD}".encode()).decode()


def secret_sink(service: Service, **options: object) -> hg.Sink:
    headers = {"Authorization": f"Bearer {TOKEN}", "Proxy-Authorization": f"Basic {BASIC}"}
    return sink(service, f"/services/{PART}?token={TOKEN}", headers=headers, **options)


def test_no_secret_is_shown_or_stored(
    service: Service, tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    told = f"no hook {PART} for {TOKEN}, {BASIC}, user {PASSWORD}".encode()
    service.answers = [
        Answer(),
        Answer(503, {}, told),
        Answer(raw=b"HTTP/1.1 200 OK\r\nno header\r\nContent-Length: 0\r\n\r\n"),
        Answer(400, {}, told),
    ]
    env = environment(parallelism=1, checkpoint_dir=tmp_path, checkpoint_interval="10 ms", restart=hg.restart.none())
    made = secret_sink(service, batch_rows=10)
    stream = counted(env, rows=5000).sink_to(made)
    env.explain()
    shown = [repr(made), repr(made.__dict__), repr(stream)]
    error = error_of(env.execute_async("secret"))
    assert "status 400" in error.message
    assert "no hook *** for ***, ***, user ***" in error.message
    assert any("the sink tries again" in record.getMessage() for record in caplog.records)
    assert any("Failed to parse headers" in record.getMessage() for record in caplog.records)
    shown += [str(error), caplog.text, *map(str, [record.args for record in caplog.records]), *capfd.readouterr()]
    stored = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert stored
    for secret in (TOKEN, PART, PASSWORD, BASIC):
        assert not any(secret in text for text in shown)
        assert not any(secret.encode() in content for content in stored)


def test_a_redirect_is_not_followed(service: Service) -> None:
    with running() as other:
        service.answers = [Answer(307, {"Location": f"{other.url}/{PART}"})]
        env = environment(parallelism=1)
        counted(env, rows=1).sink_to(secret_sink(service))
        with pytest.raises(hg.SinkError, match="names another address, which the sink does not follow"):
            env.execute()
        assert not other.received


def loopback_certificate(file: Path) -> None:
    """Write a key, and a certificate of 127.0.0.1 that is its own authority."""
    key, name = generate_private_key(SECP256R1()), x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "loopback")])
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    builder = builder.serial_number(1).not_valid_before(now - timedelta(1)).not_valid_after(now + timedelta(1))
    names = x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))])
    certificate = builder.add_extension(names, critical=False).sign(key, SHA256())
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    file.write_bytes(private + certificate.public_bytes(Encoding.PEM))


def test_certificates_are_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loopback_certificate(tmp_path / "service.pem")
    with running(certificate=tmp_path / "service.pem") as service:
        env = environment(parallelism=1)
        counted(env, rows=1).sink_to(sink(service))
        with pytest.raises(hg.SinkError, match="certificate verify failed.*set SSL_CERT_FILE"):
            env.execute()
        assert not service.received
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "service.pem"))
        env = environment(parallelism=1)
        counted(env, rows=1).sink_to(sink(service))
        env.execute()
        assert service.rows() == [{"n": 0}]


def test_a_service_without_tls_is_named(service: Service) -> None:
    env = environment(parallelism=1)
    counted(env, rows=1).sink_to(hg.sinks.webhook(service.url.replace("http:", "https:")))
    with pytest.raises(hg.SinkError, match="the service does not speak TLS"):
        env.execute()
