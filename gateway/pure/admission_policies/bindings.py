"""The bindings of a policy that may match a request, without a look at all of them for every request.

What rules and namespaceSelectors decide is kept for each shape of request and each namespace. objectSelectors
and names of resources are evaluated for each request.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic

from gateway.pure.admission_policies.model import B
from gateway.pure.core.labels import EVERYTHING, SelectorIndex
from gateway.pure.core.matching import INDEXED, selectable_labels, selectors_match
from gateway.pure.core.namespace import Namespace
from gateway.pure.core.review import is_namespace, is_namespace_write
from gateway.pure.core.rules import rules_match

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Mapping, Sequence

    from gateway.pure.admission_policies.model import MatchResources, NamedRule
    from gateway.pure.core.policy import PolicyInput
    from gateway.pure.core.review import AdmissionRequest, Json
    from gateway.pure.core.verdict import Failed

    Place = tuple[tuple[Hashable, ...], str]
    """The shape of a request, and its namespace."""

_KEPT: Final = 4096
"""Shapes and namespaces in the cache, which is emptied when it is full."""


@dataclass(frozen=True, slots=True)
class _Candidates(Generic[B]):
    """The bindings that may match the requests of one place."""

    labels: Mapping[str, str] | None
    """The labels of the namespace at the time. None if they are not known, or not the ones to match."""
    bindings: Sequence[tuple[B, bool]]
    """In order, each with whether it matches for certain."""
    are_certain: bool
    """Whether there are any, and all match for certain."""
    index: SelectorIndex | None
    """The index of their objectSelectors. None if there are few."""


class Bindings(Generic[B]):
    """The bindings of one policy, sorted by name."""

    def __init__(self, bindings: Sequence[B]) -> None:
        self.all: tuple[B, ...] = tuple(sorted(bindings, key=lambda each: each.name))
        found = (each.match for each in self.all)
        matches: list[MatchResources] = [match for match in found if match is not None]
        self._match_everything = len(matches) < len(self.all)
        self.are_plain = bool(self.all) and not any(
            each.named_rules or each.excluded or not each.object_selector.is_empty for each in matches
        )
        """Whether there are any, and only namespaceSelectors decide."""
        self.has_namespace_selectors = not self._match_everything and any(
            not each.namespace_selector.is_empty for each in matches
        )
        """Whether a namespace may have no binding that matches."""
        self._matches = matches
        self._kept: dict[Place, _Candidates[B]] = {}

    def may_match_rules(self, request: AdmissionRequest) -> bool:
        """Whether the rules of any binding match the shape of *request*."""
        return self._match_everything or any(_may_match(each, request) for each in self._matches)

    def may_match_namespace(self, labels: Mapping[str, str]) -> bool:
        """Whether the namespaceSelector of any binding matches *labels*."""
        return self._match_everything or any(
            each.namespace_selector.matches(labels) for each in self._matches
        )

    def all_match(self, policy_input: PolicyInput) -> bool:
        """Whether there are bindings for the place of the request, and all that are match for certain.

        The request is one that any binding may match, by rules and by namespace.
        """
        return self._candidates(policy_input.request, policy_input.namespace).are_certain

    def matching(
        self, request: AdmissionRequest, current: Json | None, namespace: Namespace | Failed | None
    ) -> Iterator[tuple[B, Failed | None]]:
        """Yield the bindings that match *request*, in order, or whose match cannot be found out, with why.

        *current* is the present object, *namespace* the request's.
        """
        found = self._candidates(request, namespace)
        bindings = found.bindings
        if found.index is not None:
            labels = selectable_labels(current, request.old_outline)
            bindings = [bindings[number] for number in found.index.candidates(labels)]
        for binding, is_certain in bindings:
            match = binding.match
            if is_certain or match is None:
                yield binding, None
                continue
            selected = selectors_match(match, request, current, namespace)
            if selected is not False and included(match, request):
                yield binding, None if selected is True else selected

    def _candidates(self, request: AdmissionRequest, namespace: Namespace | Failed | None) -> _Candidates[B]:
        is_written = is_namespace_write(request)
        labels = namespace.labels if isinstance(namespace, Namespace) and not is_written else None
        place = request.shape, request.namespace
        found = self._kept.get(place)
        if found is None or found.labels is not labels:
            if len(self._kept) >= _KEPT:
                self._kept.clear()
            found = self._kept[place] = self._found(request, labels)
        return found

    def _found(self, request: AdmissionRequest, labels: Mapping[str, str] | None) -> _Candidates[B]:
        has_namespace = request.namespace != "" or is_namespace(request)
        found: list[tuple[B, bool]] = []
        for binding in self.all:
            match: MatchResources | None = binding.match
            if match is None:
                found.append((binding, True))
                continue
            selector = match.namespace_selector
            decides = not selector.is_empty and has_namespace
            if (decides and labels is not None and not selector.matches(labels)) or not _may_match(
                match, request
            ):
                continue
            rules: tuple[NamedRule, ...] = match.named_rules + match.excluded
            has_names = any(each.names for each in rules)
            is_certain = not has_names and match.object_selector.is_empty and not (decides and labels is None)
            found.append((binding, is_certain))
        objects = [binding.match.object_selector if binding.match else EVERYTHING for binding, _ in found]
        is_indexed = sum(not each.is_empty for each in objects) >= INDEXED
        are_certain = bool(found) and all(is_certain for _, is_certain in found)
        return _Candidates(labels, found, are_certain, SelectorIndex(objects) if is_indexed else None)


def included(match: MatchResources, request: AdmissionRequest) -> bool:
    """Whether the rules of *match* include *request*, and its exclusions do not."""
    if any(_rule_matches(each, request) for each in match.excluded):
        return False
    return not match.named_rules or any(_rule_matches(each, request) for each in match.named_rules)


def _may_match(match: MatchResources, request: AdmissionRequest) -> bool:
    """Whether *match* includes requests of the shape of *request*, with some name."""
    if any(not each.names and rules_match(each, request) for each in match.excluded):
        return False
    return not match.named_rules or any(rules_match(each, request) for each in match.named_rules)


def _rule_matches(named: NamedRule, request: AdmissionRequest) -> bool:
    return (not named.names or request.name in named.names) and rules_match(named, request)
