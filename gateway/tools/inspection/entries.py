"""Compares configured webhooks with the entries that are registered for a gateway.

Pure. The entries that ``manifests`` makes of a configuration have no findings.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Final

from gateway.config.kinds.webhook_entry import REVIEW_VERSIONS
from gateway.pure.core.overlap import meet, overlap
from gateway.tools.inspection.coverage import hiding, shown_rule, uncovered
from gateway.tools.inspection.model import REGISTER, Finding
from gateway.tools.registration.entry import Entry
from gateway.tools.registration.exclusions import hidden_from, sendable
from gateway.tools.registration.partition import Relations
from gateway.tools.watchdog.relaxation import CONDITION as WATCHDOG

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from gateway.config.merge.model import Config
    from gateway.engine.paths import Paths
    from gateway.pure.core.policy import AdmissionPolicy
    from gateway.pure.core.webhook import Rule, Webhook
    from gateway.tools.inspection.model import RegisteredEntry

    Key = tuple[str, str, AdmissionPolicy | None]
    """Configuration and name of a webhook, or of a policy, which may have several entries of its name."""

_ADVICE_NONE: Final = "run admission-gateway manifests --apply"


@dataclass(frozen=True, slots=True, eq=False)
class EntryRoute:
    """One entry with the webhooks that the gateway calls for it."""

    entry: RegisteredEntry
    webhooks: tuple[Webhook, ...]
    """In their order, with only the rules that the path selects and whose requests can be sent; without
    webhooks that have no such rule."""
    by_key: Mapping[Key, Webhook]

    def part(self, webhook: Webhook) -> Webhook | None:
        """Return *webhook* with the rules for which this entry leads to it; None if it does not."""
        return self.by_key.get(_key(webhook)) if self.entry.phase == webhook.phase else None


def routes(entries: Sequence[RegisteredEntry], paths: Paths) -> tuple[list[EntryRoute], list[Finding]]:
    """Return the routes of *entries*, and a finding for each entry that leads nowhere."""
    found, findings = [], []
    for entry in entries:
        selected = None if entry.path is None else paths.get(entry.path)
        message = ""
        if selected is None:
            message = f"the gateway answers 404 at its path {entry.shown_path}: no configured webhook has it"
        elif selected.phase != entry.phase:
            message = f"its path {entry.shown_path} is for the other phase, so no webhook is called"
        if selected is None or message:
            findings.append(Finding("error", entry.place, message, f"{REGISTER}, or remove the entry"))
            continue
        hooks = [hook for hook in map(sendable, selected.webhooks) if hook.rules]
        found.append(EntryRoute(entry, tuple(hooks), {_key(hook): hook for hook in hooks}))
    return found, findings


def check_entries(
    config: Config, found: Sequence[EntryRoute], planned_conditions: Callable[[], Collection[str]]
) -> Iterator[Finding]:
    """Yield the findings about the routes *found* to the webhooks of *config*.

    *planned_conditions* returns the expressions of matchConditions that ``manifests`` registers.
    """
    unknown = any(hidden_from(text, ()) is None for route in found for _, text in route.entry.conditions)
    # Planning takes long with many webhooks.
    planned = planned_conditions() if unknown else ()
    for configured in config.webhooks:
        webhook = sendable(configured)
        if webhook.rules:
            yield from _of_webhook(webhook, found)
    yield from _of_order(config.mutating, found)
    for route in found:
        yield from _of_conditions(route, planned)
        yield from _of_policies(route)
        yield from _of_time(route, config.gateway.deadline_reserve_s)
        yield from _of_reviews(route)


def _of_webhook(webhook: Webhook, found: Sequence[EntryRoute]) -> Iterator[Finding]:
    place = f"{webhook.phase} {webhook.configuration}/{webhook.name}"
    leading = {route.entry: part for route in found if (part := route.part(webhook)) is not None}
    if not leading:
        yield Finding("error", place, "no registered entry leads to it, so it is never called", _ADVICE_NONE)
        return
    yield from _never_sent(webhook, place, leading)
    yield from _in_other_versions(webhook, place, leading)
    for number, (entry, part) in enumerate(leading.items()):
        for other, of_other in islice(leading.items(), number):
            rules = [rule for rule in part.rules if rule in of_other.rules]
            if _meet(rules, entry, other):
                message = f"is called twice, by {other.place} and by {entry.place}"
                advice = f"{REGISTER}, and remove the entry that it does not create"
                yield Finding("warning", place, message, advice)


def _of_order(mutating: Sequence[Webhook], found: Sequence[EntryRoute]) -> Iterator[Finding]:
    """Yield the webhooks that entries bring before one that ``after`` names, for the same requests."""
    by_name: dict[str, list[Webhook]] = {}
    for webhook in mutating:
        by_name.setdefault(webhook.name, []).append(webhook)
    for webhook in mutating:
        for before in (one for name in webhook.after for one in by_name.get(name, ())):
            for number, route in enumerate(found):
                own = route.part(webhook)
                for later in found[number + 1 :]:
                    other = later.part(before)
                    if own is not None and other is not None and _overlap(own, other):
                        message = (
                            f"is called before {before.configuration}/{before.name}, which its after names: "
                            f"{route.entry.place} comes before {later.entry.place}"
                        )
                        place = f"{webhook.phase} {webhook.configuration}/{webhook.name}"
                        yield Finding("error", place, message, REGISTER)


def _overlap(one: Webhook, other: Webhook) -> bool:
    return any(overlap(own, their) for own in one.rules for their in other.rules)


def _never_sent(
    webhook: Webhook, place: str, leading: Mapping[RegisteredEntry, Webhook]
) -> Iterator[Finding]:
    hidden = {entry: list(hiding(entry, part)) for entry, part in leading.items()}
    for number, rule in enumerate(webhook.rules):
        bringing = [entry for entry, part in leading.items() if rule in part.rules]
        open_rules = rules_of([entry for entry in bringing if not hidden[entry]])
        missing, perhaps = uncovered(rule, rules_of(bringing))
        if missing:
            message = f"rules[{number}]: never sent to the gateway: {_shown(missing)}"
            yield Finding("error", place, message, REGISTER)
        if perhaps:
            message = (
                f"rules[{number}]: never sent to the gateway, if such resources exist: {_shown(perhaps)}"
            )
            yield Finding("warning", place, message, REGISTER)
        elif not missing and any(uncovered(rule, open_rules)):
            for entry in bringing:
                for reason in hidden[entry]:
                    yield Finding("error", place, f"rules[{number}]: {entry.place}: {reason}", REGISTER)


def _in_other_versions(
    webhook: Webhook, place: str, leading: Mapping[RegisteredEntry, Webhook]
) -> Iterator[Finding]:
    for entry, part in leading.items():
        if entry.hook.match_policy == "Exact" and webhook.match_policy == "Equivalent":
            if any("*" not in rule.api_versions for rule in entry.hook.rules):
                message = "has matchPolicy Equivalent, but does not get versions that no rule names"
                yield Finding("warning", place, f"{message}: {entry.place} is Exact", REGISTER)
        elif webhook.match_policy == "Equivalent" and _conflict(part, entry.hook):
            message = "may get another version of a resource than the first that its rules name"
            yield Finding("warning", place, f"{message}: {entry.place} names others", REGISTER)
    if webhook.match_policy == "Exact":
        # The API server sends the version of the client's request if any rule names it.
        for number, rule in enumerate(webhook.rules):
            bringing = [entry for entry, part in leading.items() if rule in part.rules]
            named = [one for entry in bringing for one in entry.hook.rules]
            if any(uncovered(rule, named)) and not any(uncovered(rule, rules_of(bringing))):
                message = f"rules[{number}]: gets another version of a resource than it names"
                yield Finding("warning", place, f"{message}: no registered rule names that", REGISTER)


def _conflict(webhook: Webhook, hook: Webhook) -> bool:
    # Without rules for other resources, which make no difference and can be many.
    wanted = [entry for rule in webhook.rules for entry in rule.resources]
    near = tuple(
        replace(rule, resources=tuple(one for one in rule.resources if any(meet(one, own) for own in wanted)))
        for rule in hook.rules
        if any(overlap(own, rule) for own in webhook.rules)
    )
    return Relations([webhook, replace(hook, rules=near)]).conflict(0, 1)


def _shown(rules: Sequence[Rule]) -> str:
    return "; ".join(map(shown_rule, rules[:3])) + ("; and more" if len(rules) > 3 else "")


def _key(webhook: Webhook) -> Key:
    return webhook.configuration, webhook.name, webhook.policy


def rules_of(entries: Sequence[RegisteredEntry]) -> list[Rule]:
    """Return the rules of *entries*; those with matchPolicy Equivalent match every version."""
    return [
        rule if entry.hook.match_policy == "Exact" else replace(rule, api_versions=("*",))
        for entry in entries
        for rule in entry.hook.rules
    ]


def _meet(rules: Sequence[Rule], entry: RegisteredEntry, other: RegisteredEntry) -> bool:
    return any(
        overlap(own, one) and overlap(own, two) and overlap(one, two)
        for own in rules
        for one in entry.hook.rules
        for two in other.hook.rules
    )


def _of_conditions(route: EntryRoute, planned: Collection[str]) -> Iterator[Finding]:
    for name, expression in route.entry.conditions:
        if name == WATCHDOG:
            message = "the watchdog has relaxed it: some requests are not sent to the gateway"
            advice = "it restores it when a gateway answers, or run admission-gateway watchdog --restore"
            yield Finding("error", route.entry.place, message, advice)
        elif hidden_from(expression, ()) is None and expression not in planned:
            message = f"matchCondition {name} may exclude requests for configured webhooks"
            advice = "move it to the webhooks that it is meant for, and " + REGISTER
            yield Finding("warning", route.entry.place, message, advice)


def _of_policies(route: EntryRoute) -> Iterator[Finding]:
    hook, place = route.entry.hook, route.entry.place
    closed = [one for one in route.webhooks if one.failure_policy == "Fail"]
    if closed and hook.failure_policy == "Ignore":
        message = (
            "failurePolicy is Ignore: while no gateway can be reached, requests are allowed without "
            f"{_named(closed)}, configured with Fail"
        )
        yield Finding("error", place, message, REGISTER)
    elif route.webhooks and not closed and hook.failure_policy == "Fail":
        message = "failurePolicy is Fail, and all webhooks behind it are configured with Ignore"
        yield Finding("warning", place, message, REGISTER)
    if not route.webhooks:
        return
    are_free = all(one.side_effects == "None" for one in route.webhooks)
    if hook.side_effects == "None" and not are_free:
        loose = [one for one in route.webhooks if one.side_effects != "None"]
        message = f"sideEffects is None, and that of {_named(loose)} is not"
        yield Finding("warning", place, message, REGISTER)
    elif hook.side_effects in ("Some", "Unknown"):
        message = f"sideEffects is {hook.side_effects}: the API server refuses every dry run"
        yield Finding("warning", place, message, REGISTER)
    if route.entry.phase == "mutate":
        yield from _of_reinvocation(route)


def _of_reinvocation(route: EntryRoute) -> Iterator[Finding]:
    wanted = _entry(route).reinvocation_policy
    found = route.entry.hook.reinvocation_policy
    if found != wanted:
        message = (
            "reinvocationPolicy is Never, and all webhooks behind it have IfNeeded"
            if found == "Never"
            else "reinvocationPolicy is IfNeeded, and the API server then calls webhooks with Never twice"
        )
        yield Finding("warning", route.entry.place, message, REGISTER)


def _of_time(route: EntryRoute, reserve_s: float) -> Iterator[Finding]:
    if not route.webhooks:
        return
    needed_s, found_s = _entry(route).timeout_s(reserve_s), route.entry.hook.timeout_s
    if found_s < needed_s:
        how = (
            "the timeouts of the webhooks for one request, one after another, twice with IfNeeded"
            if route.entry.phase == "mutate"
            else "the longest timeout of those behind it"
        )
        message = (
            f"timeoutSeconds is {found_s}, and {needed_s} are needed: {how}, with deadlineReserve and a "
            "second to spare"
        )
        yield Finding("warning", route.entry.place, message, REGISTER)


def _of_reviews(route: EntryRoute) -> Iterator[Finding]:
    entry = route.entry
    if not set(entry.review_versions) & set(REVIEW_VERSIONS):
        message = (
            f"admissionReviewVersions has none that the gateway supports, {' and '.join(REVIEW_VERSIONS)}"
        )
        yield Finding("error", entry.place, message, REGISTER)


def _entry(route: EntryRoute) -> Entry:
    together = [
        [route.webhooks[index] for index in sorted(cell)]
        for cell in Relations(route.webhooks).matched_together
    ]
    return Entry(route.entry.hook.name, route.entry.phase, route.entry.path or "", route.webhooks, together)


def _named(webhooks: Sequence[Webhook]) -> str:
    first = f"{webhooks[0].configuration}/{webhooks[0].name}"
    return first if len(webhooks) == 1 else f"{first} and {len(webhooks) - 1} more"
