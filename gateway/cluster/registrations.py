"""The webhook configurations that are registered in a cluster, all of them, as the API server has them.

Source: kubernetes.io/docs/reference/using-api/api-concepts (lists in pages).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from gateway.errors import ClusterError

if TYPE_CHECKING:
    from gateway.cluster.api import ApiServer

    Json = dict[str, Any]

VERSION: Final = "admissionregistration.k8s.io/v1"
KINDS: Final = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
_PAGE: Final = "100"
"""Objects; a bundle of roots in each of its webhooks makes one large."""
_FORBIDDEN, _GONE = 403, 410


async def registered(api: ApiServer) -> list[Json]:
    """Return all webhook configurations, mutating ones first, each with apiVersion and kind.

    Raises:
        ClusterError: the API server cannot be reached, or refuses; where a right is missing, it says which.
    """
    return [
        {"apiVersion": VERSION, "kind": kind, **item}
        for kind in KINDS
        for item in await _pages(api, f"/apis/{VERSION}/{kind.lower()}s", f"{kind.lower()}s")
    ]


async def _pages(api: ApiServer, path: str, plural: str) -> list[Json]:
    try:
        items: list[Json] = []
        rest = ""
        while True:
            page = await api.get(path, {"limit": _PAGE, **({"continue": rest} if rest else {})})
            items += objects_in(page, api.url)
            if not all(map(_is_named, items)):
                raise ClusterError(f"{api.url}: sent {plural} without a name")
            metadata = page.get("metadata")
            found = metadata.get("continue") if isinstance(metadata, dict) else None
            if not found:
                return items
            rest = str(found)
    except ClusterError as error:
        if error.status == _GONE:
            raise ClusterError(f"{plural} changed too much while they were read; try again", _GONE) from error
        if error.status == _FORBIDDEN:
            right = f"the right to list {plural} of {VERSION.partition('/')[0]} is missing"
            raise ClusterError(f"{right} ({error})", _FORBIDDEN) from error
        raise


def _is_named(item: Json) -> bool:
    match item:
        case {"metadata": {"name": str()}}:
            return True
    return False


def objects_in(page: Json, url: str) -> list[Json]:
    """Return the items of a list as the API server answered it.

    Raises:
        ClusterError: it is no list of objects.
    """
    items = page.get("items")
    if items is None:
        return []
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise ClusterError(f"{url}: sent a list of something that is no object")
    return items
