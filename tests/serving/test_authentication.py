"""Authentication of clients."""

from __future__ import annotations

import base64
import hmac
import logging
import os
from typing import TYPE_CHECKING

import pytest

from gateway.base.errors import ConfigError
from gateway.base.file_changes import MAX_UNSTABLE_CHECKS
from gateway.config.kinds.serving_settings import Authentication, ServerTls
from gateway.server.serving.authentication import ClientAuthenticator
from gateway.server.serving.routes import Router
from tests.serving.kit import PATHS, Application, Wire, ok, post, refused

if TYPE_CHECKING:
    from pathlib import Path

REALM = b' realm="admission-gateway"'


@pytest.fixture
def tokens(tmp_path: Path) -> Path:
    path = tmp_path / "tokens"
    path.write_text("# rotated monthly\n\nfirst-token\n  second-token  \n")
    return path


@pytest.fixture
def passwords(tmp_path: Path) -> Path:
    path = tmp_path / "passwords"
    path.write_text("kube-apiserver:s3cret:with colon\nother:x\n")
    return path


def basic(text: str) -> bytes:
    return b"Basic " + base64.b64encode(text.encode())


def asking(authorization: bytes | None, authenticator: ClientAuthenticator) -> bytes:
    app = Application()
    wire = Wire(app, service=Router(app, PATHS, authenticator=authenticator))
    extra = b"" if authorization is None else b"Authorization: %b\r\n" % authorization
    return wire.feed(post(b"1", extra=extra))


def test_without_configuration_all_clients_are_let_in() -> None:
    authenticator = ClientAuthenticator(Authentication(), ServerTls())
    assert not authenticator.is_required
    assert not authenticator.is_trusted_certificate(CERTIFICATE)
    assert asking(None, authenticator) == ok(b"m:1")
    assert asking(b"Bearer whatever", authenticator) == ok(b"m:1")
    assert authenticator.challenge(None) is None


@pytest.mark.parametrize("value", [b"Bearer first-token", b"bearer second-token", b"BEARER  first-token"])
def test_known_token_is_let_in(tokens: Path, value: bytes) -> None:
    assert asking(value, ClientAuthenticator(Authentication(token_file=tokens), ServerTls())) == ok(b"m:1")


@pytest.mark.parametrize(
    "value",
    [
        None,
        b"",
        b"Bearer",
        b"Bearer ",
        b"Bearer first",
        b"Bearer first-token2",
        b"Bearer # rotated monthly",
        b"first-token",
        b"Basic first-token",
        b"Token first-token",
        b"Bearer first-token, Bearer first-token",
    ],
)
def test_anything_else_is_401(tokens: Path, value: bytes | None) -> None:
    answer = asking(value, ClientAuthenticator(Authentication(token_file=tokens), ServerTls()))
    header = b"WWW-Authenticate: Bearer" + REALM + b"\r\n"
    assert answer == refused(b"401 Unauthorized", "not authenticated, expected a bearer token", header)


def test_credentials_required_by_a_reload_are_required_on_open_connections(tokens: Path) -> None:
    app = Application()
    router = Router(app, PATHS, authenticator=ClientAuthenticator(Authentication(), ServerTls()))
    wire = Wire(app, service=router)
    assert wire.feed(post(b"1")) == ok(b"m:1")
    router.authenticator = ClientAuthenticator(Authentication(tokens), ServerTls())
    wire.transport.written = b""
    assert wire.feed(post(b"2")).startswith(b"HTTP/1.1 401 ")


def test_missing_credentials_are_refused_before_anything_else(tokens: Path) -> None:
    app = Application()
    wire = Wire(
        app,
        service=Router(app, PATHS, authenticator=ClientAuthenticator(Authentication(tokens), ServerTls())),
    )
    assert wire.feed(b"GET /nowhere HTTP/1.1\r\nHost: a\r\n\r\n").startswith(b"HTTP/1.1 401 ")


def test_user_with_password_is_let_in(passwords: Path) -> None:
    authenticator = ClientAuthenticator(Authentication(basic_auth_file=passwords), ServerTls())
    assert asking(basic("kube-apiserver:s3cret:with colon"), authenticator) == ok(b"m:1")
    for wrong in (basic("kube-apiserver:s3cret"), basic("other"), basic(""), b"Basic !!", b"Bearer other:x"):
        answer = asking(wrong, authenticator)
        assert answer.startswith(b"HTTP/1.1 401 Unauthorized\r\n")
        assert b"WWW-Authenticate: Basic" + REALM + b"\r\n" in answer


def test_any_of_the_configured_ways_is_enough(tokens: Path, passwords: Path) -> None:
    authenticator = ClientAuthenticator(Authentication(tokens, passwords), ServerTls(client_ca_file=tokens))
    assert asking(b"Bearer first-token", authenticator) == ok(b"m:1")
    assert asking(basic("other:x"), authenticator) == ok(b"m:1")
    assert asking(None, authenticator) == refused(
        b"401 Unauthorized",
        "not authenticated, expected a bearer token or a user name with password"
        " or a client certificate with an allowed name",
        b"WWW-Authenticate: Bearer%b, Basic%b\r\n" % (REALM, REALM),
    )


@pytest.mark.parametrize("name", ["tokens", "passwords"])
def test_every_credential_is_compared_with_all_known_ones(
    name: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """hmac.compare_digest is called equally often for the first, the last and an unknown credential."""
    path: Path = request.getfixturevalue(name)
    by_token = name == "tokens"
    authentication = Authentication(path) if by_token else Authentication(basic_auth_file=path)
    authenticator = ClientAuthenticator(authentication, ServerTls())
    first, last = (
        ("first-token", "second-token") if by_token else ("kube-apiserver:s3cret:with colon", "other:x")
    )
    compared: list[tuple[int, int]] = []

    def compare_digest(one: bytes, other: bytes) -> bool:
        compared.append((len(one), len(other)))
        return one == other

    monkeypatch.setattr(hmac, "compare_digest", compare_digest)
    for credential, is_known in (
        (first, True),
        (last, True),
        (first[:-1], False),
        ("", False),
        ("x" * 999, False),
    ):
        compared.clear()
        value = b"Bearer " + credential.encode() if by_token else basic(credential)
        assert (authenticator.challenge(value) is None) is is_known
        assert compared == [(32, 32)] * 2, credential


CERTIFICATE = {
    "subject": ((("organizationName", "system"),), (("commonName", "kube-apiserver"),)),
    "subjectAltName": (("DNS", "api.internal"), ("IP Address", "10.0.0.1")),
}


@pytest.mark.parametrize(
    ("names", "certificate", "recognised"),
    [
        ((), CERTIFICATE, True),
        (("kube-apiserver",), CERTIFICATE, True),
        (("x", "api.internal"), CERTIFICATE, True),
        (("10.0.0.1",), CERTIFICATE, False),
        (("system",), CERTIFICATE, False),
        (("x",), CERTIFICATE, False),
        ((), None, False),
        ((), {}, False),
    ],
)
def test_certificate_is_checked_by_its_names(
    names: tuple[str, ...],
    certificate: dict[str, object] | None,
    recognised: bool,
    tmp_path: Path,
) -> None:
    authenticator = ClientAuthenticator(
        Authentication(), ServerTls(client_ca_file=tmp_path, client_names=names)
    )
    assert authenticator.is_trusted_certificate(certificate) is recognised


def test_certificate_does_not_count_if_only_tokens_are_configured(tokens: Path) -> None:
    assert not ClientAuthenticator(Authentication(token_file=tokens), ServerTls()).is_trusted_certificate(
        CERTIFICATE
    )


def test_changed_file_is_read_again(tokens: Path) -> None:
    authenticator = ClientAuthenticator(Authentication(token_file=tokens), ServerTls())
    assert not authenticator.refresh()
    tokens.write_text("third\n")
    assert [authenticator.refresh() for _ in range(3)] == [False, True, False]
    assert asking(b"Bearer third", authenticator) == ok(b"m:1")
    assert asking(b"Bearer first-token", authenticator).startswith(b"HTTP/1.1 401 ")


def test_changed_file_of_the_same_size_is_read_again(tokens: Path) -> None:
    tokens.write_text("aaaa\n")
    authenticator = ClientAuthenticator(Authentication(token_file=tokens), ServerTls())
    changed_ns = tokens.stat().st_mtime_ns + 1
    tokens.write_text("bbbb\n")
    os.utime(tokens, ns=(changed_ns, changed_ns))
    assert [authenticator.refresh() for _ in range(3)] == [False, True, False]
    assert asking(b"Bearer bbbb", authenticator) == ok(b"m:1")


@pytest.mark.parametrize("content", ["two words\n", "second-token\ntwo words\n"])
def test_malformed_file_changes_nothing_and_is_logged_once(
    tokens: Path, content: str, caplog: pytest.LogCaptureFixture
) -> None:
    authenticator = ClientAuthenticator(Authentication(token_file=tokens), ServerTls())
    tokens.write_text(content)
    with caplog.at_level(logging.INFO):
        assert not any(authenticator.refresh() for _ in range(20))
    assert len(caplog.records) == 1
    assert not authenticator.is_current
    assert str(tokens) in caplog.text
    assert asking(b"Bearer first-token", authenticator) == ok(b"m:1")


@pytest.mark.parametrize("content", [None, "", "\n \n", "# none\n"])
@pytest.mark.parametrize("scheme", ["tokens", "passwords"])
def test_file_without_a_credential_revokes_all_that_it_held(
    scheme: str, content: str | None, request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture
) -> None:
    path: Path = request.getfixturevalue(scheme)
    is_token = scheme == "tokens"
    authentication = Authentication(path) if is_token else Authentication(basic_auth_file=path)
    shown = b"Bearer first-token" if is_token else basic("other:x")
    authenticator = ClientAuthenticator(authentication, ServerTls())
    before = path.read_text()
    if content is None:
        path.unlink()
    else:
        path.write_text(content)
    with caplog.at_level(logging.WARNING):
        assert [authenticator.refresh() for _ in range(5)] == [False, True, False, False, False]
    assert f"all credentials of a file are revoked: {path}: authentication." in caplog.messages[0]
    assert len(caplog.messages) == 1
    were_current = [authenticator.is_current]
    assert asking(shown, authenticator).startswith(b"HTTP/1.1 401 ")
    assert asking(None, authenticator).startswith(b"HTTP/1.1 401 ")
    path.write_text(before)
    assert [authenticator.refresh() for _ in range(3)] == [False, True, False]
    assert [*were_current, authenticator.is_current] == [False, True]
    assert asking(shown, authenticator) == ok(b"m:1")


def test_one_file_that_is_revoked_leaves_the_other_way(tokens: Path, passwords: Path) -> None:
    authenticator = ClientAuthenticator(Authentication(tokens, passwords), ServerTls())
    tokens.unlink()
    assert [authenticator.refresh() for _ in range(2)] == [False, True]
    assert asking(b"Bearer first-token", authenticator).startswith(b"HTTP/1.1 401 ")
    assert asking(basic("other:x"), authenticator) == ok(b"m:1")


def test_file_that_goes_on_changing_revokes_nothing(tokens: Path) -> None:
    """Such files are eventually read, perhaps just after a truncation or during a replacement."""
    authenticator = ClientAuthenticator(Authentication(token_file=tokens), ServerTls())
    for number in range(3 * MAX_UNSTABLE_CHECKS):
        if number % 2:
            tokens.unlink()
        else:
            tokens.write_text("\n" * number)
        assert not authenticator.refresh()
        assert asking(b"Bearer first-token", authenticator) == ok(b"m:1")
    tokens.write_text("first-token\nthird\n")
    assert any(authenticator.refresh() for _ in range(2))
    assert asking(b"Bearer third", authenticator) == ok(b"m:1")


def test_files_that_are_swapped_as_a_kubelet_does_revoke_nothing(tmp_path: Path) -> None:
    """The kubelet makes a new folder and renames a link to it (pkg/volume/util/atomic_writer.go)."""

    def publish(number: int) -> None:
        (tmp_path / f"..{number}").mkdir()
        (tmp_path / f"..{number}" / "tokens").write_text(f"token-{number}\nkept\n")
        (tmp_path / "..data_tmp").symlink_to(f"..{number}")
        (tmp_path / "..data_tmp").rename(tmp_path / "..data")

    publish(0)
    (tmp_path / "tokens").symlink_to("..data/tokens")
    authenticator = ClientAuthenticator(Authentication(token_file=tmp_path / "tokens"), ServerTls())
    for number in range(1, 5):
        publish(number)
        assert [authenticator.refresh() for _ in range(3)] == [False, True, False]
        assert asking(b"Bearer kept", authenticator) == ok(b"m:1")
        assert asking(b"Bearer token-%d" % number, authenticator) == ok(b"m:1")
        assert asking(b"Bearer token-%d" % (number - 1), authenticator).startswith(b"HTTP/1.1 401 ")


def test_credential_that_is_revoked_while_a_body_comes_is_refused(tokens: Path) -> None:
    app = Application()
    authenticator = ClientAuthenticator(Authentication(token_file=tokens), ServerTls())
    wire = Wire(app, service=Router(app, PATHS, authenticator=authenticator))
    request = post(b"12", extra=b"Authorization: Bearer first-token\r\n")
    assert wire.feed(request[:-1]) == b""
    tokens.write_text("second-token\n")
    assert [authenticator.refresh() for _ in range(2)] == [False, True]
    wire.connections.check_clients()
    assert wire.feed(request[-1:]).startswith(b"HTTP/1.1 401 ")
    assert app.seen == []


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "authentication.basicAuthFile: holds no credential"),
        ("a:b\nnobody\n", "authentication.basicAuthFile: line 2 is not USER:PASSWORD"),
        (":b\n", "authentication.basicAuthFile: line 1 is not USER:PASSWORD"),
    ],
)
def test_unusable_file_is_an_error_that_does_not_show_secrets(
    passwords: Path, content: str, message: str
) -> None:
    passwords.write_text(content)
    with pytest.raises(ConfigError) as raised:
        ClientAuthenticator(Authentication(basic_auth_file=passwords), ServerTls())
    assert str(raised.value) == f"{passwords}: {message}"


def test_missing_file_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as raised:
        ClientAuthenticator(Authentication(token_file=tmp_path / "none"), ServerTls())
    assert (
        str(raised.value)
        == f"{tmp_path / 'none'}: authentication.tokenFile: cannot be read: No such file or directory"
    )
