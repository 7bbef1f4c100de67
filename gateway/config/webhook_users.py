"""Who the gateway is to HTTPS webhooks: the users of a kubeconfig, by the hosts that they are for.

It is the file that the API server's own admission configuration names in ``kubeConfigFile``, so that one
that is there can be taken over. Only its users count. All of them are looked at when it is loaded; the API
server finds out when it makes a call.

Source: kubernetes/apiserver pkg/util/webhook/authentication.go (which user, and what of it);
k8s.io/client-go tools/clientcmd/api/v1/types.go; transport/round_trippers.go (impersonation).
"""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, urlsplit

from gateway.config.credentials import NoCredentialError, certificate_key, public_key
from gateway.config.fields import Fields, Report
from gateway.config.files import UnusableFileError, read_file
from gateway.config.kubeconfig import read_document
from gateway.text import printable, shown

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from gateway.core.webhook import HttpsClient

_NOT_IN_HEADER: Final = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")
_TOKEN_CHARS: Final = "!#$&'*+^|~"
"""What may stand in a header's name beside letters, digits and what is never quoted."""
_EXEC_GROUP: Final = "client.authentication.k8s.io/"
_EXEC_VERSIONS: Final = (f"{_EXEC_GROUP}v1", f"{_EXEC_GROUP}v1beta1")


@dataclass(frozen=True, slots=True)
class Plugin:
    """A program that makes credentials (``exec``)."""

    command: str
    arguments: tuple[str, ...] = ()
    variables: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """Added to the gateway's own environment."""
    api_version: str = _EXEC_VERSIONS[0]


@dataclass(frozen=True, slots=True)
class WebhookUser:
    """One user; of what it has nothing is shown."""

    token: str = field(default="", repr=False)
    token_file: Path | None = None
    """Counts more than ``token``, and is read again from time to time."""
    basic: tuple[str, str] | None = field(default=None, repr=False)
    """User and password."""
    certificate_pem: bytes = field(default=b"", repr=False)
    key_pem: bytes = field(default=b"", repr=False)
    plugin: Plugin | None = None
    impersonation: tuple[tuple[str, str], ...] = ()
    """Names and values of headers."""


@dataclass(frozen=True, slots=True)
class WebhookUsers:
    """The users of one kubeconfig."""

    files: tuple[Path, ...] = ()
    """What they were read from, but for tokens: the kubeconfig itself, certificates, keys."""
    by_name: Mapping[str, WebhookUser] = field(default_factory=dict)
    current: str | None = None
    """The user of the ``current-context``, for hosts without one of their own."""

    def find(self, client: HttpsClient) -> WebhookUser | None:
        """Return the user for the server of *client*; None: the gateway does not say who it is.

        Users for any server are not for one that a custom resource names: whoever writes one would have
        their credentials sent to a server of his own.
        """
        parts = urlsplit(client.url)
        host, port = parts.hostname or "", parts.port or 443
        if ":" in host:
            host = f"[{host}]"
        wanted: list[str | None] = [*_patterns(f"{host}:{port}")]
        if port == 443:
            wanted += _patterns(host)
        if not client.is_custom:
            wanted += ["*", self.current]
        for name in wanted:
            if name is not None and name in self.by_name:
                return self.by_name[name]
        return None


def _patterns(target: str) -> list[str]:
    """Return *target* itself, and what stands for all below each of its suffixes, the longest first."""
    parts = target.split(".")
    return [target, *(f"*.{'.'.join(parts[index:])}" for index in range(1, len(parts)))]


def read_webhook_users(fields: Fields, name: str, folder: Path) -> WebhookUsers | None:
    """Return the users in the kubeconfig that the field *name* gives, below *folder*; None where none is."""
    text = fields.string(name, None)
    if text is None:
        return None
    if not text:
        fields.problem(name, "is empty, expected the path of a kubeconfig")
        return None
    path = folder / text
    try:
        document = read_document(path)
    except UnusableFileError as error:
        fields.problem(name, f"{printable(path)} {error}")
        return None
    report = Report("")
    users = _Reader(path).read(Fields(document, "", report))
    for place, message in report.found:
        fields.problem(name, f"{printable(path)}: {place}: {message}")
    return users


class _Reader:
    """Reads one kubeconfig, and notes which other files belong to it."""

    def __init__(self, path: Path) -> None:
        self._folder = path.parent
        self._files = [path]

    def read(self, document: Fields) -> WebhookUsers:
        """Return the users; the first counts of several with one name."""
        users: dict[str, WebhookUser] = {}
        for entry in document.mappings("users"):
            name, user = entry.required_string("name"), entry.mapping("user")
            users.setdefault(name, WebhookUser() if user is None else self._user(user))
        wanted = document.optional_string("current-context")
        current = None
        for entry in document.mappings("contexts") if wanted else ():
            context = entry.mapping("context")
            if entry.optional_string("name") == wanted and context is not None:
                current = context.optional_string("user") or None
        return WebhookUsers(tuple(self._files), users, current)

    def _user(self, fields: Fields) -> WebhookUser:
        if (provider := fields.mapping("auth-provider")) is not None:
            name = shown(provider.optional_string("name"))
            fields.problem("auth-provider", f"found {name}, and no such provider is supported; expected exec")
        token, token_file = fields.optional_string("token", _header_value), self._token_file(fields)
        username, password = fields.optional_string("username"), fields.optional_string("password")
        if username and (token or token_file):
            fields.problem("username", "has to be left out with a token, of which a request has one only")
        if ":" in username:
            fields.problem("username", "has a colon, which no user of basic authentication may have")
        certificate_pem, key_pem = self._key_pair(fields)
        return WebhookUser(
            token,
            token_file,
            (username, password) if username else None,
            certificate_pem,
            key_pem,
            self._plugin(fields.mapping("exec")),
            _impersonation(fields),
        )

    def _token_file(self, fields: Fields) -> Path | None:
        text = fields.optional_string("tokenFile")
        if not text:
            return None
        path = self._folder / text
        try:
            read_token(path)
        except UnusableFileError as error:
            fields.problem("tokenFile", f"{printable(path)} {error}")
        return path

    def _key_pair(self, fields: Fields) -> tuple[bytes, bytes]:
        keys: list[bytes] = []
        certificate = self._pem(fields, "client-certificate", lambda pem: keys.append(certificate_key(pem)))
        key = self._pem(fields, "client-key", lambda pem: keys.append(public_key(pem)))
        if bool(certificate) != bool(key):
            absent = "client-key" if certificate else "client-certificate"
            if not fields.has(absent) and not fields.has(f"{absent}-data"):
                fields.problem(absent, "is required, since its counterpart is there")
        elif len(keys) == 2 and keys[0] != keys[1]:
            fields.problem("client-key", "is not the key of client-certificate")
        return certificate, key

    def _pem(self, fields: Fields, name: str, check: Callable[[bytes], object]) -> bytes:
        """Return what the member *name*``-data`` holds, or the file that *name* gives."""
        text, file = fields.optional_string(f"{name}-data"), fields.optional_string(name)
        try:
            if text:
                pem = base64.b64decode(text, validate=True)
            elif file:
                self._files.append(self._folder / file)
                pem = read_file(self._folder / file)
            else:
                return b""
            check(pem)
        except binascii.Error:
            fields.problem(f"{name}-data", "is not base64")
        except UnusableFileError as error:
            place = "" if text else f"{printable(self._folder / file)} "
            fields.problem(f"{name}-data" if text else name, f"{place}{error}")
        else:
            return pem
        return b""

    def _plugin(self, fields: Fields | None) -> Plugin | None:
        if fields is None:
            return None
        command = fields.required_string("command")
        if "/" in command:
            command = str(self._folder / command)
        variables = tuple(
            (entry.required_string("name"), entry.optional_string("value"))
            for entry in fields.mappings("env")
        )
        if fields.optional_string("interactiveMode") == "Always":
            fields.problem("interactiveMode", "found Always, and nobody is there to answer it")
        return Plugin(command, fields.strings("args"), variables, fields.choice("apiVersion", _EXEC_VERSIONS))


def read_token(path: Path) -> str:
    """Return the token in the file at *path*.

    Raises:
        MissingFileError, NoCredentialError: there is no such file, or it is blank.
        UnusableFileError: the file cannot be used for another reason.
    """
    token = read_file(path).decode("latin-1").strip()
    if not token:
        raise NoCredentialError("holds no token")
    if _header_value(token):
        raise UnusableFileError("holds more than one line, expected a token")
    return token


def _impersonation(fields: Fields) -> tuple[tuple[str, str], ...]:
    headers = []
    for name, header in (("as", "Impersonate-User"), ("as-uid", "Impersonate-Uid")):
        if text := fields.optional_string(name, _header_value):
            headers.append((header, text))
    headers += [("Impersonate-Group", group) for group in fields.strings("as-groups", _header_value)]
    extra = fields.group("as-user-extra")
    for key in extra.content:
        name = f"Impersonate-Extra-{quote(key.lower(), safe=_TOKEN_CHARS)}"
        headers += [(name, value) for value in extra.strings(key, _header_value)]
    if headers and headers[0][0] != "Impersonate-User":
        fields.problem("as", "is required with as-uid, as-groups and as-user-extra")
    return tuple(headers)


def _header_value(text: str) -> str | None:
    return "has characters that no header may have" if _NOT_IN_HEADER.search(text) else None
