"""The gateway and its peers, with the set-up of each.

One process each, which answers over TLS; a gateway also has a worker. Nothing is tuned beyond what the
project's own installation sets:

- The gateway and its worker have their defaults, metrics are on, and each policy is a webhook.
- kubewebhook is a library. Its policies are a chain in one webhook, so that a Pod is decoded once. It has no
  matching, no failure policies and no merging: it is the least that a program in Go has to do.
- The gateway with Kyverno's policies has their documents in a file, and no worker.
- The gateways with an engine in a worker have its documents in a folder that the worker reads, too.
- OPA answers with the document of a package that is an AdmissionReview. The decision log is off, its default.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Final

from loadtest.floor import PATH as FLOOR_PATH
from loadtest.gateways import FIRST, engine_worker
from loadtest.peers import gatekeeper, kyverno
from loadtest.peers.programs import CONFIGS, obtain
from loadtest.policies import MUTATING, POLICY_WORKERS, SETS, real_path, unready
from loadtest.reviews import POD
from loadtest.servers import (
    POLICIES,
    SERVING,
    BenchError,
    Server,
    accept,
    logged,
    run_servers,
    start,
)
from tests.e2e.binaries import VERSIONS
from tests.e2e.binaries import obtain as obtain_kubernetes
from tests.e2e.cluster import Cluster
from tests.e2e.golang import CannotBuild
from tests.kit import free_port
from tests.languages.toolchains import named
from tests.languages.toolchains import unready as unready_program

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import ExitStack
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class Bed:
    """The files and processes that all subjects share."""

    stack: ExitStack
    """Ends all processes."""
    folder: Path
    certificate: Path
    key: Path
    controllers: dict[str, Server] = field(default_factory=dict)
    """Those that run, by program: subjects of one program differ in their policies alone."""
    clusters: list[Cluster] = field(default_factory=list)
    """The control plane that runs, if any."""

    def cluster(self) -> Cluster:
        """Return the control plane, which is started the first time.

        Raises:
            BenchError: it cannot be built.
        """
        if not self.clusters:
            try:
                binaries = obtain_kubernetes(VERSIONS[0])
            except CannotBuild as error:
                raise BenchError(str(error)) from None
            started = Cluster(binaries, self.folder / "cluster", "--allow-privileged=true", audit=False)
            self.clusters.append(self.stack.enter_context(started))
        return self.clusters[0]


class Subject:
    """A server that is compared with others."""

    name: ClassVar[str]
    title: ClassVar[str]
    sets: ClassVar[Sequence[str]] = tuple(SETS)
    """The sets of policies that it can apply."""
    is_exact: ClassVar[bool] = True
    """Whether equal reviews get answers of equal bytes."""
    has_policies: ClassVar[bool] = True
    """Whether its answers can be checked."""

    @classmethod
    def missing(cls) -> str:
        """Return why it cannot be started; empty if it can."""
        raise NotImplementedError

    def start(self, bed: Bed) -> Server:
        """Start it and wait until it accepts connections.

        Raises:
            BenchError: it does not.
        """
        raise NotImplementedError

    def path(self, which: str) -> str:
        """Return the path at which the set *which* is applied."""
        raise NotImplementedError

    def apply(self, which: str) -> None:
        """Put the set *which* in force, where its path alone does not."""

    def clear(self, which: str) -> None:
        """Undo ``apply``."""


class Gateway(Subject):
    """The gateway, and a worker in one language."""

    language: ClassVar[str]

    @classmethod
    def missing(cls) -> str:
        """Return why its worker cannot be started; empty if it can."""
        return unready(POLICY_WORKERS[cls.language])

    def start(self, bed: Bed) -> Server:
        """Start both."""
        server = f"real-{self.language}"
        folder = bed.folder / server
        folder.mkdir()
        return bed.stack.enter_context(run_servers(POD, [server], folder)).servers[server]

    def path(self, which: str) -> str:
        """Return the path of the webhook configuration."""
        return real_path(which)


class GatewayPython(Gateway):
    """With a worker of the Python SDK."""

    name, title, language = "python", "gateway, Python worker", "python"


class GatewayGo(Gateway):
    """With a worker of the Go SDK."""

    name, title, language = "go", "gateway, Go worker", "go"


class GatewayKyverno(Subject):
    """The policies of Kyverno in CEL, as documents of the gateway."""

    name, title = "kyverno-documents", "gateway, Kyverno's policies as they are"

    @classmethod
    def missing(cls) -> str:
        """Return an empty string."""
        return ""

    def start(self, bed: Bed) -> Server:
        """Start it with the first set."""
        folder = bed.folder / self.name
        folder.mkdir()
        self._file = folder / f"{self.name}.yaml"
        return bed.stack.enter_context(run_servers(POD, [self.name], folder)).servers[self.name]

    def path(self, which: str) -> str:
        """Return the path of the phase."""
        return "/mutate" if which == MUTATING else "/validate"

    def apply(self, which: str) -> None:
        """Write the set *which* into the file of the gateway, which reads it again."""
        text = "\n---\n".join(map(json.dumps, kyverno.documents(which, "cel")))
        written = self._file.with_suffix(".new")
        written.write_text(text)
        written.replace(self._file)


class GatewayEngine(Subject):
    """The documents of another engine, evaluated by the engine's own code in a worker."""

    engine: ClassVar[str]

    @classmethod
    def missing(cls) -> str:
        """Return why the worker cannot be started; empty if it can."""
        return unready_program(named(cls.engine))

    def documents(self, which: str) -> Sequence[dict[str, Any]]:
        """Return the policies of the set *which*."""
        raise NotImplementedError

    def start(self, bed: Bed) -> Server:
        """Start the worker and the gateway with the first set, in one folder for both."""
        self._folder = bed.folder / self.name / "policies"
        self._folder.mkdir(parents=True)
        self.apply(FIRST)
        run = (*named(self.engine).run, "--policies", str(self._folder), "--listen", "127.0.0.1:0")
        worker = start(bed.stack, *run)
        target = logged(f"the worker of {self.title}", worker, POLICIES)
        config = self._folder.with_name("gateway.yaml")
        config.write_text("\n---\n".join(map(json.dumps, engine_worker(self.engine, target))))
        state = ("--state", str(self._folder.with_name("state")))
        gateway = start(
            bed.stack,
            *(sys.executable, "-m", "gateway", "serve", "--dev", *state),
            *("--config", str(config), str(self._folder)),
            *("--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"),
        )
        return Server((gateway.child.pid,), logged(self.title, gateway, SERVING), (worker.child.pid,))

    def path(self, which: str) -> str:
        """Return the path of the phase."""
        return "/mutate" if which == MUTATING else "/validate"

    def apply(self, which: str) -> None:
        """Write the set *which* into the folder, which both read again."""
        written = self._folder / ".new"
        written.write_text("\n---\n".join(map(json.dumps, self.documents(which))))
        written.replace(self._folder / "policies.yaml")


class GatewayGatekeeper(GatewayEngine):
    """Gatekeeper's templates in Rego, and its mutators."""

    name, title, engine = "gatekeeper-worker", "gateway, Gatekeeper's Rego in its worker", "gatekeeper"

    def documents(self, which: str) -> Sequence[dict[str, Any]]:
        """Return templates and constraints, or mutators."""
        of_set = gatekeeper.documents(which, "rego")
        return of_set if which == MUTATING else [*gatekeeper.templates(), *of_set]


class GatewayClusterPolicies(GatewayEngine):
    """Kyverno's ClusterPolicies with patterns."""

    name, title, engine = "kyverno-worker", "gateway, Kyverno's patterns in its worker", "kyverno"

    def documents(self, which: str) -> Sequence[dict[str, Any]]:
        """Return ClusterPolicies."""
        return kyverno.documents(which, "pattern")


class Floor(Subject):
    """The gateway's front end, with a fixed answer: no gateway in Python can be faster."""

    name, title = "floor", "floor: the gateway's front end, fixed answer"
    has_policies = False

    @classmethod
    def missing(cls) -> str:
        """Return an empty string."""
        return ""

    def start(self, bed: Bed) -> Server:
        """Start it."""
        folder = bed.folder / self.name
        folder.mkdir()
        return bed.stack.enter_context(run_servers(POD, [self.name], folder)).servers[self.name]

    def path(self, which: str) -> str:
        """Return its only path."""
        return FLOOR_PATH


class Peer(Subject):
    """A program of ``loadtest.peers.programs``."""

    program: ClassVar[str]

    @classmethod
    def missing(cls) -> str:
        """Return that the program was not built; empty if it was."""
        return "" if obtain(cls.program) else "not built; `python -m loadtest.peers.programs` builds it"

    def start(self, bed: Bed) -> Server:
        """Start the program."""
        folder, port = obtain(self.program), free_port()
        assert folder is not None
        process = start(bed.stack, str(folder / self.program), *self.arguments(bed, port))
        return accept(self.title, process, port)

    def arguments(self, bed: Bed, port: int) -> Sequence[str]:
        """Return the arguments of the program, which is to listen on *port*."""
        raise NotImplementedError


class Chain(Peer):
    """kubewebhook: a chain of policies in one Go process."""

    name, title, program = "chain", "kubewebhook, a chain in one Go process", "kubewebhook"
    is_exact = False  # its patches have no fixed order

    def arguments(self, bed: Bed, port: int) -> Sequence[str]:
        """Return the arguments of ``configs/kubewebhook.go``."""
        return ("-listen", f"127.0.0.1:{port}", "-cert", str(bed.certificate), "-key", str(bed.key))

    def path(self, which: str) -> str:
        """Return the path of the chain."""
        return f"/{which}"


class Opa(Peer):
    """Open Policy Agent as a server."""

    name, title, program = "opa", "OPA, Rego", "opa"

    def arguments(self, bed: Bed, port: int) -> Sequence[str]:
        """Return the arguments of OPA."""
        return (
            *("run", "--server", "--addr", f"127.0.0.1:{port}", "--log-level", "error"),
            *("--tls-cert-file", str(bed.certificate), "--tls-private-key-file", str(bed.key)),
            *("--disable-telemetry", *map(str, sorted(CONFIGS.glob("opa/*.rego")))),
        )

    def path(self, which: str) -> str:
        """Return the path that answers with the bare document of the package."""
        return f"/v0/data/{which}"


ALONE: Final[Sequence[type[Subject]]] = (GatewayPython, GatewayGo, Chain, Opa)
"""Those that need no API server; the first is the reference of all."""

IN_WORKERS: Final[Sequence[type[Subject]]] = (GatewayGatekeeper, GatewayClusterPolicies)
"""Other engines behind the gateway."""
