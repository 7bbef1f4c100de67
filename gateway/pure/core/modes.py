"""The mode in which each webhook of a review is: ``rollout`` of its configuration.

The decision is made once for a review, before its evaluation, from the request as it came and the wall clock.
It does not depend on the backend of the webhook.

**Percentage of namespaces.** With ``h`` the first eight bytes of the SHA-256 of the UTF-8 text
``WEBHOOK/NAMESPACE``, as a big-endian number, the *rank* of a namespace for a webhook is
``floor(h * 100 / 2**64)``, from 0 to 99. The webhook is enforced in a namespace whose rank is below
``percentOfNamespaces``. So the answer depends on nothing else of the request, and a higher percentage only
adds namespaces. A rollout plan may have a salt, which replaces ``WEBHOOK``, and groups of namespaces that
the percentage does not concern: those that are enforced already and those that are not yet, which win.

**Namespace of a request.** A Namespace object is in itself. Any other object without a namespace is in none:
a ``namespaceSelector`` or a percentage below 100 does not match it.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from gateway.pure.core.namespace import Namespace
from gateway.pure.core.review import is_namespace, is_namespace_write, labels_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gateway.pure.core.matching import Selection
    from gateway.pure.core.review import AdmissionRequest
    from gateway.pure.core.verdict import Failed
    from gateway.pure.core.webhook import Enforcement, Mode, Rollout, Webhook, WebhookId

_KEPT_RANKS: Final = 65_536
"""Cached pairs of webhook and namespace."""
NO_STAGES: Final[Mapping[WebhookId, Rollout]] = {}


def modes_of(
    selection: Selection,
    request: AdmissionRequest,
    namespace: Namespace | Failed | None,
    time_s: float,
    stages: Mapping[WebhookId, Rollout] = NO_STAGES,
) -> dict[int, Mode]:
    """Return the modes other than Enforce of the webhooks that may match *request*, by position.

    *namespace* is the request's: None if there is none, Failed if the look-up failed. *time_s* is the wall
    clock, in seconds since 1970. *stages* has what is in force of webhooks that have a plan, or had one; of
    others, and where it is missing, their ``rollout`` is.
    """
    modes: dict[int, Mode] = {}
    for invocation in selection.invocations(request, namespace):
        webhook = invocation.webhook
        rollout = webhook.rollout
        if stages:
            rollout = stages.get(webhook.plan_id, rollout)
        if rollout is not None and rollout.mode != "Enforce":
            enforce = rollout.enforce
            if enforce is None or not _matches(enforce, webhook, request, namespace, time_s):
                modes[invocation.position] = rollout.mode
    return modes


def _matches(
    enforce: Enforcement,
    webhook: Webhook,
    request: AdmissionRequest,
    namespace: Namespace | Failed | None,
    time_s: float,
) -> bool:
    if time_s < enforce.after_s:
        return False
    selector, percent = enforce.namespace_selector, enforce.percent_of_namespaces
    name = request.namespace or (request.name if is_namespace(request) else "")
    if not name:
        return selector.is_empty and percent == 100 and not enforce.excluded
    is_chosen = percent == 100 or rank(enforce.salt or webhook.name, name) < percent
    if not is_chosen and not enforce.included:
        return False
    if selector.is_empty and not enforce.included and not enforce.excluded:
        return True
    if is_namespace_write(request):
        labels = labels_of(request.object_outline)
    elif isinstance(namespace, Namespace):
        labels = namespace.labels
    else:
        # The labels are not known: as for any failure, the failurePolicy decides.
        return webhook.failure_policy == "Fail"
    if not selector.matches(labels) or any(one.matches(labels) for one in enforce.excluded):
        return False
    return is_chosen or any(one.matches(labels) for one in enforce.included)


@lru_cache(_KEPT_RANKS)
def rank(webhook: str, namespace: str) -> int:
    """Return the rank of *namespace* for *webhook*, a name or a salt: from 0 to 99."""
    digest = hashlib.sha256(f"{webhook}/{namespace}".encode(errors="replace")).digest()
    return int.from_bytes(digest[:8], "big") * 100 >> 64
