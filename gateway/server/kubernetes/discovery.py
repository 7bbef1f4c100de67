"""The kinds of a cluster by the words that kubectl accepts: plural, singular, short name, kind, with a group.

Source: k8s.io/api apidiscovery/v2 types.go; k8s.io/cli-runtime pkg/resource/builder.go (mappingFor);
k8s.io/client-go restmapper/shortcut.go.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from gateway.base.errors import ClusterError, GatewayError
from gateway.base.text import described, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gateway.server.kubernetes.api_client import ApiClient

    Json = dict[str, Any]

_AGGREGATED: Final = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


class Resource(NamedTuple):
    """A kind of a cluster, in the version that its API server prefers."""

    group: str
    version: str
    plural: str
    kind: str
    is_namespaced: bool
    words: frozenset[str]
    """What it is called, in lower case, without its group."""

    def path(self, namespace: str, name: str) -> str:
        """Return the path of an object; *namespace* and *name* are quoted already."""
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        place = f"/namespaces/{namespace}" if self.is_namespaced else ""
        return f"{root}{place}/{self.plural}/{name}"


async def resources(api: ApiClient) -> list[Resource]:
    """Return all kinds of the cluster, those of Kubernetes' core first.

    Raises:
        ClusterError: the API server cannot be reached, or refuses to answer.
    """
    answers = await asyncio.gather(*(api.get_as(path, _AGGREGATED) for path in ("/api", "/apis")))
    try:
        return [
            found for answer in answers for group in answer.get("items") or () for found in _of_group(group)
        ]
    except (AttributeError, TypeError) as error:
        raise ClusterError("the API server answers with kinds that are none") from error


def find(known: list[Resource], word: str) -> Resource:
    """Return the first of *known* that *word* means: ``pods``, ``po``, ``Deployment``, ``deploy.apps``.

    Raises:
        GatewayError: there is none.
    """
    name, _, group = word.lower().partition(".")
    for one in known:
        if name in one.words and (not group or group in (one.group, f"{one.version}.{one.group}")):
            return one
    hint = did_you_mean(name, sorted({one.plural for one in known}))
    raise GatewayError(f"the cluster has no resource type {described(word)}{hint}")


def _of_group(group: Json) -> Iterator[Resource]:
    seen = set()
    for version in group.get("versions") or ():
        for one in version.get("resources") or ():
            plural, kind = str(one.get("resource")), str((one.get("responseKind") or {}).get("kind"))
            if plural in seen:
                continue
            seen.add(plural)
            words = (plural, kind, one.get("singularResource") or "", *(one.get("shortNames") or ()))
            yield Resource(
                str((group.get("metadata") or {}).get("name") or ""),
                str(version.get("version")),
                plural,
                kind,
                one.get("scope") == "Namespaced",
                frozenset(word.lower() for word in words if word),
            )
