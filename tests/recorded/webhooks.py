"""Webhooks behind an engine in memory, and what they make of recorded reviews.

The outcome of an operation is recorded while the API server calls the webhooks by itself. Here an engine gets
the same reviews, its webhooks follow the same scripts, and its answers are read as the API server's user and
its audit log show them.
"""

from __future__ import annotations

import asyncio
import base64
import json
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, Final
from unittest import mock

import jsonpatch

from gateway.engine.dispatch.https import server
from gateway.engine.dispatch.https.connection import HttpResponse
from gateway.pure.core.review import V1
from tests.e2e.capture import phase_of, stable_request
from tests.e2e.client import Answer
from tests.e2e.direct import http_answer
from tests.e2e.outcome import NAMESPACE, Line, Outcome, Refusal, ordered, refusal_of, with_annotations
from tests.e2e.setups import canaries, configurations
from tests.e2e.webhook_subjects import CAPTURED
from tests.recorded.engine import RecordedCluster
from tests.recorded.recording import change_of, changed, text_of
from tests.world import SimulatedWorld, simulate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gateway.engine.dispatch.https.client import WebhookRequest
    from tests.e2e.compare import Case
    from tests.e2e.setups import Hook
    from tests.e2e.webhook_subjects import WebhookSubject
    from tests.recorded.recording import Operation, Recording, Review

    Json = dict[str, Any]

ENTRY: Final = "gateway.test"
"""The name of the gateway's own webhook. Its answers do not depend on it."""
SAW: Final = "/saw"
"""The end of the key under which an outcome has the requests that a script with ``record`` got."""


# -- outcomes as JSON -----------------------------------------------------------------------------


def outcome_as_json(outcome: Outcome, reviews: Sequence[Review]) -> Json:
    """Return *outcome* as it is recorded: without defaults, and requests as changes of those of *reviews*."""
    found = {key: value for key, value in asdict(outcome).items() if value}
    annotations = {
        key: [_as_change(each, reviews) for each in value] if key.endswith(SAW) else value
        for key, value in found.pop("annotations", {}).items()
    }
    if (final := found.pop("stored", None)) is not None:
        found["object"] = final
    recorded: Json = json.loads(json.dumps({**found, "annotations": annotations} if annotations else found))
    return recorded


def _as_change(request: Json, reviews: Sequence[Review]) -> Json:
    changes = [
        {"of": index, "change": change_of(each.request, request)} for index, each in enumerate(reviews)
    ]
    found = min(changes, key=lambda each: len(text_of(each)))
    assert text_of(changed(reviews[found["of"]].request, found["change"])) == text_of(request), request
    return found


def recorded_outcome(operation: Operation) -> Outcome:
    """Return the recorded outcome of *operation*."""
    recorded = operation.answer
    refusal = recorded.get("refusal")
    if refusal is not None:
        lines = tuple(Line(**each) for each in refusal["lines"])
        refusal = Refusal(**{**refusal, "lines": lines, "causes": tuple(refusal["causes"])})
    annotations = {
        key: [changed(operation.reviews[each["of"]].request, each["change"]) for each in value]
        if key.endswith(SAW)
        else value
        for key, value in recorded.get("annotations", {}).items()
    }
    return Outcome(
        recorded["status"],
        None,
        refusal,
        tuple(recorded.get("warnings", ())),
        recorded.get("object"),
        calls=tuple((name, has_changed) for name, has_changed in recorded.get("calls", ())),
        patches=tuple((name, text) for name, text in recorded.get("patches", ())),
        failed_open=tuple(recorded.get("failed_open", ())),
        annotations=annotations,
    )


def with_stable_requests(outcome: Outcome) -> Outcome:
    """Return *outcome*; the requests in it are without what differs from one run to the next."""
    annotations = {
        key: ordered(map(stable_request, value)) if key.endswith(SAW) else value
        for key, value in outcome.annotations.items()
    }
    return replace(outcome, annotations=annotations)


def decided_part(request: Json) -> Json | None:
    """Return the object of *request* without what the API server fills in after the mutating phase."""
    document = request.get("object")
    if document is None:
        return None
    left_out = set() if request.get("subResource") == "status" else {"status"}
    if request["kind"]["kind"] == "Namespace":
        left_out.add("spec")
    metadata = dict(document.get("metadata", {}))
    if "generateName" in metadata:
        metadata.pop("name", None)
    kept = {key: value for key, value in document.items() if key not in left_out}
    return {**kept, "metadata": metadata}


# -- an engine in memory --------------------------------------------------------------------------


def outcomes_in_memory(
    subject: WebhookSubject, recording: Recording, over_https: int
) -> dict[str, list[Outcome]]:
    """Return what comes of the recorded operations of each case.

    *over_https*: the first of so many webhooks is called over HTTPS; 0 for none.
    """
    found: dict[str, list[Outcome]] = {}
    hooks = [*subject.hooks, *canaries(CAPTURED)]

    async def run(world: SimulatedWorld) -> None:
        cluster = RecordedCluster(recording.surroundings, recording.authorize)
        await world.serve(*_documents(hooks, over_https), cluster=cluster)
        for case in subject.cases:
            operations = recording.operations.get(case.name, ())
            found[case.name] = [await _outcome(world, case, each) for each in operations]

    async def send(request: WebhookRequest, *_: object, **__: object) -> HttpResponse:
        script = hooks[int(request.path.strip("/"))].script
        await asyncio.sleep(script.get("delay_ms", 0) / 1000)
        status, body = http_answer(script, b"".join(request.body))
        return HttpResponse(status, {"content-type": "application/json"}, body)

    with mock.patch.object(server, "send", send):
        simulate(run, SimulatedWorld)
    return found


def _documents(hooks: list[Hook], over_https: int) -> list[str]:
    """Return the configuration of *hooks*, of which the first of *over_https* is called over HTTPS."""
    clients: list[Json] = [
        {"url": f"https://webhooks.test/{index}"}
        if over_https and not index % over_https
        else {"worker": {"pool": "pool", "policy": json.dumps(hook.script)}}
        for index, hook in enumerate(hooks)
    ]
    head = {"apiVersion": "admission-gateway.io/v1alpha1", "kind": "GatewayConfiguration"}
    settings = {**head, "kubernetes": {}, "auditLevel": "Request"}
    return [f"{json.dumps(each)}\n---\n" for each in (settings, *configurations(hooks, clients))]


async def _outcome(world: SimulatedWorld, case: Case, operation: Operation) -> Outcome:
    refusal: Refusal | None = None
    final: Json | None = None
    warnings: dict[str, None] = {}
    annotations: dict[str, str] = {}
    for review in operation.reviews:
        request = {"uid": "u", "object": None, "oldObject": None, **review.request}
        body = json.dumps({"apiVersion": V1, "kind": "AdmissionReview", "request": request}).encode()
        for path in review.paths:
            response = await world.review(path, body)
            warnings |= dict.fromkeys(response.get("warnings", ()))
            annotations |= {
                f"{ENTRY}/{key}": text for key, text in response.get("auditAnnotations", {}).items()
            }
            if not response["allowed"]:
                refusal = refusal or refusal_of(_refused(response["status"]), case.names())
            elif phase_of(path) == "mutate" and len(operation.reviews) > 1:
                after = request["object"]
                if "patch" in response:
                    after = jsonpatch.apply_patch(after, base64.b64decode(response["patch"]).decode())
                final = decided_part({**request, "object": after})
        if refusal is not None:
            break
    status = refusal.code if refusal else operation.answer["status"]
    outcome = Outcome(status, None, refusal, tuple(warnings), final)
    return with_stable_requests(with_annotations(outcome, annotations, NAMESPACE, case.names()))


def _refused(status: Json) -> Answer:
    """Return the API server's answer after a webhook has denied a request with *status*.

    Source: k8s.io/apiserver pkg/admission/plugin/webhook/errors/statuserror.go (ToStatusErr); Retry-After:
    pkg/endpoints/handlers/responsewriters/writers.go (ErrorNegotiated).
    """
    message = f'admission webhook "{ENTRY}" denied the request: {status["message"]}'
    document = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", **status}
    seconds = status.get("details", {}).get("retryAfterSeconds", 0)
    headers = {"Retry-After": str(seconds)} if seconds > 0 else {}
    return Answer(status["code"], {**document, "message": message}, (), headers)
