"""Requests for the ports of Kubernetes' built-in controllers, and their answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from admission_gateway_worker import Denied
from admission_gateway_worker.policies import definitions
from tests.library.requests import request, run

if TYPE_CHECKING:
    from admission_gateway_worker.policies.definition import Definition

    Json = dict[str, Any]

POLICIES = {each.name: each for each in definitions()}


def of(
    plural: str, kind: str, found: Json | None, old: Json | None = None, group: str = "", **others: object
) -> Json:
    """Return an AdmissionRequest for *plural*, such as ``pods`` or ``pods/status``, with its resource."""
    resource, _, sub_resource = plural.partition("/")
    metadata = (found or old or {}).get("metadata") or {}
    return request(
        group,
        "v1",
        kind,
        found,
        old,
        **{
            "resource": {"group": group, "version": "v1", "resource": resource},
            "subResource": sub_resource,
            "name": metadata.get("name", ""),
            "userInfo": {"username": "ann"},
            **others,
        },
    )


def of_pod(spec: Json, old: Json | None = None, name: str = "123", **others: Any) -> Json:
    """Return a request for a pod."""
    before = None if old is None else {"metadata": {"name": name}, "spec": old}
    return of(
        others.pop("plural", "pods"), "Pod", {"metadata": {"name": name}, "spec": spec}, before, **others
    )


def policy(name: str) -> Definition:
    return POLICIES[name]


def refusal(name: str, admission_request: Json, parameters: Json | None = None, **others: Any) -> str:
    """Return the message of the refusal; empty if the policy allows the request."""
    try:
        run(policy(name), admission_request, parameters, **others)
    except Denied as denied:
        return denied.message
    return ""


def changed(name: str, admission_request: Json, parameters: Json | None = None, **others: Any) -> Json:
    """Return the object after the policy *name* and after a second run, which changes nothing more."""
    review = run(policy(name), admission_request, parameters, **others)
    again = run(policy(name), {**admission_request, "object": review.object}, parameters, **others)
    assert again.changes() == []
    found: Json = review.object
    return found


def namespace(**annotations: str) -> Json:
    """Return the Namespace of the requests, with *annotations*."""
    return {"metadata": {"name": "default", "annotations": annotations}}
