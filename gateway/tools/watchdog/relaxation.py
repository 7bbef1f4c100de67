"""What is written into a registration: a matchCondition in each entry with Fail, and an annotation.

Nothing of the owner is changed. matchConditions are a list by name, and annotations a map: a further item of
another field manager is neither a conflict nor reverted when the owner applies the registration again. To
restore it, the watchdog applies an object without them.

With step Exempt the API server no longer sends what the cluster itself needs: namespaces that are named, and
requests of nodes, API server, controller manager and scheduler. With step Ignore it sends nothing. In both
steps the watchdog's own dry run is sent, so that it sees the gateway come back.

Source: kubernetes.io/docs/reference/using-api/server-side-apply; k8s.io/api admissionregistration/v1 types.go
(the list types); kubernetes/apiserver pkg/admission/plugin/webhook/matchconditions.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from gateway.tools.registration.gateway_entries import backend, entries, gateway_indices
from gateway.tools.watchdog.state import Stored

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gateway.tools.watchdog.state import Step

    Json = Mapping[str, Any]

ANNOTATION: Final = "admission-gateway.io/watchdog"
CONDITION: Final = "watchdog.admission-gateway.io"
FIELD_MANAGER: Final = "admission-gateway-watchdog"
SYSTEM_USERS: Final = ("system:apiserver", "system:kube-controller-manager", "system:kube-scheduler")
"""Users without which nothing in a cluster starts. Controllers have users of their own."""


def stored_in(document: Json) -> Stored:
    """Return the state that the registration *document* has.

    If only the annotation was removed, it is relaxed still, and has to be restored.
    """
    metadata = document.get("metadata") or {}
    stored = Stored.parse((metadata.get("annotations") or {}).get(ANNOTATION))
    if stored.step == "Closed" and any(map(_has_condition, entries(document))):
        return replace(stored, step="Exempt")
    return stored


def fail_names(document: Json) -> list[str]:
    """Return the names of the gateway's entries in *document* with failurePolicy Fail."""
    (of_gateway,) = gateway_indices([document])
    found = entries(document)
    return [
        str(found[index].get("name"))
        for index in of_gateway
        if found[index].get("failurePolicy", "Fail") == "Fail"
    ]


def services_of(document: Json) -> list[tuple[str, str]]:
    """Return namespace and name of the Services behind the gateway's entries."""
    (of_gateway,) = gateway_indices([document])
    places = {backend(entries(document)[index]) for index in of_gateway}
    return sorted((one[0], one[1]) for one in places if one is not None and len(one) > 1)


def _has_condition(entry: Json, expression: str | None = None) -> bool:
    return any(
        one.get("name") == CONDITION and expression in (None, one.get("expression"))
        for one in entry.get("matchConditions") or ()
    )


def is_written(document: Json, expression: str) -> bool:
    """Whether every entry of *document* that needs the condition has it, with *expression*."""
    wanted = set(fail_names(document))
    return all(
        _has_condition(entry, expression) for entry in entries(document) if entry.get("name") in wanted
    )


def expression_of(step: Step, namespaces: Sequence[str], probe_namespace: str) -> str:
    """Return the condition of *step*, which is not Closed: which requests are still sent."""
    probe = (
        f"has(request.namespace) && request.namespace == {json.dumps(probe_namespace)}"
        " && has(request.dryRun) && request.dryRun"
    )
    if step == "Ignore":
        return probe
    users, names = json.dumps(SYSTEM_USERS), json.dumps(list(namespaces))
    return (
        f"({probe}) || !((has(request.namespace) && request.namespace in {names})"
        f" || request.userInfo.username in {users}"
        ' || (has(request.userInfo.groups) && "system:nodes" in request.userInfo.groups))'
    )


def applied(document: Json, stored: Stored, expression: str) -> dict[str, Any]:
    """Return the object to apply to *document*, so that it has the state *stored*.

    The version that was read is in it: of two watchdogs, the second one gets a conflict.
    """
    metadata = document["metadata"]
    made: dict[str, Any] = {
        "apiVersion": document["apiVersion"],
        "kind": document["kind"],
        "metadata": {
            "name": metadata["name"],
            "resourceVersion": metadata["resourceVersion"],
            "annotations": {ANNOTATION: stored.text()},
        },
    }
    if stored.step != "Closed":
        condition = {"name": CONDITION, "expression": expression}
        made["webhooks"] = [{"name": name, "matchConditions": [condition]} for name in fail_names(document)]
    return made
