"""Builders of requests, webhooks and evaluations. Every default is the simplest valid value."""

from __future__ import annotations

import math
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from gateway.pure.core.evaluation import NO_MODES, Evaluation
from gateway.pure.core.labels import EVERYTHING, Requirement, Selector
from gateway.pure.core.matching import Selection
from gateway.pure.core.namespace import Namespace
from gateway.pure.core.review import V1, decode
from gateway.pure.core.verdict import ALLOWED, Allowed
from gateway.pure.core.webhook import Rule, Webhook, WorkerRef

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from gateway.pure.core.call import Call
    from gateway.pure.core.review import AdmissionRequest, Json
    from gateway.pure.core.speculation import ChangeRates
    from gateway.pure.core.verdict import Verdict
    from gateway.pure.core.webhook import Mode

REVIEWS = Path(__file__).parents[1] / "reviews"

ANYTHING = Rule(("*",), ("*",), ("*",), ("*/*",))

POD: Json = {"metadata": {"name": "web", "labels": {"team": "a"}}, "spec": {"replicas": 1}}


def webhook(name: str = "a.policies.test", **members: Any) -> Webhook:
    """A mutating webhook for every request, changed by *members*."""
    defaults: dict[str, Any] = {
        "phase": "mutate",
        "configuration": "policies",
        "client": WorkerRef("pool", name),
        "rules": (ANYTHING,),
        "namespace_selector": EVERYTHING,
        "object_selector": EVERYTHING,
    }
    return Webhook(name=name, **{**defaults, **members})


def labelled(key: str, value: str) -> Selector:
    """A selector of the label *key*: *value*."""
    return Selector((Requirement(key, "In", frozenset({value})),))


def document(**members: Any) -> Json:
    """An AdmissionRequest as parsed JSON: the creation of a Pod, changed by *members*."""
    return {
        "uid": "u-1",
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "namespace": "default",
        "operation": "CREATE",
        "object": POD,
        "oldObject": None,
        "dryRun": False,
        **members,
    }


def resource(text: str) -> dict[str, str]:
    """``GROUP/VERSION/RESOURCE`` as a member of a request; the core group is empty."""
    group, version, name = text.split("/")
    return {"group": group, "version": version, "resource": name}


def body(request: Json, api_version: str = V1) -> bytes:
    """The AdmissionReview of *request*, in the form of the API server."""
    review = {"kind": "AdmissionReview", "apiVersion": api_version, "request": request}
    return orjson.dumps(review) + b"\n"


def request(**members: Any) -> AdmissionRequest:
    """The creation of a Pod, changed by *members*."""
    return decode(body(document(**members)))


def patch(*operations: Json) -> Allowed:
    """The verdict of a worker that allows the request with these operations."""
    return Allowed(orjson.dumps(operations))


def add(path: str, value: object) -> Json:
    return {"op": "add", "path": path, "value": value}


def known(labels: Mapping[str, Mapping[str, str]], request: AdmissionRequest) -> Namespace | None:
    """The namespace of *request*; *labels* has the labels of all namespaces."""
    name = request.namespace
    if name not in labels:
        return None
    document = {"metadata": {"name": name, "labels": labels[name]}}
    return Namespace(name, labels[name], orjson.dumps(document))


def settle(
    webhooks: Sequence[Webhook],
    request: AdmissionRequest,
    answers: Callable[[Call], Verdict] | Mapping[str, Verdict] | None = None,
    namespaces: Mapping[str, Mapping[str, str]] | None = None,
    memory: ChangeRates | None = None,
    modes: Mapping[int, Mode] = NO_MODES,
    *,
    rejects_conflicts: bool = False,
    now: float = math.inf,
) -> Evaluation:
    """Run an evaluation to its end, its calls ending in the order in which they were made.

    *answers* is a function of the call, or verdicts by the webhook's name; others allow.
    """
    evaluation = Evaluation(
        Selection(webhooks[0].phase if webhooks else "mutate", webhooks),
        request,
        known(namespaces or {}, request),
        memory,
        now,
        modes=modes,
        rejects_conflicts=rejects_conflicts,
    )
    queue = deque(evaluation.start())
    while queue:
        call = queue.popleft()
        if callable(answers):
            verdict = answers(call)
        else:
            verdict = (answers or {}).get(call.invocation.webhook.name, ALLOWED)
        queue.extend(evaluation.receive(call, verdict))
    assert evaluation.done
    return evaluation
