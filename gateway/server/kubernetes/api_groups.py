"""All objects of API groups of a cluster, whatever kinds the groups have.

Source: k8s.io/apimachinery pkg/apis/meta/v1 types.go (APIGroup, APIResourceList).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gateway.base.errors import ClusterError
from gateway.server.kubernetes.webhook_configurations import list_all

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from gateway.server.kubernetes.api_client import ApiClient

    Json = dict[str, Any]

_FORBIDDEN, _NOT_FOUND = 403, 404


async def list_groups(
    api: ApiClient, groups: Iterable[str], without: Collection[str] = ()
) -> tuple[list[Json], list[str]]:
    """Return the objects of *groups*, and a message for each missing right; groups may be absent.

    Each object has apiVersion and kind, in the version that its API server prefers. Resources (plural names)
    in *without* are left out.

    Raises:
        ClusterError: the API server cannot be reached, or refuses to answer for another reason.
    """
    objects: list[Json] = []
    missing: list[str] = []
    for group in groups:
        seen = set(without)
        for version in _versions(await api.find(f"/apis/{group}")):
            for plural, kind in _resources(await api.find(f"/apis/{version}")):
                if plural in seen:
                    continue
                seen.add(plural)
                try:
                    items = await list_all(api, f"/apis/{version}/{plural}", plural)
                except ClusterError as error:
                    if error.status == _FORBIDDEN:
                        missing.append(str(error))
                    elif error.status != _NOT_FOUND:
                        raise
                    continue
                objects += [{**item, "apiVersion": version, "kind": kind} for item in items]
    return objects, missing


async def kinds_of_version(api: ApiClient, version: str) -> dict[str, str]:
    """Return the kinds of *version*, such as ``apps/v1``, by plural name.

    Raises:
        ClusterError: the API server cannot be reached, or refuses to answer.
    """
    return dict(_resources(await api.find(f"/apis/{version}" if "/" in version else f"/api/{version}")))


def _versions(group: Json | None) -> Iterator[str]:
    """Yield the versions of *group*, an APIGroup, the preferred one first."""
    versions = [] if group is None else group.get("versions")
    for version in versions if isinstance(versions, list) else []:
        match version:
            case {"groupVersion": str(name)}:
                yield name


def _resources(answer: Json | None) -> Iterator[tuple[str, str]]:
    """Yield plural and kind of the resources in *answer*, an APIResourceList, that can be listed."""
    resources = [] if answer is None else answer.get("resources")
    for resource in resources if isinstance(resources, list) else []:
        match resource:
            case {"kind": str(kind), "name": str(plural), "verbs": list(verbs)}:
                if "/" not in plural and "list" in verbs:
                    yield plural, kind
