"""What ``migrate`` writes and reports: the documents, where each runs, and the configurations around them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from gateway import __version__
from gateway.base.errors import Problem
from gateway.config.yaml.documents import GATEWAY_VERSION
from gateway.tools.importing.needs import FILE, POOLS, kinds_of, pools_of, with_cluster
from gateway.tools.importing.other_engines import Needs, judge, of_engine
from gateway.tools.migrating import config_maps, old_webhooks
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
DOCUMENTS: Final = "documents"
REGISTERED: Final = "registered"
"""The folders that are written."""
VALUES: Final = "values.yaml"
CANDIDATE_VALUES: Final = "values-candidates.yaml"
EXCLUDED: Final = ("kube-public", "kube-node-lease")
"""The chart's default of ``registration.excludeNamespaces``, which a value replaces."""
TOO_LARGE: Final = "too-large"
"""Below the documents of an engine: those that no ConfigMap holds."""
_FOLDER: Final = "/policies"
"""Where a worker has the documents before the switch."""
NATIVE, WORKER, REFUSED = "native", "worker", "refused"


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
        return WORKER if one.result == "worker" else NATIVE

    @property
    def needs_worker(self) -> bool:
        """Whether a document runs in a worker."""
        return any(self.where(one) == WORKER for one in self.found.objects)


@dataclass(frozen=True, slots=True)
class Part:
    """A ConfigMap with documents."""

    config_map: str
    folder: str
    """The folder with its files, below that of the plan."""
    texts: dict[str, str]


@dataclass(slots=True)
class Plan:
    """What moves."""

    moved: list[Moved] = field(default_factory=list)
    is_cluster: bool = False
    """Whether it was read from a cluster, whose policies the gateway follows."""
    options: tuple[str, ...] = ()
    """The options that select the cluster."""
    replicas: dict[tuple[str, str], int] = field(default_factory=dict)
    exception_namespaces: tuple[str, ...] = ()
    """Where Kyverno applies exceptions, as far as that is known."""

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
        for one in self.moved:
            for part in self._parts(one):
                folders[part.folder] = part.texts
            if too_large := config_maps.parts(self._held(one))[1]:
                folders[f"{DOCUMENTS}/{one.engine.name}/{TOO_LARGE}"] = too_large
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
        return _texts([each for moved in self.moved for each in moved.found.objects])

    @property
    def config_maps(self) -> dict[str, list[Part]]:
        """The ConfigMaps from which the worker of an engine reads documents before the switch, by engine."""
        return {one.engine.name: self._parts(one) for one in self.moved if self._has_config_map(one)}

    def too_large(self) -> list[Problem]:
        """Return what no ConfigMap holds, with what to do."""
        found = [
            Problem(
                f"{DOCUMENTS}/{one.engine.name}/{TOO_LARGE}/{name}",
                "",
                f"has {config_maps.size_of(text):,} bytes, and a ConfigMap holds "
                f"{config_maps.HOLDS_BYTES:,}: shorten the document, or give the worker another volume with "
                f"it, below {_FOLDER}, in workers.{one.engine.name}.volumes of {CANDIDATE_VALUES}",
            )
            for one in self.moved
            for name, text in config_maps.parts(self._held(one))[1].items()
        ]
        documents = self._values().get("extraDocuments", ())
        size = sum(config_maps.size_of(to_yaml(one)) for one in documents)
        if size > config_maps.FILLED_BYTES:
            message = (
                f"has documents of {size:,} bytes, and the chart puts them into one ConfigMap, which holds "
                f"{config_maps.HOLDS_BYTES:,}: apply them to the cluster, and plan from it, so that gateway "
                "and worker follow them there"
            )
            found.append(Problem(VALUES, "extraDocuments", message))
        return found

    def _held(self, one: Moved) -> dict[str, str]:
        """Return the files of *one* that a worker reads from ConfigMaps."""
        return _texts(one.found.objects) if self._has_config_map(one) else {}

    def _parts(self, one: Moved) -> list[Part]:
        name = one.engine.name
        groups, _ = config_maps.parts(self._held(one))
        if len(groups) == 1:
            return [Part(f"migration-{name}", f"{DOCUMENTS}/{name}", groups[0])]
        return [
            Part(f"migration-{name}-{number}", f"{DOCUMENTS}/{name}/{number}", texts)
            for number, texts in enumerate(groups, 1)
        ]

    @property
    def has_old(self) -> bool:
        """Whether there are webhooks to compare with."""
        return any(one.old.documents for one in self.moved)

    def _has_config_map(self, one: Moved) -> bool:
        return self.has_old and (one.needs_worker or one.old.has_candidates)

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
        policies = {key: value for key, value in self._policies().items() if key != "engines"}
        followed = [one for one in self.moved if self.is_cluster and one.found.objects]
        if followed:
            policies["customResourcesOf"] = [one.engine.title for one in followed]
            if self.exception_namespaces and any(one.engine.name == "kyverno" for one in followed):
                policies["exceptionNamespaces"] = [*self.exception_namespaces]
        objects = [] if self.is_cluster else [one for moved in self.moved for one in moved.found.objects]
        documents = [one.content for one in objects if not one.problems]
        values = self._registration()
        if engines := {one.engine.name: self._engine_values(one) for one in self.moved if one.needs_worker}:
            values["engines"] = engines
        if policies:
            values["configuration"] = {"policies": policies}
        return {**values, "extraDocuments": documents} if documents else values

    def _engine_values(self, one: Moved) -> Json:
        where = {} if self.is_cluster else {"documents": "Values"}
        return {"enabled": True, **where, **one.old.settings()}

    def _candidate_values(self) -> Json:
        """Return the chart's values with the old webhooks and their candidates.

        A worker has its documents from a ConfigMap: with ``engines`` the gateway would evaluate them too.
        """
        values = self._registration()
        if self.config_maps:
            values["workers"] = {name: _worker_values(name, held) for name, held in self.config_maps.items()}
        documents = [each for one in self.moved for each in one.old.candidates]
        return {**values, **old_webhooks.chart_values(documents)}

    def _registration(self) -> Json:
        if not self.own_namespaces:
            return {}
        return {"registration": {"excludeNamespaces": [*EXCLUDED, *self.own_namespaces]}}


def _texts(objects: Iterable[Imported]) -> dict[str, str]:
    """Return the files of those *objects* that run."""
    found: dict[str, str] = {}
    for one in objects:
        if not one.problems:
            # Names that differ only in the case of their kind have one file.
            found[one.file] = f"{found[one.file]}---\n{one.text}" if one.file in found else one.text
    return found


def _worker_values(engine: str, held: Sequence[Part]) -> Json:
    # A folder of all of them.
    sources = [{"configMap": {"name": one.config_map}} for one in held]
    volume = sources[0] if len(sources) == 1 else {"projected": {"sources": sources}}
    return {
        "image": {"repository": f"{engine}-worker", "tag": __version__},
        "extraArgs": [f"--policies={_FOLDER}"],
        "volumes": [{"name": "policies", **volume}],
        "volumeMounts": [{"name": "policies", "mountPath": _FOLDER, "readOnly": True}],
    }


def moved(
    engine: Engine, documents: Sequence[Document], webhooks: Iterable[Json], custom: Mapping[Resource, str]
) -> Moved:
    """Return what *engine* has among these. *custom* are the kinds of custom resources that policies read."""
    found = of_engine(engine.name, documents)
    kinds = {**kinds_of(found.definitions), **custom}
    needs = judge(found.objects, kinds, has_workers=True)
    old = old_webhooks.of_engine(engine, webhooks)
    if all(one.problems for one in found.objects):
        # A worker would have nothing to answer with.
        old.candidates = old.documents
    return Moved(engine, found, needs, old)
