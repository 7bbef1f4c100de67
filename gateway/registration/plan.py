"""The two objects that register a gateway: which entries there are, and what has to be said about them.

Every entry is a call of its own, so there are as few as possible: one for the mutating webhooks, whose order
would not hold otherwise, two for the validating ones, by failurePolicy. Webhooks that cannot share an entry
(``gateway.registration.partition``) get further ones. The largest entry selects all webhooks ``except``
those, so that one that is configured later is in it by itself.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from gateway.errors import GatewayError
from gateway.paths import path_of
from gateway.registration.entry import Entry, within
from gateway.registration.exclusions import excluded_namespaces, sendable
from gateway.registration.losses import Loss, is_called_in, losses
from gateway.registration.partition import Relations, in_any_order, in_order

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gateway.config.model import Config
    from gateway.core.webhook import FailurePolicy, Phase, Webhook
    from gateway.registration.backend import Backend

DEFAULT_NAME: Final = "admission-gateway"
DOMAIN: Final = "admission-gateway.io"
LONGEST_PATH: Final = 12 * 1024
"""The gateway reads heads of up to 16 KiB, of which the path is one part."""

_KINDS: Final[dict[Phase, str]] = {
    "mutate": "MutatingWebhookConfiguration",
    "validate": "ValidatingWebhookConfiguration",
}


@dataclass(frozen=True, slots=True)
class Wishes:
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
    losses: list[Loss] = field(default_factory=list)
    """Webhooks that are not called in namespaces that are left out."""


def plan(config: Config, wishes: Wishes) -> Plan:
    """Return what registers a gateway that serves *config*. The same comes out the same to the byte.

    Raises:
        GatewayError: more webhooks need entries of their own than a path can name.
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
        made.documents.append(
            {
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
        )
    made.losses.extend(_losses(config, namespaces))
    if not config.mutating and not config.validating:
        made.notes.append("no webhook is configured, so the API server will not call the gateway")
    return made


def entry_name(name: str, phase: Phase, policy: FailurePolicy | None, number: int) -> str:
    """Return the name of the entry *number*, from 1, of a registration called *name*."""
    head = (policy or phase).lower() + (f"-{number}" if number > 1 else "")
    parts = [head, phase if policy else None, None if name == DEFAULT_NAME else name, DOMAIN]
    return ".".join(filter(None, parts))


def _entries(
    phase: Phase, configured: tuple[Webhook, ...], wishes: Wishes, notes: list[str]
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
        groups = (in_order if phase == "mutate" else in_any_order)(places, relations)
        largest = max(groups, key=len, default=[])
        others = [webhooks[place] for group in groups if group is not largest for place in group]
        number = 1
        for group in groups:
            members = tuple(webhooks[place] for place in group)
            if group is largest:
                path = path_of(phase, policy, "except", others) if others else path_of(phase, policy)
                name = entry_name(wishes.name, phase, policy, 1)
            else:
                number += 1
                path = path_of(phase, policy, "only", members)
                name = entry_name(wishes.name, phase, policy, number)
            if len(path) > LONGEST_PATH:
                raise GatewayError(
                    f"{name}: its path would have {len(path)} characters, and the gateway takes "
                    f"{LONGEST_PATH}: {len(others)} webhooks name other apiVersions than the rest does"
                )
            wanted = {frozenset(cell.intersection(group)) for cell in relations.together} - {frozenset()}
            together = [[webhooks[place] for place in sorted(cell)] for cell in wanted]
            yield Entry(name, phase, path, members, together)


def _disorder(webhooks: list[Webhook], relations: Relations) -> Iterator[str]:
    """Yield what --split-mutating does to the order, if anything."""
    for later, webhook in enumerate(webhooks):
        for earlier, before in enumerate(webhooks[:later]):
            policies = before.failure_policy, webhook.failure_policy
            if policies == ("Ignore", "Fail") and relations.meet(earlier, later):
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


def _losses(config: Config, namespaces: Sequence[str]) -> list[Loss]:
    found = []
    for namespace in namespaces:
        # With a cluster, that knows the labels, and Namespace documents do not count.
        known = config.namespaces.get(namespace) if config.gateway.kubernetes is None else None
        labels = None if known is None else known.labels
        for webhook in map(sendable, (*config.mutating, *config.validating)):
            is_called = is_called_in(webhook, namespace, labels)
            if is_called is not False:
                found.append((namespace, webhook, bool(is_called)))
    return losses(found)


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
