"""Whether a webhook whose rules match a request matches the present object: selectors, then exceptions.

matchConditions come after both; ``gateway.pure.core.condition_state`` has them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from gateway.pure.core.exemptions import Circumstances
from gateway.pure.core.matching import object_matches, selectors_match

if TYPE_CHECKING:
    from gateway.pure.core.call import Payload
    from gateway.pure.core.exemptions import PolicyException
    from gateway.pure.core.matching import Invocation
    from gateway.pure.core.namespace import Namespace
    from gateway.pure.core.verdict import Failed


def mismatch_of(
    invocation: Invocation, payload: Payload, namespace: Namespace | Failed | None, now: float
) -> Failed | PolicyException | Literal[False] | None:
    """Return None if the webhook of *invocation* matches the object of *payload*, else why it does not.

    False: a selector excludes it. *namespace* is the request's, *now* the time of the review in seconds since
    1970.
    """
    matched: bool | Failed = True
    if not invocation.has_matched_selectors:
        matched = (
            object_matches(invocation.webhook, payload.labels)
            if invocation.has_matched_namespace
            else selectors_match(invocation.webhook, payload.request, payload.outline, namespace)
        )
        policy = invocation.webhook.policy
        if matched is False or (
            matched is not True and policy is not None and policy.excludes(payload.request)
        ):
            return False
    if invocation.exceptions is not None:
        review = Circumstances(payload.request, payload.outline, payload.labels, namespace, now)
        exception = invocation.exceptions.find(review)
        if exception is not None:
            return exception
    return None if matched is True else matched
