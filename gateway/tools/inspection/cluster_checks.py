"""Checks of the cluster around a registration: its Service, its own namespace, webhooks called twice."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any, Final

from admission_gateway_worker.text import printable
from gateway.config.kinds.namespace import KUBE_SYSTEM, NAME_LABEL
from gateway.config.yaml.documents import PHASES
from gateway.server.kubernetes.version import ADVICE, version_difference
from gateway.tools.inspection.model import REGISTER, Finding
from gateway.tools.registration.gateway_entries import entries
from gateway.tools.registration.unregistered import is_unregistered

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from gateway.config.merge.model import Config
    from gateway.tools.inspection.model import ClusterState, RegisteredEntry, ServiceKey

    Json = Mapping[str, Any]

_OUTSIDE: Final = "ExternalName"


def check_cluster(
    registered: Sequence[RegisteredEntry], config: Config, seen: ClusterState
) -> Iterator[Finding]:
    """Yield the findings about the objects in *seen* that the entries *registered* refer to."""
    for key in sorted({entry.service[:2] for entry in registered if entry.service is not None}):
        ports = {entry.service[2] for entry in registered if entry.service and entry.service[:2] == key}
        yield from _of_service(key, ports, seen)
    for entry in registered:
        yield from _fail_closed(entry, seen)
    yield from _also_registered(config, seen)
    if difference := version_difference(config, seen.minor):
        yield Finding("warning", "cluster", difference, ADVICE)
    for right in seen.unread:
        yield Finding("warning", "rights", right, "grant it for a complete check")


def _of_service(key: ServiceKey, ports: Collection[int], seen: ClusterState) -> Iterator[Finding]:
    title = f"Service {'/'.join(key)}"
    if key not in seen.services:
        return
    service = seen.services[key]
    if service is None:
        yield Finding("error", title, "is registered and does not exist", "create it, or " + REGISTER)
        return
    spec = service.get("spec") or {}
    if spec.get("type") == _OUTSIDE:
        return
    served = {one.get("port") for one in spec.get("ports") or ()}
    for port in sorted(set(ports) - served):
        found = ", ".join(sorted(map(str, served))) or "none"
        yield Finding("error", title, f"port {port} is registered, but it has {found}", "correct one of them")
    if seen.ready.get(key) == 0:
        yield Finding("error", title, "has no ready endpoint", "look at the gateway's pods: /readyz says why")


def _fail_closed(entry: RegisteredEntry, seen: ClusterState) -> Iterator[Finding]:
    """Yield the namespaces whose pods need the gateway that may itself need these pods."""
    if entry.hook.failure_policy != "Fail" or all(rule.scope == "Cluster" for rule in entry.hook.rules):
        return
    own = entry.service[0] if entry.service else None
    for name in dict.fromkeys((KUBE_SYSTEM, own)):
        if name is None:
            continue
        labels = {NAME_LABEL: name, **seen.labels.get(name, {})}
        if entry.hook.namespace_selector.matches(labels):
            which = "the gateway's own namespace" if name == own else "the namespace"
            message = (
                f"failurePolicy is Fail, also in {which} {name}: without a gateway it cannot be repaired"
            )
            yield Finding("warning", entry.place, message, f"{REGISTER} without --include")


def _also_registered(config: Config, seen: ClusterState) -> Iterator[Finding]:
    configured = {(hook.phase, hook.configuration, hook.name) for hook in config.webhooks}
    for document in seen.configurations:
        kind, name = str(document["kind"]), str(document["metadata"]["name"])
        twice = [
            str(entry.get("name"))
            for entry in entries(document)
            if (PHASES[kind], name, entry.get("name")) in configured and not is_unregistered(entry)
        ]
        if twice:
            message = f"is called twice, directly and by the gateway: {', '.join(map(printable, twice))}"
            # Other entries of the object, such as the gateway's own, have to stay.
            verb = "delete" if len(twice) == len(entries(document)) else "edit"
            command = shlex.join(["kubectl", verb, kind.lower(), printable(name)])
            advice = f"once the gateway serves it: {command}"
            yield Finding("warning", f"{kind}/{printable(name)}", message, advice)
