"""Whether selectors and exceptions let a webhook or policy, whose rules match a request, match its object.

What comes after them in the API server's order, matchConditions or the policy itself, is in
``gateway.pure.core.condition_state``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway.pure.core.conditions import NOT_MATCHED
from gateway.pure.core.exemptions import ExemptionInput
from gateway.pure.core.matching import PolicyInvocation, object_matches, selectors_match
from gateway.pure.core.verdict import Failed

if TYPE_CHECKING:
    from gateway.pure.core.call import Payload
    from gateway.pure.core.conditions import NotMatched
    from gateway.pure.core.exemptions import PolicyException
    from gateway.pure.core.matching import Invocation
    from gateway.pure.core.namespace import Namespace


def mismatch_of(
    invocation: Invocation, payload: Payload, namespace: Namespace | Failed | None, now: float
) -> NotMatched | PolicyException | Failed | None:
    """Return None if selectors match the object of *payload*, and no exception does; else what is not so.

    *namespace* is the request's, *now* the time of the review in seconds since 1970.
    """
    matched: bool | Failed = True
    if not invocation.has_matched_selectors:
        matched = (
            object_matches(invocation.webhook, payload.labels)
            if invocation.has_matched_namespace
            else selectors_match(invocation.webhook, payload.request, payload.outline, namespace)
        )
        if matched is False:
            return NOT_MATCHED
        # Rules of a policy may leave the request out, whatever the labels are that are not known.
        policy = invocation.policy if isinstance(invocation, PolicyInvocation) else None
        if matched is not True and policy is not None and policy.excludes(payload.request):
            return NOT_MATCHED
    if invocation.exceptions is not None:
        review = ExemptionInput(
            payload.request, payload.outline, payload.labels, namespace, now, lambda: payload.object
        )
        exception = invocation.exceptions.find(review)
        if exception is not None:
            return exception
    return matched if isinstance(matched, Failed) else None
