"""Webhooks divided by the apiVersions that they name, so that each part can be registered by a short name.

For each entry of a registration the API server chooses the version that it sends from the apiVersions of the
entry. Webhooks that name other apiVersions for the same requests need other entries. The parts of a webhook
follow from the webhook alone, so they do not depend on other webhooks. Each request of a webhook belongs to
one part.

Source: kubernetes/apiserver plugin/webhook/generic/webhook.go (ShouldCallHook).
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import astuple, replace
from typing import TYPE_CHECKING, Final

from gateway.pure.core.overlap import overlap

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gateway.pure.core.webhook import Rule, Webhook

LONGEST_KEY: Final = 40
_USUAL: Final = re.compile(r"v[0-9]+(?:(?:alpha|beta)[0-9]+)?")


def by_versions(webhook: Webhook) -> dict[str, Webhook]:
    """Return the parts of *webhook* by key: a part is the webhook with some of its rules, in their order.

    Rules that match the same requests are in the same part. If they name the same apiVersions, these are the
    key, as ``v1`` or ``v1-v1beta1``, or ``any`` for ``*``. Any other key is a digest: of unusual apiVersions,
    or of the rules, if rules for the same requests name different apiVersions.
    """
    parts: dict[str, list[int]] = {}
    for indices in _connected(webhook.rules):
        key = _key([webhook.rules[index] for index in indices])
        parts.setdefault(key, []).extend(indices)
    if len(parts) == 1:
        return dict.fromkeys(parts, webhook)
    return {
        key: replace(webhook, rules=tuple(webhook.rules[index] for index in sorted(indices)))
        for key, indices in parts.items()
    }


def _connected(rules: Sequence[Rule]) -> list[list[int]]:
    """Return the indices of *rules* in groups; rules that overlap, also through others, are in one group."""
    versions = [frozenset(rule.api_versions) for rule in rules]
    if len(set(versions)) == 1:
        return [list(range(len(rules)))]
    groups: list[list[int]] = []
    for index, rule in enumerate(rules):
        joined, apart = [index], []
        for group in groups:
            if any(overlap(rule, rules[other]) for other in group):
                joined = [*group, *joined]
            else:
                apart.append(group)
        groups = [*apart, joined]
    return groups


def _key(rules: Sequence[Rule]) -> str:
    named = {frozenset(rule.api_versions) for rule in rules}
    if len(named) > 1:
        return f"rules-{_digest(list(map(astuple, rules)))}"
    versions = sorted(*named)
    if "*" in versions:
        return "any"
    key = "-".join(versions)
    is_usual = len(key) <= LONGEST_KEY and all(map(_USUAL.fullmatch, versions))
    return key if is_usual else f"versions-{_digest(versions)}"


def _digest(content: object) -> str:
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]
