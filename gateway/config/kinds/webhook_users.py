"""The users that the gateway presents itself as to HTTPS webhooks: those of a kubeconfig, by host.

The kubeconfig is the one that the API server's own admission configuration names in ``kubeConfigFile``, so
that an existing file can be used. Clusters in it are ignored. All users are checked when the file is loaded;
the API server finds an error in one when it makes a call.

Source: kubernetes/apiserver pkg/util/webhook/authentication.go.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from gateway.base.files import UnusableFileError
from gateway.config.kinds.kubeconfig import KubeconfigReader, KubeconfigUser, read_document
from gateway.config.yaml.fields import Fields

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from gateway.pure.core.webhook import HttpsClient


@dataclass(frozen=True, slots=True)
class WebhookUsers:
    """The users of one kubeconfig."""

    files: tuple[Path, ...] = ()
    """The kubeconfig, and the files with certificates and keys that it names."""
    by_name: Mapping[str, KubeconfigUser] = field(default_factory=dict)
    current: str | None = None
    """The user of the ``current-context``, for hosts without a user of their own."""

    def find(self, client: HttpsClient) -> KubeconfigUser | None:
        """Return the user for the server of *client*, or None if calls have no credentials.

        Users for any server do not apply to a server that a custom resource names: its author could capture
        these credentials.
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
    """Return *target* itself, and a wildcard for each of its parent domains, the longest first."""
    parts = target.split(".")
    return [target, *(f"*.{'.'.join(parts[index:])}" for index in range(1, len(parts)))]


def read_webhook_users(fields: Fields, name: str) -> WebhookUsers | None:
    """Return the users in the kubeconfig at the path in the field *name*, if any."""
    text = fields.string(name, None)
    if text is None:
        return None
    if not text:
        fields.problem(name, "is empty, expected the path of a kubeconfig")
        return None
    path = fields.problems.resolve(fields.folder, text)
    try:
        document = read_document(path)
    except UnusableFileError as error:
        fields.problem(name, error.about(path))
        return None
    problems = document.problems
    users = _read(path, Fields(document.content, "", problems))
    fields.problems.named_files.update(problems.named_files)
    for one in problems.errors():
        fields.problem(name, str(one))
    for one in problems.warnings():
        fields.problems.warn(fields.at(name), str(one))
    return users


def _read(path: Path, document: Fields) -> WebhookUsers:
    """Return the users in *document*; of several with one name the first."""
    reader = KubeconfigReader(path)
    users: dict[str, KubeconfigUser] = {}
    for entry in document.mappings("users"):
        name, user = entry.required_string("name"), entry.mapping("user")
        users.setdefault(name, KubeconfigUser() if user is None else reader.user(user))
    wanted = document.optional_string("current-context")
    current = None
    for entry in document.mappings("contexts") if wanted else ():
        context = entry.mapping("context")
        if entry.optional_string("name") == wanted and context is not None:
            current = context.optional_string("user") or None
    return WebhookUsers(tuple(reader.files), users, current)
