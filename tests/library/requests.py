"""Requests for policies of the library, and the answers of the policies."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from admission_gateway_worker import Denied

if TYPE_CHECKING:
    from admission_gateway_worker import Review
    from admission_gateway_worker.policies.definition import Definition

    Json = dict[str, Any]


def request(
    group: str, version: str, kind: str, found: Json | None, old: Json | None = None, **others: object
) -> Json:
    """Return an AdmissionRequest: CREATE, or UPDATE with an *old* object."""
    return {
        "uid": "1",
        "kind": {"group": group, "version": version, "kind": kind},
        "operation": "CREATE" if old is None else "UPDATE",
        "namespace": "default",
        "object": found,
        "oldObject": old,
        **others,
    }


def of_pod(spec: Json, old: Json | None = None, **others: object) -> Json:
    """Return a request for a Pod with *spec*, which had the spec *old*."""
    before = None if old is None else {"metadata": {"name": "web"}, "spec": old}
    return request("", "v1", "Pod", {"metadata": {"name": "web"}, "spec": spec}, before, **others)


def of_cron_job(spec: Json) -> Json:
    """Return a request for a CronJob whose Pods have *spec*."""
    found = {
        "metadata": {"name": "web"},
        "spec": {"jobTemplate": {"spec": {"template": {"spec": spec}}}},
    }
    return request("batch", "v1", "CronJob", found)


def run(
    definition: Definition, admission_request: Json, parameters: Json | None = None, **others: Any
) -> Review:
    """Return the review after the policy has run.

    Raises:
        Denied: the policy denies the request.
    """
    review = definition.review(admission_request, parameters, **others)
    result = definition.function(review)
    if result is not None:
        asyncio.run(_wait(result))
    return review


async def _wait(result: Any) -> None:
    await result


def denial(definition: Definition, admission_request: Json, parameters: Json | None = None) -> dict[str, str]:
    """Return the messages of a denial by field; empty if the policy allows the request."""
    try:
        run(definition, admission_request, parameters)
    except Denied as denied:
        found = denied
    else:
        return {}
    assert found.message == "; ".join(f"{cause.field}: {cause.message}" for cause in found.causes)
    return {cause.field: cause.message for cause in found.causes}
