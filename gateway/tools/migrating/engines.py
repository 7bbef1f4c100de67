"""The engines that ``migrate`` moves from: which webhooks are theirs, and what takes their place.

Source: github.com/open-policy-agent/gatekeeper/v3 manifest_staging/deploy/gatekeeper.yaml;
github.com/kyverno/kyverno pkg/config/config.go, pkg/webhooks/server.go (cleanup);
github.com/kubewarden/kubewarden-controller internal/constants.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from gateway.tools.importing.objects import name_of, texts

if TYPE_CHECKING:
    from collections.abc import Mapping

    Json = dict[str, Any]

VALIDATION: Final = "validation"
MUTATION: Final = "mutation"
"""Policies of a worker that answer as the whole engine."""


@dataclass(frozen=True, slots=True)
class Engine:
    """One engine."""

    name: str
    title: str
    """As in ``policies.customResourcesOf``."""
    is_one_webhook: bool = False
    """Whether it registers all policies of a phase in one webhook."""
    controller: str = ""
    """The Deployment that makes its webhooks again when they are deleted. Empty if nothing does.

    Kyverno's deletes all of them when it is scaled to zero.
    """


ENGINES: Final[Mapping[str, Engine]] = {
    one.name: one
    for one in (
        Engine("gatekeeper", "Gatekeeper", is_one_webhook=True),
        Engine("kyverno", "Kyverno", controller="kyverno-admission-controller"),
        Engine("kubewarden", "Kubewarden", controller="kubewarden-controller"),
    )
}
"""By name."""

_GATEKEEPER_LABEL: Final = "gatekeeper.sh/system"
_GATEKEEPER_PATHS: Final = {"/v1/admit": VALIDATION, "/v1/mutate": MUTATION}
_KYVERNO_NAMES: Final = {
    "kyverno-resource-validating-webhook-cfg": VALIDATION,
    "kyverno-resource-mutating-webhook-cfg": MUTATION,
}
_KYVERNO_LABEL: Final = "webhook.kyverno.io/managed-by"
_KUBEWARDEN_NAME: Final = "kubewardenPolicyName"
_KUBEWARDEN_NAMESPACE: Final = "kubewardenPolicyNamespace"
_KUBEWARDEN_PREFIXES: Final = ("clusterwide-", "namespaced-")


def engine_of(document: Json) -> str:
    """Return the name of the engine that the webhook configuration *document* is of; empty if of none."""
    name, labels = name_of(document), texts(document, "labels")
    if _GATEKEEPER_LABEL in labels or name in (
        "gatekeeper-validating-webhook-configuration",
        "gatekeeper-mutating-webhook-configuration",
    ):
        return "gatekeeper"
    if _KYVERNO_LABEL in labels or name in _KYVERNO_NAMES:
        return "kyverno"
    is_kubewarden = _KUBEWARDEN_NAME in texts(document, "annotations") or "kubewarden" in labels
    return "kubewarden" if is_kubewarden else ""


def policy_of(engine: str, document: Json, entry: object) -> str:
    """Return the policy of the worker of *engine* that answers as the *entry* of its webhooks *document*.

    Empty: the entry checks objects of the engine itself, and nothing takes its place.
    """
    path = _path(entry)
    if engine == "gatekeeper":
        return _GATEKEEPER_PATHS.get(path, "")
    if engine == "kyverno":
        return _KYVERNO_NAMES.get(name_of(document), "")
    annotations = texts(document, "annotations")
    name, namespace = annotations.get(_KUBEWARDEN_NAME), annotations.get(_KUBEWARDEN_NAMESPACE)
    if isinstance(name, str) and name:
        return f"{namespace}/{name}" if namespace else name
    # The controller's own webhooks, for its policies, have neither.
    if not name_of(document).startswith(_KUBEWARDEN_PREFIXES):
        return ""
    return name_of(document).removeprefix(_KUBEWARDEN_PREFIXES[0])


def _path(entry: object) -> str:
    match entry:
        case {"clientConfig": {"service": {"path": str(path)}}}:
            return path
        case {"clientConfig": {"url": str(url)}}:
            rest = url.partition("://")[2]
            return f"/{rest.partition('/')[2]}".partition("?")[0]
    return ""
