"""Answers of reviews as observers get them, without front end and workers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway.pure.core.answer import Answer, Origin
from gateway.pure.core.decision import decide
from gateway.pure.core.evaluation import NO_MODES
from gateway.pure.core.matching import Selection
from gateway.pure.core.response import encode
from tests.core.build import request, settle, webhook

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from gateway.pure.core.call import Call
    from gateway.pure.core.review import AdmissionRequest
    from gateway.pure.core.verdict import Verdict
    from gateway.pure.core.webhook import Mode, Webhook


def answer(
    answers: Callable[[Call], Verdict] | Mapping[str, Verdict] | None = None,
    webhooks: Sequence[Webhook] = (),
    review: AdmissionRequest | None = None,
    target: bytes = b"/mutate?timeout=10s",
    modes: Mapping[int, Mode] = NO_MODES,
) -> Answer:
    """The answer to *review* with these *answers* of *webhooks*, see ``tests.core.build.settle``."""
    hooks = webhooks or (webhook(),)
    evaluation = settle(
        hooks, review or request(name="web", userInfo={"username": "ann"}), answers, modes=modes
    )
    decision = decide(evaluation, "Metadata")
    body = encode("admission.k8s.io/v1", evaluation.request.uid, decision)
    return Answer(body, decision, evaluation, Selection(hooks[0].phase, hooks), Origin(target), 0.0)
