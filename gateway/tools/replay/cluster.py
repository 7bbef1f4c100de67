"""The objects that exist in a cluster, as a source of reviews: those that webhooks have rules for.

They are listed page by page, so that memory does not depend on their number. A page that is too large is read
again in smaller ones.

Source: kubernetes.io/docs/reference/using-api/api-concepts, "Retrieving large results sets in chunks".
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from gateway.base.errors import ClusterError
from gateway.server.kubernetes.access import ClusterAccess
from gateway.server.kubernetes.api_client import ApiStatusError, TooLargeError
from gateway.tools.replay.objects import EXISTS, cases_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence

    from gateway.config.kinds.kubernetes_settings import KubernetesSettings
    from gateway.pure.core.webhook import Webhook
    from gateway.server.kubernetes.api_client import ApiClient
    from gateway.tools.replay.cases import Case, Found

    Json = dict[str, Any]

PAGE: Final = 250
MAX_PAGE_BYTES: Final = 8 * 1024 * 1024
"""The size of a page. Parsed, it takes some ten times as much. One object of the largest size fits."""
MAX_ATTEMPTS: Final = 6
LONGEST_PAUSE_S: Final = 30.0
CHANGED: Final = (
    "the list took longer than the API server keeps its version: the rest is of a later time, and objects may"
    " be missing or counted twice"
)
_VERBS: Final = {"list", "create"}
_GONE: Final = 410
_BUSY: Final = (429, 500, 503, 504)


@dataclass(frozen=True, slots=True)
class ListedKind:
    """A kind of objects that can be listed and created."""

    path: str
    api_version: str
    kind: str
    resource: str
    """The plural name."""
    is_namespaced: bool

    @property
    def group(self) -> str:
        """The API group. Empty for the core."""
        return self.api_version.rpartition("/")[0]

    @property
    def named(self) -> str:
        """``RESOURCE`` or ``RESOURCE.GROUP``."""
        return f"{self.resource}.{self.group}" if self.group else self.resource

    def whole(self, item: Json) -> Json:
        """Return *item* of a list, which has neither of both, with apiVersion and kind."""
        return {**item, "apiVersion": self.api_version, "kind": self.kind}


class ClusterObjects:
    """The objects of one cluster."""

    def __init__(self, settings: KubernetesSettings, webhooks: Sequence[Webhook]) -> None:
        """*webhooks* are those whose rules select the resources."""
        self._settings = settings
        self._webhooks = webhooks

    async def cases(self, found: Found) -> AsyncIterator[Case]:
        """Yield the reviews, resource by resource.

        Raises:
            ClusterError: the cluster cannot be reached.
        """
        access = ClusterAccess(self._settings)
        try:
            async with access.api() as api:
                wanted = [
                    one
                    async for one in listed_kinds(api)
                    if has_creation_rule(self._webhooks, one.group, one.resource)
                ]
                for number, kind in enumerate(wanted):
                    try:
                        async for item, part in listed_items(api, kind.path, found.problems.append):
                            found.read = (number + part) / len(wanted)
                            for case in cases_of(kind.whole(item), EXISTS, found):
                                yield case
                    except ClusterError as error:
                        if not error.status:
                            raise
                        found.problems.append(f"{kind.path}: {error}")
        finally:
            await access.close()


async def listed_kinds(api: ApiClient) -> AsyncIterator[ListedKind]:
    """Yield the kinds of the cluster that can be listed and created, each in its preferred version.

    Raises:
        ClusterError: the cluster cannot be reached, or refuses.
    """
    groups: Any = (await api.get("/apis")).get("groups") or []
    versions = ["v1", *(str(group["preferredVersion"]["groupVersion"]) for group in groups)]
    for version in versions:
        prefix = "/api" if "/" not in version else "/apis"
        resources: Any = (await api.get(f"{prefix}/{version}")).get("resources") or []
        for resource in resources:
            if set(resource.get("verbs") or ()) >= _VERBS:
                name, kind = str(resource["name"]), str(resource["kind"])
                path = f"{prefix}/{version}/{name}"
                yield ListedKind(path, version, kind, name, bool(resource.get("namespaced")))


def has_creation_rule(webhooks: Iterable[Webhook], group: str, resource: str) -> bool:
    """Whether any of *webhooks* has a rule for the creation of *resource* of *group*, in any version."""
    return any(
        {"CREATE", "*"} & set(rule.operations)
        and {group, "*"} & set(rule.api_groups)
        and {resource, "*", "*/*"} & set(rule.resources)
        for webhook in webhooks
        for rule in webhook.rules
    )


async def _at_once(objects: int) -> None:
    """Do not wait."""


async def listed_items(
    api: ApiClient,
    path: str,
    noted: Callable[[str], None],
    before_request: Callable[[int], Awaitable[None]] = _at_once,
) -> AsyncIterator[tuple[Json, float]]:
    """Yield each object at *path*, and the part of the list that was read before it, from 0 to 1.

    *before_request* is awaited before each request, with the number of objects of the page before. The list
    goes on with a later version if the API server does not have the first one any more, and *noted* is
    called. A request that the API server is too busy for is repeated after a while.

    Raises:
        ClusterError: the API server cannot be reached, or refuses.
    """
    seen, limit, following = 0, PAGE, ""
    failures = objects = 0
    while True:
        await before_request(objects)
        objects = 0
        token = {"continue": following} if following else {}
        try:
            page = await api.page(path, {"limit": str(limit), **token}, MAX_PAGE_BYTES)
        except TooLargeError:
            if limit == 1:
                raise
            limit = max(1, limit // 4)
            continue
        except ApiStatusError as error:
            if error.status == _GONE and error.following:
                noted(f"{path}: {CHANGED}")
                following = error.following
                continue
            failures += 1
            if error.status not in _BUSY or failures >= MAX_ATTEMPTS:
                raise
            await asyncio.sleep(min(error.retry_after_s or 2.0 ** (failures - 1), LONGEST_PAUSE_S))
            continue
        failures = 0
        items, metadata = page.get("items") or (), page.get("metadata") or {}
        del page
        objects = len(items)
        total = seen + objects + int(metadata.get("remainingItemCount") or 0)
        for item in items:
            if isinstance(item, dict):
                yield item, seen / total
            seen += 1
        following = str(metadata.get("continue") or "")
        if not following:
            return
