"""The webhooks that match a request, by rules and by selectors.

A Selection has the webhooks that one path of the front end selects, and caches matches: for a shape of
request the webhooks with a matching rule, and of these for a namespace the webhooks with a matching
namespaceSelector. Only the objectSelectors are evaluated for each review: those that are not empty, and of
many only those that an index finds by the labels.

Source: kubernetes/apiserver plugin/webhook/generic/webhook.go, predicates/namespace/matcher.go,
predicates/object/matcher.go.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from heapq import merge
from typing import TYPE_CHECKING, ClassVar, Final, Literal, Protocol

from gateway.pure.core.labels import SelectorIndex
from gateway.pure.core.namespace import Namespace
from gateway.pure.core.review import is_namespace, is_namespace_write, labels_of
from gateway.pure.core.rules import is_never_sent, rules_match
from gateway.pure.core.verdict import Failed, FailureReason
from gateway.pure.core.webhook import HttpsClient, PolicyRef, WorkerRef

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence

    from gateway.pure.core.exemptions import ExceptionIndex
    from gateway.pure.core.labels import Selector
    from gateway.pure.core.policy import AdmissionPolicy
    from gateway.pure.core.review import AdmissionRequest, Json
    from gateway.pure.core.webhook import Phase, Webhook

_KEPT_SHAPES: Final = 4096
"""Shapes of request in the cache, which is emptied when it is full. A cluster has a few hundred resources,
and a caller that makes up names must not make the cache grow."""

_KEPT_NAMESPACES: Final = 4096
"""Namespaces in the cache, which is emptied when it is full."""
_KEPT_MASKS: Final = 64
"""Sets of webhooks cached for each shape: selectors divide namespaces into few groups."""

INDEXED: Final = 8
"""From so many objectSelectors on, an index takes less time than to evaluate each of them."""


@dataclass(frozen=True, slots=True, eq=False)
class _Invocation:
    """A webhook or policy whose rules match requests of one shape; all these requests share it."""

    webhook: Webhook
    position: int
    """Index among all webhooks that the path selects, from 0."""
    has_matched_selectors: bool
    """Whether no selector is left to evaluate."""
    has_matched_namespace: bool
    """Whether only the objectSelector is left to evaluate."""
    exceptions: ExceptionIndex | None = None
    """The exceptions that name the webhook. None if there are none."""


@dataclass(frozen=True, slots=True, eq=False)
class WebhookInvocation(_Invocation):
    """A webhook, which is called."""

    can_allow_fast: ClassVar[Literal[False]] = False
    """See ``PolicyInvocation``."""
    # What is the same for all calls is found once.
    backend: str | HttpsClient = field(init=False)
    """The pool's name, or the client: equal for webhooks that share connections."""
    worker_policy: str = field(init=False)
    """The name of the policy of a worker; empty if it has no worker."""
    may_be_known: bool = field(init=False)
    """Whether a call can have a verdict without being made: from a cache, or because of its parameters."""
    is_always_called: bool = field(init=False)
    """Whether nothing is left to evaluate: no selector, exception or condition, and no dry run to refuse."""

    def __post_init__(self) -> None:
        webhook, client = self.webhook, self.webhook.client
        assert not isinstance(client, PolicyRef)
        worker = client if isinstance(client, WorkerRef) else None
        is_left = not self.has_matched_selectors or self.exceptions is not None
        found = {
            "backend": client if isinstance(client, HttpsClient) else client.pool,
            "worker_policy": "" if worker is None else worker.policy,
            "may_be_known": (worker is not None and worker.has_parameters) or webhook.cache is not None,
            "is_always_called": not is_left and webhook.match_conditions is None and webhook.allows_dry_run,
        }
        for name, value in found.items():
            object.__setattr__(self, name, value)


@dataclass(frozen=True, slots=True, eq=False)
class PolicyInvocation(_Invocation):
    """An admission policy, which the gateway evaluates itself."""

    policy: AdmissionPolicy = field(init=False)
    can_allow_fast: bool = field(init=False)
    """Whether ``policy.allow_fast`` may decide: no selector and no exception is left to evaluate."""

    def __post_init__(self) -> None:
        policy = self.webhook.policy
        assert policy is not None
        object.__setattr__(self, "policy", policy)
        is_left = not self.has_matched_selectors or self.exceptions is not None
        object.__setattr__(self, "can_allow_fast", policy.can_allow_fast and not is_left)


Invocation = WebhookInvocation | PolicyInvocation


def invocation_of(
    webhook: Webhook,
    position: int,
    exceptions: ExceptionIndex | None = None,
    *,
    has_matched_namespace: bool,
) -> Invocation:
    """Return the invocation of *webhook*, whose rules match."""
    kind: type[Invocation] = WebhookInvocation if webhook.policy is None else PolicyInvocation
    return kind(
        webhook,
        position,
        has_matched_selectors=has_matched_namespace and webhook.object_selector.is_empty,
        has_matched_namespace=has_matched_namespace,
        exceptions=exceptions,
    )


class Selection:
    """The webhooks that one path selects, in the order in which they apply."""

    def __init__(
        self,
        phase: Phase,
        webhooks: Sequence[Webhook],
        exceptions: Mapping[str, ExceptionIndex] | None = None,
    ) -> None:
        """*exceptions* has those of each webhook, by its name."""
        self.phase: Phase = phase
        self.webhooks = tuple(webhooks)
        self.exceptions = exceptions or {}
        self.fails_open = bool(webhooks) and not any(one.may_reject for one in webhooks)
        """Whether no failed call rejects a request: all webhooks have failurePolicy Ignore or are not
        enforced."""
        self.has_modes = any(
            one.plan is not None or (one.rollout is not None and one.rollout.mode != "Enforce")
            for one in webhooks
        )
        """Whether any webhook is in another mode than Enforce for some requests."""
        self._by_shape: dict[tuple[Hashable, ...], _Candidates] = {}
        self._masks: dict[str, tuple[Mapping[str, str], bytes]] = {}
        """By namespace: its labels at the time, and for each webhook whether its selector matches them."""
        self._everywhere = b"\1" * len(self.webhooks)
        self._by_resource: dict[str, list[int]] | None = None
        """Indices of webhooks by the resources that their rules name, so that a new shape is not compared
        with all webhooks. Built on first use: most selections are never used."""

    def has_rule_for(self, request: AdmissionRequest) -> bool:
        """Whether any webhook has a rule for *request*."""
        return bool(self._candidates(request).matched.all)

    def invocations(
        self,
        request: AdmissionRequest,
        namespace: Namespace | Failed | None,
        labels: Callable[[], Iterable[Mapping[str, str]]] | None = None,
    ) -> tuple[Invocation, ...]:
        """Return the webhooks with a rule for *request* that match *namespace*, in order.

        *namespace* is the request's: None if there is none, Failed if the look-up failed. *labels* returns
        the labels that objectSelectors are matched with; of many webhooks, some that do not match them are
        left out.
        """
        candidates = self._candidates(request)
        matched = candidates.matched
        if not candidates.is_matched:
            if request.namespace == "" and not is_namespace(request):
                matched = candidates.of(self._everywhere, "")
            elif isinstance(namespace, Namespace):
                matched = candidates.of(self._mask(namespace), request.namespace)
        return matched.all if labels is None or not matched.is_indexed else matched.select(labels)

    def _mask(self, namespace: Namespace) -> bytes:
        name, labels = namespace.name, namespace.labels
        seen, mask = self._masks.get(name, (None, b""))
        if seen is not labels:
            if len(self._masks) >= _KEPT_NAMESPACES:
                self._masks.clear()
            mask = bytes(webhook.may_match_namespace(labels) for webhook in self.webhooks)
            # The namespace itself would keep its whole object in memory.
            self._masks[name] = labels, mask
        return mask

    def _candidates(self, request: AdmissionRequest) -> _Candidates:
        shape = request.shape
        found = self._by_shape.get(shape)
        if found is None:
            if len(self._by_shape) >= _KEPT_SHAPES:
                self._by_shape.clear()
            found = self._by_shape[shape] = _Candidates(self._match_rules(request), request)
        return found

    def _match_rules(self, request: AdmissionRequest) -> tuple[Invocation, ...]:
        is_closed = is_never_sent(request)
        return tuple(
            invocation_of(
                webhook,
                position,
                self.exceptions.get(webhook.name),
                has_matched_namespace=not webhook.has_namespace_selectors,
            )
            for position, webhook in self._with_resource(request)
            if (not is_closed or checks_authors(webhook)) and rules_match(webhook, request)
            if (policy := webhook.policy) is None or policy.may_match_rules(request)
        )

    def _with_resource(self, request: AdmissionRequest) -> Iterable[tuple[int, Webhook]]:
        """Return the webhooks with a rule for the resource of *request* or ``*``, with their indices."""
        if self._by_resource is None:
            self._by_resource = _by_resource(self.webhooks)
        names = {"*", request.resource[2], request.request_resource[2]}
        indices = {index for name in names for index in self._by_resource.get(name, ())}
        return [(index, self.webhooks[index]) for index in sorted(indices)]


def checks_authors(webhook: Webhook) -> bool:
    """Whether *webhook* checks the authors of policies."""
    return isinstance(webhook.client, PolicyRef) and webhook.client.checks_authors


def _by_resource(webhooks: Sequence[Webhook]) -> dict[str, list[int]]:
    indices: dict[str, list[int]] = {}
    for index, webhook in enumerate(webhooks):
        entries = [entry for rule in webhook.rules for entry in rule.resources]
        for name in {entry.partition("/")[0] for entry in entries}:
            indices.setdefault(name, []).append(index)
    return indices


class _Matched:
    """Webhooks that match requests as far as their objectSelectors, in order."""

    def __init__(self, invocations: Iterable[Invocation]) -> None:
        self.all = tuple(invocations)
        self.is_indexed = sum(not one.webhook.object_selector.is_empty for one in self.all) >= INDEXED
        """Whether :meth:`select` leaves some out."""
        self._index: SelectorIndex | None = None

    def select(self, labels: Callable[[], Iterable[Mapping[str, str]]]) -> tuple[Invocation, ...]:
        """Return all webhooks with an objectSelector that matches the *labels*, and perhaps some others."""
        if self._index is None:
            self._index = SelectorIndex([one.webhook.object_selector for one in self.all])
        return tuple(self.all[index] for index in self._index.candidates(labels()))


class _Candidates:
    """The webhooks with a rule for requests of one shape."""

    def __init__(self, invocations: tuple[Invocation, ...], request: AdmissionRequest) -> None:
        self.matched = _Matched(invocations)
        has_selectors = any(
            one.webhook.has_namespace_selectors or one.webhook.namespace for one in invocations
        )
        self.is_matched = not has_selectors or is_namespace_write(request)
        """Whether there is no namespaceSelector to match with the labels of the request's namespace."""
        self._of_namespace: dict[str, list[Invocation]] = {}
        """The same after their namespaceSelectors were evaluated: those for one namespace only, by its name,
        and with an empty name all others."""
        for one in invocations:
            found = invocation_of(one.webhook, one.position, one.exceptions, has_matched_namespace=True)
            self._of_namespace.setdefault(one.webhook.namespace, []).append(found)
        self._by_mask: dict[bytes | tuple[bytes, str], _Matched] = {}

    def of(self, mask: bytes, namespace: str) -> _Matched:
        """Return the invocations for *namespace* for which *mask*, indexed by position, is not 0.

        *namespace* is empty for requests outside of namespaces.
        """
        own = self._of_namespace.get(namespace, []) if namespace else []
        key = (mask, namespace) if own else mask
        found = self._by_mask.get(key)
        if found is None:
            if len(self._by_mask) >= _KEPT_MASKS:
                self._by_mask.clear()
            several = (self._of_namespace.get("", []), own)
            found = self._by_mask[key] = _Matched(
                one for one in merge(*several, key=lambda one: one.position) if mask[one.position]
            )
        return found


class SelectorMatch(Protocol):
    """The selectors of a webhook, a policy or a binding."""

    @property
    def namespace_selector(self) -> Selector:
        """Matches the labels of the request's namespace."""

    @property
    def object_selector(self) -> Selector:
        """Matches the labels of the object."""


def selectors_match(
    webhook: SelectorMatch,
    request: AdmissionRequest,
    current: Json | None,
    namespace: Namespace | Failed | None,
) -> bool | Failed:
    """Whether both selectors of *webhook* match *request*.

    *current* is the present object, with its labels at least. *namespace* is the request's: None if there is
    no such namespace, Failed if the look-up failed. The result is Failed if it depends on the labels of a
    namespace that is not known.
    """
    in_namespace = _namespace_matches(webhook, request, current, namespace)
    if in_namespace is False:
        return False
    if not webhook.object_selector.is_empty and not object_matches(
        webhook, selectable_labels(current, request.old_outline)
    ):
        return False
    return in_namespace


def object_matches(webhook: SelectorMatch, labels: Iterable[Mapping[str, str]]) -> bool:
    """Whether the objectSelector of *webhook*, which is not empty, matches any of *labels*."""
    return any(map(webhook.object_selector.matches, labels))


def selectable_labels(current: Json | None, old: Json | None) -> tuple[Mapping[str, str], ...]:
    """Return the labels that an objectSelector is matched with: those of the objects that have metadata."""
    return tuple(labels_of(one) for one in (current, old) if one is not None and "metadata" in one)


def _namespace_matches(
    webhook: SelectorMatch,
    request: AdmissionRequest,
    current: Json | None,
    namespace: Namespace | Failed | None,
) -> bool | Failed:
    selector = webhook.namespace_selector
    if selector.is_empty or (request.namespace == "" and not is_namespace(request)):
        return True
    if is_namespace_write(request):
        return selector.matches(labels_of(current))
    if namespace is None:
        return Failed(
            FailureReason.NAMESPACE,
            f'namespace "{request.namespace}" not found, and its labels are needed by the namespaceSelector',
            404,
        )
    if isinstance(namespace, Failed):
        return namespace
    return selector.matches(namespace.labels)
