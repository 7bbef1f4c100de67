"""The serving certificate, client certificates, and their change while connections are open."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import ssl
import stat
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from gateway.base.errors import ConfigError
from gateway.config.kinds.serving_settings import Authentication, ServerTls
from gateway.server.serving.authentication import ClientAuthenticator
from gateway.server.serving.devcert import make_development_certificate
from gateway.server.serving.routes import Router
from gateway.server.serving.tls import NO_CERTIFICATE, ServerCertificate
from tests.serving.kit import (
    PATHS,
    Application,
    connected,
    listening,
    ok,
    post,
    refused,
    serving,
)
from tests.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

    from gateway.server.serving.listener import Listener

EVENT_LOOPS = ("asyncio", "uvloop")

UNKNOWN_CLIENT = refused(
    b"401 Unauthorized",
    "not authenticated, expected a client certificate with an allowed name",
    b'WWW-Authenticate: ClientCertificate realm="admission-gateway"\r\n',
)


def client_with(ca: trustme.CA, signer: trustme.CA, name: str) -> ssl.SSLContext:
    """Return the context of a client that trusts *ca* and has a certificate of *signer* for *name*."""
    context = ssl.create_default_context()
    ca.configure_trust(context)
    signer.issue_cert(name, key_type=trustme.KeyType.ECDSA).configure_cert(context)
    return context


def renew(ca: trustme.CA, files: ServerTls) -> None:
    """Put another certificate for localhost into *files*."""
    assert files.cert_file is not None
    assert files.key_file is not None
    leaf = ca.issue_cert("localhost", key_type=trustme.KeyType.ECDSA)
    leaf.private_key_pem.write_to_path(files.key_file)
    leaf.cert_chain_pems[0].write_to_path(files.cert_file)


def with_file(settings: ServerTls, field: str, path: Path | None) -> ServerTls:
    """Return *settings* with *path* as *field*."""
    changed: dict[str, Any] = {field: path}
    return dataclasses.replace(settings, **changed)


async def test_only_http_1_1_and_modern_tls_are_spoken(
    certificate: ServerCertificate, client_tls: ssl.SSLContext
) -> None:
    async with listening(Router(Application(), PATHS), certificate) as listener:
        client_tls.set_alpn_protocols(["h2", "http/1.1"])
        async with connected(listener, client_tls) as client:
            session = client.writer.get_extra_info("ssl_object")
            assert session.selected_alpn_protocol() == "http/1.1"
            assert session.version() == "TLSv1.3"
            assert session.compression() is None
        client_tls.maximum_version = ssl.TLSVersion.TLSv1_2
        async with connected(listener, client_tls) as client:
            assert client.writer.get_extra_info("ssl_object").cipher()[0].startswith("ECDHE-ECDSA-")
        with pytest.warns(DeprecationWarning, match="TLSv1_1 is deprecated"):
            client_tls.minimum_version = ssl.TLSVersion.TLSv1_1
        with pytest.warns(DeprecationWarning, match="TLSv1_1 is deprecated"):
            client_tls.maximum_version = ssl.TLSVersion.TLSv1_1
        client_tls.set_ciphers("ALL:@SECLEVEL=0")
        with pytest.raises(OSError):  # noqa: PT011 - an alert or a reset, as the loop has it
            async with connected(listener, client_tls):
                pass
        await until(lambda: listener.failed_handshakes == 1)


async def test_a_changed_certificate_is_for_new_connections_only(
    ca: trustme.CA, tls_files: ServerTls, client_tls: ssl.SSLContext
) -> None:
    certificate = ServerCertificate(tls_files)
    async with serving(Router(Application(), PATHS), certificate, client_tls) as (listener, old):
        await old.send(post(b"1"))
        await old.expect(ok(b"m:1"))
        renew(ca, tls_files)
        for _ in range(2):  # one sees the change, and the next that it is whole
            listener.tick()
        async with connected(listener, client_tls) as new:
            assert new.certificate() != old.certificate()
            for client in (new, old):
                await client.send(post(b"2"))
                await client.expect(ok(b"m:2"))
    assert certificate.reloads == 1


async def test_no_connection_is_lost_while_certificates_change(
    ca: trustme.CA,
    tls_files: ServerTls,
    client_tls: ssl.SSLContext,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # A sweep would see a change before the test looks.
    monkeypatch.setattr("gateway.server.serving.listener.SWEEP_S", 3600.0)
    certificate = ServerCertificate(tls_files)
    async with listening(Router(Application(), PATHS), certificate) as listener:
        seen = set()

        async def ask(number: int) -> None:
            async with connected(listener, client_tls) as client:
                await client.send(post(b"%d" % number))
                await client.expect(ok(b"m:%d" % number))
                seen.add(client.certificate())

        for turn in range(5):
            asking = [asyncio.ensure_future(ask(turn * 20 + number)) for number in range(20)]
            renew(ca, tls_files)
            await asyncio.sleep(0)
            assert [certificate.refresh() for _ in range(3)] == [False, True, False]
            await asyncio.gather(*asking)
        assert len(seen) > 1
        assert listener.failed_handshakes == 0


def test_certificate_with_another_key_keeps_the_old_one(
    ca: trustme.CA, tls_files: ServerTls, caplog: pytest.LogCaptureFixture
) -> None:
    certificate = ServerCertificate(tls_files)
    context = certificate.context
    assert not certificate.refresh()
    assert tls_files.key_file is not None
    ca.issue_cert("localhost", key_type=trustme.KeyType.ECDSA).private_key_pem.write_to_path(
        tls_files.key_file
    )
    with caplog.at_level(logging.INFO):
        assert not any(certificate.refresh() for _ in range(20))
    assert certificate.context is context
    assert not certificate.is_current
    expected = (
        f"changed TLS files are unusable, the old ones stay in force: {tls_files.key_file}: "
        f"tls.keyFile: is not the key of the certificate in {tls_files.cert_file}"
    )
    assert [record.getMessage() for record in caplog.records] == [expected]
    renew(ca, tls_files)
    assert [certificate.refresh() for _ in range(3)] == [False, True, False]
    assert certificate.context is not context
    assert certificate.is_current


def test_expiry_is_that_of_the_certificate(tls_files: ServerTls) -> None:
    assert tls_files.cert_file is not None
    loaded = x509.load_pem_x509_certificate(tls_files.cert_file.read_bytes())
    assert ServerCertificate(tls_files).not_after == loaded.not_valid_after_utc.timestamp()


@pytest.mark.parametrize(
    ("field", "content", "message"),
    [
        ("cert_file", None, "tls.certFile: cannot be read: No such file or directory"),
        ("key_file", None, "tls.keyFile: cannot be read: No such file or directory"),
        ("cert_file", "nonsense", "tls.certFile: holds no PEM certificate that can be read"),
        (
            "key_file",
            "nonsense",
            "tls.keyFile: expected an unencrypted private key in PEM, found something else",
        ),
        (
            "client_ca_file",
            "nonsense",
            "tls.clientCAFile: holds no PEM certificate that can be read",
        ),
    ],
)
def test_unusable_file_is_an_error_that_names_it(
    tls_files: ServerTls, tmp_path: Path, field: str, content: str | None, message: str
) -> None:
    path = tmp_path / "changed"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ConfigError) as raised:
        ServerCertificate(with_file(tls_files, field, path))
    assert str(raised.value).startswith(f"{path}: {message}")


@pytest.mark.parametrize(("field", "name"), [("cert_file", "tls.certFile"), ("key_file", "tls.keyFile")])
def test_file_that_is_not_configured_is_an_error(tls_files: ServerTls, field: str, name: str) -> None:
    with pytest.raises(ConfigError) as raised:
        ServerCertificate(with_file(tls_files, field, None))
    assert str(raised.value) == f"GatewayConfiguration: {name}: {NO_CERTIFICATE}"
    assert "--tls-cert and --tls-key" in NO_CERTIFICATE


# -- client certificates --------------------------------------------------------------------------


@pytest.fixture
def mutual(ca: trustme.CA, tls_files: ServerTls, tmp_path: Path) -> ServerTls:
    """Like ``tls_files``, and clients named ``kube-apiserver`` of the same authority are accepted."""
    ca.cert_pem.write_to_path(tmp_path / "ca.crt")
    return dataclasses.replace(
        tls_files, client_ca_file=tmp_path / "ca.crt", client_names=("kube-apiserver",)
    )


async def test_client_certificate_lets_in_by_its_name(
    ca: trustme.CA, mutual: ServerTls, client_tls: ssl.SSLContext
) -> None:
    router = Router(Application(), PATHS, authenticator=ClientAuthenticator(Authentication(), mutual))
    async with listening(router, ServerCertificate(mutual)) as listener:
        for context, answer in (
            (client_with(ca, ca, "kube-apiserver"), ok(b"m:1")),
            (client_with(ca, ca, "someone-else"), UNKNOWN_CLIENT),
            (client_tls, UNKNOWN_CLIENT),
        ):
            async with connected(listener, context) as client:
                for _ in range(2):
                    await client.send(post(b"1"))
                    await client.expect(answer)


async def test_certificate_of_another_authority_does_not_get_past_tls(
    ca: trustme.CA, mutual: ServerTls
) -> None:
    app = Application()
    router = Router(app, PATHS, authenticator=ClientAuthenticator(Authentication(), mutual))
    async with listening(router, ServerCertificate(mutual)) as listener:
        received = b""
        with contextlib.suppress(OSError):  # an alert or a reset, as the loop has it
            async with connected(listener, client_with(ca, trustme.CA(), "kube-apiserver")) as client:
                await client.send(post(b"1"))
                received = await client.rest()
        assert received == b""
        await until(lambda: listener.failed_handshakes == 1)
        assert app.seen == []


CLOSED_UNKNOWN_CLIENT = UNKNOWN_CLIENT.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")


def tick_until_read(listener: Listener) -> None:
    """Read changed files: one check finds the change, and the next that it is complete."""
    for _ in range(2):
        listener.tick()


@pytest.mark.parametrize("new_content", ["another authority", "nothing", "no file"])
async def test_client_of_a_removed_authority_is_refused_on_an_open_connection(
    new_content: str, ca: trustme.CA, mutual: ServerTls, caplog: pytest.LogCaptureFixture
) -> None:
    file = mutual.client_ca_file
    assert file is not None
    other = trustme.CA(key_type=trustme.KeyType.ECDSA)
    app = Application()
    router = Router(app, PATHS, authenticator=ClientAuthenticator(Authentication(), mutual))
    certificate = ServerCertificate(mutual)
    async with serving(router, certificate, client_with(ca, ca, "kube-apiserver")) as (listener, old):
        await old.send(post(b"1"))
        await old.expect(ok(b"m:1"))
        if new_content == "another authority":
            other.cert_pem.write_to_path(file)
        elif new_content == "nothing":
            file.write_text("\n")
        else:
            file.unlink()
        tick_until_read(listener)
        await old.send(post(b"2"))
        assert await old.rest() == CLOSED_UNKNOWN_CLIENT
        assert len(app.seen) == 1
        assert certificate.is_current == (new_content == "another authority")
        assert ("all client certificates are revoked" in caplog.text) != certificate.is_current
        other.cert_pem.write_to_path(file)
        tick_until_read(listener)
        async with connected(listener, client_with(ca, other, "kube-apiserver")) as new:
            await new.send(post(b"3"))
            await new.expect(ok(b"m:3"))
        assert certificate.is_current


@pytest.mark.parametrize("way", ["another is removed", "issued again"])
async def test_client_of_an_authority_that_stays_is_not_refused(
    way: str, ca: trustme.CA, mutual: ServerTls
) -> None:
    file = mutual.client_ca_file
    assert file is not None
    others = [trustme.CA(key_type=trustme.KeyType.ECDSA).cert_pem.bytes() for _ in range(2)]
    file.write_bytes(others[0] + ca.cert_pem.bytes())
    router = Router(Application(), PATHS, authenticator=ClientAuthenticator(Authentication(), mutual))
    known = client_with(ca, ca, "kube-apiserver")
    async with serving(router, ServerCertificate(mutual), known) as (listener, old):
        await old.send(post(b"1"))
        await old.expect(ok(b"m:1"))
        file.write_bytes((ca.cert_pem.bytes() if way == "another is removed" else reissued(ca)) + others[1])
        tick_until_read(listener)
        await old.send(post(b"2"))
        assert await old.rest() == ok(b"m:2", b"Connection: close\r\n")


def reissued(ca: trustme.CA) -> bytes:
    """Return another certificate, PEM, of the same authority with the same key."""
    old = x509.load_pem_x509_certificate(ca.cert_pem.bytes())
    key = serialization.load_pem_private_key(ca.private_key_pem.bytes(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    builder = x509.CertificateBuilder(old.subject, old.subject, key.public_key(), old.serial_number + 1)
    builder = builder.not_valid_before(old.not_valid_before_utc).not_valid_after(old.not_valid_after_utc)
    for extension in old.extensions:
        builder = builder.add_extension(extension.value, extension.critical)
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


@pytest.mark.parametrize("sent", [20, -1], ids=["half a head", "half a body"])
async def test_client_is_refused_when_its_authority_is_removed_while_its_request_comes(
    sent: int, ca: trustme.CA, mutual: ServerTls
) -> None:
    assert mutual.client_ca_file is not None
    app = Application()
    router = Router(app, PATHS, authenticator=ClientAuthenticator(Authentication(), mutual))
    known = client_with(ca, ca, "kube-apiserver")
    async with serving(router, ServerCertificate(mutual), known) as (listener, client):
        request = post(b"12")
        await client.send(request[:sent])
        await until(lambda: any("reading" in repr(each) for each in listener.connections.open))
        trustme.CA().cert_pem.write_to_path(mutual.client_ca_file)
        tick_until_read(listener)
        await client.send(request[sent:])
        assert await client.rest() == CLOSED_UNKNOWN_CLIENT
        assert app.seen == []


async def test_client_that_waits_is_refused_when_its_authority_is_removed_before_its_turn(
    ca: trustme.CA, mutual: ServerTls
) -> None:
    """Of two requests in one write the first is being answered, and the second waits."""
    assert mutual.client_ca_file is not None
    app = Application(holds=True)
    router = Router(app, PATHS, authenticator=ClientAuthenticator(Authentication(), mutual))
    known = client_with(ca, ca, "kube-apiserver")
    async with serving(router, ServerCertificate(mutual), known) as (listener, client):
        await client.send(post(b"1") + post(b"2"))
        await app.arrived.wait()
        trustme.CA().cert_pem.write_to_path(mutual.client_ca_file)
        tick_until_read(listener)
        app.seen[0].respond(200, b"answered")
        answer = ok(b"answered", b"Connection: close\r\n")
        assert await client.rest() == answer
        assert len(app.seen) == 1


# -- the development certificate ------------------------------------------------------------------


async def test_development_certificate_serves_its_names(tmp_path: Path) -> None:
    cert_file, key_file = make_development_certificate(tmp_path / "state" / "tls")
    assert stat.S_IMODE(key_file.stat().st_mode) == 0o600
    context = ssl.create_default_context(cafile=cert_file)
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    router = Router(Application(), PATHS)
    async with listening(router, ServerCertificate(ServerTls(cert_file, key_file))) as listener:
        for name in ("localhost", "127.0.0.1", "::1", "admission-gateway.admission-gateway.svc"):
            _, writer = await asyncio.open_connection(
                "127.0.0.1", listener.port, ssl=context, server_hostname=name
            )
            writer.close()
            await writer.wait_closed()


def test_development_certificate_is_kept_while_it_is_usable(tmp_path: Path) -> None:
    cert_file, key_file = make_development_certificate(tmp_path)
    first = cert_file.read_bytes()
    make_development_certificate(tmp_path)
    assert cert_file.read_bytes() == first
    key_file.write_bytes(b"damaged")
    make_development_certificate(tmp_path)
    assert cert_file.read_bytes() != first
    ServerCertificate(ServerTls(cert_file, key_file))
    assert stat.S_IMODE(key_file.stat().st_mode) == 0o600
    assert sorted(path.name for path in tmp_path.iterdir()) == [".lock", "tls.crt", "tls.key"]


def test_concurrent_callers_get_one_development_certificate(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        pairs = set(pool.map(make_development_certificate, [tmp_path] * 8))
    assert len(pairs) == 1
    ServerCertificate(ServerTls(*pairs.pop()))
