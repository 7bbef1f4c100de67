"""Policies put before an API server: behind the gateway, as workers and webhooks, or each on its own.

All take the same ``Hook`` list, so that a test can do the same things under each and compare.
"""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, Self

import yaml

from admission_gateway_worker.policies import definitions
from tests.e2e.charts import objects
from tests.e2e.cluster import NAMESPACE
from tests.kit import ROOT, GatewayProcess, Process, WorkerProcess, free_port, pool_document, run_command
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Container, Iterator
    from pathlib import Path

    from tests.e2e.cluster import Cluster

Phase = Literal["mutate", "validate"]

KINDS: Final[dict[Phase, str]] = {
    "mutate": "MutatingWebhookConfiguration",
    "validate": "ValidatingWebhookConfiguration",
}
REGISTRATIONS: Final = "/apis/admissionregistration.k8s.io/v1"
_OF_ACCOUNTS: Final = (
    *("ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"),
    "FlowSchema",
)
CANARIES: Final = "/api/v1/namespaces/default/configmaps?dryRun=All"


def rule(resources: str, *operations: str, group: str = "", version: str = "v1") -> dict[str, Any]:
    """Return a rule for *resources* (separated by blanks) of one API group; all operations by default."""
    return {
        "operations": list(operations) or ["*"],
        "apiGroups": [group],
        "apiVersions": [version],
        "resources": resources.split(),
    }


PODS: Final = rule("pods", "CREATE", "UPDATE")


@dataclass(frozen=True)
class Hook:
    """A webhook whose policy is a script of ``tests/worker``."""

    phase: Phase
    name: str
    """Three segments, as the API server requires."""
    script: dict[str, Any]
    rules: tuple[dict[str, Any], ...] = (PODS,)
    configuration: str = "policies"
    fields: dict[str, Any] = field(default_factory=dict)
    """Further fields of the webhook: failurePolicy, timeoutSeconds, selectors."""
    pool: str = "scripted"
    """The WorkerPool behind the gateway; any other than this one is the test's own to configure."""
    policy: str | None = None
    """What the policy is called there; by default the script itself."""

    def document(self, client_config: dict[str, Any]) -> dict[str, Any]:
        """Return the webhook as it stands in a configuration object."""
        return {
            "name": self.name,
            "clientConfig": client_config,
            "rules": list(self.rules),
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            **self.fields,
        }


def canaries(name: str) -> list[Hook]:
    """Return webhooks that show, by a warning, when a registration has come into force, or has gone."""
    return [
        Hook(
            phase,
            f"{phase}.canary.test",
            {"warnings": [f"{phase} {name}"]},
            (rule("configmaps", "CREATE"),),
            configuration="zz-canary",
            fields={
                "objectSelector": {"matchLabels": {"canary": name}},
                # So that an entry is IfNeeded where all policies under test are.
                **({"reinvocationPolicy": "IfNeeded"} if phase == "mutate" else {}),
            },
        )
        for phase in KINDS
    ]


def sing(cluster: Cluster, name: str) -> tuple[str, ...]:
    """Return the warnings that the canaries *name* give."""
    metadata = {"generateName": "canary-", "labels": {"canary": name}}
    answer = cluster.api.create(CANARIES, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
    return answer.warnings if answer.status == 201 else ("failed",)


def configurations(
    hooks: list[Hook], client_configs: list[dict[str, Any]], prefix: str = ""
) -> list[dict[str, Any]]:
    """Return the configuration objects that hold *hooks*, in the order in which names come up."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for hook, client_config in zip(hooks, client_configs, strict=True):
        document = found.setdefault(
            (hook.phase, hook.configuration),
            {
                "apiVersion": "admissionregistration.k8s.io/v1",
                "kind": KINDS[hook.phase],
                "metadata": {"name": prefix + hook.configuration},
                "webhooks": [],
            },
        )
        document["webhooks"].append(hook.document(client_config))
    return list(found.values())


@contextmanager
def deployed_account(cluster: Cluster, folder: Path, file: str) -> Iterator[Path]:
    """Yield a kubeconfig, in *folder*, of the service account of deploy/ with the roles in *file* there.

    The rights are in force while it is used, and are not afterwards.
    """
    manifest = yaml.safe_load_all((ROOT / "deploy" / "manifest.yaml").read_text())
    wanted = [
        one for one in manifest if one["kind"] in ("ServiceAccount", "ClusterRole", "ClusterRoleBinding")
    ]
    granted = ROOT / "deploy" / file
    roles = f"--filename={granted}"
    for arguments in (("--filename=-",), (roles,)):
        applied = cluster.kubectl("apply", "--server-side", *arguments, stdin=yaml.safe_dump_all(wanted))
        assert applied.returncode == 0, applied.stderr
    token = cluster.kubectl("create", "token", "admission-gateway", f"--namespace={NAMESPACE}").stdout.strip()
    kubeconfig = cluster.write_kubeconfig(folder / "kubeconfig", token=token)
    document = yaml.safe_load(kubeconfig.read_text())
    document["contexts"][0]["context"]["namespace"] = NAMESPACE
    kubeconfig.write_text(yaml.safe_dump(document))

    def rights() -> set[str]:
        return {_may(cluster, kubeconfig, role) for role in yaml.safe_load_all(granted.read_text())} - {""}

    # The API server reads roles from a cache of its own.
    eventually(lambda: rights() == {"yes"}, "the rights of the account")
    try:
        yield kubeconfig
    finally:
        cluster.kubectl("delete", roles)
        eventually(lambda: rights() == {"no"}, "the account without the rights")


@contextmanager
def chart_account(
    cluster: Cluster, folder: Path, name: str, *arguments: str, further: Container[str] = ()
) -> Iterator[Path]:
    """Yield a kubeconfig, in *folder*, of the service account *name* with the rights that the chart gives it.

    *arguments* are those of ``helm template``. Objects of the kinds *further* are made as well.
    """
    made = [
        one
        for one in objects(*arguments)
        if one["kind"] in further or (one["kind"] in _OF_ACCOUNTS and one["metadata"]["name"] == name)
    ]
    documents = yaml.safe_dump_all(made)
    applied = cluster.kubectl("apply", "--server-side", "--filename=-", stdin=documents)
    assert applied.returncode == 0, applied.stderr
    token = cluster.kubectl("create", "token", name, f"--namespace={NAMESPACE}").stdout.strip()
    try:
        yield cluster.write_kubeconfig(folder / f"{name}.kubeconfig", token=token)
    finally:
        cluster.kubectl("delete", "--filename=-", stdin=documents)


def _may(cluster: Cluster, kubeconfig: Path, role: dict[str, Any]) -> str:
    """Return ``yes`` or ``no``: the first right of *role*, asked with *kubeconfig*; empty without a right."""
    if "rules" not in role:
        return ""
    first = role["rules"][0]
    what = f"{first['resources'][0]}.{first['apiGroups'][0]}".rstrip(".")
    names = first.get("resourceNames", ())
    done = cluster.kubectl(
        *(f"--kubeconfig={kubeconfig}", "auth", "can-i", first["verbs"][0]),
        f"{what}/{names[0]}" if names else what,
        f"--namespace={role['metadata'].get('namespace', NAMESPACE)}",
    )
    return done.stdout.strip()


def run_manifests(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Run ``admission-gateway manifests`` and return how it ended, whatever its exit status."""
    return run_command("manifests", *arguments)


class _Setup:
    """Policies in force; leaving the ``with`` block takes them out again, and waits until that is so."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.cluster = cluster
        self.name = name
        self.stack = ExitStack()

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            # A registration that stayed would be in the way of every later test.
            self.stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stack.close()

    def start(self) -> None:
        """Put the policies in force."""
        raise NotImplementedError

    def _serve_webhooks(self, folder: Path, hooks: list[Hook], certificate: tuple[Path, Path]) -> int:
        """Serve each of *hooks* over HTTPS at its number, and return the port."""
        scripts = folder / "scripts.json"
        scripts.write_text(json.dumps([hook.script for hook in hooks]))
        process = Process(
            *(sys.executable, "-m", "tests.e2e.direct", "--listen", "127.0.0.1:0"),
            *("--tls-cert", str(certificate[0]), "--tls-key", str(certificate[1])),
            *("--scripts", str(scripts)),
            stdout=subprocess.PIPE,
        )
        self.stack.callback(process.stop)
        assert process.child.stdout is not None
        port = int(process.child.stdout.readline() or 0)
        assert port, process.log
        return port

    def _register(self, documents: list[dict[str, Any]]) -> None:
        """Create *documents*, and have them deleted in the end, each time until it shows."""
        self.stack.callback(lambda: eventually(lambda: not self.shown()))
        for document in documents:
            path = f"{REGISTRATIONS}/{document['kind'].lower()}s"
            self.stack.callback(self.cluster.api.delete, f"{path}/{document['metadata']['name']}")
            answer = self.cluster.api.create(path, document)
            assert answer.status == 201, answer
        self._wait_until_in_force()

    def shown(self) -> tuple[str, ...]:
        """Return by what it shows that the registration is in force; nothing if it is not."""
        return sing(self.cluster, self.name)

    def _wait_until_in_force(self) -> None:
        expected = {f"{phase} {self.name}" for phase in KINDS}
        eventually(lambda: set(self.shown()) == expected)


class Directly(_Setup):
    """Each policy a webhook of its own, as without a gateway."""

    def __init__(self, cluster: Cluster, folder: Path, hooks: list[Hook], name: str = "direct") -> None:
        super().__init__(cluster, name)
        self.hooks = [*hooks, *canaries(name)]
        self.certificate = cluster.issue(folder, f"{name}.{NAMESPACE}.svc")
        self._folder = folder

    def start(self) -> None:
        self.port = self._serve_webhooks(self._folder, self.hooks, self.certificate)
        self.cluster.add_service(self.name)
        client_configs = [self.client_config(index, hook) for index, hook in enumerate(self.hooks)]
        self._register(configurations(self.hooks, client_configs, f"{self.name}-"))

    def client_config(self, index: int, hook: Hook) -> dict[str, Any]:
        """Return where the webhook *hook*, the one at *index*, is served."""
        service = {"namespace": NAMESPACE, "name": self.name, "port": self.port, "path": f"/{index}"}
        return {"service": service, "caBundle": self.cluster.ca_bundle}


class BehindGateway(_Setup):
    """All policies behind the gateway, which is registered by ``admission-gateway manifests``."""

    def __init__(
        self,
        cluster: Cluster,
        folder: Path,
        hooks: list[Hook],
        name: str = "gateway",
        *,
        gateway: dict[str, Any] | None = None,
        pool: dict[str, Any] | None = None,
        port: int | None = None,
        flags: tuple[str, ...] = (),
        manifests: tuple[str, ...] = (),
    ) -> None:
        """Take *hooks*.

        Args:
            cluster: Where to register.
            folder: For configuration, certificate and socket.
            hooks: The policies.
            name: Of the Service, and so of the certificate.
            gateway: Fields of the GatewayConfiguration.
            pool: Fields of the WorkerPool's spec.
            port: Of the gateway; by default any that is free.
            flags: Of ``serve``.
            manifests: Further flags of ``manifests``.
        """
        super().__init__(cluster, name)
        self.hooks = [*hooks, *canaries(name)]
        self.folder = folder
        self.config = folder / "config"
        self.config.mkdir(parents=True, exist_ok=True)
        self.socket = folder / "worker.sock"
        self.port = port or free_port()
        self.certificate = cluster.issue(folder, f"{name}.{NAMESPACE}.svc", "localhost", "127.0.0.1")
        self._flags, self._manifests = flags, manifests
        self._pool = pool or {}
        self._gateway = gateway
        self.worker: WorkerProcess
        self.gateway: GatewayProcess

    def start(self) -> None:
        self.write_configuration()
        self.start_worker()
        self.start_gateway()
        self.register()

    def write_configuration(self) -> None:
        """Write what the gateway is configured with, from ``hooks``."""
        documents = configurations(self.hooks, self.client_configs())
        if self._gateway is not None:
            head = {"apiVersion": "admission-gateway.io/v1alpha1", "kind": "GatewayConfiguration"}
            documents.append({**head, **self._gateway})
        text = pool_document("scripted", f"unix:{self.socket}", **self._pool)
        text += "".join(json.dumps(document) + "\n---\n" for document in documents)
        # Renamed, so that the gateway never reads half of it.
        unfinished = self.folder / "config.unfinished"
        unfinished.write_text(text)
        unfinished.rename(self.config / "gateway.yaml")

    def client_configs(self) -> list[dict[str, Any]]:
        """Return the ``clientConfig`` of each of ``hooks``."""
        return [
            {"worker": {"pool": hook.pool, "policy": hook.policy or json.dumps(hook.script, sort_keys=True)}}
            for hook in self.hooks
        ]

    def start_worker(self) -> WorkerProcess:
        """Start the worker, which takes the place of an earlier one on the same socket."""
        self.socket.unlink(missing_ok=True)
        self.worker = WorkerProcess(f"unix:{self.socket}")
        self.stack.callback(self.worker.stop)
        return self.worker

    def start_gateway(self, port: int | None = None) -> GatewayProcess:
        """Start a gateway on *port*, by default that of the Service."""
        listen = f"127.0.0.1:{port or self.port}"
        self.gateway = GatewayProcess(
            self.config, self.certificate, self.cluster.authority, "--listen", listen, *self._flags
        )
        self.stack.callback(self.gateway.stop)
        return self.gateway

    def register(self) -> None:
        """Register the gateway as a user does, and wait until the API server calls it."""
        self.cluster.add_service(self.name)
        self._register(self.manifests())

    def manifests(self) -> list[dict[str, Any]]:
        """Return what ``admission-gateway manifests`` prints."""
        done = run_manifests(
            *("--config", self.config, "--service", f"{NAMESPACE}/{self.name}:{self.port}"),
            *("--name", self.name, "--ca-file", self.cluster.ca_file, *self._manifests),
        )
        assert done.returncode == 0, done.stderr
        return list(yaml.safe_load_all(done.stdout))


class WithLibrary(BehindGateway):
    """Policies of the library behind the gateway, as webhooks ``NAME.policies.test``."""

    def __init__(
        self,
        cluster: Cluster,
        folder: Path,
        policies: dict[str, dict[str, Any] | None],
        name: str = "library",
        fields: dict[str, dict[str, Any]] | None = None,
    ) -> None:
        """*policies*: parameters by name, None for none. *fields*: further fields of webhooks, by policy."""
        found = {each.name: each for each in definitions()}
        hooks = [
            Hook(
                "mutate" if found[policy].mutating else "validate",
                f"{policy}.policies.test",
                {},
                tuple(map(dict, found[policy].rules)),
                fields=(fields or {}).get(policy, {}),
                pool="library",
                policy=policy,
            )
            for policy in policies
        ]
        super().__init__(
            cluster, folder, hooks, name, gateway={"kubernetes": {"kubeconfig": str(cluster.kubeconfig())}}
        )
        self.policies = policies
        self.library = folder / "library.sock"

    def write_configuration(self) -> None:
        """Write the configuration, and start the worker of the library, which reads from the cluster."""
        super().write_configuration()
        (self.config / "library.yaml").write_text(pool_document("library", f"unix:{self.library}"))
        process = Process(
            *("env", f"KUBECONFIG={self.cluster.kubeconfig()}"),
            *(sys.executable, "-m", "admission_gateway_worker.policies", "--listen", f"unix:{self.library}"),
        )
        self.stack.callback(process.stop)
        process.expect("serving")

    def client_configs(self) -> list[dict[str, Any]]:
        """Return the ``clientConfig`` of each of ``hooks``, with parameters."""
        found = super().client_configs()
        for config, hook in zip(found, self.hooks, strict=True):
            if parameters := self.policies.get(hook.policy or ""):
                config["worker"]["parameters"] = parameters
        return found


class OverHttps(BehindGateway):
    """Webhooks behind the gateway, every other of them a policy of a worker."""

    def start(self) -> None:
        """Put the policies in force."""
        self._webhooks_port = self._serve_webhooks(self.folder, self.hooks, self.certificate)
        super().start()

    def client_configs(self) -> list[dict[str, Any]]:
        """Return the ``clientConfig`` of each of ``hooks``."""
        served = {"url": f"https://localhost:{self._webhooks_port}", "caBundle": self.cluster.ca_bundle}
        return [
            worker if index % 2 else {**served, "url": f"{served['url']}/{index}"}
            for index, worker in enumerate(super().client_configs())
        ]
