"""Which requests a webhook or a policy is for: rules, matchConditions, and what the two have in common.

Source: k8s.io/kubernetes pkg/apis/admissionregistration/validation/validation.go (validateRuleWithOperations,
validateResources, and for matchConditions names and limits), and the warnings beside it (warnings.go).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, get_args

from gateway.base.text import one_of, shown
from gateway.config.kinds.declare import Choice, Declared, Groups, Schema, Text, Type, declare, required
from gateway.config.kinds.names import KEY_LENGTH, QUALIFIED, SUBDOMAIN_LENGTH, qualified_name
from gateway.config.kinds.rule_warnings import rule_warnings
from gateway.pure.core.review import OPERATIONS
from gateway.pure.core.rules import NEVER_SENT_RESOURCES
from gateway.pure.core.webhook import FailurePolicy, MatchPolicy, Rule, Scope

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gateway.config.yaml.fields import Check, Fields
    from gateway.pure.conditions.match_conditions import CompiledConditions

FAILURE_POLICIES: tuple[FailurePolicy, ...] = get_args(FailurePolicy)
MATCH_POLICIES: tuple[MatchPolicy, ...] = get_args(MatchPolicy)
SCOPES: tuple[Scope, ...] = get_args(Scope)
MAX_RULES: Final = 50
MAX_ENTRIES: Final = 50
"""Rules, and entries of each list in a rule, of a custom resource."""
_MAX_MATCH_CONDITIONS: Final = 64
_MAX_CONDITION_CHARS: Final = 16384


class _Entries(Type[tuple[str, ...]]):
    """A list with entries, of which ``*`` stands alone; *more* belongs to the schema of an entry."""

    wildcard = "*"

    def __init__(
        self, words: str, check: Check | None = None, most: int = MAX_ENTRIES, **more: object
    ) -> None:
        self.words = words
        self._check = check
        self._most = most
        self._more = more

    def read(self, source: Fields, name: str, default: object) -> tuple[str, ...]:
        """As in :class:`Type`."""
        if source.content.get(name) in (None, []):
            source.problem(name, "is required with at least one entry")
        values = source.strings(name, self._check)
        if "*" in values and len(values) > 1:
            source.problem(name, 'found "*" together with other values, expected "*" alone')
        return values

    def schema(self) -> Schema:
        """As in :class:`Type`, with the rule that the reader has too: CEL in each webhook would be slow."""
        rule = {
            "rule": f"self.size() < 2 || !self.exists(e, e == '{self.wildcard}')",
            "message": f"{self.wildcard} covers all others",
        }
        items = {"type": "string", **self._more}
        bounds = {"minItems": 1, "maxItems": self._most}
        return {"type": "array", **bounds, "items": items, "x-kubernetes-validations": [rule]}


class _Resources(_Entries):
    """The resources of a rule, with exactly the checks of the API server.

    These are not symmetric: an overlap is found only in entries after the wildcard, and of the entries
    without a subresource only the last one is compared with ``*``. A stricter check would refuse
    configurations that API servers accept. A rule in CEL that finds every overlap would cost a hundred times
    the limit.
    """

    wildcard = "*/*"

    def read(self, source: Fields, name: str, default: object) -> tuple[str, ...]:
        """As in :class:`Type`."""
        if source.content.get(name) in (None, []):
            source.problem(name, "is required with at least one entry")
        entries = source.indexed_strings(name, self._check)
        all_subresources_of: set[str] = set()
        subresource_of_all: set[str] = set()
        is_last_plain_named = False
        for path, entry in entries:
            resource, slash, subresource = entry.partition("/")
            if not slash:
                is_last_plain_named = entry != "*" if entry else is_last_plain_named
                continue
            for wildcard, covers in (
                (f"{resource}/*", resource in all_subresources_of),
                (f"*/{subresource}", subresource in subresource_of_all),
            ):
                if covers:
                    source.problems.add(path, f'found {shown(entry)}, which the earlier "{wildcard}" covers')
            if subresource == "*":
                all_subresources_of.add(resource)
            if resource == "*":
                subresource_of_all.add(subresource)
        resources = tuple(entry for _, entry in entries)
        if "*/*" in resources and len(resources) > 1:
            source.problem(name, 'found "*/*" together with other resources, expected "*/*" alone')
        if "*" in resources and is_last_plain_named:
            message = 'found "*" together with resources without subresource, which "*" covers'
            source.problem(name, message)
        return resources


def operations_of(*allowed: str) -> _Entries:
    """Return the type of a list of *allowed* operations."""
    texts = (*allowed, "*")

    def check(text: str) -> str | None:
        return None if text in texts else f"found {shown(text)}, expected {one_of(texts)}"

    words = f"list of {', '.join(f'`{one}`' for one in allowed)}, or `*` alone"
    return _Entries(words, check, len(texts), enum=list(texts))


def _not_empty(text: str) -> str | None:
    return None if text else "is empty, expected a name"


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleEntry(Declared):
    """A rule: a set of requests. Every field has to match."""

    operations: tuple[str, ...] = required(operations_of(*OPERATIONS), "Operations")
    api_groups: tuple[str, ...] = required(
        _Entries("list of strings, or `*` alone", maxLength=SUBDOMAIN_LENGTH), 'The core group is `""`'
    )
    api_versions: tuple[str, ...] = required(
        _Entries("list of strings, or `*` alone", _not_empty, minLength=1, maxLength=SUBDOMAIN_LENGTH),
        "API versions",
    )
    resources: tuple[str, ...] = required(
        _Resources(
            "list of `RESOURCE`, `RESOURCE/SUBRESOURCE`, `*`, `*/*`",
            _not_empty,
            minLength=1,
            maxLength=SUBDOMAIN_LENGTH,
        ),
        "Resources in the plural",
    )
    scope: Scope = declare(Choice(SCOPES), "Cluster-scoped objects, namespaced objects, or both", default="*")

    @property
    def rule(self) -> Rule:
        """The rule itself."""
        return Rule(self.operations, self.api_groups, self.api_versions, self.resources, self.scope)

    def check(self, source: Fields) -> None:
        """Warn about requests that do not come."""
        rule = self.rule
        for group in rule.api_groups:
            for resource in rule.resources:
                if (group, resource) in NEVER_SENT_RESOURCES:
                    excluded = f"{resource}.{group} is excluded from admission webhooks"
                    source.problems.warn(source.path, f"{excluded}; this rule will have no effect")
        for path, message in rule_warnings(rule):
            source.problems.warn(f"{source.path}.{path}", message)


class CelText(Type[str]):
    """A CEL expression of at most *most* characters, which the class compiles; *words* is its type."""

    def __init__(self, words: str, most: int) -> None:
        self.words = f"CEL expression {words}"
        self._most = most

    def read(self, source: Fields, name: str, default: object) -> str:
        """As in :class:`Type`."""
        text = source.optional_string(name)
        if not text.strip() and isinstance(source.content.get(name), str | None):
            source.problem(name, "is required, expected a CEL expression")
        return text if text.strip() else ""

    def schema(self) -> Schema:
        """As in :class:`Type`."""
        return {"type": "string", "minLength": 1, "maxLength": self._most, "pattern": r"\S"}


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedEntry(Declared):
    """A mapping with expressions, which are compiled after it was read."""

    source: Fields
    """Where their problems are reported."""

    @classmethod
    def read_together(cls, source: Fields) -> dict[str, Any]:
        """Return the source."""
        return {"source": source}


@dataclass(frozen=True, slots=True, kw_only=True)
class ConditionEntry(PlacedEntry):
    """One of ``matchConditions``."""

    name: str = required(
        Text("qualified name", qualified_name, minLength=1, maxLength=KEY_LENGTH, pattern=f"^{QUALIFIED}$"),
        "Name of the condition",
    )
    expression: str = required(CelText("of type bool", _MAX_CONDITION_CHARS), "Has to be true")


CONDITIONS: Final = Groups(ConditionEntry, _MAX_MATCH_CONDITIONS, key="name")


def report_twice(entries: Iterable[tuple[Fields, str]], name: str) -> None:
    """Report each value of the field *name* that an entry before has too; entries are sources and values."""
    seen: set[str] = set()
    for source, value in entries:
        if value and value in seen:
            source.problem(name, f"found {shown(value)} again, expected unique {name}s")
        seen.add(value)


def compiled_conditions(entries: tuple[ConditionEntry, ...]) -> CompiledConditions | None:
    """Return the ``matchConditions`` of a webhook, after reporting their problems; None if there are none."""
    if not entries:
        return None
    # The import takes 60 ms and 6 MB, which a configuration without conditions does not need.
    from gateway.pure.cel.compile import compile_condition
    from gateway.pure.cel.errors import InvalidExpression
    from gateway.pure.conditions.match_conditions import CompiledConditions

    report_twice(((each.source, each.name) for each in entries), "name")
    compiled = []
    for each in entries:
        try:
            if each.expression:
                compiled.append(compile_condition(each.name, each.expression.strip()))
        except InvalidExpression as error:
            each.source.problem("expression", str(error))
    return CompiledConditions(compiled)
