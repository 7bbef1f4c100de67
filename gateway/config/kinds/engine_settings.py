"""``GatewayConfiguration.policies.engines``: the workers that evaluate policies of other engines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gateway.config.kinds.declare import Choice, Declared, Group, Integer, Text, optional, required
from gateway.config.kinds.matching import FAILURE_POLICIES
from gateway.config.kinds.names import SUBDOMAIN_LENGTH

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from gateway.config.yaml.fields import Fields
    from gateway.pure.core.webhook import FailurePolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineEntry(Declared):
    """The worker of one engine."""

    place: str
    pool: str = required(
        Text("name of a WorkerPool", minLength=1, maxLength=SUBDOMAIN_LENGTH),
        "The pool whose workers have the policies of the engine",
    )
    failure_policy: FailurePolicy | None = optional(
        Choice(FAILURE_POLICIES), "Instead of what the policies have, or the engine has by default"
    )
    timeout_seconds: int | None = optional(
        Integer(1, 30, "seconds"), "Instead of what the policies have, or the engine has by default"
    )

    @classmethod
    def read_together(cls, source: Fields) -> dict[str, Any]:
        """Return the path of the pool."""
        return {"place": source.at("pool")}


@dataclass(frozen=True, slots=True, kw_only=True)
class EnginesEntry(Declared):
    """The workers of all engines."""

    gatekeeper: EngineEntry | None = optional(Group(EngineEntry), "Gatekeeper: Rego and mutators")
    kyverno: EngineEntry | None = optional(
        Group(EngineEntry), "Kyverno: rules of ClusterPolicies and Policies in its own language"
    )
    kubewarden: EngineEntry | None = optional(Group(EngineEntry), "Kubewarden: WebAssembly modules")

    @property
    def pools(self) -> Iterator[tuple[str, str]]:
        """Path and name of each pool."""
        for each in (self.gatekeeper, self.kyverno, self.kubewarden):
            if each is not None:
                yield each.place, each.pool


NO_ENGINES = EnginesEntry()
