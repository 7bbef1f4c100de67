"""The smallest set of exceptions that covers what is newly denied: a weighted set cover, and pure.

1. An exception is for one namespace. It names the users of the requests that it covers, unless the source has
   no users, the kinds, and the images if all are known.
2. A candidate covers what one owner is behind, or what runs one set of images, or what one user does. It
   costs more if it says less about the workload, because it then covers requests that nobody saw yet, and one
   more for each group of allowed requests that it covers too. No candidate covers all that a user of the
   system does, or requests that were denied before.
3. Greedily, the candidate with the least costs for each group that is not covered yet is taken, until all
   are: at most ln(n) + 1 times as expensive as the best. Those that turn out superfluous are dropped.
4. Exceptions are united as long as they cover no group that was seen, is not newly denied, and is covered by
   neither.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from gateway.config.kinds.names import dns_1123_label
from gateway.config.kinds.policy_exception import webhook_name_problem
from gateway.tools.replay.denials import MAX_ENTRIES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from gateway.tools.replay.denials import Facts, Group, Signature

COST_OF_OWNER: Final = 1
COST_OF_IMAGES: Final = 8
COST_OF_USER: Final = 64
"""As much as one exception for as many owners as its list can have."""
_TRIED: Final = 16
"""How many exceptions each one is tried to be united with."""


@dataclass(frozen=True, slots=True)
class Draft:
    """What an exception covers. An empty set matches everything."""

    namespace: str
    webhooks: frozenset[str]
    owners: frozenset[str] = frozenset()
    users: frozenset[str] = frozenset()
    kinds: frozenset[str] = frozenset()
    images: frozenset[str] = frozenset()

    def covers(self, facts: Facts) -> bool:
        """Whether requests with *facts*, in the namespace, are covered."""
        return (
            (not self.owners or _has_owner(self.owners, facts.owner))
            and (not self.users or facts.user in self.users)
            and facts.kind in self.kinds
            and (not self.images or (bool(facts.images) and self.images.issuperset(facts.images)))
        )

    @property
    def is_small(self) -> bool:
        """Whether no list has more entries than an exception may have."""
        lists = (self.webhooks, self.owners, self.users, self.kinds, self.images)
        return max(map(len, lists)) <= MAX_ENTRIES


def _has_owner(owners: frozenset[str], owner: str) -> bool:
    """Whether *owner* is one of *owners*, of which those of generated names end with ``*``."""
    return owner in owners or any(one[-1] == "*" and owner.startswith(one[:-1]) for one in owners)


@dataclass
class _Seen:
    """The groups of one webhook in one namespace."""

    denied: dict[Facts, int] = field(default_factory=lambda: defaultdict(int))
    """Newly denied reviews."""
    allowed: dict[Facts, int] = field(default_factory=lambda: defaultdict(int))
    """Reviews that the webhook allowed, or that are denied whatever it says."""
    forbidden: set[Facts] = field(default_factory=set)
    """Reviews that an exception would allow although nothing is new about their denial."""
    by_owner: dict[str, set[Facts]] = field(default_factory=lambda: defaultdict(set))
    by_user: dict[str, set[Facts]] = field(default_factory=lambda: defaultdict(set))
    by_images: dict[tuple[str, ...], set[Facts]] = field(default_factory=lambda: defaultdict(set))

    def index(self) -> None:
        """Make the indices, after all groups are known."""
        for facts in (*self.denied, *self.allowed, *self.forbidden):
            self.by_owner[facts.owner].add(facts)
            self.by_user[facts.user].add(facts)
            self.by_images[facts.images].add(facts)

    def near(self, draft: Draft) -> Iterator[Facts]:
        """Yield the groups that *draft* may cover."""
        if draft.owners:
            owners = draft.owners
            if any(one.endswith("*") for one in owners):
                owners = frozenset(one for one in self.by_owner if _has_owner(owners, one))
            yield from (facts for owner in sorted(owners) for facts in self.by_owner.get(owner, ()))
        elif draft.users:
            yield from (facts for user in sorted(draft.users) for facts in self.by_user.get(user, ()))
        else:
            yield from (facts for found in self.by_images.values() for facts in found)


@dataclass
class Cover:
    """The exceptions, and why there is none for some groups."""

    drafts: list[Draft]
    problems: list[str]
    shares: dict[str, tuple[int, int]]
    """By webhook: how many requests of its traffic the exceptions cover, and all."""


def cover(groups: Mapping[tuple[Facts, Signature], Group]) -> Cover:
    """Return exceptions for what is newly denied in *groups*; equal groups give equal exceptions."""
    denied = {name for _, signature in groups if signature.is_newly_denied for name in signature.rejecting}
    seen: dict[tuple[str, str], _Seen] = defaultdict(_Seen)
    totals: dict[str, int] = defaultdict(int)
    for (facts, signature), group in groups.items():
        for name in denied.intersection((*signature.rejecting, *signature.allowed)):
            totals[name] += group.count
            one = seen[name, facts.namespace]
            if name not in signature.rejecting:
                one.allowed[facts] += group.count
            elif signature.is_newly_denied:
                one.denied[facts] += group.count
            elif len(signature.rejecting) == 1:
                one.forbidden.add(facts)
            else:
                one.allowed[facts] += group.count
    drafts: list[Draft] = []
    problems: list[str] = []
    for (name, namespace), one in sorted(seen.items()):
        if one.denied:
            one.index()
            found = _chosen(name, namespace, one, problems)
            drafts += _united(found, one)
    drafts = _across_webhooks(drafts)
    covered: dict[str, int] = defaultdict(int)
    for (name, namespace), one in seen.items():
        of = [draft for draft in drafts if name in draft.webhooks and draft.namespace == namespace]
        near = {facts for draft in of for facts in one.near(draft) if draft.covers(facts)}
        covered[name] += sum(one.denied.get(facts, 0) + one.allowed.get(facts, 0) for facts in near)
    shares = {name: (covered[name], total) for name, total in sorted(totals.items())}
    return Cover(drafts, problems, shares)


def _candidates(name: str, namespace: str, one: _Seen) -> Iterator[tuple[int, Draft, list[Facts]]]:
    """Yield costs, exception and the denied groups that it covers, of each that is possible."""
    keys: dict[tuple[str, str, str | tuple[str, ...]], list[Facts]] = defaultdict(list)
    if not namespace or dns_1123_label(namespace) or webhook_name_problem(name):
        return
    for facts in sorted(one.denied):
        if facts.kind in ("", "Namespace"):
            continue
        if facts.owner:
            keys["owner", facts.user, facts.owner].append(facts)
        if facts.images:
            keys["images", facts.user, facts.images].append(facts)
        if facts.user and not facts.user.startswith("system:"):
            keys["user", facts.user, ""].append(facts)
    webhooks = frozenset({name})
    for (kind, user, value), about in keys.items():
        images = {image for facts in about for image in facts.images}
        are_known = all(facts.images for facts in about) and len(images) <= MAX_ENTRIES
        draft = Draft(
            namespace,
            webhooks,
            frozenset({str(value)}) if kind == "owner" else frozenset(),
            frozenset({user}) if user else frozenset(),
            frozenset(facts.kind for facts in about),
            frozenset(images) if are_known else frozenset(),
        )
        near = [facts for facts in one.near(draft) if draft.covers(facts)]
        if len(draft.kinds) <= MAX_ENTRIES and one.forbidden.isdisjoint(near):
            costs = {"owner": COST_OF_OWNER, "images": COST_OF_IMAGES, "user": COST_OF_USER}[kind]
            extra = sum(facts in one.allowed for facts in near)
            yield costs + extra, draft, [facts for facts in near if facts in one.denied]


def _chosen(name: str, namespace: str, one: _Seen, problems: list[str]) -> list[Draft]:
    """Return exceptions that cover all denied groups of *one*, and add why not to *problems*."""
    candidates = list(_candidates(name, namespace, one))
    left = set(one.denied)
    heap = [(costs / len(about), number) for number, (costs, _, about) in enumerate(candidates)]
    heapq.heapify(heap)
    chosen: list[int] = []
    while heap and left:
        ratio, number = heapq.heappop(heap)
        costs, _, about = candidates[number]
        new = sum(facts in left for facts in about)
        if not new:
            continue
        # The others may have covered some of it since: its rank may be another.
        if costs / new > ratio:
            heapq.heappush(heap, (costs / new, number))
            continue
        chosen.append(number)
        left.difference_update(about)
    for facts in sorted(left):
        problems.append(_why_not(name, facts, one))
    times: dict[Facts, int] = defaultdict(int)
    for number in chosen:
        for facts in candidates[number][2]:
            times[facts] += 1
    kept = []
    for number in reversed(chosen):
        about = candidates[number][2]
        if all(times[facts] > 1 for facts in about):
            for facts in about:
                times[facts] -= 1
        else:
            kept.append(candidates[number][1])
    return kept


def _why_not(name: str, facts: Facts, one: _Seen) -> str:
    place = f"{name}: {one.denied[facts]:,} of {facts.kind or '(unknown kind)'}"
    namespace = facts.namespace or "(no namespace)"
    by = f" {facts.owner or '(no name)'} by {facts.user or '(no user)'} in {namespace}"
    if not facts.namespace or facts.kind == "Namespace":
        return (
            f"{place}{by}: exceptions in a namespace cover only objects in it; write a ClusterPolicyException"
        )
    if problem := webhook_name_problem(name) or dns_1123_label(facts.namespace):
        return f"{place}{by}: {problem}"
    if any(facts[1:] == other[1:] for other in one.forbidden):
        return f"{place}{by}: an exception would also allow requests that were denied before"
    if not facts.kind or (not facts.owner and not facts.images):
        return f"{place}{by}: nothing is known by which an exception could cover it"
    return f"{place}{by}: every exception for it would also allow requests that were denied before"


def _united(drafts: Iterable[Draft], one: _Seen) -> list[Draft]:
    """Return *drafts* united as far as that covers no further group that was seen."""
    found: list[Draft] = []
    for draft in sorted(drafts, key=_order):
        for number in range(len(found) - 1, max(-1, len(found) - 1 - _TRIED), -1):
            other = found[number]
            if (united := _union(draft, other)) is not None and not any(
                (facts not in one.denied or facts in one.forbidden) and united.covers(facts)
                for facts in one.near(united)
                if not draft.covers(facts) and not other.covers(facts)
            ):
                found[number] = united
                break
        else:
            found.append(draft)
    return found


def _union(one: Draft, other: Draft) -> Draft | None:
    """Return what *one* and *other* cover together, at least; None if they are of different sorts."""
    names = ("owners", "users", "images")
    if any(bool(getattr(one, name)) != bool(getattr(other, name)) for name in names):
        return None
    if one.owners and not one.users and one.kinds != other.kinds:
        return None  # such an exception has names, which are those of any of its kinds
    united = replace(one, kinds=one.kinds | other.kinds)
    united = replace(united, **{name: getattr(one, name) | getattr(other, name) for name in names})
    return united if united.is_small else None


def _across_webhooks(drafts: Iterable[Draft]) -> list[Draft]:
    """Return *drafts* with those of several webhooks that match the same requests as one."""
    by_match: dict[Draft, set[str]] = defaultdict(set)
    for draft in drafts:
        by_match[replace(draft, webhooks=frozenset())] |= draft.webhooks
    found = []
    for draft, webhooks in by_match.items():
        names = sorted(webhooks)
        found += [
            replace(draft, webhooks=frozenset(names[begin : begin + MAX_ENTRIES]))
            for begin in range(0, len(names), MAX_ENTRIES)
        ]
    return sorted(found, key=_order)


def _order(draft: Draft) -> tuple[str, list[list[str]]]:
    lists = (draft.users, draft.owners, draft.images, draft.kinds, draft.webhooks)
    return draft.namespace, list(map(sorted, lists))
