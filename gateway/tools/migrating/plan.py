"""What ``migrate`` writes and reports: the documents, where each runs, and the configurations around them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from gateway.config.yaml.documents import GATEWAY_VERSION
from gateway.tools.importing.needs import FILE, POOLS, kinds_of, pools_of, with_cluster
from gateway.tools.importing.other_engines import Needs, judge, of_engine
from gateway.tools.migrating import old_webhooks
from gateway.tools.registration.yaml_output import to_yaml

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from gateway.config.yaml.documents import Document
    from gateway.tools.importing.needs import Resource
    from gateway.tools.importing.other_engines import Found, Imported
    from gateway.tools.migrating.engines import Engine
    from gateway.tools.migrating.old_webhooks import OldWebhooks

    Json = dict[str, Any]

CONFIG: Final = "config"
OLD: Final = "old"
CANDIDATES: Final = "candidates"
REGISTERED: Final = "registered"
"""The folders that are written."""
VALUES: Final = "values.yaml"
CANDIDATE_VALUES: Final = "values-candidates.yaml"
EXCLUDED: Final = ("kube-public", "kube-node-lease")
"""The chart's default of ``registration.excludeNamespaces``, which a value replaces."""
NATIVE, WORKER, REFUSED = "native", "worker", "refused"
_TEMPLATE: Final = "ConstraintTemplate"
_CEL: Final = "K8sNativeValidation"
"""The engine of a template's code that the gateway evaluates. A template has no entry of its own."""


@dataclass(slots=True)
class Moved:
    """One engine with its documents and webhooks."""

    engine: Engine
    found: Found
    needs: Needs
    old: OldWebhooks

    def where(self, one: Imported) -> str:
        """Return where the document *one* runs."""
        if one.problems:
            return REFUSED
        is_rego = one.kind == _TEMPLATE and _CEL not in one.text
        return WORKER if one.in_worker or is_rego else NATIVE

    @property
    def needs_worker(self) -> bool:
        """Whether a document runs in a worker."""
        return any(self.where(one) == WORKER for one in self.found.objects)


@dataclass(slots=True)
class Plan:
    """What moves."""

    moved: list[Moved] = field(default_factory=list)
    is_cluster: bool = False
    """Whether it was read from a cluster, whose policies the gateway follows."""
    options: tuple[str, ...] = ()
    """The options that select the cluster."""
    replicas: dict[tuple[str, str], int] = field(default_factory=dict)

    @property
    def workers(self) -> list[Engine]:
        """The engines that have a worker."""
        return [one.engine for one in self.moved if one.needs_worker]

    @property
    def own_namespaces(self) -> list[str]:
        """The namespaces of the engines, whose objects they do not review."""
        return list(dict.fromkeys(service[0] for one in self.moved for service in one.old.services))

    def files(self) -> dict[str, dict[str, str]]:
        """Return the texts of all files by folder and name; the empty folder is the one of all."""
        config = self._documents()
        config[FILE] = to_yaml(self._gateway_configuration())
        candidates = old_webhooks.texts(each for one in self.moved for each in one.old.candidates)
        candidates[FILE] = to_yaml(with_cluster().content or {})
        for folder, engines in ((config, self.workers), (candidates, self.pools)):
            if engines:
                folder[POOLS] = "---\n".join(map(to_yaml, pools_of(one.name for one in engines)))
        old = old_webhooks.texts(each for one in self.moved for each in one.old.documents)
        folders = {CONFIG: config, "": {VALUES: to_yaml(self._values())}}
        if old:
            registered = [each for one in self.moved for each in one.old.registered]
            folders |= {
                OLD: {**old, FILE: to_yaml(with_cluster().content or {})},
                CANDIDATES: candidates,
                REGISTERED: old_webhooks.registered_texts(registered),
            }
            folders[""][CANDIDATE_VALUES] = to_yaml(self._candidate_values())
        return folders

    def _documents(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for one in (each for moved in self.moved for each in moved.found.objects if not each.problems):
            # Names that differ only in the case of their kind have one file.
            found[one.file] = f"{found[one.file]}---\n{one.text}" if one.file in found else one.text
        return found

    @property
    def pools(self) -> list[Engine]:
        """The engines whose workers a configuration calls: a candidate runs the whole engine."""
        return [one.engine for one in self.moved if one.needs_worker or one.old.has_candidates]

    def _policies(self) -> Json:
        """Return ``policies`` of the GatewayConfiguration."""
        listed: Mapping[Resource, str] = {
            resource: kind for one in self.moved for resource, kind in one.needs.read.items()
        }
        policies: Json = {}
        if self.workers:
            policies["engines"] = {
                one.engine.name: {"pool": one.engine.name, **one.old.settings()}
                for one in self.moved
                if one.needs_worker
            }
        if listed:
            policies["resources"] = [
                {"apiVersion": version, "kind": kind, "resource": plural}
                for (version, plural), kind in sorted(listed.items())
            ]
        return policies

    def _gateway_configuration(self) -> Json:
        needs_cluster = any(one.needs.settings() is not None for one in self.moved)
        content: Json = {"apiVersion": GATEWAY_VERSION, "kind": "GatewayConfiguration"}
        if needs_cluster:
            content["kubernetes"] = {}
        policies = self._policies()
        return {**content, "policies": policies} if policies else content

    def _values(self) -> Json:
        """Return the chart's values with the new configuration."""
        policies, followed = self._policies(), self._followed()
        if followed:
            policies["customResourcesOf"] = followed
        documents = [
            one.content
            for moved in self.moved
            if not self.is_cluster
            for one in moved.found.objects
            if not one.problems
        ]
        values = self._engine_values(self.workers)
        if policies:
            values["configuration"] = {"policies": policies}
        return {**values, "extraDocuments": documents} if documents else values

    def _followed(self) -> list[str]:
        """Return the engines whose documents the gateway follows in the cluster."""
        return [one.engine.title for one in self.moved if one.found.objects] if self.is_cluster else []

    def _candidate_values(self) -> Json:
        """Return the chart's values with the old webhooks and their candidates."""
        documents = [each for one in self.moved for each in one.old.candidates]
        return {**self._engine_values(self.pools), **old_webhooks.chart_values(documents)}

    def _engine_values(self, engines: Iterable[Engine]) -> Json:
        values: Json = {}
        if enabled := {one.name: {"enabled": True} for one in engines}:
            values["engines"] = enabled
        if self.own_namespaces:
            values["registration"] = {"excludeNamespaces": [*EXCLUDED, *self.own_namespaces]}
        return values


def moved(
    engine: Engine, documents: Sequence[Document], webhooks: Iterable[Json], custom: Mapping[Resource, str]
) -> Moved:
    """Return what *engine* has among these. *custom* are the kinds of custom resources that policies read."""
    found = of_engine(engine.name, documents)
    kinds = {**kinds_of(found.definitions), **custom}
    needs = judge(found.objects, kinds, has_workers=True)
    return Moved(engine, found, needs, old_webhooks.of_engine(engine, webhooks))
