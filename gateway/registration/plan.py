"""The two objects that register a gateway: which entries there are, and what has to be said about them.

Every entry is a call of its own, so there are as few as possible: one for the mutating webhooks, whose order
would not hold otherwise, two for the validating ones, by failurePolicy. Where some of these name other
apiVersions for the same requests (``gateway.registration.partition``), there is an entry for each set of
apiVersions instead (``gateway.core.versions``). Its name and its path do not depend on the webhooks in it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from gateway.core.versions import by_versions
from gateway.errors import GatewayError
from gateway.paths import START, path_of, path_of_versions
from gateway.registration.coverage_gaps import CoverageGap, coverage_gaps, is_called_in
from gateway.registration.entry import Entry, within
from gateway.registration.exclusions import excluded_namespaces, sendable
from gateway.registration.partition import Relations, assign_rounds, sort_key

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from gateway.config.model import Config
    from gateway.core.webhook import FailurePolicy, Phase, Webhook
    from gateway.registration.backend import Backend

DEFAULT_NAME: Final = "admission-gateway"
DOMAIN: Final = "admission-gateway.io"
LONGEST_PATH: Final = 12 * 1024
"""The gateway reads heads of up to 16 KiB, of which the path is one part."""

LARGEST_OBJECT: Final = 3 * 1024 * 1024
"""Bytes of JSON that the API server takes in a request."""
_LARGE_OBJECT: Final = 1024 * 1024
"""Bytes of JSON of which it is doubtful whether etcd takes the object, with up to 1.5 MiB by default."""

_KINDS: Final[dict[Phase, str]] = {
    "mutate": "MutatingWebhookConfiguration",
    "validate": "ValidatingWebhookConfiguration",
}


@dataclass(frozen=True, slots=True)
class RegistrationOptions:
    """What the operator wants of the registration."""

    backend: Backend
    name: str = DEFAULT_NAME
    """Of both objects."""
    split_mutating: bool = False
    """Whether mutating webhooks get an entry for each failurePolicy, too."""
    excluded_namespaces: tuple[str, ...] = ()
    """Beside those that are left out anyway."""
    included: frozenset[str] = frozenset()
    """Of ``exclusions.INCLUDABLE``: what is not to be left out."""


@dataclass(slots=True)
class Plan:
    """What is to be registered."""

    name: str
    """Of both objects."""
    documents: list[dict[str, object]] = field(default_factory=list)
    """The MutatingWebhookConfiguration and the ValidatingWebhookConfiguration, each perhaps with no entry: so
    that applying it takes away what is no longer wanted."""
    notes: list[str] = field(default_factory=list)
    """What the operator should know, a sentence each."""
    coverage_gaps: list[CoverageGap] = field(default_factory=list)
    """Webhooks that are not called in namespaces that are left out."""


def plan(config: Config, wishes: RegistrationOptions) -> Plan:
    """Return what registers a gateway that serves *config*. The same comes out the same to the byte.

    Raises:
        GatewayError: mutating webhooks alternate between apiVersions more often than a path can tell, or an
            object is larger than the API server takes.
    """
    made = Plan(wishes.name)
    namespaces = excluded_namespaces(wishes.backend.namespace, wishes.excluded_namespaces, wishes.included)
    reserve_s = config.gateway.deadline_reserve_s
    phases: tuple[tuple[Phase, tuple[Webhook, ...]], ...] = (
        ("mutate", config.mutating),
        ("validate", config.validating),
    )
    for phase, webhooks in phases:
        entries = list(_entries(phase, webhooks, wishes, made.notes))
        for entry in entries:
            made.notes.extend(_notes(entry, reserve_s))
        document: dict[str, object] = {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": _KINDS[phase],
            "metadata": {"name": wishes.name, "labels": {"app.kubernetes.io/name": DEFAULT_NAME}},
            "webhooks": [
                entry.document(
                    wishes.backend.client_config(entry.path), reserve_s, namespaces, wishes.included
                )
                for entry in entries
            ],
        }
        made.notes.extend(_of_size(document, len(entries)))
        made.documents.append(document)
    made.coverage_gaps.extend(_losses(config, namespaces))
    if not config.mutating and not config.validating:
        made.notes.append("no webhook is configured, so the API server will not call the gateway")
    return made


def _of_size(document: dict[str, object], entries: int) -> Iterator[str]:
    size = len(json.dumps(document, separators=(",", ":")))
    if size > _LARGE_OBJECT:
        found = (
            f"{document['kind']} has {size} bytes in {entries} entries. Webhooks that name the same "
            "apiVersions for the same resources share an entry"
        )
        if size > LARGEST_OBJECT:
            raise GatewayError(f"{found}. The API server takes {LARGEST_OBJECT} bytes")
        yield f"{found}. etcd may refuse it: its limit for an object is 1.5 MiB by default"


def entry_name(name: str, phase: Phase, policy: FailurePolicy | None, key: str = "", number: int = 0) -> str:
    """Return the name of an entry of a registration called *name*: for all webhooks, or for those with *key*.

    The names of a phase's entries sort, byte by byte, in the order of their calls: by failurePolicy, by the
    round *number* (0: there are none), by *key*.
    """
    numbered = f"{number:04}" if number else ""
    head = "-".join(filter(None, ((policy or phase).lower(), numbered, key)))
    parts = [head, phase if policy else None, None if name == DEFAULT_NAME else name, DOMAIN]
    return ".".join(filter(None, parts))


def _entries(
    phase: Phase, configured: tuple[Webhook, ...], wishes: RegistrationOptions, notes: list[str]
) -> Iterator[Entry]:
    webhooks = [webhook for webhook in map(sendable, configured) if webhook.rules]
    relations = Relations(webhooks)
    policies: tuple[FailurePolicy | None, ...] = ("Fail", "Ignore")
    if phase == "mutate" and not wishes.split_mutating:
        policies = (None,)
    if phase == "mutate" and wishes.split_mutating:
        notes.extend(_disorder(webhooks, relations))
    for policy in policies:
        places = [at for at, webhook in enumerate(webhooks) if policy in (None, webhook.failure_policy)]
        if relations.has_conflict(places):
            chosen = [hook for hook in configured if policy in (None, hook.failure_policy)]
            yield from _by_versions(phase, policy, chosen, wishes.name)
        elif places:
            members = tuple(webhooks[place] for place in places)
            name = entry_name(wishes.name, phase, policy)
            (together,) = _together(webhooks, relations, [places])
            yield Entry(name, phase, path_of(phase, policy), members, together)


def _by_versions(
    phase: Phase, policy: FailurePolicy | None, webhooks: Sequence[Webhook], name: str
) -> Iterator[Entry]:
    """Yield an entry for each key of the parts of *webhooks*; for mutating ones for each round of a key."""
    parts = [
        (key, part)
        for webhook in webhooks
        for key, of_key in by_versions(webhook).items()
        if (part := sendable(of_key)).rules
    ]
    keys, hooks = [key for key, _ in parts], [part for _, part in parts]
    relations = Relations(hooks)
    rounds = assign_rounds(keys, relations) if phase == "mutate" else [0] * len(parts)
    groups: dict[tuple[int, str], list[int]] = {}
    for place, group in enumerate(zip(rounds, keys, strict=True)):
        groups.setdefault(group, []).append(place)
    sections: dict[str, list[list[int]]] = {}
    for (_, key), places in groups.items():
        sections.setdefault(key, []).append(places)
    bounds = {
        key: [_bound(hooks[before[-1]], hooks[after[0]]) for before, after in pairwise(several)]
        for key, several in sections.items()
    }
    together = dict(zip(groups, _together(hooks, relations, groups.values()), strict=True))
    for number, key in sorted(groups, key=lambda group: (group[0], sort_key(group[1]))):
        places = groups[number, key]
        path = path_of_versions(phase, policy, key, *_section(bounds[key], sections[key].index(places)))
        title = entry_name(name, phase, policy, key, number)
        if len(path) > LONGEST_PATH:
            first, second = (hooks[at] for at in (sections[key][0][-1], sections[key][1][0]))
            raise GatewayError(
                f"{title}: its path would have {len(path)} characters, and the gateway takes {LONGEST_PATH}. "
                f"Mutating webhooks for the same resources name apiVersions {key} and others by turns: "
                f"{_named(first)}, another, {_named(second)}. Each of {max(rounds)} turns would be a call. "
                "Name the same apiVersions in these webhooks, or put those with the same next to each other"
            )
        members = tuple(hooks[place] for place in places)
        yield Entry(title, phase, path, members, together[number, key])


def _bound(before: Webhook, after: Webhook) -> tuple[str, str]:
    """Return a bound, as short as can be, between two webhooks of which one comes before the other."""
    if before.configuration == after.configuration:
        return after.configuration, after.name
    name = after.configuration
    prefixes = (name[:length] for length in range(1, len(name) + 1))
    # As part of a path it is a DNS name, which ends with a letter or digit.
    return next(one for one in prefixes if one > before.configuration and one[-1].isalnum()), START


def _section(bounds: Sequence[tuple[str, str]], place: int) -> tuple[int, list[tuple[str, str]]]:
    """Return the section at *place* among those that all *bounds* make, by as few of these as say the same.

    The bounds after the next one are after it whatever is configured, but for bounds in one configuration: of
    these one webhook may be gone and another not.
    """
    before, after = bounds[max(place - 1, 0) : place], bounds[place:]
    ends = [
        one for number, one in enumerate(after) if not number or (one[0] == after[0][0] and one[1] != START)
    ]
    return len(before) + 1, [*before, *ends]


def _together(
    webhooks: Sequence[Webhook], relations: Relations, groups: Collection[Sequence[int]]
) -> list[list[list[Webhook]]]:
    """Return, for each of *groups* of places, which of its webhooks are for the same requests."""
    group_of = {place: number for number, places in enumerate(groups) for place in places}
    wanted: list[dict[tuple[int, ...], None]] = [{} for _ in groups]
    for cell in relations.matched_together:
        inside: dict[int, list[int]] = {}
        for place in sorted(cell):
            if place in group_of:
                inside.setdefault(group_of[place], []).append(place)
        for number, places in inside.items():
            wanted[number][tuple(places)] = None
    return [[[webhooks[place] for place in places] for places in of_group] for of_group in wanted]


def _disorder(webhooks: list[Webhook], relations: Relations) -> Iterator[str]:
    """Yield what --split-mutating does to the order, if anything."""
    for later, webhook in enumerate(webhooks):
        for earlier, before in enumerate(webhooks[:later]):
            policies = before.failure_policy, webhook.failure_policy
            if policies == ("Ignore", "Fail") and relations.overlap(earlier, later):
                yield (
                    f"--split-mutating changes the order: {_named(webhook)} (Fail) is now called before "
                    f"{_named(before)} (Ignore), and perhaps others likewise"
                )
                return


def _notes(entry: Entry, reserve_s: float) -> Iterator[str]:
    policies = {webhook.failure_policy for webhook in entry.webhooks}
    if len(policies) > 1:
        yield (
            f"{entry.name}: holds webhooks with Fail and with Ignore: a gateway that cannot be reached means "
            "Fail for all of them; --split-mutating makes two entries"
        )
    if entry.phase == "mutate" and entry.reinvocation_policy == "Never":
        wanting = [_named(hook) for hook in entry.webhooks if hook.reinvocation_policy == "IfNeeded"]
        if wanting:
            yield (
                f"{entry.name}: reinvocationPolicy is Never, as that of some of its webhooks is: "
                f"{', '.join(wanting)} will be called again after changes by webhooks of the gateway only"
            )
    everywhere = next((hook for hook in entry.webhooks if _covers_the_cluster(hook)), None)
    if entry.failure_policy == "Fail" and everywhere is not None:
        yield (
            f"{entry.name}: {_named(everywhere)} is for all resources outside of namespaces too: while no "
            "gateway can be reached no node can join, and an API server of another version cannot start; a "
            "rule with scope: Namespaced leaves them out"
        )
    longest = max(entry.webhooks, key=lambda webhook: webhook.timeout_s)
    left_s = within(entry.timeout_s(reserve_s), reserve_s)
    if left_s < longest.timeout_s:
        yield (
            f"{entry.name}: timeoutSeconds is {entry.timeout_s(reserve_s)}, the most there is, of which "
            f"webhooks get {left_s:g} s: {_named(longest)} will not have its {longest.timeout_s} s"
        )


def _losses(config: Config, namespaces: Sequence[str]) -> list[CoverageGap]:
    found = []
    for namespace in namespaces:
        # With a cluster, that knows the labels, and Namespace documents do not count.
        known = config.namespaces.get(namespace) if config.gateway.kubernetes is None else None
        labels = None if known is None else known.labels
        for webhook in map(sendable, (*config.mutating, *config.validating)):
            is_called = is_called_in(webhook, namespace, labels)
            if is_called is not False:
                found.append((namespace, webhook, bool(is_called)))
    return coverage_gaps(found)


def _covers_the_cluster(webhook: Webhook) -> bool:
    """Whether a wildcard takes in the cluster roles that an API server makes when it starts."""
    return any(
        not {"*", "rbac.authorization.k8s.io"}.isdisjoint(rule.api_groups)
        and not {"*", "*/*"}.isdisjoint(rule.resources)
        and not {"*", "CREATE", "UPDATE"}.isdisjoint(rule.operations)
        and rule.scope != "Namespaced"
        for rule in webhook.rules
    )


def _named(webhook: Webhook) -> str:
    return f"{webhook.configuration}/{webhook.name}"
