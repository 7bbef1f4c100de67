"""What the rules of ClusterPolicies of Kyverno see of a request.

Source: github.com/kyverno/kyverno pkg/engine/handlers/validation/validate_cel.go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gateway.pure.admission_policies.shared_values import Prepared, namespace_values
from gateway.pure.core.namespace import Namespace
from gateway.pure.kyverno.resource_match import MatchInput

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gateway.pure.admission_policies.validating import Values
    from gateway.pure.core.policy import Params, PolicyInput

    Json = dict[str, Any]


class Shared:
    """What all policies of one request share: the input of filters, and values without the authorizer."""

    def __init__(
        self,
        policy_input: PolicyInput,
        prepared: Prepared | None = None,
        role_source: Params | None = None,
    ) -> None:
        seen = policy_input.conditions
        current = seen.old_object if seen.object is None else seen.object
        self.found = MatchInput(policy_input, current, role_source)
        self.request = _request_variable(policy_input, self.found, prepared)
        namespace = policy_input.namespace if self.found.namespace else None
        self.filtered: Json | None = None
        self.whole: Json | None = None
        if isinstance(namespace, Namespace):
            self.filtered, self.whole = namespace_values(namespace.json)
        self.objects = (_of_kind(seen.object, self.found), _of_kind(seen.old_object, self.found))
        self.values: Values = (*self.objects, self.request, self.filtered, *[None] * 5)


def namespace_for_actions(found: MatchInput, policy_input: PolicyInput) -> tuple[str, Mapping[str, str]]:
    """Return name and labels of the namespace by which rules are chosen: one that is stored."""
    if found.object_kind != "Namespace":
        return found.namespace, found.namespace_labels
    # A Namespace counts as its own, as it is before the request.
    stored = policy_input.conditions.old_object
    metadata = None if stored is None else stored.get("metadata")
    labels = metadata.get("labels") if isinstance(metadata, dict) else None
    return ("" if stored is None else found.name), labels if isinstance(labels, dict) else {}


def _request_variable(policy_input: PolicyInput, found: MatchInput, prepared: Prepared | None) -> Json:
    """Return the variable ``request``: Kyverno makes it of the object and its resource."""
    request = policy_input.request
    made = prepared.request if prepared is not None else Prepared(policy_input.conditions.document).request
    group, version, kind = found.kind
    resource = dict(zip(("group", "version", "resource"), request.resource, strict=True))
    variable: Json = {
        **made,
        "kind": {"group": group, "version": version, "kind": kind},
        "requestKind": {"group": group, "version": version, "kind": kind},
        "resource": resource,
        "requestResource": resource,
        "name": found.name,
        "namespace": found.namespace,
        "options": None,
        "dryRun": False,
    }
    empty = [name for name in ("name", "namespace") if not variable[name]]
    for name in ("subResource", "requestSubResource", *empty):
        variable.pop(name, None)
    return variable


def _of_kind(document: Json | None, found: MatchInput) -> Json | None:
    """Return *document* with the kind of its resource, which that of a subresource may lack."""
    if document is None or not found.sub_resource:
        return document
    group, version, kind = found.kind
    return {**document, "apiVersion": f"{group}/{version}" if group else version, "kind": kind}
