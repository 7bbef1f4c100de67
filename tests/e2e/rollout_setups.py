"""Set-ups of rollouts: ten mutating policies that each set a label, in the gateway and in its alternatives.

The policies are those of ``loadtest.peers.labels``. A policy that is a program also denies what carries the
label ``refused-by`` with its name; documents and engines that only mutate cannot deny.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, Literal

from gateway.server.serving.devcert import make_development_certificate
from loadtest.peers.clustered import GatekeeperMutation, KyvernoCel
from loadtest.peers.labels import APPLIED, LABELS, LABELS_SET, expression
from loadtest.peers.setups import Bed, Chain, Opa
from tests.e2e.bench_peers import SERVICE, webhook
from tests.e2e.bench_setups import CREATES, Case
from tests.e2e.objects import pod
from tests.e2e.placing import NOT_SYSTEM, Placing
from tests.e2e.policy_comparison import HEAD
from tests.e2e.setups import REGISTRATIONS
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from contextlib import AbstractContextManager
    from pathlib import Path

    from loadtest.peers.setups import Subject
    from tests.e2e.cluster import Cluster

    Enter = Callable[[Cluster, Path, Mapping[str, Path]], AbstractContextManager[Any]]
    """Puts the policies in force; what it yields has ``pids``, the processes whose CPU counts."""

PODS: Final = "/api/v1/namespaces/default/pods?dryRun=All"
Role = Literal["reference", "worker", "documents", "API server", "peer"]


@dataclass(frozen=True)
class Setup:
    """One way to evaluate the policies."""

    title: str
    role: Role
    enter: Enter
    labels: tuple[str, ...] = LABELS
    """Those that every Pod has afterwards."""
    denies: bool = False
    """Whether a policy may deny."""
    missing: Callable[[], str] = lambda: ""
    """Returns why it cannot be started; empty if it can."""

    @contextmanager
    def in_force(self, cluster: Cluster, folder: Path, tools: Mapping[str, Path]) -> Iterator[Any]:
        """Yield what ``enter`` yields as soon as a Pod gets all labels, and one that is refused is denied."""
        with self.enter(cluster, folder, tools) as entered:
            eventually(lambda: not self.lacking(created(cluster)), f"the labels of {self.title}")
            if self.denies:
                last = self.labels[-1]
                eventually(
                    lambda: "refused-by" in created(cluster, {"refused-by": last}).get("message", ""),
                    f"the denial of {self.title}",
                )
            yield entered

    def lacking(self, found: Mapping[str, Any]) -> set[str]:
        """Return the labels that the Pod *found* lacks."""
        labels = found["metadata"].get("labels", {})
        return {label for label in self.labels if labels.get(label) != APPLIED}


def created(cluster: Cluster, labels: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return the answer to a dry run that creates a Pod with *labels*: the Pod, or a Status."""
    return cluster.api.create(PODS, pod("probe-", {"app": "probe", **(labels or {})})).document


def documents() -> list[dict[str, Any]]:
    """Return the policies as MutatingAdmissionPolicies with their bindings, which can move."""
    found: list[dict[str, Any]] = []
    for label in LABELS:
        spec = {
            "failurePolicy": "Fail",
            "reinvocationPolicy": "IfNeeded",
            "matchConstraints": {
                "resourceRules": list(CREATES),
                "namespaceSelector": {"matchExpressions": [NOT_SYSTEM]},
            },
            "mutations": [
                {
                    "patchType": "ApplyConfiguration",
                    "applyConfiguration": {"expression": expression(label)},
                }
            ],
        }
        metadata = {"name": label}
        found += [
            {**HEAD, "kind": "MutatingAdmissionPolicy", "metadata": metadata, "spec": spec},
            {
                **HEAD,
                "kind": "MutatingAdmissionPolicyBinding",
                "metadata": metadata,
                "spec": {"policyName": label},
            },
        ]
    return found


def _documents_in_gateway(cluster: Cluster, folder: Path, _: object) -> AbstractContextManager[Any]:
    setup = Placing(cluster, folder, documents(), "gateway")
    setup.placement = "Gateway"
    return setup


@contextmanager
def _placed(cluster: Cluster, folder: Path, _: object) -> Iterator[Any]:
    with Placing(cluster, folder, documents(), "gateway", settle_s=1) as setup:
        eventually(lambda: setup.are_in_api_server(setup.gateway), "the policies in the API server")
        setup.apply_registration()
        assert not setup.is_registered_for_pods()
        yield setup


def _peer(kind: type[Subject]) -> Setup:
    """Return the set-up of a peer, which runs until its cluster ends."""

    @contextmanager
    def enter(cluster: Cluster, folder: Path, _: object) -> Iterator[Any]:
        with ExitStack() as stack:
            state = make_development_certificate(folder / "state")
            subject = kind()
            server = subject.start(Bed(stack, folder, *state, clusters=[cluster]))
            subject.apply(LABELS_SET)
            if kind is not KyvernoCel:  # Kyverno registers itself, when it has policies.
                cluster.add_service(SERVICE)
                registration = webhook(subject.path(LABELS_SET), server, folder, "mutate")
                kinds = f"{registration['kind'].lower()}s"
                answer = cluster.api.create(f"{REGISTRATIONS}/{kinds}", registration)
                assert answer.status == 201, answer.message
            yield SimpleNamespace(pids=[*server.pids, *server.workers])

    return Setup(kind.title, "peer", enter, denies=kind is Opa, missing=kind.missing)


def _case(title: str, role: Role, count: int, server: str) -> Setup:
    case = Case(title, "mutate", count, server, policy="label")
    return Setup(title, role, case.setup, LABELS[:count], denies=True)


NOTHING: Final = Setup("no webhook", "reference", lambda *_: nullcontext(SimpleNamespace(pids=[])), ())
WORKERS: Final = (
    _case("gateway, Go worker", "worker", len(LABELS), "go"),
    _case("gateway, Python worker", "worker", len(LABELS), "python"),
)
DOCUMENTS: Final = Setup("gateway, documents", "documents", _documents_in_gateway)
PLACED: Final = Setup("the same documents, moved to the API server", "API server", _placed)
SETUPS: Final = (
    PLACED,
    DOCUMENTS,
    *WORKERS,
    _case("1 Go webhook, a tenth of the policies", "peer", 1, "webhook"),
    _peer(Chain),
    _peer(Opa),
    _peer(GatekeeperMutation),
    _peer(KyvernoCel),
    _case("10 Go webhooks", "peer", len(LABELS), "webhook"),
)
"""All but the reference."""
