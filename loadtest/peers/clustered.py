"""Peers that read their policies from an API server, which runs beside them and serves nothing else.

- Gatekeeper has the flags of its own manifest, without certificate rotation and audit, and makes no
  ValidatingAdmissionPolicies. Its policies are constraint templates in CEL and in Rego.
- Kyverno's admission controller has the flags and the ConfigMap of its own chart, without reports and
  background scans. Its policies are the newer kinds in CEL, and patterns.

Both can also generate, report and audit, and do more for a review than the gateway does.
"""

from __future__ import annotations

import json
import time
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final

import yaml

from loadtest.peers import gatekeeper, kyverno
from loadtest.peers.labels import LABELS_SET
from loadtest.peers.programs import obtain
from loadtest.peers.setups import Peer
from loadtest.policies import MUTATING, SETS
from loadtest.servers import BenchError, accept, start
from tests.kit import Process, free_port

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from loadtest.peers.setups import Bed
    from loadtest.servers import Server

APPLIED_WITHIN_S: Final = 60.0
"""How long a controller may take to serve a definition or the webhook for its own policies."""


def until(what: str, done: Callable[[], object]) -> None:
    """Wait until *done* returns a true value without raising ``BenchError``.

    Raises:
        BenchError: it does not in ``APPLIED_WITHIN_S``.
    """
    give_up = time.monotonic() + APPLIED_WITHIN_S
    problem = "not yet"
    while time.monotonic() < give_up:
        try:
            if done():
                return
        except BenchError as error:
            problem = str(error)
        time.sleep(0.5)
    raise BenchError(f"{what}: {problem}")


class Clustered(Peer):
    """A controller that is a webhook server."""

    engine: ClassVar[Any]
    is_exact = False  # its patches have no fixed order

    def start(self, bed: Bed) -> Server:
        """Start the API server and the controller, or use those that run."""
        self._cluster = bed.cluster()
        if self.program not in bed.controllers:
            bed.controllers[self.program] = self.launch(bed)
        return bed.controllers[self.program]

    def launch(self, bed: Bed) -> Server:
        """Start the controller and wait until it takes policies."""
        raise NotImplementedError

    def documents(self, which: str) -> Sequence[dict[str, Any]]:
        """Return the policies of the set *which*."""
        raise NotImplementedError

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        """Run kubectl and return what it printed.

        Raises:
            BenchError: it failed.
        """
        done = self._cluster.kubectl(*arguments, stdin=stdin)
        if done.returncode:
            errors = "\n".join(line for line in done.stderr.splitlines() if not line.startswith("Warning: "))
            raise BenchError(f"kubectl {' '.join(arguments)}: {errors[:1000]}")
        return done.stdout

    def create(self, *documents: dict[str, Any]) -> None:
        """Apply *documents*, again and again until their kinds and webhooks are served."""
        # As YAML, PyYAML would write the string `y` as a word that kubectl reads as a boolean.
        text = "\n---\n".join(map(json.dumps, documents))

        def is_applied() -> bool:
            self.kubectl("apply", "--server-side", "-f", "-", stdin=text)
            return True

        until("kubectl apply", is_applied)

    def apply(self, which: str) -> None:
        """Create the policies."""
        self.create(*self.documents(which))

    def clear(self, which: str) -> None:
        """Delete the policies."""
        text = yaml.safe_dump_all(self.documents(which))
        self.kubectl("delete", "--ignore-not-found", "-f", "-", stdin=text)


class GatekeeperCel(Clustered):
    """Gatekeeper with constraint templates in CEL."""

    name, title, program = "gatekeeper-cel", "Gatekeeper, CEL", "gatekeeper"
    engine: ClassVar[gatekeeper.Engine] = "cel"
    validates: ClassVar[bool] = True
    """Whether it has the templates of the validating policies."""
    sets = tuple(name for name in SETS if name != MUTATING)

    def launch(self, bed: Bed) -> Server:
        """Start Gatekeeper and create its templates."""
        folder, port = obtain(self.program), free_port()
        assert folder is not None
        found = list(yaml.safe_load_all((folder / "manifest_staging/deploy/gatekeeper.yaml").read_text()))
        self.create(
            *(one for one in found if one and one["kind"] in ("CustomResourceDefinition", "Namespace"))
        )
        certificates = bed.folder / "gatekeeper"
        certificates.mkdir()
        (certificates / "tls.crt").write_bytes(bed.certificate.read_bytes())
        (certificates / "tls.key").write_bytes(bed.key.read_bytes())
        process = start(
            bed.stack,
            *("env", f"KUBECONFIG={self._cluster.kubeconfig()}", "POD_NAMESPACE=gatekeeper-system"),
            *("NAMESPACE=gatekeeper-system", "POD_NAME=none", "CONTAINER_NAME=manager"),
            str(folder / self.program),
            *("--operation=webhook", "--operation=mutation-webhook", "--operation=generate"),
            *("--exempt-namespace=gatekeeper-system", "--disable-opa-builtin={http.send}"),
            # By default it also makes ValidatingAdmissionPolicies of CEL, which the API server evaluates.
            "--default-create-vap-for-templates=false",
            *("--log-level=ERROR", "--disable-cert-rotation", f"--cert-dir={certificates}"),
            *(f"--port={port}", "--host=127.0.0.1", f"--health-addr=127.0.0.1:{free_port()}"),
            *(f"--prometheus-port={free_port()}", "--debug-use-fake-pod"),
        )
        server = accept(self.title, process, port)
        if self.validates:
            self.create(*gatekeeper.templates())
            for definition in gatekeeper.definitions():
                until(definition, partial(self.kubectl, "get", "crd", definition))
        return server

    def documents(self, which: str) -> Sequence[dict[str, Any]]:
        """Return constraints or mutations."""
        return gatekeeper.documents(which, self.engine)

    def path(self, which: str) -> str:
        """Return the path for validation or mutation."""
        return "/v1/mutate" if which in (MUTATING, LABELS_SET) else "/v1/admit"


class GatekeeperRego(GatekeeperCel):
    """Gatekeeper with constraint templates in Rego, and its own mutations."""

    name, title = "gatekeeper-rego", "Gatekeeper, Rego"
    engine = "rego"
    sets = tuple(SETS)


class GatekeeperMutation(GatekeeperRego):
    """Gatekeeper with mutations alone."""

    name, title = "gatekeeper-mutation", "Gatekeeper, mutation"
    validates = False
    sets = (LABELS_SET,)


class KyvernoCel(Clustered):
    """Kyverno with policies in CEL."""

    name, title, program = "kyverno-cel", "Kyverno, CEL", "kyverno"
    engine: ClassVar[kyverno.Engine] = "cel"
    flags: ClassVar[Sequence[str]] = ()
    """Further ones."""

    def launch(self, bed: Bed) -> Server:
        """Start Kyverno's admission controller with what its chart installs, and wait for its webhooks."""
        folder = obtain(self.program)
        assert folder is not None
        for file in sorted((folder / "config/crds").rglob("*.yaml")):
            self.create(*filter(None, yaml.safe_load_all(file.read_text())))
        self.create(*kyverno.installation())
        return accept(self.title, *self.run(bed))

    def run(self, bed: Bed, port: int = 0) -> tuple[Process, int]:
        """Start the controller on *port*, or a free one, and return it with its port when it has webhooks."""
        folder, port = obtain(self.program), port or free_port()
        assert folder is not None
        variables = {
            **kyverno.ENVIRONMENT,
            "KUBECONFIG": str(self._cluster.kubeconfig()),
            "HOME": str(bed.folder),
        }
        process = start(
            bed.stack,
            *("env", *(f"{name}={value}" for name, value in variables.items())),
            *(str(folder / self.program), f"--kubeconfig={self._cluster.kubeconfig()}", *kyverno.FLAGS),
            *self.flags,
            *(f"--servicePort={port}", f"--webhookServerPort={port}", f"--metricsPort={free_port()}"),
            f"--controllerRuntimeMetricsAddress=127.0.0.1:{free_port()}",
        )
        accept(self.title, process, port)
        own = "kyverno-policy-validating-webhook-cfg"
        until(
            "its webhooks for policies", lambda: self.kubectl("get", "validatingwebhookconfigurations", own)
        )
        return process, port

    def documents(self, which: str) -> Sequence[dict[str, Any]]:
        """Return the policies."""
        return kyverno.documents(which, self.engine)

    def path(self, which: str) -> str:
        """Return the path that Kyverno has registered for Pods.

        Raises:
            BenchError: it has registered none, or several.
        """
        phase = "mutating" if which == MUTATING else "validating"
        name = f"kyverno-resource-{phase}-webhook-cfg"
        found = json.loads(self.kubectl("get", f"{phase}webhookconfigurations", name, "-o", "json"))
        paths = {
            webhook["clientConfig"]["service"]["path"]
            for webhook in found.get("webhooks") or []
            if any({"pods", "*", "*/*"} & set(rule["resources"]) for rule in webhook["rules"])
        }
        if len(paths) != 1:
            raise BenchError(f"Kyverno has registered the paths {sorted(paths)} for Pods")
        return str(paths.pop())


class KyvernoPatterns(KyvernoCel):
    """Kyverno with patterns."""

    name, title = "kyverno-patterns", "Kyverno, patterns"
    engine = "pattern"


CLUSTERED: Final[Sequence[type[Clustered]]] = (GatekeeperCel, GatekeeperRego, KyvernoCel, KyvernoPatterns)
