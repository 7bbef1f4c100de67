"""Webhooks that stay in the cluster for the controller that writes them, and that the API server never calls.

Both selectors of such a webhook ask for a label that is there and is not there at once. A controller that
reads the object, changes its own fields and writes it back keeps that, whatever version of the API its client
knows: older clients drop ``matchConditions``, and knative.dev/pkg's binding reconciler copies its
namespaceSelector over its objectSelector. The objectSelector alone would do: it is asked for every request.

Source: k8s.io/apiserver pkg/admission/plugin/webhook/predicates/object/matcher.go; knative.dev/pkg webhook.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    Json = dict[str, Any]

LABEL: Final = "admission-gateway.io/unregistered"

_NOTHING: Final = ({"key": LABEL, "operator": "Exists"}, {"key": LABEL, "operator": "DoesNotExist"})
_SELECTORS: Final = ("namespaceSelector", "objectSelector")


def is_unregistered(entry: Mapping[str, Any]) -> bool:
    """Whether the API server never calls the webhook *entry*, which nobody has checked."""
    selector = entry.get("objectSelector")
    found = _expressions(selector) if isinstance(selector, dict) else []
    return all(one in found for one in _NOTHING)


def unregistered(document: Json, kept: Collection[int] = ()) -> Json:
    """Return *document* with none of its webhooks called, but for those at the places *kept*."""
    return _with_webhooks(document, kept, is_called=False)


def registered_again(document: Json) -> Json:
    """Return *document* with its webhooks called as they were before :func:`unregistered`."""
    return _with_webhooks(document, (), is_called=True)


def _with_webhooks(document: Json, kept: Collection[int], *, is_called: bool) -> Json:
    webhooks = document.get("webhooks")
    if not isinstance(webhooks, list):
        return document
    return {
        **document,
        "webhooks": [
            _entry(entry, is_called=is_called) if isinstance(entry, dict) and place not in kept else entry
            for place, entry in enumerate(webhooks)
        ],
    }


def _entry(entry: Json, *, is_called: bool) -> Json:
    changed = {}
    for field in _SELECTORS:
        selector = entry.get(field)
        if not isinstance(selector, dict | None):
            continue
        selector = selector or {}
        found = _expressions(selector)
        others = [one for one in found if not (isinstance(one, dict) and one.get("key") == LABEL)]
        wanted = others if is_called else [*others, *_NOTHING]
        if wanted != found:
            rest = {key: value for key, value in selector.items() if key != "matchExpressions"}
            changed[field] = {**rest, "matchExpressions": wanted} if wanted else rest
    return {**entry, **changed} if changed else entry


def _expressions(selector: Json) -> list[object]:
    found = selector.get("matchExpressions")
    return found if isinstance(found, list) else []
