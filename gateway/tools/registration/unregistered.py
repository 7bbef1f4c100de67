"""Unregisters webhooks in the cluster without deleting them, for controllers that write their objects.

Both selectors of an unregistered webhook require that a label exists and does not exist, so that the API
server never calls it. Controllers that read the object, change their fields and write it back keep the
selectors, unlike ``matchConditions``, which older clients drop. The objectSelector is sufficient, because it
applies to every request; the namespaceSelector is set too, because knative.dev/pkg's binding reconciler
copies it over the objectSelector.

Source: k8s.io/apiserver pkg/admission/plugin/webhook/predicates/object/matcher.go; knative.dev/pkg webhook.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    Json = dict[str, Any]

LABEL: Final = "admission-gateway.io/unregistered"

_NEVER: Final = ({"key": LABEL, "operator": "Exists"}, {"key": LABEL, "operator": "DoesNotExist"})
_SELECTORS: Final = ("namespaceSelector", "objectSelector")


def is_unregistered(entry: Mapping[str, Any]) -> bool:
    """Whether the webhook *entry*, which is not validated, is unregistered."""
    selector = entry.get("objectSelector")
    found = _expressions(selector) if isinstance(selector, dict) else []
    return all(one in found for one in _NEVER)


def unregistered(document: Json, kept: Collection[int] = ()) -> Json:
    """Return *document* with all webhooks unregistered, except those at the indices *kept*."""
    return _with_webhooks(document, kept, is_called=False)


def registered_again(document: Json) -> Json:
    """Return *document* with its webhooks as they were before :func:`unregistered`."""
    return _with_webhooks(document, (), is_called=True)


def _with_webhooks(document: Json, kept: Collection[int], *, is_called: bool) -> Json:
    webhooks = document.get("webhooks")
    if not isinstance(webhooks, list):
        return document
    return {
        **document,
        "webhooks": [
            _entry(entry, is_called=is_called) if isinstance(entry, dict) and index not in kept else entry
            for index, entry in enumerate(webhooks)
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
        wanted = others if is_called else [*others, *_NEVER]
        if wanted != found:
            rest = {key: value for key, value in selector.items() if key != "matchExpressions"}
            changed[field] = {**rest, "matchExpressions": wanted} if wanted else rest
    return {**entry, **changed} if changed else entry


def _expressions(selector: Json) -> list[object]:
    found = selector.get("matchExpressions")
    return found if isinstance(found, list) else []
