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


def with_cluster() -> Document:
    """Return a GatewayConfiguration that names a cluster."""
    content: Json = {"apiVersion": GATEWAY_VERSION, "kind": "GatewayConfiguration", "kubernetes": {}}
    return Document(Path(FILE), Problems(FILE), content)


def settings_for(read: Mapping[Resource, str]) -> Json:
    """Return the GatewayConfiguration for policies that read objects of these kinds in a cluster."""
    content = dict(with_cluster().content or {})
    if read:
        listed = [
            {"apiVersion": version, "kind": kind, "resource": plural}
            for (version, plural), kind in sorted(read.items())
        ]
        content["policies"] = {"resources": listed}
    return content


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
