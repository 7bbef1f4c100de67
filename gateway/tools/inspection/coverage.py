"""Which requests for a webhook a registration does not send: by rules, selectors, conditions.

Source: kubernetes/apiserver plugin/webhook/predicates/rules/rules.go, plugin/webhook/generic/webhook.go;
k8s.io/apimachinery pkg/labels/selector.go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway.config.kinds.namespace import NAME_LABEL
from gateway.pure.core.labels import Requirement
from gateway.pure.core.overlap import has, parts
from gateway.pure.core.review import OPERATIONS
from gateway.pure.core.webhook import Rule
from gateway.tools.registration.exclusions import hidden_from
from gateway.tools.registration.union import covers, union

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from gateway.pure.core.labels import Selector
    from gateway.pure.core.webhook import Scope, Webhook
    from gateway.tools.inspection.model import RegisteredEntry

_SCOPES: tuple[Scope, ...] = ("Namespaced", "Cluster")


def uncovered(rule: Rule, registered: Sequence[Rule]) -> tuple[list[Rule], list[Rule]]:
    """Return, as rules, the requests that *rule* matches and none of *registered* does; usually none.

    ``*`` stands for all names that no rule contains. The second list has the requests that may not exist: a
    named resource is either namespaced or not, and *registered* has it for one of the two scopes.
    """
    if any(covers(one, rule) for one in registered):
        return [], []
    missing: list[Rule] = []
    perhaps: list[Rule] = []
    for operation in (name for name in OPERATIONS if has(rule.operations, name)):
        of_operation = [one for one in registered if has(one.operations, operation)]
        for group in _names(rule.api_groups, [one.api_groups for one in of_operation]):
            of_group = [one for one in of_operation if has(one.api_groups, group)]
            for version in _names(rule.api_versions, [one.api_versions for one in of_group]):
                of_version = [one for one in of_group if has(one.api_versions, version)]
                for entry in _entries(rule, of_version):
                    scopes = list(_scopes_without(rule, entry, of_version))
                    is_certain = parts(entry)[0] == "*" or rule.scope != "*" or len(scopes) == len(_SCOPES)
                    (missing if is_certain else perhaps).extend(
                        Rule((operation,), (group,), (version,), (entry,), scope) for scope in scopes
                    )
    return union(missing, is_exact=True), union(perhaps, is_exact=True)


def _names(own: Iterable[str], others: Iterable[Iterable[str]]) -> list[str]:
    """Return the names in *own*; for ``*``, each name in *others* and ``*`` for the rest."""
    if "*" not in own:
        return list(own)
    return sorted({"*"}.union(*others))


def _entries(rule: Rule, registered: Sequence[Rule]) -> list[str]:
    theirs = [parts(entry) for one in registered for entry in one.resources]
    found: dict[str, None] = {}
    for resource, sub_resource in map(parts, rule.resources):
        for name in _names((resource,), [[name] for name, _ in theirs]):
            sub_names = _names((sub_resource,), [[sub for own, sub in theirs if own in ("*", name)], [""]])
            found.update({f"{name}/{sub}" if sub else name: None for sub in sub_names})
    return list(found)


def _scopes_without(rule: Rule, entry: str, registered: Sequence[Rule]) -> Iterator[Scope]:
    name, sub_name = parts(entry)
    for scope in _SCOPES:
        if has((rule.scope,), scope) and not any(
            has((one.scope,), scope)
            and any(has((own,), name) and has((sub,), sub_name) for own, sub in map(parts, one.resources))
            for one in registered
        ):
            yield scope


def hiding(entry: RegisteredEntry, webhook: Webhook) -> Iterator[str]:
    """Yield the selectors and matchConditions of *entry* that certainly exclude requests for *webhook*.

    Except namespaces that are excluded by name, which is done on purpose.
    """
    for field, selector, wanted in (
        ("namespaceSelector", entry.hook.namespace_selector, webhook.namespace_selector),
        ("objectSelector", entry.hook.object_selector, webhook.object_selector),
    ):
        for requirement in selector.requirements:
            is_exclusion = requirement.key == NAME_LABEL and requirement.operator == "NotIn"
            if not (is_exclusion and field == "namespaceSelector") and not implied(wanted, requirement):
                yield f"{field} requires {_shown(requirement)}, which the webhook does not"
    for name, expression in entry.conditions:
        if hidden_from(expression, webhook.rules):
            yield f"matchCondition {name} excludes requests that a rule of the webhook names"


def implied(selector: Selector, wanted: Requirement) -> bool:
    """Whether all labels that *selector* selects match *wanted*, by its requirements for that key."""
    of_key = [one for one in selector.requirements if one.key == wanted.key]
    values = [one.values for one in of_key if one.operator == "In"]
    if values:
        never = frozenset[str]().union(*(one.values for one in of_key if one.operator == "NotIn"))
        of_key.append(Requirement(wanted.key, "In", frozenset.intersection(*values) - never))
    return any(_implies(one, wanted) for one in of_key)


def _implies(one: Requirement, wanted: Requirement) -> bool:
    match one.operator, wanted.operator:
        case ("In", "In"):
            return one.values <= wanted.values
        case ("In" | "Exists", "Exists") | ("DoesNotExist", "DoesNotExist" | "NotIn"):
            return True
        case ("In", "NotIn"):
            return one.values.isdisjoint(wanted.values)
        case ("NotIn", "NotIn"):
            return wanted.values <= one.values
    return False


def shown_rule(rule: Rule) -> str:
    """Return *rule* as text: ``CREATE of apps/v1 deployments``."""
    groups = "|".join(group or '""' for group in rule.api_groups)
    scope = "" if rule.scope == "*" else f" ({rule.scope})"
    resources = ", ".join(rule.resources)
    return f"{', '.join(rule.operations)} of {groups}/{'|'.join(rule.api_versions)} {resources}{scope}"


def _shown(requirement: Requirement) -> str:
    values = f" {', '.join(sorted(requirement.values))}" if requirement.values else ""
    return f"{requirement.key} {requirement.operator}{values}"
