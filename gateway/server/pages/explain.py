"""Explains a review: a dry run of it, or of a plain object, by the configuration in force.

The workers are called. Webhooks whose sideEffects allow no dry run are left out of the review, and named. The
review is not counted in the metrics of reviews, and is not kept.

Source: k8s.io/api admission/v1 types.go (AdmissionRequest); kubernetes/apiserver
plugin/webhook/request/admissionreview.go.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING, Final, cast

import orjson

from admission_gateway_worker.json_patch.steps import finish
from gateway.base.errors import MalformedReview
from gateway.config.yaml.parsing import parse_yaml
from gateway.engine.admit import Admission
from gateway.engine.object_review import DEFAULT_GROUPS, RequestOptions, request_for
from gateway.observe.decisions.recent import capture, detailed_page_json
from gateway.pure.core.answer import Origin
from gateway.pure.core.deadline import Deadline
from gateway.pure.core.explain import mismatch
from gateway.pure.core.matching import Selection
from gateway.pure.core.review import V1
from gateway.pure.core.speculation import ChangeMemory
from gateway.server.pages.page_thread import in_thread

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gateway.engine.snapshot import Snapshot
    from gateway.observe.decisions.document import DetailedDocument, NotCalledDocument
    from gateway.pure.core.answer import Answer
    from gateway.pure.core.webhook import Phase, Webhook
    from gateway.server.pages.state import Json

MAX_JSON_BYTES: Final = 1024 * 1024
MAX_YAML_BYTES: Final = 256 * 1024
"""YAML takes a hundred times as long to parse."""
BUDGET_S: Final = 10.0
"""The time for each phase."""
_DRY: Final = ("None", "NoneOnDryRun")


class _NoObserver:
    def review_answered(self, answer: Answer, seconds: float) -> None: ...

    def review_cancelled(self, phase: Phase) -> None: ...


async def explain(
    snapshot: Snapshot, content: bytes, query: Mapping[str, str], *, secret_names: bool
) -> Json:
    """Return the decisions of both phases on *content*: JSON or YAML of a review, or of an object.

    *query* may have ``operation``, ``user``, ``groups`` (separated by commas), ``namespace`` and
    ``resource``, which are for an object.

    Raises:
        ReviewError: *content* is neither, or *query* is wrong.
    """
    request = await in_thread(request_of, content, query)
    decisions: list[DetailedDocument] = []
    phases: tuple[Phase, ...] = ("mutate", "validate")
    for phase in phases:
        found, answer = await _explain_phase(snapshot, phase, request, secret_names=secret_names)
        decisions.append(found)
        if not answer.decision.allowed:
            break
        if answer.decision.patch:
            request = {**request, "object": answer.evaluation.final_object}
    return {
        "decisions": decisions,
        "notReached": [] if len(decisions) == len(phases) else list(phases[len(decisions) :]),
    }


async def _explain_phase(
    snapshot: Snapshot, phase: Phase, request: Json, *, secret_names: bool
) -> tuple[DetailedDocument, Answer]:
    whole = snapshot.paths[f"/{phase}"]
    kept = [hook for hook in whole.webhooks if hook.side_effects in _DRY]
    selection = Selection(phase, kept, whole.exceptions)
    # With a memory of its own, so that the review does not change the order of calls of others.
    admission = Admission(replace(snapshot, memory=ChangeMemory()), _NoObserver())
    answered: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
    try:
        body = orjson.dumps({"kind": "AdmissionReview", "apiVersion": V1, "request": request})
    except TypeError:
        raise MalformedReview("the review nests too deeply") from None
    now = snapshot.backends.now
    begin = now()
    cancel = admission.review(
        selection,
        body,
        Deadline.after(BUDGET_S, begin),
        answered.set_result,
        answered.set_exception,
        Origin(f"/{phase}".encode()),
    )
    try:
        answer = await answered
    except asyncio.CancelledError:
        cancel()
        raise
    seconds = now() - begin
    found = await in_thread(_document, answer, seconds, snapshot.digest, secret_names)
    left_out = [hook for hook in whole.webhooks if hook.side_effects not in _DRY]
    found["notCalled"] += [_not_called(hook, mismatch(hook, answer.evaluation)) for hook in left_out]
    return found, answer


def _document(answer: Answer, seconds: float, digest: str, secret_names: bool) -> DetailedDocument:
    return detailed_page_json(
        finish(capture(answer, seconds, time.time(), digest, secret_names=secret_names))
    )


def _not_called(webhook: Webhook, reason: str) -> NotCalledDocument:
    if not reason.startswith("not matched"):
        reason = f"not called here: sideEffects {webhook.side_effects} allows no dry run"
    return {"configuration": webhook.configuration, "webhook": webhook.name, "reason": reason}


# -- the request ----------------------------------------------------------------------------------


def request_of(content: bytes, query: Mapping[str, str]) -> Json:
    """Return the AdmissionRequest for *content*, with ``dryRun``, see :func:`explain`.

    Raises:
        ReviewError: as :func:`explain`.
    """
    found = _parsed(content)
    if found.get("kind") == "AdmissionReview":
        request = found.get("request")
        if not isinstance(request, dict):
            raise MalformedReview("the AdmissionReview has no request")
        return {**request, "uid": request.get("uid") or str(uuid.uuid4()), "dryRun": True}
    return _request_for(found, query)


def _parsed(content: bytes) -> Json:
    if len(content) > MAX_JSON_BYTES:
        raise MalformedReview(f"the text has {len(content)} bytes, expected at most {MAX_JSON_BYTES}")
    try:
        found = orjson.loads(content)
    except orjson.JSONDecodeError:
        if len(content) > MAX_YAML_BYTES:
            expected = f"expected JSON, or YAML of at most {MAX_YAML_BYTES} bytes"
            raise MalformedReview(f"the text is not JSON and has {len(content)} bytes, {expected}") from None
        documents = list(parse_yaml(content.decode(errors="replace")))
        for field, message in (problem for one in documents for problem in one.found):
            raise MalformedReview(": ".join(filter(None, (field, message)))) from None
        if len(documents) != 1:
            raise MalformedReview(f"found {len(documents)} documents, expected one") from None
        found = documents[0].root
    if not isinstance(found, dict):
        raise MalformedReview("expected an AdmissionReview or an object")
    return cast("Json", found)


def _request_for(found: Json, query: Mapping[str, str]) -> Json:
    operation = query.get("operation") or "CREATE"
    groups = [one.strip() for one in query.get("groups", "").split(",") if one.strip()]
    return request_for(
        found,
        RequestOptions(
            operation,
            query.get("user") or "explain",
            tuple(groups) or DEFAULT_GROUPS,
            query.get("namespace", ""),
            query.get("resource", ""),
            found if operation == "UPDATE" else None,
        ),
    )
