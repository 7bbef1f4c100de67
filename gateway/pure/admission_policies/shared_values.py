"""The values of variables that all policies of one request share.

Source: k8s.io/apiserver pkg/admission/plugin/policy/generic/policy_dispatcher.go,
pkg/admission/plugin/cel/activation.go.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import orjson

from gateway.pure.conditions.match_conditions import RequestVariables, request_variable
from gateway.pure.core.namespace import Namespace
from gateway.pure.core.review import is_namespace
from gateway.pure.core.verdict import Failed, FailureReason
from gateway.pure.openapi.go_types import InMutations, in_conditions

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gateway.pure.admission_policies.validating import Values
    from gateway.pure.core.conditions import AccessCheck, AccessDecision
    from gateway.pure.core.policy import PolicyInput

    Json = dict[str, Any]

_NAMESPACE_METADATA: Final = (
    *("name", "generateName", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp"),
    *("deletionTimestamp", "deletionGracePeriodSeconds", "labels", "annotations", "finalizers"),
)


class Prepared:
    """The values of variables that all policies of a request share."""

    __slots__ = ("authorizer", "check", "in_mutations", "known", "of_conditions", "request")

    def __init__(self, document: Json) -> None:
        of_request = RequestVariables(document)
        self.known, self.authorizer, self.check = (
            of_request.decisions,
            of_request.authorizer,
            of_request.check,
        )
        self.of_conditions = of_request.request
        self.request: Json = request_variable(document)
        self.in_mutations = InMutations()


def shared_values(policy_input: PolicyInput) -> Values:
    """Return the values of ``GLOBALS`` without ``variables``, parameter and authorizer.

    ``namespaceObject`` is null, too, if the namespace is not known.
    """
    values = policy_input.shared
    if values is None:
        namespace = namespace_of(policy_input)
        exposed = namespace_values(namespace.json)[0] if isinstance(namespace, Namespace) else None
        seen = policy_input.conditions
        values = (
            seen.object,
            seen.old_object,
            request_variable(seen.document),
            exposed,
            None,
            None,
            None,
            None,
            in_conditions if seen.has_go_types else None,
        )
        policy_input.shared = values
    return values


def prepared_for(policy_input: PolicyInput, decisions: Mapping[AccessCheck, AccessDecision]) -> Prepared:
    """Return the values that all policies share on the event loop, with the *decisions* so far."""
    prepared = policy_input.prepared
    if prepared is None:
        prepared = policy_input.prepared = Prepared(policy_input.conditions.document)
    assert isinstance(prepared, Prepared)
    prepared.known.decisions, prepared.known.missing = decisions, {}
    return prepared


def namespace_of(policy_input: PolicyInput) -> Namespace | Failed | None:
    """Return the namespace of the request; None for a cluster-scoped object, and for a Namespace."""
    request = policy_input.request
    if request.namespace == "" or is_namespace(request):
        return None
    found = policy_input.namespace
    if found is None:
        return Failed(FailureReason.NAMESPACE, f'namespace "{request.namespace}" not found', 404)
    return found


@lru_cache(maxsize=1024)
def namespace_values(json: bytes) -> tuple[Json, Json]:
    """Return the values of ``namespaceObject``: the members that are exposed, and all.

    Times are texts, as in the API server, although their declared type is that of a timestamp.
    """
    whole: Json = orjson.loads(json)
    metadata = whole.get("metadata") or {}
    exposed = {key: metadata[key] for key in _NAMESPACE_METADATA if key in metadata}
    return {"metadata": exposed, "spec": whole.get("spec", {}), "status": whole.get("status", {})}, whole
