"""Plans the two objects that register a gateway: their entries, and notes for the operator.

The API server makes one call for each entry, so that the plan has as few entries as possible: one for all
mutating webhooks, which keeps their order, and one for each failurePolicy of validating webhooks. Webhooks
with a version conflict (``gateway.tools.registration.partition``) get one entry for each set of apiVersions
(``gateway.pure.core.versions``). Name and path of such an entry do not depend on the webhooks in it, so that
they stay valid when the configuration changes.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from gateway.base.errors import GatewayError
from gateway.config.merge.policy_authors import AUTHORS
from gateway.engine.paths import START, path_of, path_of_versions
from gateway.pure.core.versions import by_versions
from gateway.tools.registration.coverage_gaps import CoverageGap, coverage_gaps, is_called_in
from gateway.tools.registration.entry import Entry, within
from gateway.tools.registration.exclusions import excluded_namespaces, sendable
from gateway.tools.registration.partition import Relations, assign_rounds, sort_key

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from gateway.config.merge.model import Config
    from gateway.pure.core.webhook import FailurePolicy, Phase, Webhook
    from gateway.tools.registration.backend import Backend

DEFAULT_NAME: Final = "admission-gateway"
DOMAIN: Final = "admission-gateway.io"
LONGEST_PATH: Final = 12 * 1024
"""Characters. The gateway reads header blocks of up to 16 KiB, which include the path."""

LARGEST_OBJECT: Final = 3 * 1024 * 1024
"""Limit of the API server for a request, in bytes of JSON."""
_LARGE_OBJECT: Final = 1024 * 1024
"""Size from which etcd may reject the object, in bytes of JSON; its default limit is 1.5 MiB."""

_HEADS: Final[dict[FailurePolicy, str]] = {"Fail": "mandatory", "Ignore": "optional"}
_KINDS: Final[dict[Phase, str]] = {
    "mutate": "MutatingWebhookConfiguration",
    "validate": "ValidatingWebhookConfiguration",
}


@dataclass(frozen=True, slots=True)
class RegistrationOptions:
    """The operator's options."""

    backend: Backend
    name: str = DEFAULT_NAME
    """Name of both objects."""
    split_mutating: bool = False
    """Whether mutating webhooks also get an entry for each failurePolicy."""
    excluded_namespaces: tuple[str, ...] = ()
    """In addition to those that are excluded by default."""
    included: frozenset[str] = frozenset()
    """Values of ``exclusions.INCLUDABLE`` that are not excluded."""
    annotations: tuple[tuple[str, str], ...] = ()
    """The annotations of both objects."""


@dataclass(slots=True)
class Plan:
    """The objects to register."""

    name: str
    """Name of both objects."""
    documents: list[dict[str, object]] = field(default_factory=list)
    """The MutatingWebhookConfiguration and the ValidatingWebhookConfiguration. Either may have no entry, so
    that applying it removes old entries."""
    notes: list[str] = field(default_factory=list)
    """Notes for the operator."""
    coverage_gaps: list[CoverageGap] = field(default_factory=list)
    """Webhooks that are not called in excluded namespaces."""


def plan(config: Config, options: RegistrationOptions) -> Plan:
    """Return the plan for a gateway that serves *config*. Equal input gives equal bytes.

    Raises:
        GatewayError: mutating webhooks alternate between apiVersions so often that a path becomes too long,
            or an object exceeds the limit of the API server.
    """
    made = Plan(options.name)
    namespaces = excluded_namespaces(options.backend.namespace, options.excluded_namespaces, options.included)
    reserve_s = config.gateway.deadline_reserve_s
    phases: tuple[tuple[Phase, tuple[Webhook, ...]], ...] = (
        ("mutate", config.mutating),
        ("validate", config.validating),
    )
    for phase, webhooks in phases:
        entries = list(_entries(phase, webhooks, options, made.notes))
        for entry in entries:
            made.notes.extend(_notes(entry, reserve_s))
        document: dict[str, object] = {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": _KINDS[phase],
            "metadata": {
                "name": options.name,
                "labels": {"app.kubernetes.io/name": DEFAULT_NAME},
                **({"annotations": dict(options.annotations)} if options.annotations else {}),
            },
            "webhooks": [
                entry.document(
                    options.backend.client_config(entry.path), reserve_s, namespaces, options.included
                )
                for entry in entries
            ],
        }
        made.notes.extend(_check_size(document, len(entries)))
        made.documents.append(document)
    made.coverage_gaps.extend(_coverage_gaps(config, namespaces))
    for kind in config.gateway.policies.left_to_api_server:
        names = ", ".join(sorted(name for of, name in config.policies if of == kind and name != AUTHORS))
        made.notes.append(
            f"{kind} is left to the API server by policies.leftToAPIServer, and not registered: "
            f"{names or 'no file has one'}; apply these policies to the cluster, or nothing evaluates them"
        )
    if not config.mutating and not config.validating:
        made.notes.append("no webhook is configured: the API server will not call the gateway")
    return made


def _check_size(document: dict[str, object], entries: int) -> Iterator[str]:
    size = len(json.dumps(document, separators=(",", ":")))
    if size > _LARGE_OBJECT:
        found = (
            f"{document['kind']} has {size} bytes in {entries} entries. Webhooks with the same apiVersions "
            "for the same resources share an entry"
        )
        if size > LARGEST_OBJECT:
            raise GatewayError(f"{found}. The limit of the API server is {LARGEST_OBJECT} bytes")
        yield f"{found}. etcd may reject it: its default limit for an object is 1.5 MiB"


def entry_name(name: str, phase: Phase, policy: FailurePolicy | None, key: str = "", number: int = 0) -> str:
    """Return the name of an entry of the registration *name*: of all webhooks, or of the parts with *key*.

    The names of a phase's entries sort, byte by byte, in the order of their calls: by failurePolicy, by the
    round *number* (0 without rounds), by *key*. Who is denied reads the name before the verdict, which it
    must not seem to be.
    """
    numbered = f"{number:04}" if number else ""
    head = "-".join(filter(None, (phase if policy is None else _HEADS[policy], numbered, key)))
    parts = [head, phase if policy else None, None if name == DEFAULT_NAME else name, DOMAIN]
    return ".".join(filter(None, parts))


def _entries(
    phase: Phase, configured: tuple[Webhook, ...], options: RegistrationOptions, notes: list[str]
) -> Iterator[Entry]:
    webhooks = [webhook for webhook in map(sendable, configured) if webhook.rules]
    relations = Relations(webhooks)
    policies: tuple[FailurePolicy | None, ...] = ("Fail", "Ignore")
    if phase == "mutate" and not options.split_mutating:
        policies = (None,)
    if phase == "mutate" and options.split_mutating:
        notes.extend(_order_changes(webhooks, relations))
    for policy in policies:
        indices = [at for at, webhook in enumerate(webhooks) if policy in (None, webhook.failure_policy)]
        if relations.has_conflict(indices):
            chosen = [hook for hook in configured if policy in (None, hook.failure_policy)]
            yield from _by_versions(phase, policy, chosen, options.name)
        elif indices:
            members = tuple(webhooks[index] for index in indices)
            name = entry_name(options.name, phase, policy)
            (together,) = _matched_together(webhooks, relations, [indices])
            yield Entry(name, phase, path_of(phase, policy), members, together)


def _by_versions(
    phase: Phase, policy: FailurePolicy | None, webhooks: Sequence[Webhook], name: str
) -> Iterator[Entry]:
    """Yield an entry for each key of the parts of *webhooks*, or for each round of a key if mutating."""
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
    for index, group in enumerate(zip(rounds, keys, strict=True)):
        groups.setdefault(group, []).append(index)
    sections: dict[str, list[list[int]]] = {}
    for (_, key), indices in groups.items():
        sections.setdefault(key, []).append(indices)
    # Names of configurations are bounds only where the order is theirs, and ``after`` does not change it.
    is_by_name = not any(webhook.after for webhook in webhooks)
    bounds = {
        key: [
            _bound(hooks[before[-1]], hooks[after[0]], is_by_name=is_by_name)
            for before, after in pairwise(several)
        ]
        for key, several in sections.items()
    }
    together = dict(zip(groups, _matched_together(hooks, relations, groups.values()), strict=True))
    for number, key in sorted(groups, key=lambda group: (group[0], sort_key(group[1]))):
        indices = groups[number, key]
        path = path_of_versions(phase, policy, key, *_section(bounds[key], sections[key].index(indices)))
        title = entry_name(name, phase, policy, key, number)
        if len(path) > LONGEST_PATH:
            first, second = (hooks[at] for at in (sections[key][0][-1], sections[key][1][0]))
            raise GatewayError(
                f"{title}: its path would have {len(path)} characters, and the gateway takes {LONGEST_PATH}. "
                f"Mutating webhooks for the same resources name apiVersions {key} and others by turns: "
                f"{_named(first)}, another, {_named(second)}. Each of {max(rounds)} turns would be a call. "
                "Name the same apiVersions in these webhooks, or put those with the same next to each other"
            )
        members = tuple(hooks[index] for index in indices)
        yield Entry(title, phase, path, members, together[number, key])


def _bound(before: Webhook, after: Webhook, *, is_by_name: bool) -> tuple[str, str]:
    """Return the shortest bound between two webhooks, of which *before* comes first."""
    if before.configuration == after.configuration or not is_by_name:
        return after.configuration, after.name
    name = after.configuration
    prefixes = (name[:length] for length in range(1, len(name) + 1))
    # A part of a path has to be a DNS name, which ends with a letter or digit.
    return next(one for one in prefixes if one > before.configuration and one[-1].isalnum()), START


def _section(bounds: Sequence[tuple[str, str]], index: int) -> tuple[int, list[tuple[str, str]]]:
    """Return the number of the section at *index*, from 1, and the fewest of *bounds* that define it.

    The bound before the section and the bound after it are sufficient. Only in one configuration further
    bounds are needed, because the webhook of a bound may be removed while later webhooks remain.
    """
    before, after = bounds[max(index - 1, 0) : index], bounds[index:]
    ends = [
        one for number, one in enumerate(after) if not number or (one[0] == after[0][0] and one[1] != START)
    ]
    return len(before) + 1, [*before, *ends]


def _matched_together(
    webhooks: Sequence[Webhook], relations: Relations, groups: Collection[Sequence[int]]
) -> list[list[list[Webhook]]]:
    """Return, for each of *groups* of indices, the sets of its webhooks that match the same requests."""
    group_of = {index: number for number, indices in enumerate(groups) for index in indices}
    wanted: list[dict[tuple[int, ...], None]] = [{} for _ in groups]
    for cell in relations.matched_together:
        inside: dict[int, list[int]] = {}
        for index in sorted(cell):
            if index in group_of:
                inside.setdefault(group_of[index], []).append(index)
        for number, indices in inside.items():
            wanted[number][tuple(indices)] = None
    return [[[webhooks[index] for index in indices] for indices in of_group] for of_group in wanted]


def _order_changes(webhooks: list[Webhook], relations: Relations) -> Iterator[str]:
    """Yield notes if --split-mutating changes the order of mutating webhooks."""
    by_name: dict[str, list[int]] = {}
    for index, webhook in enumerate(webhooks):
        by_name.setdefault(webhook.name, []).append(index)
    for later, webhook in enumerate(webhooks):
        for earlier in (index for name in webhook.after for index in by_name.get(name, ())):
            before = webhooks[earlier]
            policies = before.failure_policy, webhook.failure_policy
            if policies == ("Ignore", "Fail") and relations.overlap(earlier, later):
                yield (
                    f"--split-mutating breaks `after`: {_named(webhook)} (Fail) has to be called after "
                    f"{_named(before)} (Ignore), and will be called before it"
                )
    for later, webhook in enumerate(webhooks):
        for earlier, before in enumerate(webhooks[:later]):
            policies = before.failure_policy, webhook.failure_policy
            if policies == ("Ignore", "Fail") and relations.overlap(earlier, later):
                yield (
                    f"--split-mutating changes the order: {_named(webhook)} (Fail) will be called before "
                    f"{_named(before)} (Ignore), and other pairs may be affected"
                )
                return


def _notes(entry: Entry, reserve_s: float) -> Iterator[str]:
    policies = {webhook.failure_policy for webhook in entry.webhooks}
    if len(policies) > 1:
        yield (
            f"{entry.name}: has webhooks with Fail and webhooks with Ignore: if the gateway is unreachable, "
            "all fail; --split-mutating makes two entries"
        )
    if entry.phase == "mutate" and entry.reinvocation_policy == "Never":
        affected = [_named(hook) for hook in entry.webhooks if hook.reinvocation_policy == "IfNeeded"]
        if affected:
            yield (
                f"{entry.name}: reinvocationPolicy is Never, because some of its webhooks have Never: "
                f"{', '.join(affected)} will be reinvoked only after changes by other webhooks of the gateway"
            )
    everywhere = next((hook for hook in entry.webhooks if _covers_the_cluster(hook)), None)
    if entry.failure_policy == "Fail" and everywhere is not None:
        yield (
            f"{entry.name}: {_named(everywhere)} matches all cluster-scoped resources: while no gateway "
            "is reachable, no node can join, and an API server of another version cannot start; a rule with "
            "scope: Namespaced excludes them"
        )
    longest = max(entry.webhooks, key=lambda webhook: webhook.timeout_s)
    left_s = within(entry.timeout_s(reserve_s), reserve_s)
    if left_s < longest.timeout_s:
        yield (
            f"{entry.name}: timeoutSeconds is {entry.timeout_s(reserve_s)}, the maximum, of which webhooks "
            f"get {left_s:g} s: {_named(longest)} will not get its {longest.timeout_s} s"
        )


def _coverage_gaps(config: Config, namespaces: Sequence[str]) -> list[CoverageGap]:
    found = []
    for namespace in namespaces:
        # With a cluster, its labels apply instead of Namespace documents.
        known = config.namespaces.get(namespace) if config.gateway.kubernetes is None else None
        labels = None if known is None else known.labels
        for webhook in map(sendable, config.webhooks):
            is_called = is_called_in(webhook, namespace, labels)
            if is_called is not False:
                found.append((namespace, webhook, bool(is_called)))
    return coverage_gaps(found)


def _covers_the_cluster(webhook: Webhook) -> bool:
    """Whether a wildcard matches the cluster roles that an API server creates when it starts."""
    return any(
        not {"*", "rbac.authorization.k8s.io"}.isdisjoint(rule.api_groups)
        and not {"*", "*/*"}.isdisjoint(rule.resources)
        and not {"*", "CREATE", "UPDATE"}.isdisjoint(rule.operations)
        and rule.scope != "Namespaced"
        for rule in webhook.rules
    )


def _named(webhook: Webhook) -> str:
    return f"{webhook.configuration}/{webhook.name}"
