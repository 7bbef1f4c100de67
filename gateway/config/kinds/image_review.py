"""``clientConfig.imageReview``: a backend of the API server's ImagePolicyWebhook as a webhook.

Names, units, defaults and limits are those of the section ``imagePolicy`` of the API server's admission
configuration.

Source: k8s.io/kubernetes plugin/pkg/admission/imagepolicy/config.go.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from admission_gateway_worker.text import printable
from gateway.base.errors import ConfigError, Problem
from gateway.base.files import UnusableFileError
from gateway.config.kinds.kubeconfig import read_kubeconfig
from gateway.pure.core.webhook import HttpsClient, ImageReviewSettings

if TYPE_CHECKING:
    from gateway.config.kinds.kubeconfig import Kubeconfig, KubeconfigUser
    from gateway.config.yaml.fields import Fields

DISABLED: Final = -1
DEFAULT_ALLOW_TTL_S: Final = 300
DEFAULT_DENY_TTL_S: Final = 30
DEFAULT_BACKOFF_MS: Final = 500
LONGEST_TTL_S: Final = 30 * 60
LONGEST_BACKOFF_MS: Final = 5 * 60 * 1000


def read_image_review(client_config: Fields) -> HttpsClient | None:
    """Return the client in ``imageReview`` of a file; None if it is invalid."""
    folder, fields = client_config.problems.folder, client_config.mapping("imageReview")
    if fields is None or folder is None:
        return None
    file = fields.required_string("kubeConfigFile")
    allow_ttl_s = _number(fields, "allowTTL", DEFAULT_ALLOW_TTL_S, LONGEST_TTL_S)
    deny_ttl_s = _number(fields, "denyTTL", DEFAULT_DENY_TTL_S, LONGEST_TTL_S)
    backoff_ms = _number(fields, "retryBackoff", DEFAULT_BACKOFF_MS, LONGEST_BACKOFF_MS)
    default_allow = fields.boolean("defaultAllow") if fields.has("defaultAllow") else None
    fields.finish()
    path = fields.problems.resolve(folder.absolute(), file)
    kubeconfig = _read(fields, path) if file else None
    if kubeconfig is None:
        return None
    settings = ImageReviewSettings(str(path), allow_ttl_s, deny_ttl_s, backoff_ms / 1000, default_allow)
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
        problem = Problem("clientConfig.imageReview", "kubeConfigFile", f"{printable(path)} {error}")
        raise ConfigError([problem]) from error


def _number(fields: Fields, name: str, default: int, most: int) -> int:
    """Return a number as the API server reads it: 0 is the default, and -1 switches it off, which is 0."""
    found = fields.integer(name, 0, DISABLED, most)
    return {DISABLED: 0, 0: default}.get(found, found)


def _read(fields: Fields, path: Path) -> Kubeconfig | None:
    try:
        warn = partial(fields.problems.warn, fields.at("kubeConfigFile"))
        kubeconfig = read_kubeconfig(path, None, warn)
    except UnusableFileError as error:
        fields.problem("kubeConfigFile", f"{printable(path)} {error}")
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
