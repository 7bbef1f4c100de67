"""Which webhooks a request is for: rules by a kept index, selectors on the object as it is now.

A Selection is what one path of the front end stands for. It answers a request's candidates from dictionaries
that fill themselves: by shape of request those whose rules match, and of these by namespace those whose
namespaceSelector does. What is left per review are the objectSelectors, and only where they are not empty.

Source: kubernetes/apiserver plugin/webhook/generic/webhook.go, predicates/namespace/matcher.go,
predicates/object/matcher.go.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gateway.core.namespace import Namespace
from gateway.core.rules import is_never_sent, rules_match
from gateway.core.verdict import Failed, FailureReason

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping, Sequence

    from gateway.core.review import AdmissionRequest, Json
    from gateway.core.webhook import Phase, Webhook

_KEPT_SHAPES: Final = 4096
"""Shapes of request remembered before starting over: a cluster has a few hundred resources, and a caller
that makes up names must not make the index grow."""

_KEPT_NAMESPACES: Final = 4096
"""Namespaces remembered before starting over."""
_KEPT_MASKS: Final = 64
"""Sets of webhooks remembered for each shape: selectors tell namespaces apart in a few ways, not in many."""

_NO_LABELS: Final[Mapping[str, str]] = {}


@dataclass(frozen=True, slots=True, eq=False)
class Invocation:
    """A webhook whose rules match requests of one shape; the same for all of them."""

    webhook: Webhook
    position: int
    """Place among all webhooks that the path selects, from 0."""
    is_unconditional: bool
    """Whether no selector has to be looked at: those there are have been, for all requests of this kind."""
    is_in_place: bool
    """Whether the namespaceSelector has not to be looked at, so that the objectSelector alone decides."""


class Selection:
    """The webhooks that one path selects, in the order in which they apply."""

    def __init__(self, phase: Phase, webhooks: Sequence[Webhook]) -> None:
        self.phase: Phase = phase
        self.webhooks = tuple(webhooks)
        self.fails_open = bool(webhooks) and all(one.failure_policy == "Ignore" for one in webhooks)
        """Whether no review that comes this way can fail for a webhook that could not be asked."""
        self._by_shape: dict[tuple[Hashable, ...], _Candidates] = {}
        self._masks: dict[str, tuple[Mapping[str, str], bytes]] = {}
        """By namespace: the labels that it had, and for each webhook whether its selector matches those."""
        self._everywhere = b"\1" * len(self.webhooks)
        self._by_resource: dict[str, list[int]] | None = None
        """Places of webhooks by the resources that their rules name, so that not all have to be looked at for
        each new shape. Made for the first: most selections are never asked."""

    def has_rule_for(self, request: AdmissionRequest) -> bool:
        """Whether any webhook has a rule for *request*."""
        return bool(self._candidates(request).invocations)

    def invocations(
        self, request: AdmissionRequest, namespace: Namespace | Failed | None
    ) -> tuple[Invocation, ...]:
        """Return the webhooks with a rule for *request*, in order, without those that *namespace* leaves out.

        *namespace* is the request's: None if there is none, Failed if that could not be found out.
        """
        candidates = self._candidates(request)
        if not candidates.look_at_namespaces or is_namespace_write(request):
            return candidates.invocations
        if request.namespace == "" and not _is_namespace(request):
            return candidates.of(self._everywhere)
        return (
            candidates.of(self._mask(namespace))
            if isinstance(namespace, Namespace)
            else candidates.invocations
        )

    def _mask(self, namespace: Namespace) -> bytes:
        name, labels = namespace.name, namespace.labels
        seen, mask = self._masks.get(name, (None, b""))
        if seen is not labels:
            if len(self._masks) >= _KEPT_NAMESPACES:
                self._masks.clear()
            mask = bytes(webhook.namespace_selector.matches(labels) for webhook in self.webhooks)
            # Not the namespace itself, which holds its whole object.
            self._masks[name] = labels, mask
        return mask

    def _candidates(self, request: AdmissionRequest) -> _Candidates:
        shape = request.shape
        found = self._by_shape.get(shape)
        if found is None:
            if len(self._by_shape) >= _KEPT_SHAPES:
                self._by_shape.clear()
            found = self._by_shape[shape] = _Candidates(self._match_rules(request))
        return found

    def _match_rules(self, request: AdmissionRequest) -> tuple[Invocation, ...]:
        if is_never_sent(request):
            return ()
        return tuple(
            Invocation(
                webhook,
                position,
                is_unconditional=webhook.namespace_selector.is_empty and webhook.object_selector.is_empty,
                is_in_place=webhook.namespace_selector.is_empty,
            )
            for position, webhook in self._near(request)
            if rules_match(webhook, request)
        )

    def _near(self, request: AdmissionRequest) -> Iterable[tuple[int, Webhook]]:
        """Return, with their places, the webhooks of which a rule names the resource of *request*, or all."""
        if self._by_resource is None:
            self._by_resource = _by_resource(self.webhooks)
        names = {"*", request.resource[2], request.request_resource[2]}
        places = {place for name in names for place in self._by_resource.get(name, ())}
        return [(place, self.webhooks[place]) for place in sorted(places)]


def _by_resource(webhooks: Sequence[Webhook]) -> dict[str, list[int]]:
    places: dict[str, list[int]] = {}
    for place, webhook in enumerate(webhooks):
        entries = [entry for rule in webhook.rules for entry in rule.resources]
        for name in {entry.partition("/")[0] for entry in entries}:
            places.setdefault(name, []).append(place)
    return places


class _Candidates:
    """The webhooks with a rule for requests of one shape."""

    def __init__(self, invocations: tuple[Invocation, ...]) -> None:
        self.invocations = invocations
        self.look_at_namespaces = any(not one.webhook.namespace_selector.is_empty for one in invocations)
        self._looked_at = tuple(
            Invocation(
                one.webhook,
                one.position,
                is_unconditional=one.webhook.object_selector.is_empty,
                is_in_place=True,
            )
            for one in invocations
        )
        """What becomes of them when their namespaceSelector has been looked at."""
        self._by_mask: dict[bytes, tuple[Invocation, ...]] = {}

    def of(self, mask: bytes) -> tuple[Invocation, ...]:
        """Return those whose position in *mask* is not 0."""
        found = self._by_mask.get(mask)
        if found is None:
            if len(self._by_mask) >= _KEPT_MASKS:
                self._by_mask.clear()
            found = self._by_mask[mask] = tuple(one for one in self._looked_at if mask[one.position])
        return found


def selectors_match(
    webhook: Webhook,
    request: AdmissionRequest,
    current: Json | None,
    namespace: Namespace | Failed | None,
) -> bool | Failed:
    """Whether both selectors of *webhook* admit *request*.

    *current* is the object as it is now, with its labels at least.
    *namespace* is the request's: None if there is no such namespace, Failed if that could not be found out.
    Failed when the outcome depends on its labels and there are none; an objectSelector that does not match
    hides that.
    """
    in_namespace = _namespace_matches(webhook, request, current, namespace)
    if in_namespace is False:
        return False
    if not webhook.object_selector.is_empty and not object_matches(
        webhook, selectable_labels(current, request.old_outline)
    ):
        return False
    return in_namespace


def object_matches(webhook: Webhook, labels: Iterable[Mapping[str, str]]) -> bool:
    """Whether the objectSelector of *webhook*, which is not empty, admits an object with any of *labels*."""
    return any(map(webhook.object_selector.matches, labels))


def selectable_labels(current: Json | None, old: Json | None) -> tuple[Mapping[str, str], ...]:
    """Return the labels by which an objectSelector judges a request: those of what has metadata."""
    return tuple(labels_of(one) for one in (current, old) if one is not None and "metadata" in one)


def _namespace_matches(
    webhook: Webhook,
    request: AdmissionRequest,
    current: Json | None,
    namespace: Namespace | Failed | None,
) -> bool | Failed:
    selector = webhook.namespace_selector
    if selector.is_empty or (request.namespace == "" and not _is_namespace(request)):
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


def _is_namespace(request: AdmissionRequest) -> bool:
    return request.request_resource[2] == "namespaces"


def is_namespace_write(request: AdmissionRequest) -> bool:
    """Whether *request* makes or changes a Namespace, whose own labels then count for namespaceSelectors."""
    return (
        request.operation in ("CREATE", "UPDATE")
        and _is_namespace(request)
        and request.request_sub_resource == ""
    )


def labels_of(document: Json | None) -> Mapping[str, str]:
    """Return ``metadata.labels`` of a Kubernetes object; empty where there are none or they are malformed."""
    metadata = document.get("metadata") if document is not None else None
    labels = metadata.get("labels") if isinstance(metadata, dict) else None
    return labels if isinstance(labels, dict) else _NO_LABELS
