"""Which entries refuse a request while their backend is away, by the code that matches reviews."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import orjson

from gateway.config.kinds.webhook_configuration import read_webhook_configuration
from gateway.config.kinds.webhook_entry import V1
from gateway.config.yaml.documents import PHASES
from gateway.config.yaml.fields import Fields, Problems
from gateway.pure.conditions.match_conditions import CompiledConditions, PartialMap
from gateway.pure.core.review import V1 as REVIEW_V1
from gateway.pure.core.review import decode
from gateway.pure.core.rules import is_never_sent, rules_match
from gateway.tools.deadlocks.model import FailEntry
from gateway.tools.registration.coverage_gaps import selected
from gateway.tools.registration.gateway_entries import backend, entries, gateway_indices

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping, Sequence

    from gateway.tools.deadlocks.model import Request

    Json = Mapping[str, Any]

_SERVICE: Final = re.compile(r"([a-z0-9-]+)\.([a-z0-9-]+)\.svc(?:\.[a-z0-9.-]+)?(?::[0-9]+)?")
"""The host of a URL that is the name of a Service."""
_LEFT_OUT: Final = frozenset({"namespace", "subResource", "requestSubResource"})
"""Members of an AdmissionRequest that are left out if they are empty."""


class _Known(PartialMap):
    """The known members of an AdmissionRequest."""

    absent = _LEFT_OUT


def fail_entries(configurations: Sequence[Json]) -> list[FailEntry]:
    """Return the entries of *configurations* with ``failurePolicy: Fail``, in their order."""
    found = []
    for document, of_gateway in zip(configurations, gateway_indices(configurations), strict=True):
        name, kind = str(document["metadata"]["name"]), str(document["kind"])
        for index, entry in enumerate(entries(document)):
            if entry.get("failurePolicy", "Fail") != "Fail":
                continue
            # One by one: a problem of an entry is about this entry. The API server has accepted all of them.
            problems = Problems(name)
            fields = Fields({**document, "webhooks": [entry]}, "", problems)
            hook = read_webhook_configuration(fields, PHASES[kind], V1).webhooks[0]
            conditions = entry.get("matchConditions") or []
            is_unread = conditions != [] and not (
                isinstance(hook.match_conditions, CompiledConditions)
                and len(hook.match_conditions.conditions) == len(conditions)
            )
            place = f"{kind}/{name}: webhooks[{index}] {hook.name}"
            found.append(FailEntry(place, hook, _backend(entry), index in of_gateway, is_unread))
    return found


def _backend(entry: Json) -> tuple[str, ...] | None:
    """Return namespace and name of the Service of *entry*, also if a URL names it, or the host of its URL."""
    found = backend(entry)
    if found is not None and len(found) == 1 and (named := _SERVICE.fullmatch(found[0])):
        return named[2], named[1]
    return found


class Matcher:
    """Entries by the requests that they match."""

    def __init__(self, found: Sequence[FailEntry], labels: Mapping[str, Mapping[str, str]]) -> None:
        """*labels* are those of the namespaces that are known."""
        self._entries = found
        self._labels = labels
        self._by_shape: dict[Hashable, Sequence[tuple[FailEntry, bool | None]]] = {}

    def refusing(self, request: Request) -> list[tuple[FailEntry, bool]]:
        """Return the entries that match *request*, and of each whether that is certain."""
        shape = (request.operation, request.group, request.resource, request.kind, request.namespace == "")
        candidates = self._by_shape.get(shape)
        if candidates is None:
            candidates = self._by_shape[shape] = self._with_rule(request)
        found = []
        for entry, is_certain in candidates:
            results = [
                is_certain,
                self._in_namespace(entry, request),
                _of_object(entry, request),
                _of_conditions(entry, request),
            ]
            if False not in results:
                found.append((entry, None not in results))
        return found

    def _with_rule(self, request: Request) -> Sequence[tuple[FailEntry, bool | None]]:
        decoded = decode(orjson.dumps(_review(request)))
        if is_never_sent(decoded):
            return []
        return [
            # Another version, or a resource that is the same in another group, matches if it is served.
            (entry, True if rules_match(replace(entry.hook, match_policy="Exact"), decoded) else None)
            for entry in self._entries
            if rules_match(entry.hook, decoded)
        ]

    def _in_namespace(self, entry: FailEntry, request: Request) -> bool | None:
        hook = entry.hook
        if hook.namespace_selector.is_empty or not request.namespace:
            return True
        return selected(hook, request.namespace, self._labels.get(request.namespace))


def _of_object(entry: FailEntry, request: Request) -> bool | None:
    selector = entry.hook.object_selector
    if selector.is_empty:
        return True
    return None if request.labels is None else selector.matches(request.labels)


def _of_conditions(entry: FailEntry, request: Request) -> bool | None:
    if entry.has_unread_conditions:
        return None
    conditions = entry.hook.match_conditions
    if not isinstance(conditions, CompiledConditions):
        return True
    metadata: dict[str, Any] = {
        key: value for key in ("name", "namespace") if (value := getattr(request, key))
    }
    if request.labels is not None:
        metadata["labels"] = request.labels
    group, version, kind = request.kind
    api_version = f"{group}/{version}" if group else version
    found: Mapping[str, Any] = request.object or PartialMap(
        apiVersion=api_version, kind=kind, metadata=PartialMap(metadata)
    )
    new = None if request.operation == "DELETE" else found
    old = found if request.operation in ("UPDATE", "DELETE") else None
    user: dict[str, Any] = {}
    if request.user:
        user = {"username": request.user, "groups": list(request.groups)}
    known = _Known({**_review(request)["request"], "userInfo": PartialMap(user)})
    for name in ("uid", "object", "oldObject", *(() if request.name else ("name",))):
        known.pop(name, None)
    return conditions.decide(new, old, known)


def _review(request: Request) -> dict[str, Any]:
    group, version, kind = request.kind
    resource, _, sub_resource = request.resource.partition("/")
    of_kind = {"group": group, "version": version, "kind": kind}
    of_resource = {"group": request.group, "version": "v1", "resource": resource}
    found: dict[str, Any] = {
        "uid": "1",
        "kind": of_kind,
        "resource": of_resource,
        "requestKind": of_kind,
        "requestResource": of_resource,
        "subResource": sub_resource,
        "requestSubResource": sub_resource,
        "name": request.name,
        "namespace": request.namespace,
        "operation": request.operation,
        "userInfo": {},
        "object": {},
        "dryRun": False,
    }
    left = {key: value for key, value in found.items() if value or key not in _LEFT_OUT}
    return {"kind": "AdmissionReview", "apiVersion": REVIEW_V1, "request": left}
