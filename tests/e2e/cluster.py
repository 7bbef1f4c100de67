"""The test bed: a kube-apiserver with an etcd of its own, on loopback, in a temporary folder.

No kubelet, scheduler or controller runs: pods stay Pending and default service accounts are not made. What
admission does with a request needs none of them. ``controllers.py`` adds them.

Webhooks are registered by Services of type ExternalName that name ``localhost``. That is the path of real
clusters: HTTP/1.1, a connection for each concurrent call, SNI and Host ``NAME.NAMESPACE.svc``. A loopback URL
would get HTTP/2, which no webhook behind a Service ever sees.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import signal
import subprocess
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final, TypeVar

import trustme
import yaml

from tests.e2e.client import Api
from tests.kit import PATIENCE_S, ROOT, Process, free_port
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.e2e.binaries import Binaries

T = TypeVar("T")

NAMESPACE: Final = "admission-gateway"
"""Namespace of the Services that stand for gateways and webhooks."""
ADMIN: Final = "admin"
"""In system:masters: may do everything and is exempt from priority and fairness."""
ALICE: Final = "alice"
"""An ordinary user with all rights by RBAC."""
STRANGER: Final = "stranger"
"""May do nothing."""
CONTROLLER_MANAGER: Final = "system:kube-controller-manager"
SCHEDULER: Final = "system:kube-scheduler"
"""These two have the API server's own roles, and no more."""
USERS: Final = {
    ADMIN: "system:masters",
    ALICE: "developers",
    STRANGER: "strangers",
    CONTROLLER_MANAGER: "system:components",
    SCHEDULER: "system:components",
}

FIRST_CLUSTER_IP: Final = "10.0.0.1"
"""Of the Service ``kubernetes``."""

AUDIT_POLICY: Final = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        {"level": "None", "verbs": ["get", "list", "watch"]},
        {"level": "None", "users": ["system:apiserver"]},
        {"level": "Request"},
    ],
}


class Cluster:
    """A running control plane. ``with Cluster(binaries, folder) as cluster: …``."""

    def __init__(
        self,
        binaries: Binaries,
        folder: Path,
        *flags: str,
        audit: bool = True,
        sync: bool = False,
        service_accounts: bool = False,
    ) -> None:
        """Start etcd and kube-apiserver with data in *folder*, and wait until they are ready.

        *flags* are further ones of kube-apiserver. *sync*: have etcd wait for the disk, as a real one does.
        *service_accounts*: Pods get a service account, for which controllers have to run.
        """
        folder.mkdir(parents=True, exist_ok=True)
        self.binaries = binaries
        self.folder = folder
        self.authority = trustme.CA(key_type=trustme.KeyType.ECDSA)
        self.callers = trustme.CA(key_type=trustme.KeyType.ECDSA)
        """Signs the API server's client certificate for webhooks that request one."""
        self.port = free_port()
        self.credentials_ports = {"mtls": free_port(), "token": free_port()}
        """Ports of the Services ``mtls`` and ``token``: the API server shows them a client certificate and a
        bearer token. Its other calls are anonymous."""
        self.webhook_token = "the-token-of-the-api-server"
        self.ca_file = folder / "ca.crt"
        self.callers_ca_file = folder / "callers-ca.crt"
        self.audit_log = folder / "audit.log"
        self._stack = ExitStack()
        try:
            self._prepare()
            self.etcd = self._start_etcd(sync=sync)
            """Its URL."""
            if not service_accounts:
                # Pods would wait for a default service account, which a controller makes.
                flags = ("--disable-admission-plugins=ServiceAccount", *flags)
            self._api_server_command = self._api_server(self.etcd, *flags, audit=audit)
            self._api_server_process = self._start(*self._api_server_command)
            self._users: dict[str, Api] = {}
            self._stack.callback(self._disconnect)
            self.api = self.user(ADMIN)
            self._wait_until_ready()
            self._furnish()
        except BaseException:
            self._stack.close()
            raise

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def user(self, name: str) -> Api:
        """Return the client with the credentials of *name*, one of ``USERS``. The cluster closes it."""
        if name not in self._users:
            self._users[name] = Api(self.port, self.ca_file, name)
        return self._users[name]

    def kubeconfig(self, user: str = ADMIN) -> Path:
        """Return a kubeconfig file of *user*."""
        return self.folder / f"{user}.kubeconfig"

    def write_kubeconfig(self, file: Path, **user: str) -> Path:
        """Write a kubeconfig *file* for a user with the credentials *user*, and return it."""
        _write_kubeconfig(file, self.port, self.ca_file, {"user": user})
        return file

    def kubectl(
        self, *arguments: str, user: str = ADMIN, stdin: str | None = None, cwd: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run kubectl and return how it ended, whatever its exit status."""
        command = [str(self.binaries.kubectl), "--kubeconfig", str(self.kubeconfig(user)), *arguments]
        environment = {**os.environ, "HOME": str(self.folder), "KUBECACHEDIR": str(self.folder / "kubectl")}
        return subprocess.run(
            command,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            env=environment,
            cwd=cwd,
            check=False,
        )

    def wait_until_served(self, *resources: str) -> None:
        """Wait until kubectl finds *resources*, each ``PLURAL.GROUP``: served, and part of the discovery."""
        eventually(lambda: self.kubectl("get", ",".join(resources)).returncode == 0, "the resources")

    def issue(self, folder: Path, *names: str) -> tuple[Path, Path]:
        """Return certificate and key files for *names* in *folder*, signed by the cluster's authority."""
        folder.mkdir(parents=True, exist_ok=True)
        return _write(self.authority.issue_cert(*names, key_type=trustme.KeyType.ECDSA), folder, "tls")

    @property
    def ca_bundle(self) -> str:
        """Return the cluster's authority in the form of ``caBundle``."""
        return base64.b64encode(self.ca_file.read_bytes()).decode()

    def add_service(self, name: str) -> None:
        """Create a Service *name* whose ports are those of localhost."""
        service = {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": name},
            "spec": {"type": "ExternalName", "externalName": "localhost"},
        }
        answer = self.api.create(f"/api/v1/namespaces/{NAMESPACE}/services", service)
        assert answer.status in (201, 409), answer

    def audit_events(self, matches: Callable[[dict[str, Any]], bool]) -> list[dict[str, Any]]:
        """Return the audit events that *matches*, waiting for the first."""
        return eventually(lambda: [event for event in self._events() if matches(event)])

    def _events(self) -> Iterator[dict[str, Any]]:
        # Not splitlines(), for which an object's text may hold ends of lines; the last may be half written.
        for line in self.audit_log.read_bytes().split(b"\n")[:-1]:
            # Fields that are stored as a client wrote them need not be Unicode. Their 10,000 levels are more
            # than Python reads, and no test looks for them.
            with contextlib.suppress(RecursionError):
                yield json.loads(line.decode(errors="replace"))

    @property
    def api_server_pid(self) -> int:
        """The API server's process."""
        return self._api_server_process.child.pid

    def stop_api_server(self) -> None:
        """Kill the API server; etcd continues."""
        self._api_server_process.signal(signal.SIGKILL)
        self._api_server_process.wait()
        self._disconnect()

    def restart_api_server(self) -> None:
        """Restart the API server on the same port."""
        if self._api_server_process.child.poll() is None:
            self.stop_api_server()
        self._api_server_process = self._start(*self._api_server_command)
        self._wait_until_ready()

    def _disconnect(self) -> None:
        for api in self._users.values():
            api.close()

    # -- starting ---------------------------------------------------------------------------------

    def _prepare(self) -> None:
        folder = self.folder
        self.authority.cert_pem.write_to_path(str(self.ca_file))
        self.callers.cert_pem.write_to_path(str(self.callers_ca_file))
        names = ("localhost", "127.0.0.1", "kubernetes.default.svc", FIRST_CLUSTER_IP)
        _write(self.authority.issue_cert(*names, key_type=trustme.KeyType.ECDSA), folder, "server")
        caller = self.callers.issue_cert(common_name="kube-apiserver", key_type=trustme.KeyType.ECDSA)
        _write(caller, folder, "client")
        key = trustme.CA(key_type=trustme.KeyType.RSA).private_key_pem
        key.write_to_path(str(folder / "service-accounts.key"))
        (folder / "tokens.csv").write_text(
            "".join(f'{user},{user},{user}-uid,"{group}"\n' for user, group in USERS.items())
        )
        (folder / "audit.yaml").write_text(yaml.safe_dump(AUDIT_POLICY))
        for user in USERS:
            _write_kubeconfig(self.kubeconfig(user), self.port, self.ca_file, {user: {"token": user}})
        # What deploy/ has for API servers, with the names of these Services.
        admission, kubeconfig = (
            (ROOT / "deploy" / "apiserver" / name)
            .read_text()
            .replace("/etc/kubernetes/admission", str(folder))
            for name in ("admission-configuration.yaml", "webhooks.kubeconfig")
        )
        (folder / "admission.yaml").write_text(admission)
        document = yaml.safe_load(kubeconfig)
        (by_certificate,) = document["users"]
        by_certificate["name"] = self.caller_name("mtls")
        document["users"].append({"name": self.caller_name("token"), "user": {"token": self.webhook_token}})
        (folder / "webhooks.kubeconfig").write_text(yaml.safe_dump(document))

    def caller_name(self, service: str) -> str:
        """Return the name under which the API server looks for credentials for *service*."""
        return f"{service}.{NAMESPACE}.svc:{self.credentials_ports[service]}"

    def _start_etcd(self, *, sync: bool) -> str:
        cert, key = self.folder / "server.crt", self.folder / "server.key"
        client, peer = free_port(), free_port()
        address, peers = f"https://127.0.0.1:{client}", f"http://127.0.0.1:{peer}"
        self._start(
            str(self.binaries.etcd),
            *("--data-dir", str(self.folder / "etcd"), "--logger", "zap", "--log-level", "warn"),
            *("--listen-client-urls", address, "--advertise-client-urls", address),
            *("--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers),
            *("--initial-cluster", f"default={peers}"),
            *("--cert-file", str(cert), "--key-file", str(key)),
            *([] if sync else ["--unsafe-no-fsync"]),
        )
        return address

    def _api_server(self, etcd: str, *flags: str, audit: bool) -> list[str]:
        folder = self.folder
        audited = [f"--audit-policy-file={folder / 'audit.yaml'}", f"--audit-log-path={self.audit_log}"]
        # By default it begins a new file after 100 MB, and events that a test waits for are in the old one.
        audited.append("--audit-log-maxsize=100000")
        return [
            str(self.binaries.kube_apiserver),
            f"--etcd-servers={etcd}",
            f"--etcd-cafile={self.ca_file}",
            "--bind-address=127.0.0.1",
            "--allow-privileged=true",
            "--advertise-address=127.0.0.1",
            "--endpoint-reconciler-type=none",
            f"--secure-port={self.port}",
            "--service-cluster-ip-range=10.0.0.0/24",
            f"--tls-cert-file={folder / 'server.crt'}",
            f"--tls-private-key-file={folder / 'server.key'}",
            f"--cert-dir={folder}",
            f"--token-auth-file={folder / 'tokens.csv'}",
            "--authorization-mode=RBAC",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={folder / 'service-accounts.key'}",
            f"--service-account-signing-key-file={folder / 'service-accounts.key'}",
            f"--admission-control-config-file={folder / 'admission.yaml'}",
            *(audited if audit else []),
            *flags,
        ]

    def _start(self, *command: str) -> Process:
        process = Process(*command)
        self._stack.callback(process.stop)
        return process

    def _wait_until_ready(self) -> None:
        def ready() -> bool:
            try:
                return self.api.get("/readyz").status == 200
            except OSError:
                return False

        eventually(ready)

    def _furnish(self) -> None:
        """Make the namespace of the Services, and let Alice do everything."""
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
        created = self.api.create("/api/v1/namespaces", namespace)
        assert created.status == 201, created
        for service in self.credentials_ports:
            self.add_service(service)
        binding = {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "developers"},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": "cluster-admin",
            },
            "subjects": [
                {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": USERS[ALICE]},
            ],
        }
        bound = self.api.create("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding)
        assert bound.status == 201, bound
        # The API server makes it itself, a moment after it is ready.
        eventually(lambda: self.api.get("/api/v1/namespaces/default").status == 200)
        # It reads bindings from a cache of its own.
        eventually(lambda: self.user(ALICE).get("/api/v1/namespaces/default").status == 200)


def _write(issued: trustme.LeafCert, folder: Path, name: str) -> tuple[Path, Path]:
    certificate, key = folder / f"{name}.crt", folder / f"{name}.key"
    issued.cert_chain_pems[0].write_to_path(str(certificate))
    issued.private_key_pem.write_to_path(str(key))
    return certificate, key


def _write_kubeconfig(file: Path, port: int, ca_file: Path, users: dict[str, dict[str, str]]) -> None:
    server = {"server": f"https://127.0.0.1:{port}", "certificate-authority": str(ca_file)}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": next(iter(users)),
        "clusters": [{"name": "e2e", "cluster": server}],
        "users": [{"name": name, "user": user} for name, user in users.items()],
        "contexts": [{"name": name, "context": {"cluster": "e2e", "user": name}} for name in users],
    }
    file.write_text(yaml.safe_dump(document))
