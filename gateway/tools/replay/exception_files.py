"""Writes exceptions that were found in traffic, grouped by namespace with comments for the people to ask.

Reviews are documents of others: every text of theirs is one printable line in a comment or a value of YAML.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING, Final

import orjson

from admission_gateway_worker.text import printable
from gateway.base.text import rfc3339
from gateway.tools.registration.yaml_output import to_yaml

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gateway.tools.replay.cover import Draft
    from gateway.tools.replay.denials import Denials, Facts, Group

_DAY_S: Final = 86_400
_MAX_LINES: Final = 20
"""Lines of comments about one exception."""
_NOT_IN_NAMES: Final = re.compile(r"[^a-z0-9]+")


@dataclass
class _About:
    """What one exception covers of what was denied."""

    count: int = 0
    first: str = ""
    last: str = ""
    uid: str = ""
    by_facts: dict[tuple[str, Facts], int] = field(default_factory=dict)
    """Denials by webhook and facts."""

    def add(self, webhook: str, facts: Facts, group: Group) -> None:
        self.count += group.count
        self.uid = self.uid or group.uid
        self.first = min(self.first or group.first, group.first or self.first)
        self.last = max(self.last, group.last)
        self.by_facts[webhook, facts] = self.by_facts.get((webhook, facts), 0) + group.count


def as_yaml(drafts: Sequence[Draft], denials: Denials, left_out: int, now: float, days: int) -> str:
    """Return the file with PolicyExceptions for *drafts*, in their order, which end *days* after *now*.

    *left_out* reviews were not replayed, so that nothing is known about them.
    They end at midnight, UTC, so that a day's runs write the same bytes.
    """
    expires = rfc3339((int(now) // _DAY_S + 1 + days) * _DAY_S)
    about = _about(drafts, denials)
    total = sum(one.count for one in about)
    seen = [group for group in denials.groups.values() if group.first]
    lines = [
        f"# Exceptions by namespace: {len(drafts):,}. Denials that a replay found to be new: {total:,}.",
        "# Ask each owner to confirm the reason, or to repair the workload, before you use them.",
        *(
            [f"# Seen: requests from {min(one.first for one in seen)} to {max(one.last for one in seen)}."]
            if seen
            else []
        ),
        *([f"# Not replayed, and perhaps denied: {left_out:,} reviews."] if left_out else []),
    ]
    parts = ["\n".join(lines) + "\n"]
    for namespace, found in groupby(zip(drafts, about, strict=True), key=lambda one: one[0].namespace):
        named = list(found)
        owner = denials.owners.get(namespace, "")
        count = sum(one.count for _, one in named)
        heading = f"# Namespace {namespace}, owner {owner or 'not known'}: {count:,} denials\n"
        for number, (draft, one) in enumerate(named):
            comments = "".join(f"# {printable(line, 400)}\n" for line in _comments(draft, one, denials))
            parts.append((heading if not number else "") + comments + _document(draft, one, owner, expires))
    return "---\n".join(parts)


def by_namespace(drafts: Sequence[Draft], denials: Denials) -> list[dict[str, object]]:
    """Return whom to ask: of each namespace the owner, and how many exceptions and denials there are."""
    found = []
    for namespace, each in groupby(
        zip(drafts, _about(drafts, denials), strict=True), key=lambda one: one[0].namespace
    ):
        counts = [one.count for _, one in each]
        owner = denials.owners.get(namespace, "")
        found.append(
            {"namespace": namespace, "owner": owner, "exceptions": len(counts), "denials": sum(counts)}
        )
    return found


def _about(drafts: Sequence[Draft], denials: Denials) -> list[_About]:
    found = [_About() for _ in drafts]
    by_place: dict[tuple[str, str], list[int]] = {}
    for number, draft in enumerate(drafts):
        for webhook in draft.webhooks:
            by_place.setdefault((webhook, draft.namespace), []).append(number)
    for (facts, signature), group in denials.groups.items():
        if signature.is_newly_denied:
            for webhook in signature.rejecting:
                for number in by_place.get((webhook, facts.namespace), ()):
                    if drafts[number].covers(facts):
                        found[number].add(webhook, facts, group)
                        break
    return found


def _comments(draft: Draft, about: _About, denials: Denials) -> Iterator[str]:
    rows = sorted(about.by_facts.items(), key=lambda item: (-item[1], item[0]))
    for (webhook, facts), count in rows[:_MAX_LINES]:
        of = facts.owner or "(generated name)"
        of = of if of.startswith((f"{facts.kind}/", "(")) else f"{facts.kind} of {of}"
        images = f", {', '.join(facts.images)}" if facts.images else ""
        yield f"  {count:,} {of} by {facts.user or '(no user)'}{images}: {webhook}"
    if len(rows) > _MAX_LINES:
        yield f"  and {len(rows) - _MAX_LINES:,} more"
    messages = (
        denials.messages.get((webhook, draft.namespace, kind), "")
        for webhook in sorted(draft.webhooks)
        for kind in sorted(draft.kinds)
    )
    yield from (f"  says: {text}" for text in list(dict.fromkeys(filter(None, messages)))[:3])


def _document(draft: Draft, about: _About, owner: str, expires: str) -> str:
    match: dict[str, object] = {}
    if draft.users or not draft.owners:
        match |= {"owners": sorted(draft.owners), "users": sorted(draft.users)}
    else:
        match |= {"names": sorted({one.partition("/")[2] for one in draft.owners})}
    match |= {"kinds": sorted(draft.kinds), "images": sorted(draft.images)}
    match = {name: entries for name, entries in match.items() if entries}
    webhooks = sorted(draft.webhooks)
    digest = hashlib.sha256(orjson.dumps([webhooks, match], option=orjson.OPT_SORT_KEYS)).hexdigest()[:10]
    name = _NOT_IN_NAMES.sub("-", webhooks[0].rpartition("/")[2].partition(".")[0][:40].lower()).strip("-")
    seen = f" from {about.first} to {about.last}" if about.first else ""
    times = "denial" if about.count == 1 else "denials"
    reason = f"{about.count:,} {times} found by replay{seen}, such as {about.uid or 'one without uid'}"
    return to_yaml(
        {
            "apiVersion": "admission-gateway.io/v1alpha1",
            "kind": "PolicyException",
            "metadata": {"name": f"{name or 'webhook'}-{digest}", "namespace": draft.namespace},
            "spec": {
                "webhooks": webhooks,
                "match": match,
                "reason": reason,
                "owner": owner or f"not known, namespace {draft.namespace}",
                "expires": expires,
            },
        }
    )
