"""Explains a review: a dry run of it, or of a plain object, by the configuration in force.

The workers are called. Webhooks whose sideEffects allow no dry run are left out of the review, and named. The
review is not counted in the metrics of reviews, and is not kept.

Source: k8s.io/api admission/v1 types.go (AdmissionRequest); kubernetes/apiserver
plugin/webhook/request/admissionreview.go.
"""

from __future__ import annotations

import time
import uuid
from typing import TYPE_CHECKING, Final, cast

import orjson

from admission_gateway_worker.json_patch.steps import finish
from gateway.base.errors import MalformedReview
from gateway.config.yaml.parsing import parse_yaml, problems_in
from gateway.engine.object_review import DEFAULT_GROUPS, RequestOptions, request_for
from gateway.observe.decisions.recent import capture, detailed_page_json
from gateway.pure.core.explain import mismatch
from gateway.pure.core.review import V1
from gateway.server.pages.page_thread import in_thread

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gateway.engine.dry_run import DryRun, DryRuns
    from gateway.observe.decisions.document import DetailedDocument, NotCalledDocument
    from gateway.pure.core.webhook import Webhook
    from gateway.server.pages.state import Json

MAX_JSON_BYTES: Final = 1024 * 1024
MAX_YAML_BYTES: Final = 256 * 1024
"""YAML takes a hundred times as long to parse."""
BUDGET_S: Final = 10.0
"""The time for each phase."""


async def explain(
    dry_run: DryRuns,
    content: bytes,
    query: Mapping[str, str],
    *,
    secret_names: bool,
) -> Json:
    """Return the decisions of both phases on *content*: JSON or YAML of a review, or of an object.

    *query* may have ``operation``, ``user``, ``groups`` (separated by commas), ``namespace`` and
    ``resource``, which are for an object. *dry_run* is that of the engine.

    Raises:
        ReviewError: *content* is neither, or *query* is wrong.
    """
    body = _body(await in_thread(request_of, content, query))
    found = await dry_run(body, side_effects="left_out", budget_s=BUDGET_S)
    return {
        "decisions": await in_thread(_decisions, found, secret_names),
        "notReached": [selection.phase for selection in found.not_reached],
    }


def _body(request: Json) -> bytes:
    try:
        return orjson.dumps({"kind": "AdmissionReview", "apiVersion": V1, "request": request})
    except TypeError:
        raise MalformedReview("the review nests too deeply") from None


def _decisions(found: DryRun, secret_names: bool) -> list[DetailedDocument]:
    decisions = []
    for answer, seconds, left_out in zip(found.answers, found.seconds, found.left_out, strict=True):
        made = capture(answer, seconds, time.time(), found.digest, secret_names=secret_names)
        decision = detailed_page_json(finish(made))
        decision["notCalled"] += [_not_called(hook, mismatch(hook, answer.evaluation)) for hook in left_out]
        decisions.append(decision)
    return decisions


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
        for line, column, message in problems_in(documents):
            raise MalformedReview(f"{line}:{column}: {message}") from None
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
