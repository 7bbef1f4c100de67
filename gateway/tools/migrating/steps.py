"""The steps of a migration as command lines. None of them is run here."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gateway.config.yaml.documents import plural_of
from gateway.tools.importing.needs import PORTS
from gateway.tools.importing.objects import name_of
from gateway.tools.migrating import plan as parts

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from gateway.tools.migrating.plan import Moved, Plan

RELEASE: Final = "admission-gateway"
"""Release and namespace of the chart."""
_FORWARDED: Final = 18443
"""The first port of this machine for servers of the old engine."""


@dataclass(frozen=True, slots=True)
class Step:
    """One step."""

    title: str
    commands: tuple[str, ...]


def steps(plan: Plan, folder: Path, options: Sequence[str]) -> list[Step]:
    """Return the steps of *plan*, whose files are in *folder*. *options* select the cluster."""
    made = _Steps(plan, folder, options)
    return [step for step in made.all() if step.commands]


def _removal_title(moved: Moved) -> str:
    """Return what the removal of the webhooks of *moved* is: without them, nothing checks what cannot run."""
    title = f"remove the webhooks of {moved.engine.title}"
    refused = sum(bool(one.problems) for one in moved.found.objects)
    if refused:
        what = "the document" if refused == 1 else f"the {refused} documents"
        title += f" only if you do without {what} that cannot run"
    elif not moved.found.objects:
        title += " only if it has no policies: none was found"
    return f"{title}; keep its custom resources"


class _Steps:
    def __init__(self, plan: Plan, folder: Path, options: Sequence[str]) -> None:
        self._plan, self._folder, self._options = plan, folder, options

    def all(self) -> Iterator[Step]:
        values = parts.CANDIDATE_VALUES if self._plan.has_old else parts.VALUES
        install = ("--create-namespace", "--values", str(self._folder / values), "--set")
        yield Step(
            "install the gateway and its workers beside; no API server calls it yet",
            (*self._config_maps(), self._helm("install", *install, "registration.enabled=false", "--wait")),
        )
        if self._plan.has_old:
            yield Step(
                "prove that both answer alike; the ports are forwarded as long as the first commands run",
                (*self._forwards(), self._prove()),
            )
        if any(one.old.has_candidates for one in self._plan.moved):
            yield Step(
                "candidates: register the gateway with the old webhooks, and compare their answers with the "
                "worker's, until nothing differs",
                (
                    self._helm("upgrade", "--values", str(self._folder / parts.CANDIDATE_VALUES), "--wait"),
                    self._gateway("status", "--cluster"),
                ),
            )
        yield Step(
            "switch: the gateway evaluates the policies; the old webhooks are still called too",
            (
                self._helm("upgrade", "--values", str(self._folder / parts.VALUES), "--wait"),
                self._gateway("check", "--config", str(self._folder / parts.CONFIG), "--cluster"),
            ),
        )
        for moved in self._plan.moved:
            if moved.old.registered:
                yield Step(_removal_title(moved), tuple(self._removal(moved)))
        yield Step("the way back, at any time", tuple(self._way_back()))

    def _servers(self) -> list[tuple[tuple[str, str, int], int]]:
        """Return the Services of the old engines, each with the port of this machine for it."""
        found = dict.fromkeys(service for one in self._plan.moved for service in one.old.services)
        return [(service, _FORWARDED + number) for number, service in enumerate(found)]

    def _config_maps(self) -> Iterator[str]:
        if self._plan.config_maps:
            yield self._kubectl("create", "namespace", RELEASE)
        for part in (each for held in self._plan.config_maps.values() for each in held):
            named = ("configmap", part.config_map, "--from-file", str(self._folder / part.folder))
            yield self._kubectl("--namespace", RELEASE, "create", *named)

    def _forwards(self) -> Iterator[str]:
        for engine in self._plan.workers:
            ports = f"{PORTS[engine.name]}:50051"
            service = f"service/{RELEASE}-{engine.name}"
            yield self._kubectl("--namespace", RELEASE, "port-forward", service, ports) + " &"
        for (namespace, name, port), local in self._servers():
            ports = f"{local}:{port}"
            yield self._kubectl("--namespace", namespace, "port-forward", f"service/{name}", ports) + " &"

    def _prove(self) -> str:
        found = ["migrate", "prove", "--cluster-objects", "--config", str(self._folder / parts.CONFIG)]
        for (namespace, name, _), local in self._servers():
            found += ["--connect", f"{namespace}/{name}=127.0.0.1:{local}"]
        for namespace in self._plan.own_namespaces:
            found += ["--exclude-namespace", namespace]
        return self._gateway(*found, "--output", str(self._folder / "counterexamples"))

    def _removal(self, moved: Moved) -> Iterator[str]:
        engine = moved.engine
        for namespace in self._controllers(moved):
            place = ("--namespace", namespace)
            deployment = f"deployment/{engine.controller}"
            yield self._kubectl(*place, "scale", deployment, "--replicas", "0")
            yield self._kubectl(*place, "rollout", "status", deployment)
        for kind in dict.fromkeys(str(one["kind"]) for one in moved.old.registered):
            names = [name_of(one) for one in moved.old.registered if one["kind"] == kind]
            # A command with unprintable characters would be unsafe to paste.
            if names := [name for name in names if name and name.isprintable()]:
                yield self._kubectl("delete", "--ignore-not-found", plural_of(kind), *names)

    def _way_back(self) -> Iterator[str]:
        for moved in self._plan.moved:
            for namespace in self._controllers(moved):
                replicas = self._plan.replicas.get((namespace, moved.engine.controller), 1)
                place, deployment = ("--namespace", namespace), f"deployment/{moved.engine.controller}"
                yield self._kubectl(*place, "scale", deployment, "--replicas", str(replicas))
                # Webhooks with Fail refuse every request until something answers.
                yield self._kubectl(*place, "rollout", "status", deployment)
        if self._plan.has_old:
            yield self._kubectl("apply", "--filename", str(self._folder / parts.REGISTERED))
        yield self._gateway("manifests", "--delete")

    def _controllers(self, moved: Moved) -> list[str]:
        """Return the namespaces of the engine's controller, if it makes webhooks again."""
        if not moved.engine.controller:
            return []
        return list(dict.fromkeys(namespace for namespace, _, _ in moved.old.services))

    def _helm(self, command: str, *arguments: str) -> str:
        options = ["--kube-context" if text == "--context" else text for text in self._options]
        return shlex.join(
            ["helm", command, RELEASE, "deploy/chart", "--namespace", RELEASE, *arguments, *options]
        )

    def _kubectl(self, *arguments: str) -> str:
        return shlex.join(["kubectl", *self._options, *arguments])

    def _gateway(self, *arguments: str) -> str:
        return shlex.join(["admission-gateway", *arguments, *self._options])
