"""The objects that exist in a cluster, as a source of reviews: those that webhooks have rules for.

They are listed page by page, so that memory does not depend on their number.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from gateway.base.errors import ClusterError
from gateway.server.kubernetes.access import ClusterAccess
from gateway.tools.replay.objects import EXISTS, cases_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from gateway.config.kinds.kubernetes_settings import KubernetesSettings
    from gateway.pure.core.webhook import Webhook
    from gateway.server.kubernetes.api_client import ApiClient
    from gateway.tools.replay.cases import Case, Found

PAGE: Final = 250
_VERBS: Final = {"list", "create"}


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
                wanted = [one async for one in self._resources(api)]
                for number, (path, api_version, kind) in enumerate(wanted):
                    try:
                        async for item, part in _items(api, path):
                            found.read = (number + part) / len(wanted)
                            for case in cases_of(
                                {**item, "apiVersion": api_version, "kind": kind}, EXISTS, found
                            ):
                                yield case
                    except ClusterError as error:
                        if not error.status:
                            raise
                        found.problems.append(f"{path}: {error}")
        finally:
            await access.close()

    async def _resources(self, api: ApiClient) -> AsyncIterator[tuple[str, str, str]]:
        """Yield path, apiVersion and kind of each resource whose creation a webhook has a rule for."""
        groups: Any = (await api.get("/apis")).get("groups") or []
        versions = ["v1", *(str(group["preferredVersion"]["groupVersion"]) for group in groups)]
        for version in versions:
            prefix = "/api" if "/" not in version else "/apis"
            resources: Any = (await api.get(f"{prefix}/{version}")).get("resources") or []
            for resource in resources:
                name, group = str(resource["name"]), version.rpartition("/")[0]
                if set(resource.get("verbs") or ()) >= _VERBS and self._is_wanted(group, name):
                    yield f"{prefix}/{version}/{name}", version, str(resource["kind"])

    def _is_wanted(self, group: str, resource: str) -> bool:
        return any(
            {"CREATE", "*"} & set(rule.operations)
            and {group, "*"} & set(rule.api_groups)
            and {resource, "*", "*/*"} & set(rule.resources)
            for webhook in self._webhooks
            for rule in webhook.rules
        )


async def _items(api: ApiClient, path: str) -> AsyncIterator[tuple[dict[str, Any], float]]:
    """Yield each object at *path*, and the part of the list that was read before it, from 0 to 1."""
    seen = 0
    async for page in api.pages(path, {"limit": str(PAGE)}):
        items, metadata = page.get("items") or (), page.get("metadata") or {}
        total = seen + len(items) + int(metadata.get("remainingItemCount") or 0)
        for item in items:
            if isinstance(item, dict):
                yield item, seen / total
            seen += 1
