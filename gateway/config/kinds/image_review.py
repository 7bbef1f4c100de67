"""``clientConfig.imageReview``: a backend of the API server's ImagePolicyWebhook as a webhook.

Names, units, defaults and limits are those of the section ``imagePolicy`` of the API server's admission
configuration.

Source: k8s.io/kubernetes plugin/pkg/admission/imagepolicy/config.go.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from admission_gateway_worker.text import printable
from gateway.base.errors import ConfigError, Problem
from gateway.base.files import UnusableFileError
from gateway.config.kinds.declare import Boolean, Declared, Integer, Read, Type, declare, optional, required
from gateway.config.kinds.kubeconfig import read_kubeconfig
from gateway.pure.core.webhook import HttpsClient, ImageReviewSettings

if TYPE_CHECKING:
    from gateway.config.kinds.declare import Schema
    from gateway.config.kinds.kubeconfig import Kubeconfig, KubeconfigUser
    from gateway.config.yaml.fields import Fields

DISABLED: Final = -1
_LONGEST_TTL_S: Final = 30 * 60
_LONGEST_BACKOFF_MS: Final = 5 * 60 * 1000


class _Term(Type[int]):
    """A time of at most *most*: 0 is the default, and -1 switches it off, which is 0 here."""

    def __init__(self, unit: str, most: int) -> None:
        self.words = f"integer, {unit}"
        self._number = Integer(DISABLED, most)

    def read(self, source: Fields, name: str, default: int) -> int:
        found = self._number.read(source, name, 0)
        return {DISABLED: 0, 0: default}.get(found, found)

    def schema(self) -> Schema:
        return self._number.schema()


def _read_server(source: Fields, name: str) -> tuple[Path, Kubeconfig] | None:
    """Return the file in the field *name* and its content; None after a problem."""
    text = source.required_string(name)
    path = source.problems.resolve(source.folder.absolute(), text)
    kubeconfig = _read(source, path) if text else None
    return None if kubeconfig is None else (path, kubeconfig)


@dataclass(frozen=True, slots=True)
class ImageReview(Declared):
    """``clientConfig.imageReview`` of a file."""

    server: tuple[Path, Kubeconfig] | None = required(
        Read("path", _read_server),
        "The server and the credentials for it; relative to the folder of the file",
        name="kubeConfigFile",
    )
    allow_ttl_s: int = declare(
        _Term("seconds", _LONGEST_TTL_S),
        "From 1 to 1800: how long an admission holds for the same images. 0: 300. -1: it is not kept",
        default=300,
        name="allowTTL",
        written="0",
    )
    deny_ttl_s: int = declare(
        _Term("seconds", _LONGEST_TTL_S),
        "Likewise for a denial. 0: 30",
        default=30,
        name="denyTTL",
        written="0",
    )
    retry_backoff_ms: int = declare(
        _Term("milliseconds", _LONGEST_BACKOFF_MS),
        "From 1 to 300000: the delay before the first retry; each further one is half as long again. 0: 500. "
        "-1: no delay",
        default=500,
        name="retryBackoff",
        written="0",
    )
    default_allow: bool | None = optional(
        Boolean(), "Whether requests are allowed if the backend fails, instead of `failurePolicy`"
    )

    @property
    def client(self) -> HttpsClient | None:
        """What is called. None after a problem of the file."""
        if self.server is None:
            return None
        path, kubeconfig = self.server
        settings = ImageReviewSettings(
            str(path), self.allow_ttl_s, self.deny_ttl_s, self.retry_backoff_ms / 1000, self.default_allow
        )
        return HttpsClient(kubeconfig.cluster.server, kubeconfig.cluster.ca_pem, image_review=settings)


def user_of(client: HttpsClient) -> KubeconfigUser:
    """Return the credentials for the server of *client*.

    Raises:
        ConfigError: the kubeconfig has become unusable since the configuration was read.
    """
    assert client.image_review is not None, "other clients have users of their own"
    path = client.image_review.kubeconfig
    try:
        return read_kubeconfig(Path(path), None).user
    except UnusableFileError as error:
        problem = Problem("clientConfig.imageReview", "kubeConfigFile", error.about(Path(path)))
        raise ConfigError([problem]) from error


def _read(fields: Fields, path: Path) -> Kubeconfig | None:
    try:
        warn = partial(fields.problems.warn, fields.at("kubeConfigFile"))
        kubeconfig = read_kubeconfig(path, None, warn)
    except UnusableFileError as error:
        fields.problem("kubeConfigFile", error.about(path))
        return None
    cluster = kubeconfig.cluster
    found = {
        "insecure-skip-tls-verify": cluster.is_insecure,
        "tls-server-name": cluster.server_name,
        "proxy-url": cluster.proxy_url,
    }
    for name in (name for name, value in found.items() if value):
        fields.problem(
            "kubeConfigFile", f"{printable(path)} has {name} for the cluster, which is not supported"
        )
    if not cluster.server.startswith("https://"):
        fields.problem(
            "kubeConfigFile", f"{printable(path)} has a server without https, expected an https URL"
        )
    return kubeconfig
