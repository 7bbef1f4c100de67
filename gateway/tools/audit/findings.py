"""What the result of a review says about the object: a finding for each webhook, without secret values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gateway.observe.decisions.record import FAILURES, REJECTIONS
from gateway.tools.audit.store import Finding
from gateway.tools.replay.about_request import SOCKET, ReportRedactor, as_secret
from gateway.tools.replay.results import UnusableResultError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gateway.pure.core.review import Json
    from gateway.tools.replay.results import Result, WebhookKey, WebhookResult

MAX_MESSAGE_CHARS: Final = 2000


def findings_of(request: Json, result: Result, policies: Mapping[WebhookKey, str]) -> list[Finding]:
    """Return the findings in the *result* of *request*. *policies* has ``POOL/POLICY`` of webhooks.

    Raises:
        UnusableResultError: the object nests too deep to be searched for secret values.
    """
    named = [
        (one, _class_of(one), one.message)
        for one in result.webhooks
        if one.outcome in REJECTIONS or one.outcome in FAILURES
    ]
    if result.has_changed:
        by_part = {one.part: one for one in result.webhooks}
        for part, operations in result.patches().items():
            paths = ", ".join(dict.fromkeys(str(one.get("path")) for one in operations))
            named.append((by_part[part], "wouldChange", f"would change {paths}"))
    if not named:
        return []
    redactor = ReportRedactor()
    try:
        redactor.learn(as_secret(request.get("object"), request))
    except RecursionError as error:
        raise UnusableResultError from error

    def shown(message: str) -> str:
        return SOCKET.sub("the worker's socket", redactor.message(message))[:MAX_MESSAGE_CHARS]

    return [
        Finding(finding, *one.key, policies.get(one.key, ""), one.mode, shown(message))
        for one, finding, message in named
    ]


def _class_of(webhook: WebhookResult) -> str:
    if webhook.outcome in FAILURES:
        return "failed"
    return "denied" if webhook.mode == "Enforce" else "notEnforced"
