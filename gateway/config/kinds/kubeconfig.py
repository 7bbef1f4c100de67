"""Kubeconfigs: the cluster and the user of a context.

:func:`read_kubeconfig` also reads the files that the chosen cluster and user name. Other entries of the file
are not checked.

Source: k8s.io/client-go tools/clientcmd/api/v1/types.go; tools/clientcmd/client_config.go (relative paths);
transport/round_trippers.go (impersonation); pkg/apis/clientauthentication/v1 (exec).
"""

from __future__ import annotations

import base64
import binascii
import re
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from admission_gateway_worker.text import printable
from gateway.base.certificates import (
    certificate_parts,
    chain_problem,
    parts_in,
    public_key,
    roots_among,
    roots_problem,
)
from gateway.base.credentials import NoCredentialError
from gateway.base.files import UnusableFileError, read_file
from gateway.base.text import described, did_you_mean, one_of, shown, url_without_secrets
from gateway.config.yaml.fields import Fields, Problems
from gateway.config.yaml.parsing import parse_yaml, problems_in
from gateway.config.yaml.source import Source

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from gateway.base.certificates import CertificateParts

    Entry = Mapping[str, object]

_NOT_IN_HEADER: Final = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")
_TOKEN_CHARS: Final = "!#$&'*+^|~"
"""Characters of a header's name that are not quoted, beside letters, digits and those never quoted."""
_EXEC_GROUP: Final = "client.authentication.k8s.io/"
_EXEC_VERSIONS: Final = (f"{_EXEC_GROUP}v1", f"{_EXEC_GROUP}v1beta1")


@dataclass(frozen=True, slots=True)
class ExecPlugin:
    """A program that makes credentials (``exec``)."""

    command: str
    arguments: tuple[str, ...] = ()
    variables: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """Added to the gateway's own environment."""
    api_version: str = _EXEC_VERSIONS[0]


@dataclass(frozen=True, slots=True)
class KubeconfigUser:
    """One user. Its secrets are excluded from repr."""

    token: str = field(default="", repr=False)
    token_file: Path | None = None
    """Takes precedence over ``token``, and is read again from time to time."""
    basic: tuple[str, str] | None = field(default=None, repr=False)
    """User and password."""
    certificate_pem: bytes = field(default=b"", repr=False)
    key_pem: bytes = field(default=b"", repr=False)
    plugin: ExecPlugin | None = None
    impersonation: tuple[tuple[str, str], ...] = ()
    """Names and values of headers."""


@dataclass(frozen=True, slots=True)
class KubeconfigCluster:
    """One API server."""

    server: str
    ca_pem: bytes = b""
    """By default the system's roots."""
    is_insecure: bool = False
    """Whether the server's certificate is not verified; only without ``ca_pem``."""
    server_name: str = ""
    """The name that the certificate has to hold, if not that of ``server``."""
    proxy_url: str = ""


@dataclass(frozen=True, slots=True)
class KubeconfigDocument:
    """The content of a kubeconfig, of which nothing is checked."""

    content: Entry
    problems: Problems
    """Know where its fields are."""

    def refused(self, path: str, message: str) -> UnusableFileError:
        """Return the error that says *message* about the field at *path*."""
        found = self.problems.problem(path, message)
        return UnusableFileError(message, (found.line, found.column))


@dataclass(frozen=True, slots=True)
class Kubeconfig:
    """One context of a kubeconfig."""

    cluster: KubeconfigCluster
    user: KubeconfigUser


def read_kubeconfig(
    path: Path, context: str | None, warn: Callable[[str], None] = lambda _: None
) -> Kubeconfig:
    """Return the cluster and the user of *context*, or of ``current-context``, in the kubeconfig at *path*.

    *warn* is called with a line for each certificate that is not valid now.

    Raises:
        UnusableFileError: the file, or a file that it names, cannot be used, or there is no such context.
    """
    document = read_document(path)
    cluster, user = choose(document, context)
    reader = KubeconfigReader(path)
    found = Kubeconfig(reader.cluster(cluster), reader.user(user))
    for field_path, message in document.problems.found:
        raise document.refused(field_path, f"{field_path}: {message}")
    for warning in document.problems.warnings():
        warn(str(warning))
    return found


def read_document(path: Path) -> KubeconfigDocument:
    """Return the content of the kubeconfig at *path*.

    Raises:
        UnusableFileError: it cannot be read, or is not a kubeconfig.
    """
    try:
        text = read_file(path).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UnusableFileError("is not UTF-8 text") from None
    documents = list(parse_yaml(text))
    for line, column, reason in problems_in(documents):
        raise UnusableFileError(f"cannot be read as a kubeconfig: {reason}", (line, column))
    if len(documents) != 1:
        raise UnusableFileError(f"holds {len(documents)} documents, expected one kubeconfig")
    root = documents[0].root
    if not isinstance(root, dict):
        # The content is not shown: the file may hold a token.
        raise UnusableFileError("holds no mapping, expected a kubeconfig")
    if root.get("kind", "Config") != "Config":
        raise UnusableFileError(f"holds the kind {shown(root['kind'])}, expected a kubeconfig of kind Config")
    return KubeconfigDocument(root, Problems(str(path), source=Source(path, text), number=1))


def choose(document: KubeconfigDocument, context: str | None) -> tuple[Fields, Fields]:
    """Return the cluster and the user of *context*, or of ``current-context``. Both are not checked.

    Raises:
        UnusableFileError: there is no such context, cluster or user.
    """
    name, chosen = _context(document, context)
    cluster = _entry(document, "cluster", *_reference(document, chosen, "cluster", name))
    server = cluster.content.get("server")
    if not isinstance(server, str) or not server.startswith(("https://", "http://")):
        found = shown(url_without_secrets(server) if isinstance(server, str) else server)
        raise document.refused(
            cluster.at("server"),
            f"found the server {found} for the cluster of context {shown(name)}, expected an https URL",
        )
    if not chosen.content.get("user"):
        return cluster, Fields({}, "", document.problems)
    return cluster, _entry(document, "user", *_reference(document, chosen, "user", name))


def namespace_of(document: KubeconfigDocument, context: str | None) -> str:
    """Return the namespace of *context*, or of ``current-context``; empty if it has none.

    Raises:
        UnusableFileError: there is no such context.
    """
    found = _context(document, context)[1].content.get("namespace")
    return found if isinstance(found, str) else ""


def _context(document: KubeconfigDocument, context: str | None) -> tuple[str, Fields]:
    """Return the name and the entry of *context*, or of ``current-context``."""
    if context is not None:
        return context, _entry(document, "context", context, "contexts")
    name = document.content.get("current-context")
    if not isinstance(name, str) or not name:
        raise document.refused(
            "current-context", "found no current-context, expected one, or a context named beside kubeconfig"
        )
    return name, _entry(document, "context", name, "current-context")


def _reference(document: KubeconfigDocument, context: Fields, kind: str, name: str) -> tuple[str, str]:
    """Return the name of the *kind* that the context *name* has, and the path of that field."""
    value = context.content.get(kind)
    if not isinstance(value, str):
        raise document.refused(context.at(kind), f"found no {kind} in context {shown(name)}, expected one")
    return value, context.at(kind)


def _entry(document: KubeconfigDocument, kind: str, name: str, named_at: str) -> Fields:
    """Return the member *kind* of the entry *name* in the list *kind*``s``.

    *named_at* is the path of the field that has the name, for the error that there is no such entry.
    """
    listed = document.content.get(f"{kind}s")
    known: list[str] = []
    for index, item in enumerate(listed) if isinstance(listed, list) else ():
        if not isinstance(item, dict) or not isinstance(item.get("name"), str):
            continue
        if item["name"] != name:
            known.append(item["name"])
            continue
        path, entry = f"{kind}s[{index}].{kind}", {} if item.get(kind) is None else item[kind]
        if isinstance(entry, dict):
            return Fields(entry, path, document.problems)
        text = f"found {described(entry)} for the {kind} {shown(name)}, expected a mapping"
        raise document.refused(path, text)
    expected = f"; expected {one_of(map(shown, known))}{did_you_mean(name, known)}" if known else ""
    raise document.refused(named_at, f"there is no {kind} {shown(name)}{expected}")


class KubeconfigReader:
    """Reads entries of the kubeconfig at *path*. ``files`` are those read so far, except for token files."""

    def __init__(self, path: Path) -> None:
        self._folder = path.parent
        self.files = [path]

    def cluster(self, fields: Fields) -> KubeconfigCluster:
        """Return the cluster with these *fields*."""
        bundles: list[bytes] = []
        self._pem(fields, "certificate-authority", lambda pem: bundles.append(roots_among(pem)[0]))
        ca_pem = b"".join(bundles)
        if message := roots_problem(parts_in(ca_pem) if ca_pem else (), time.time()):
            fields.problems.warn(_given(fields, "certificate-authority"), message)
        return KubeconfigCluster(
            fields.required_string("server"),
            ca_pem,
            not ca_pem and fields.boolean("insecure-skip-tls-verify"),
            fields.optional_string("tls-server-name"),
            fields.optional_string("proxy-url"),
        )

    def user(self, fields: Fields) -> KubeconfigUser:
        """Return the user with these *fields*."""
        if (provider := fields.mapping("auth-provider")) is not None:
            name = shown(provider.optional_string("name"))
            fields.problem("auth-provider", f"found {name}, but auth providers are not supported")
        token, token_file = fields.optional_string("token", _header_value), self._token_file(fields)
        username, password = fields.optional_string("username"), fields.optional_string("password")
        if username and (token or token_file):
            fields.problem("username", "must be left out with a token: a request has only one of them")
        if ":" in username:
            fields.problem("username", "has a colon, which basic authentication does not allow")
        certificate_pem, key_pem = self._key_pair(fields)
        return KubeconfigUser(
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
        path = fields.problems.resolve(self._folder, text)
        try:
            read_token(path)
        except UnusableFileError as error:
            fields.problem("tokenFile", f"{printable(path)} {error}")
        return path

    def _key_pair(self, fields: Fields) -> tuple[bytes, bytes]:
        keys: list[bytes] = []
        chain: list[CertificateParts] = []
        certificate = self._pem(
            fields, "client-certificate", lambda pem: chain.extend(certificate_parts(pem))
        )
        # The first is the client's; the others are intermediates (RFC 8446 section 4.4.2).
        keys += [one.public_key for one in chain[:1]]
        if message := chain_problem(chain, time.time()):
            fields.problems.warn(_given(fields, "client-certificate"), message)
        key = self._pem(fields, "client-key", lambda pem: keys.append(public_key(pem)))
        if bool(certificate) != bool(key):
            absent = "client-key" if certificate else "client-certificate"
            if not fields.has(absent) and not fields.has(f"{absent}-data"):
                fields.problem(absent, "is required: its counterpart is set")
        elif len(keys) == 2 and keys[0] != keys[1]:
            fields.problem("client-key", "is not the key of client-certificate")
        return certificate, key

    def _pem(self, fields: Fields, name: str, check: Callable[[bytes], object]) -> bytes:
        """Return the content of the member *name*``-data``, or of the file at *name*."""
        text, file = fields.optional_string(f"{name}-data"), fields.optional_string(name)
        try:
            if text:
                pem = base64.b64decode(text, validate=True)
            elif file:
                path = fields.problems.resolve(self._folder, file)
                self.files.append(path)
                pem = read_file(path)
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

    def _plugin(self, fields: Fields | None) -> ExecPlugin | None:
        if fields is None:
            return None
        command = fields.required_string("command")
        if "/" in command:
            command = str(fields.problems.resolve(self._folder, command))
        variables = tuple(
            (entry.required_string("name"), entry.optional_string("value"))
            for entry in fields.mappings("env")
        )
        if fields.optional_string("interactiveMode") == "Always":
            fields.problem("interactiveMode", "found Always, but the gateway has no terminal")
        return ExecPlugin(
            command, fields.strings("args"), variables, fields.choice("apiVersion", _EXEC_VERSIONS)
        )


def _given(fields: Fields, name: str) -> str:
    """Return the path of the member *name*``-data`` if it is given, else that of *name*."""
    return fields.at(f"{name}-data" if fields.optional_string(f"{name}-data") else name)


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
    return "has characters that a header must not have" if _NOT_IN_HEADER.search(text) else None
