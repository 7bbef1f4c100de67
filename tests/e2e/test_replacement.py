"""Under steady load with failurePolicy Fail: new certificates, configuration and workers lose no create."""

from __future__ import annotations

import base64
import os
import signal
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import trustme

from tests.e2e.cluster import NAMESPACE
from tests.e2e.load import Load
from tests.e2e.replicas import Replicas
from tests.e2e.setups import REGISTRATIONS, BehindGateway, Hook
from tests.kit import Process, free_port, pool_document
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.e2e.client import Answer, Api
    from tests.e2e.cluster import Cluster
    from tests.kit import GatewayProcess

LABEL = "admitted"
HOOKS = [
    Hook("mutate", "label.replacement.test", {"label": LABEL}),
    Hook("validate", "watch.replacement.test", {}),
]
SAMPLES = [
    Hook("mutate", "resources.samples.test", {}, pool="samples", policy="default-resources"),
    Hook("validate", "privileged.samples.test", {}, pool="samples", policy="deny-privileged"),
]


@pytest.fixture(scope="module")
def replicas(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Replicas]:
    """One gateway behind a Service that counts connections; each test leaves it as it was."""
    with Replicas(cluster, tmp_path_factory.mktemp("replicas"), HOOKS, "replaced", 1) as replicas:
        yield replicas


@pytest.fixture
def dry_pods(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/pods?dryRun=All"


def skipped_webhook(answer: Answer) -> str:
    """Return the fault of a pod that no webhook has changed."""
    return "" if LABEL in labels(answer) else "a webhook was left out"


def labels(answer: Answer) -> dict[str, str]:
    found: dict[str, str] = answer.document["metadata"].get("labels", {})
    return found


# -- certificates ---------------------------------------------------------------------------------


def trust(api: Api, name: str, *authorities: trustme.CA) -> None:
    """Set the caBundle of the gateway's registration *name* to *authorities*."""
    bundle = b"".join(authority.cert_pem.bytes() for authority in authorities)
    for kind in ("mutatingwebhookconfigurations", "validatingwebhookconfigurations"):
        path = f"{REGISTRATIONS}/{kind}/{name}"
        document = api.get(path).document
        for webhook in document["webhooks"]:
            webhook["clientConfig"]["caBundle"] = base64.b64encode(bundle).decode()
        assert api.update(path, document).status == 200


def issue(replicas: Replicas, authority: trustme.CA) -> Callable[[], None]:
    """Replace the serving certificate by one of *authority*; return a function that waits for its reload."""
    gateway, seen = replicas.gateway, len(replicas.gateway.log)
    issued = authority.issue_cert(f"{replicas.name}.{NAMESPACE}.svc", key_type=trustme.KeyType.ECDSA)
    certificate, key = replicas.certificate
    issued.cert_chain_pems[0].write_to_path(str(certificate))
    issued.private_key_pem.write_to_path(str(key))
    return lambda: gateway.expect("TLS files reloaded", after=seen) and None


def new_connections(replicas: Replicas) -> Callable[[], bool]:
    """Return a function that checks whether the API server has opened new connections since now."""
    taken = replicas.service.taken(replicas.gateway)
    return lambda: replicas.service.taken(replicas.gateway) > taken


def test_a_new_serving_certificate_and_then_a_new_authority_lose_no_create(
    cluster: Cluster, replicas: Replicas, dry_pods: str
) -> None:
    api, old = cluster.api, cluster.authority
    new = trustme.CA(key_type=trustme.KeyType.ECDSA)
    with Load(api, dry_pods, check=skipped_webhook) as load:
        issue(replicas, old)()
        load.flows()
        for former, latter in ((old, new), (new, old)):
            # Both are trusted before the certificate is replaced. A new bundle gives the API server a new
            # client, and so new connections.
            has_reconnected = new_connections(replicas)
            trust(api, replicas.name, former, latter)
            load.until(has_reconnected)
            issue(replicas, latter)()
            load.flows()
            has_reconnected = new_connections(replicas)
            trust(api, replicas.name, latter)
            # Of its first bundle the API server has the client still.
            load.until(has_reconnected if latter is new else lambda: True)
    assert load.failures == []


# -- configuration --------------------------------------------------------------------------------


def test_a_changed_configuration_loses_no_create(cluster: Cluster, replicas: Replicas, dry_pods: str) -> None:
    gateway, hooks = replicas.gateway, replicas.hooks
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "one-"}}
    pod["spec"] = {"containers": [{"name": "c", "image": "registry.example/c:1"}]}

    def labelled() -> dict[str, str]:
        return labels(cluster.api.create(dry_pods, pod))

    with Load(cluster.api, dry_pods, check=skipped_webhook) as load:
        replicas.hooks = [Hook("mutate", "added.replacement.test", {"label": "added"}), *hooks]
        replicas.write_configuration()
        load.until(lambda: "added" in labelled())

        seen = len(gateway.log)
        bad = replicas.config / "bad.yaml"
        bad.write_text("kind: Nonsense\n")
        gateway.expect(r"configuration refused(?s:.*)bad\.yaml", after=seen)
        load.flows()
        assert "added" in labelled()
        bad.unlink()

        seen = len(gateway.log)
        gateway.signal(signal.SIGHUP)
        gateway.expect("configuration reloaded", after=seen)
        load.flows()

        replicas.hooks = hooks
        replicas.write_configuration()
        load.until(lambda: "added" not in labelled())
    assert load.failures == []


# -- workers --------------------------------------------------------------------------------------


class SampleWorkers:
    """Workers of the SDK, at one unix socket each."""

    def __init__(self, folder: Path, count: int) -> None:
        self.targets = [f"unix:{folder / f'samples-{index}.sock'}" for index in range(count)]
        self.running: dict[str, Process] = {}
        self._stack = ExitStack()

    def __enter__(self) -> SampleWorkers:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def start(self, target: str, *flags: str) -> None:
        """Start the worker at *target*, and wait until it serves."""
        command = (sys.executable, "-m", "admission_gateway_worker.samples", "--listen", target)
        process = Process(*command, *flags)
        self._stack.callback(process.stop)
        process.expect("worker: serving")
        self.running[target] = process

    def stop(self, target: str) -> None:
        """Stop the worker at *target* after its calls in flight."""
        process = self.running.pop(target)
        process.signal(signal.SIGTERM)
        assert process.wait() == 0, process.log


def without_requests(answer: Answer) -> str:
    """Return the fault of a pod that the sample policies have not changed."""
    container: dict[str, Any] = answer.document["spec"]["containers"][0]
    return "" if container.get("resources", {}).get("requests") else "a webhook was left out"


def ready(gateway: GatewayProcess) -> float:
    return gateway.metric("admission_gateway_worker_endpoints", pool="samples", state="ready")


def test_a_rolling_update_of_workers_loses_no_create(cluster: Cluster, tmp_path: Path, dry_pods: str) -> None:
    with SampleWorkers(tmp_path, 2) as workers, with_samples(cluster, tmp_path, workers) as behind:
        gateway = behind.gateway
        with Load(cluster.api, dry_pods, check=without_requests) as load:
            for target in workers.targets:
                eventually(lambda: ready(gateway) == 2)
                workers.stop(target)
                load.flows()
                workers.start(target)
                load.until(lambda: ready(gateway) == 2)
        assert load.failures == []


def test_workers_that_share_an_address_are_replaced_and_lose_no_create(
    cluster: Cluster, tmp_path: Path, dry_pods: str
) -> None:
    """When its worker drains, the gateway reconnects to another process at the address."""
    with SampleWorkers(tmp_path, 0) as workers:
        target = f"127.0.0.1:{free_port()}"
        workers.targets.append(target)
        with with_samples(cluster, tmp_path, workers, "--processes", "2") as behind:
            worker = workers.running[target]
            with Load(cluster.api, dry_pods, check=without_requests) as load:
                load.until(lambda: listeners(target) == 2)
                for leaving in worker.children():
                    os.kill(leaving, signal.SIGTERM)
                    eventually(lambda leaving=leaving: leaving not in worker.children())  # type: ignore[misc]
                    load.until(lambda: listeners(target) == 2 and ready(behind.gateway) == 1)
            assert load.failures == []


def listeners(target: str) -> int:
    """Return how many sockets listen on the address *target*: a child that starts does not serve yet."""
    port = f":{int(target.rpartition(':')[2]):04X}"
    tables = (Path(f"/proc/net/{name}").read_text().splitlines()[1:] for name in ("tcp", "tcp6"))
    sockets = [line.split() for table in tables for line in table]
    return sum(local.endswith(port) and state == "0A" for _, local, _, state, *_ in sockets)


def with_samples(cluster: Cluster, folder: Path, workers: SampleWorkers, *flags: str) -> BehindGateway:
    """Start *workers*, and return the sample policies behind a gateway that calls them."""
    for target in workers.targets:
        workers.start(target, *flags)
    behind = BehindGateway(cluster, folder / "gateway", SAMPLES, "samples")
    (behind.config / "samples.yaml").write_text(pool_document("samples", *workers.targets))
    return behind
