"""What the operator has to know of an import: what stays behind, and what comes out otherwise than it was."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any, Final

from gateway.config.fields import printable
from gateway.importing.objects import name_of
from gateway.registration.exclusions import KUBE_SYSTEM, NAMESPACE_LABEL, match_conditions
from gateway.registration.own import entries

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from gateway.core.webhook import Webhook

    Json = dict[str, Any]

_INJECTING: Final = (
    "cert-manager.io/inject-ca-from",
    "cert-manager.io/inject-ca-from-secret",
    "cert-manager.io/inject-apiserver-ca",
    "service.beta.openshift.io/inject-cabundle",
)
"""Annotations by which somebody in the cluster keeps a caBundle up to date."""
_MANAGING: Final = {
    "meta.helm.sh/release-name": "Helm",
    "argocd.argoproj.io/tracking-id": "Argo CD",
    "kustomize.toolkit.fluxcd.io/name": "Flux",
    "olm.owner": "the Operator Lifecycle Manager",
    "addonmanager.kubernetes.io/mode": "the addon manager",
}
"""Labels and annotations of those who put back what is deleted."""
_MANAGED_BY: Final = "app.kubernetes.io/managed-by"
_SHOWN: Final = 5


def title(document: Json) -> str:
    """Return ``KIND/NAME`` of *document*."""
    return f"{document['kind']}/{printable(name_of(document)) or '(no name)'}"


def differences(documents: Sequence[Json], webhooks: Sequence[Webhook]) -> Iterator[str]:
    """Yield what of *documents*, in which the gateway reads *webhooks*, is not carried over as it is."""
    for document in documents:
        annotations = _texts(document, "annotations")
        for name in _INJECTING:
            if name in annotations:
                yield (
                    f"{title(document)}: {name} has its caBundle kept up to date in the cluster, and nobody "
                    "does that for what is written: import again when it is renewed, or put a longer-lived "
                    "CA in"
                )
    yield from _of_backends(documents)
    yield from _of_names(documents)
    yield from _of_registration(webhooks)


def managers(documents: Sequence[Json]) -> Iterator[str]:
    """Yield by whom those of *documents* are kept that would come back once they are deleted."""
    for document in documents:
        marks = {**_texts(document, "labels"), **_texts(document, "annotations")}
        found = [who for mark, who in _MANAGING.items() if mark in marks]
        if not found and marks.get(_MANAGED_BY):
            found.append(printable(marks[_MANAGED_BY]))
        metadata = document.get("metadata")
        owners = metadata.get("ownerReferences") if isinstance(metadata, dict) else None
        for owner in owners if isinstance(owners, list) else ():
            if isinstance(owner, dict):
                found.append(f"{printable(owner.get('kind'))}/{printable(owner.get('name'))}")
        if found:
            yield f"{title(document)}: is kept by {', '.join(found)}: turn it off there, or it comes back"


def left_with(others: Sequence[Json], documents: Sequence[Json]) -> Iterator[str]:
    """Yield what it means that the mutating ones of *others* are not among *documents*, if anything."""
    mutating = [one for one in others if one["kind"].startswith("Mutating") and entries(one)]
    if mutating and any(one["kind"].startswith("Mutating") for one in documents):
        yield (
            f"{_some(map(title, mutating))}: stays with the API server, which calls it before or after all "
            "that the gateway has, by name, and no longer in between"
        )


def unregistering(documents: Sequence[Json], options: Sequence[str]) -> list[str]:
    """Return the commands that take *documents*, in the order in which they are called, out of the cluster.

    Mutating ones first: what they do twice can show, what validating ones do twice cannot. *options* are
    those of kubectl that choose the cluster.
    """
    return [
        shlex.join(["kubectl", *options, "delete", one["kind"].lower(), name_of(one)])
        for one in documents
        # No shell quotes for a terminal.
        if name_of(one).isprintable() and name_of(one)
    ]


def _of_backends(documents: Sequence[Json]) -> Iterator[str]:
    services, conditions = [], []
    for document in documents:
        for entry in entries(document):
            client_config = entry.get("clientConfig")
            if isinstance(client_config, dict) and client_config.get("service"):
                services.append(_named(document, entry))
            found = entry.get("matchConditions")
            if isinstance(found, list) and any("authorizer" in str(one) for one in found):
                conditions.append(_named(document, entry))
    if services:
        yield (
            f"{_some(services)}: called by the name of a Service, which only resolves inside the cluster: a "
            "gateway outside of it needs clientConfig.url instead"
        )
    if conditions:
        yield (
            f"{_some(conditions)}: the matchConditions ask the authorizer: the gateway needs "
            "GatewayConfiguration.kubernetes and the right to "
            "create subjectaccessreviews of authorization.k8s.io"
        )


def _of_names(documents: Sequence[Json]) -> Iterator[str]:
    owners: dict[str, list[str]] = {}
    for document in documents:
        for entry in entries(document):
            owners.setdefault(str(entry.get("name")), []).append(title(document))
    for name, titles in sorted(owners.items()):
        if len(titles) > 1:
            yield (
                f"webhook {printable(name)} is in {_some(titles)}: messages and audit annotations of the "
                "gateway will not tell them apart"
            )


def _of_registration(webhooks: Sequence[Webhook]) -> Iterator[str]:
    in_kube_system = [
        hook
        for hook in webhooks
        if any(rule.scope != "Cluster" for rule in hook.rules)
        and hook.namespace_selector.matches({NAMESPACE_LABEL: KUBE_SYSTEM})
    ]
    if in_kube_system:
        yield (
            f"{_hooks(in_kube_system)}: also for {KUBE_SYSTEM}, which manifests leaves out, as it does the "
            f"gateway's own namespace; --include {KUBE_SYSTEM} there keeps it"
        )
    wild = [hook for hook in webhooks if match_conditions(hook.rules, ())]
    if wild:
        yield (
            f"{_hooks(wild)}: by wildcards also for events, leases or reviews of access, which manifests "
            "leaves out; --include there keeps events and leases"
        )
    if any(hook.match_policy == "Equivalent" for hook in webhooks):
        yield (
            "webhooks with matchPolicy Equivalent get the version that they ask for because manifests "
            "registers the gateway so: the gateway itself converts nothing"
        )


def _texts(document: Json, field: str) -> Json:
    metadata = document.get("metadata")
    found = metadata.get(field) if isinstance(metadata, dict) else None
    return found if isinstance(found, dict) else {}


def _named(document: Json, entry: Any) -> str:  # noqa: ANN401
    return f"{printable(name_of(document))}/{printable(entry.get('name'))}"


def _hooks(webhooks: Sequence[Webhook]) -> str:
    return _some(f"{hook.configuration}/{hook.name}" for hook in webhooks)


def _some(names: Iterable[str]) -> str:
    listed = list(names)
    more = f" and {len(listed) - _SHOWN} more" if len(listed) > _SHOWN else ""
    return ", ".join(listed[:_SHOWN]) + more
