"""PolicyExceptions: the webhooks that are not called for a request that they match.

An exception names webhooks, and says in ``match`` for which requests they are left out. It acts as if the
selectors of these webhooks excluded the requests, so it is evaluated where they are: with the present object,
when the turn of the webhook comes, and before its matchConditions.

1. Every field of ``match`` has to match; a list does if one of its entries does.
2. What is not known does not match: the labels of a namespace that cannot be read, the name of an object that
   the API server has yet to make up. The webhook is called then.
3. An objectSelector has to match the new and the old object, and a namespaceSelector both states of a
   Namespace that is updated. A webhook whose own selector were the opposite is called if that matches either
   of them: no one leaves a policy by the label that the same request adds.
4. An exception in a namespace covers the objects in it. The Namespace itself is none of them.
5. ``owners`` and ``images`` have to match the new and the old object, for the same reason.
6. An exception applies until ``expires_at``, by the time at which the review began.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gateway.pure.core.labels import EVERYTHING, Selector, SelectorIndex
from gateway.pure.core.namespace import Namespace
from gateway.pure.core.review import is_namespace, is_namespace_write, labels_of, metadata_of
from gateway.pure.core.workload import images_of, owners_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from gateway.pure.core.review import AdmissionRequest, Json
    from gateway.pure.core.verdict import Failed

GENERATED_FROM_CHARS: Final = 58
"""The API server keeps so many characters of ``generateName``, and appends five."""


@dataclass(frozen=True, slots=True)
class Patterns:
    """Texts, and beginnings of texts: ``team-*``."""

    exact: frozenset[str] = frozenset()
    prefixes: tuple[str, ...] = ()

    def matches(self, text: str) -> bool:
        """Whether *text* is one of them."""
        return text in self.exact or text.startswith(self.prefixes)

    def matches_every(self, prefix: str) -> bool:
        """Whether every text that begins with *prefix* is one of them."""
        return prefix.startswith(self.prefixes)


@dataclass(frozen=True, slots=True)
class Match:
    """The requests of an exception. A field that is None matches any."""

    namespaces: Patterns | None = None
    """The request's; that of a Namespace is its own name. Objects without a namespace are not covered."""
    names: Patterns | None = None
    kinds: frozenset[str] | None = None
    """``KIND``, or ``KIND.GROUP``."""
    users: Patterns | None = None
    groups: Patterns | None = None
    """One of the user's groups has to match."""
    namespace_selector: Selector = EVERYTHING
    object_selector: Selector = EVERYTHING
    owners: tuple[tuple[str, Patterns], ...] | None = None
    """``KIND`` or ``KIND.GROUP``, each with names: of the object itself, or of one that it belongs to."""
    images: Patterns | None = None
    """Repositories. Each image of the object's containers has to be in one of them."""


@dataclass(frozen=True, slots=True)
class PolicyException:
    """One exception, validated."""

    name: str
    namespace: str
    """If it is empty, the exception covers all namespaces, and objects without one."""
    webhooks: tuple[str, ...]
    """Full names."""
    match: Match
    reason: str
    owner: str
    expires: str
    """The end as it is written, by RFC 3339. Empty if it is permanent."""
    expires_at: float | None
    """The end in seconds since 1970. None if it is permanent."""

    @property
    def id(self) -> str:
        """``NAMESPACE/NAME``, or ``NAME`` without a namespace."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name

    def has_expired(self, now: float) -> bool:
        """Whether it does not apply any more at *now*, in seconds since 1970."""
        return self.expires_at is not None and now >= self.expires_at


@dataclass(slots=True)
class ExemptionInput:
    """A review at the turn of one webhook, as far as exceptions depend on it."""

    request: AdmissionRequest
    outline: Json | None
    """The present object, with its labels and names at least."""
    labels: Sequence[Mapping[str, str]]
    """Those that objectSelectors are matched with: of the present and the old object."""
    namespace: Namespace | Failed | None
    now: float
    """When the review began, in seconds since 1970."""
    whole: Callable[[], Json | None]
    """Returns the present object with all its members; of a large one, it has to be parsed."""
    _states: list[Json] | None = None
    _owners: list[list[tuple[tuple[str, str], str]]] | None = None
    _images: frozenset[str] | None = None

    @property
    def states(self) -> list[Json]:
        """The present and the old object, as far as the request has them."""
        if self._states is None:
            found = (self.whole(), self.request.old_object)
            self._states = [one for one in found if one is not None]
        return self._states

    @property
    def owners(self) -> list[list[tuple[tuple[str, str], str]]]:
        """The owners of each state: the two ways to write the kind, and the name."""
        if self._owners is None:
            self._owners = [
                [((kind, f"{kind}.{group}"), name) for group, kind, name in owners_of(state)]
                for state in self.states
            ]
        return self._owners

    @property
    def images(self) -> frozenset[str]:
        """The repositories of all images of all states; empty if they are not known."""
        if self._images is None:
            group, _, kind = self.request.kind
            found = [images_of(group, kind, state) for state in self.states]
            known = [one for one in found if one is not None]
            self._images = frozenset().union(*known) if len(known) == len(found) else frozenset()
        return self._images

    def name(self) -> str:
        """Return the name of the object; empty if it has none yet."""
        # A request has no name for the objects of a deleted collection.
        found = self.request.name or metadata_of(self.request.old_outline).get("name")
        return found if isinstance(found, str) else ""

    def generated_from(self) -> str | None:
        """Return the beginning of the name that the API server will make up; None if it will not."""
        found = metadata_of(self.outline).get("generateName")
        is_new = self.request.operation == "CREATE" and isinstance(found, str) and found
        return str(found)[:GENERATED_FROM_CHARS] if is_new else None

    def kinds(self) -> tuple[str, str]:
        """Return the two ways to write the kind that the client requested."""
        group, _, kind = self.request.kind
        return kind, f"{kind}.{group}"


def applies(exception: PolicyException, review: ExemptionInput) -> bool:
    """Whether the webhooks that *exception* names are left out of *review*."""
    match, request = exception.match, review.request
    return (
        not exception.has_expired(review.now)
        and _is_in_namespaces(exception, request)
        and (match.kinds is None or not match.kinds.isdisjoint(review.kinds()))
        and (match.users is None or match.users.matches(request.user))
        and _names_match(match.names, review)
        and (match.object_selector.is_empty or _all_match(match.object_selector, review.labels))
        and (match.namespace_selector.is_empty or _namespace_matches(match.namespace_selector, review))
        and (match.groups is None or any(map(match.groups.matches, request.groups)))
        and (match.owners is None or _owners_match(match.owners, review))
        and (match.images is None or _images_match(match.images, review))
    )


def _is_in_namespaces(exception: PolicyException, request: AdmissionRequest) -> bool:
    namespaces = exception.match.namespaces
    if exception.namespace and (request.namespace != exception.namespace or is_namespace(request)):
        return False
    return namespaces is None or (request.namespace != "" and namespaces.matches(request.namespace))


def _names_match(names: Patterns | None, review: ExemptionInput) -> bool:
    if names is None or "" in names.prefixes:
        return True
    if name := review.name():
        return names.matches(name)
    prefix = review.generated_from()
    return prefix is not None and names.matches_every(prefix)


def _owners_match(owners: tuple[tuple[str, Patterns], ...], review: ExemptionInput) -> bool:
    own = review.kinds()
    if any(kind in own and _names_match(names, review) for kind, names in owners):
        return True
    return bool(review.owners) and all(
        any(kind in kinds and names.matches(name) for kinds, name in state for kind, names in owners)
        for state in review.owners
    )


def _images_match(images: Patterns, review: ExemptionInput) -> bool:
    return bool(review.images) and all(map(images.matches, review.images))


def _all_match(selector: Selector, labels: Sequence[Mapping[str, str]]) -> bool:
    return bool(labels) and all(map(selector.matches, labels))


def _namespace_matches(selector: Selector, review: ExemptionInput) -> bool:
    request, namespace = review.request, review.namespace
    if is_namespace_write(request):
        states = [review.outline] if request.operation == "CREATE" else [review.outline, request.old_outline]
        return _all_match(selector, list(map(labels_of, states)))
    return request.namespace != "" and isinstance(namespace, Namespace) and selector.matches(namespace.labels)


class ExceptionIndex:
    """The exceptions of one webhook, found by one of the fields that allow single values only."""

    def __init__(self, exceptions: Iterable[PolicyException]) -> None:
        self.exceptions: tuple[PolicyException, ...] = tuple(sorted(exceptions, key=lambda one: one.id))
        others: list[int] = []
        self._by_field: dict[str, dict[str, list[int]]] = {}
        for index, exception in enumerate(self.exceptions):
            field, values = _indexed_by(exception)
            if not field:
                others.append(index)
            for value in values:
                self._by_field.setdefault(field, {}).setdefault(value, []).append(index)
        self._others = others
        """Indices of exceptions for which there is no such field."""
        selectors = [self.exceptions[index].match.object_selector for index in others]
        self._selectors = SelectorIndex(selectors) if others else None

    def find(self, review: ExemptionInput) -> PolicyException | None:
        """Return the first exception, by its id, that applies to *review*, or None."""
        found: list[int] = []
        if self._selectors is not None:
            # Without labels only an empty selector matches, which the index always finds.
            found = [self._others[position] for position in self._selectors.candidates(review.labels)]
        for field, by_value in self._by_field.items():
            for value in _values(field, review):
                found += by_value.get(value, ())
        for index in sorted(found):
            if applies(self.exceptions[index], review):
                return self.exceptions[index]
        return None


def _indexed_by(exception: PolicyException) -> tuple[str, Iterable[str]]:
    """Return a field of *exception* and its values; empty if there is none without patterns."""
    match = exception.match
    if exception.namespace:
        return "namespaces", (exception.namespace,)
    for field, patterns in (("namespaces", match.namespaces), ("names", match.names), ("users", match.users)):
        if patterns is not None and not patterns.prefixes:
            return field, patterns.exact
    return ("", ()) if match.kinds is None else ("kinds", match.kinds)


def _values(field: str, review: ExemptionInput) -> tuple[str, ...]:
    match field:
        case "namespaces":
            return (review.request.namespace,)
        case "names":
            return (review.name(),)
        case "users":
            return (review.request.user,)
        case _:
            return review.kinds()


def by_webhook(exceptions: Iterable[PolicyException]) -> dict[str, ExceptionIndex]:
    """Return the index of each webhook that one of *exceptions* names."""
    found: dict[str, list[PolicyException]] = {}
    for exception in exceptions:
        for name in dict.fromkeys(exception.webhooks):
            found.setdefault(name, []).append(exception)
    return {name: ExceptionIndex(named) for name, named in found.items()}
