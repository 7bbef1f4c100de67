"""What the policies of another engine need of the GatewayConfiguration: listed kinds, and a cluster."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gateway.config.yaml.documents import GATEWAY_VERSION, Document
from gateway.config.yaml.fields import Problems
from gateway.pure.core.policy import ParamKind
from gateway.pure.openapi.built_in_resources import RESOURCES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    Json = dict[str, Any]

Resource = tuple[str, str]
"""apiVersion and plural name."""
FILE: Final = "gatewayconfiguration.yaml"
POOLS: Final = "workerpools.yaml"
PORTS: Final = {"gatekeeper": 50051, "kyverno": 50052, "kubewarden": 50053}
"""Ports of workers beside the gateway, by engine."""
DEFINITION: Final = "CustomResourceDefinition"
_SECRETS: Final = ("v1", "secrets")


class ReadableKinds(Mapping[Resource, ParamKind]):
    """The kinds that policies may read, built-in and custom ones. It notes which are asked for."""

    def __init__(self, custom: Mapping[Resource, str]) -> None:
        """*custom* are the names of kinds."""
        self._custom = custom
        self.read: dict[Resource, str] = {}
        """The kinds of what policies read."""
        self.unknown: set[Resource] = set()
        """What policies read and no kind is known for."""

    def __getitem__(self, resource: Resource) -> ParamKind:
        version, plural = resource
        built_in = RESOURCES.get(version.rpartition("/")[0], {}).get(plural)
        kind = self._custom.get(resource) if built_in is None else built_in.kind
        if kind is None or resource == _SECRETS:
            if all(resource) and resource != _SECRETS:
                self.unknown.add(resource)
            raise KeyError(resource)
        self.read[resource] = kind
        return ParamKind(version, kind)

    def __iter__(self) -> Iterator[Resource]:
        return iter(())

    def __len__(self) -> int:
        return 0


def pools_of(engines: Iterable[str]) -> list[Json]:
    """Return a WorkerPool for each of *engines*, with a worker beside the gateway."""
    return [
        {
            "apiVersion": GATEWAY_VERSION,
            "kind": "WorkerPool",
            "metadata": {"name": engine},
            "spec": {"targets": [f"127.0.0.1:{PORTS[engine]}"]},
        }
        for engine in engines
    ]


def cluster_only() -> list[Document]:
    """Return a GatewayConfiguration that names a cluster, alone."""
    return [with_cluster()]


def with_workers() -> list[Document]:
    """Return a GatewayConfiguration that names a cluster and workers of all engines, and their pools."""
    content = {**(with_cluster().content or {}), "policies": {"engines": _engines(PORTS)}}
    return [Document(Path(FILE), Problems(FILE), each) for each in (content, *pools_of(PORTS))]


def _engines(engines: Iterable[str]) -> Json:
    return {engine: {"pool": engine} for engine in engines}


def with_cluster() -> Document:
    """Return a GatewayConfiguration that names a cluster."""
    content: Json = {"apiVersion": GATEWAY_VERSION, "kind": "GatewayConfiguration", "kubernetes": {}}
    return Document(Path(FILE), Problems(FILE), content)


def settings_for(
    read: Mapping[Resource, str], engines: Iterable[str] = (), *, has_cluster: bool = True
) -> Json:
    """Return the GatewayConfiguration for policies that read objects of these kinds in a cluster.

    *engines* are those whose policies run in workers.
    """
    content = dict(with_cluster().content or {})
    if not has_cluster:
        del content["kubernetes"]
    policies: Json = {}
    if found := _engines(engines):
        policies["engines"] = found
    if read:
        listed = [
            {"apiVersion": version, "kind": kind, "resource": plural}
            for (version, plural), kind in sorted(read.items())
        ]
        policies["resources"] = listed
    return {**content, "policies": policies} if policies else content


def kinds_of(definitions: Iterable[Json]) -> dict[Resource, str]:
    """Return the kinds that CustomResourceDefinitions define; what is wrong in one is left out."""
    kinds: dict[Resource, str] = {}
    for one in definitions:
        with suppress(KeyError, TypeError):
            spec = one["spec"]
            for version in spec["versions"]:
                key = f"{spec['group']}/{version['name']}", str(spec["names"]["plural"])
                kinds[key] = str(spec["names"]["kind"])
    return kinds
