"""The gateways that the benchmark starts: their configurations, transports and numbers of processes.

Each webhook configuration has its own path, so that cases of one gateway differ only in the path that the
reviews are sent to.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal

from loadtest.floor import PATH
from loadtest.peers import kyverno
from loadtest.policies import MUTATING, POLICY_WORKERS, SETS
from loadtest.policies.cel import EXPRESSIONS
from loadtest.policies.mutations import MUTATIONS
from loadtest.policies.pod_security import pod_security
from loadtest.worker import (
    LABELS,
    SLOW_POLICIES,
    mutating_name,
    sleeping_name,
    validating_name,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

WORKERS: Final = 4
"""Of the gateway with sixteen policies; each worker is a pool."""
PER_WORKER: Final = 4
COUNTS: Final = (1, 4, 16)
"""Numbers of policies; part of the paths."""
FIRST: Final = "v1"
"""The set of policies with which the gateway with Kyverno's documents starts."""
MANY: Final = 1000
"""Configured webhooks; four of them match."""
LABELLING: Final = 2
"""Index of the policy that changes the object, among the slow policies."""
PODS: Final[Mapping[str, Any]] = {
    "operations": ["CREATE", "UPDATE"],
    "apiGroups": [""],
    "apiVersions": ["v1"],
    "resources": ["pods"],
    "scope": "Namespaced",
}

NOT_A_NODE: Final = "!('system:nodes' in request.userInfo.groups)"
IMAGES: Final = "object.spec.containers.all(c, c.image.contains('/') || !has(c.securityContext))"
OWNED: Final = "object.?metadata.?labels.?owner.orValue('nobody') != 'kubelet'"
MODES: Final = ("Warn", "Audit", "Shadow")
DOCUMENTED: Final = ("deny-privileged", "deny-latest", "require-limits")
"""The validations of policies as documents."""
TESTED: Final = {"tier": "tested"}
"""The labels of the namespace of the reviews, which the bindings select."""
DOCUMENTED_IN: Final = ("python", "go")
"""Languages of the workers that have the same policies."""
ELSEWHERE: Final = "request.namespace.startsWith('kube-') && object.metadata.name.endsWith('-system')"
"""Typical matchConditions."""

WEBHOOK: Final = "@WEBHOOK@"
CA_BUNDLE: Final = "@CA@"
"""Placeholders for the address and certificate of the HTTPS webhook."""

Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Gateway:
    """One gateway."""

    documents: Callable[[], Sequence[Document]]
    """Returns the webhook configurations."""
    transport: Literal["Stream", "Unary"] = "Stream"
    workers: int = 1
    processes: int = 1
    needs_webhook: bool = False
    """Whether its webhooks are called over HTTPS."""
    decisions: str = ""
    """``logging.decisions``, in a file and without a limit of the rate; empty for the default."""
    sampling: int | None = None
    """``tracing.samplingRatePerMillion``; None if there are no traces."""
    recorded_per_second: int = 0
    """``record.maxPerSecond``; 0 if nothing is recorded."""
    language: str = ""
    """Of its only worker, one of ``POLICY_WORKERS``; empty if its workers are ``loadtest.worker``."""

    def text(
        self,
        worker_addresses: Sequence[str],
        webhook: str = "",
        ca_file: Path | None = None,
        collector: str = "http://127.0.0.1:4318",
    ) -> str:
        """Return the configuration, JSON documents in YAML, with a pool for each of *worker_addresses*.

        *webhook* is ``https://HOST:PORT`` of the HTTPS webhook; *ca_file* verifies its certificate.
        *collector* is the URL to which spans are sent.
        """
        pools = [_pool(number, address, self.transport) for number, address in enumerate(worker_addresses)]
        settings = (
            _logging(self.decisions)
            + _tracing(self.sampling, collector)
            + _recording(self.recorded_per_second)
        )
        documents = [*pools, *self.documents(), *settings]
        text = "\n---\n".join(json.dumps(document) for document in documents)
        bundle = b"" if ca_file is None else base64.b64encode(ca_file.read_bytes())
        return text.replace(WEBHOOK, webhook).replace(CA_BUNDLE, bundle.decode())


def policies() -> list[Document]:
    """Return 1, 4 and 16 validating webhooks, 4 mutating ones that change nothing, and one for Services."""
    found = [_object("Validating", f"policies-{count}", _quick(validating_name, count)) for count in COUNTS]
    unmatched = _webhook(validating_name(0)) | {"rules": [{**PODS, "resources": ["services"]}]}
    return [
        *found,
        _object("Mutating", "policies-4", _quick(mutating_name, 4)),
        _object("Validating", "unmatched", [unmatched]),
    ]


def real() -> list[Document]:
    """Return the webhooks of ``loadtest.policies``, a configuration for each set."""
    return [
        _object(
            "Mutating" if name == MUTATING else "Validating", name, [_webhook(policy) for policy in names]
        )
        for name, names in SETS.items()
    ]


def slow(side_effects: str = "None") -> list[Document]:
    """Return slow mutating webhooks: one, eight, and eight of which the third changes the object.

    With ``NoneOnDryRun`` as *side_effects* the webhooks of a review are called one after another.
    """
    unchanged = [_webhook(sleeping_name(number)) for number in range(SLOW_POLICIES)]
    changed = list(unchanged)
    changed[LABELLING] = _webhook(LABELS)
    selected = {"sleeps-1": unchanged[:1], "sleeps-8": unchanged, "third-changes": changed}
    return [
        _object("Mutating", name, [webhook | {"sideEffects": side_effects} for webhook in webhooks])
        for name, webhooks in selected.items()
    ]


def four() -> list[Document]:
    """Return four webhooks for Pods."""
    return [_object("Validating", "four", _quick(validating_name, 4))]


def many() -> list[Document]:
    """Return ``MANY`` webhooks of which four match, by their rules and by their labels.

    The 996 others of ``by-rules`` are for other resources. The 996 others of ``by-labels`` are for Pods, with
    objectSelectors that do not match this Pod.
    """
    matching = _quick(validating_name, 4)
    others = range(MANY - 4)
    by_rules = [_webhook(validating_name(4), f"rule-{number}") | _elsewhere(number) for number in others]
    by_labels = [
        _webhook(validating_name(4), f"label-{number}")
        | {"objectSelector": {"matchLabels": {"team": f"team-{number}"}}}
        for number in others
    ]
    return [
        _object("Validating", "by-rules", _around(by_rules, matching)),
        _object("Validating", "by-labels", _around(by_labels, matching)),
    ]


def by_https() -> list[Document]:
    """Return one webhook that is called over HTTPS, and four."""
    config = {"url": f"{WEBHOOK}{PATH}", "caBundle": CA_BUNDLE}
    webhooks = [{**webhook, "clientConfig": config} for webhook in _quick(validating_name, 4)]
    return [
        _object("Validating", "policies-1", webhooks[:1]),
        _object("Validating", "policies-4", webhooks),
    ]


def conditional() -> list[Document]:
    """Return four webhooks without and with matchConditions, and forty of which conditions leave four.

    ``by-request`` has conditions about the request, ``by-object`` about the Pod too. The 36 others of
    ``left-out`` have a condition that is false.
    """
    quick = _quick(validating_name, 4)
    by_request = [_with(webhook, NOT_A_NODE) for webhook in quick]
    by_object = [_with(webhook, NOT_A_NODE, IMAGES, OWNED) for webhook in quick]
    others = [_with(_webhook(validating_name(4), f"out-{number}"), ELSEWHERE) for number in range(36)]
    return [
        _object("Validating", "without", quick),
        _object("Validating", "by-request", by_request),
        _object("Validating", "by-object", by_object),
        _object("Validating", "left-out", _around(others, quick)),
    ]


def rolled_out(rollout: Document) -> list[Document]:
    """Return four webhooks for Pods, the last of them with this *rollout*."""
    *enforced, last = _quick(validating_name, 4)
    return [_object("Validating", "four", [*enforced, {**last, "rollout": rollout}])]


def documents(count: int, *, matching: int | None = None, others: int = 0) -> list[Document]:
    """Return *count* ValidatingAdmissionPolicies of three validations each, and their bindings.

    The first *matching* policies, all by default, have a binding that matches. *others* more bindings are
    spread over all policies, each for namespaces of another team.
    """
    expressions = [{"expression": EXPRESSIONS[name]} for name in DOCUMENTED]
    found = []
    teams: list[tuple[int, Mapping[str, str]]] = [
        (number, TESTED) for number in range(count if matching is None else matching)
    ]
    teams += [(number % count, {"team": f"team-{number}"}) for number in range(others)]
    for number in range(count):
        policy = {"matchConstraints": {"resourceRules": [dict(PODS)]}, "validations": expressions}
        found.append(_policy_document("Validating", f"policy-{number:02}", policy))
    for number, (of, labels) in enumerate(teams):
        binding = {
            "policyName": f"policy-{of:02}",
            "validationActions": ["Deny"],
            "matchResources": {"namespaceSelector": {"matchLabels": labels}},
        }
        found.append(_policy_document("Validating", f"binding-{number:02}", binding, "Binding"))
    return [*found, _namespace()]


def mutating_documents() -> list[Document]:
    """Return the MutatingAdmissionPolicies of ``loadtest.policies.mutations``, each with a binding."""
    found = []
    for name, mutation in MUTATIONS.items():
        policy = {
            "matchConstraints": {"resourceRules": [dict(PODS)]},
            "reinvocationPolicy": "Never",
            "mutations": [mutation.spec],
        }
        binding = {"policyName": name, "matchResources": {"namespaceSelector": {"matchLabels": TESTED}}}
        found.append(_policy_document("Mutating", name, policy))
        found.append(_policy_document("Mutating", name, binding, "Binding"))
    return [*found, _namespace()]


def documents_as_workers(count: int) -> list[Document]:
    """Return the validations of *count* policies of :func:`documents`, each as a policy of a worker."""
    webhooks = [_webhook(policy, f"{policy}-{number:02}") for number in range(count) for policy in DOCUMENTED]
    return [_object("Validating", "documented", webhooks)]


def _namespace() -> Document:
    metadata = {"name": "default", "labels": TESTED}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}


def _policy_document(phase: str, name: str, spec: Document, suffix: str = "") -> Document:
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": f"{phase}AdmissionPolicy{suffix}",
        "metadata": {"name": name},
        "spec": spec,
    }


def engine_worker(engine: str, target: str) -> list[Document]:
    """Return the configuration of a gateway whose policies of *engine* are in the worker at *target*."""
    version = "admission-gateway.io/v1alpha1"
    return [
        {
            "apiVersion": version,
            "kind": "WorkerPool",
            "metadata": {"name": engine},
            "spec": {"target": target},
        },
        {
            "apiVersion": version,
            "kind": "GatewayConfiguration",
            "policies": {"engines": {engine: {"pool": engine, "failurePolicy": "Fail"}}},
        },
    ]


GATEWAYS: Final[Mapping[str, Gateway]] = {
    "stream": Gateway(policies, workers=WORKERS),
    "unary": Gateway(policies, "Unary", WORKERS),
    "two": Gateway(policies, workers=WORKERS, processes=2),
    "slow": Gateway(slow),
    "serial": Gateway(lambda: slow("NoneOnDryRun")),
    "four": Gateway(four),
    **{f"logs-{decisions}": Gateway(four, decisions=decisions) for decisions in ("None", "Denied", "All")},
    **{f"traced-{sampling}": Gateway(four, sampling=sampling) for sampling in (0, 10_000, 1_000_000)},
    **{f"recorded-{rate}": Gateway(four, recorded_per_second=rate) for rate in (100, 1_000_000)},
    "many": Gateway(many),
    "conditional": Gateway(conditional),
    "https": Gateway(by_https, workers=0, needs_webhook=True),
    **{f"real-{language}": Gateway(real, language=language) for language in POLICY_WORKERS},
    **{f"mode-{mode}": Gateway(partial(rolled_out, {"mode": mode})) for mode in MODES},
    "candidate": Gateway(
        lambda: rolled_out(
            {"candidate": {"clientConfig": {"worker": {"pool": "worker-0", "policy": validating_name(4)}}}}
        )
    ),
    "documents-1": Gateway(lambda: documents(1), workers=0),
    "documents-10": Gateway(lambda: documents(10), workers=0),
    "documents-10-mutating": Gateway(mutating_documents, workers=0),
    "pod-security": Gateway(pod_security, workers=0),
    "kyverno-documents": Gateway(lambda: kyverno.documents(FIRST, "cel"), workers=0),
    "bindings-5": Gateway(lambda: documents(5), workers=0),
    "bindings-100": Gateway(lambda: documents(10, matching=5, others=95), workers=0),
    **{
        f"documents-{count}-{language}": Gateway(partial(documents_as_workers, count), language=language)
        for language in DOCUMENTED_IN
        for count in (1, 10)
    },
}


def pool_of(number: int) -> int:
    """Return the number of the worker that serves policy *number*."""
    return number // PER_WORKER


def _around(others: Sequence[Document], four: Sequence[Document]) -> list[Document]:
    """Return *four* spread evenly among *others*."""
    share = len(others) // len(four)
    return [
        webhook
        for number, mine in enumerate(four)
        for webhook in (*others[number * share : (number + 1) * share], mine)
    ]


def _elsewhere(number: int) -> Document:
    group, resource = f"group-{number % 40}.example", f"things-{number % 250}"
    return {"rules": [{**PODS, "apiGroups": [group], "resources": [resource]}]}


def _quick(policy_name: Callable[[int], str], count: int) -> list[Document]:
    return [_webhook(policy_name(number), pool=pool_of(number)) for number in range(count)]


def _pool(number: int, address: str, transport: str) -> Document:
    return {
        "apiVersion": "admission-gateway.io/v1alpha1",
        "kind": "WorkerPool",
        "metadata": {"name": f"worker-{number}"},
        "spec": {"target": address, "transport": transport},
    }


def _tracing(sampling: int | None, collector: str) -> list[Document]:
    if sampling is None:
        return []
    tracing = {
        "endpoint": collector,
        "samplingRatePerMillion": sampling,
        "maxSpansPerSecond": 1_000_000,
    }
    return [
        {"apiVersion": "admission-gateway.io/v1alpha1", "kind": "GatewayConfiguration", "tracing": tracing}
    ]


def _recording(per_second: int) -> list[Document]:
    if not per_second:
        return []
    record = {"folder": f"recording-{per_second}", "maxPerSecond": per_second}
    return [{"apiVersion": "admission-gateway.io/v1alpha1", "kind": "GatewayConfiguration", "record": record}]


def _logging(decisions: str) -> list[Document]:
    if not decisions:
        return []
    # To a file, because the benchmark reads standard error, which would take CPU.
    log = {"maxPerSecond": 1_000_000, "file": {"path": f"{decisions}.jsonl", "keep": 1}}
    return [
        {
            "apiVersion": "admission-gateway.io/v1alpha1",
            "kind": "GatewayConfiguration",
            "logging": {"decisions": decisions, "decisionLog": log},
        }
    ]


def _webhook(policy: str, name: str = "", pool: int = 0) -> Document:
    return {
        "name": f"{name or policy}.loadtest.example",
        "clientConfig": {"worker": {"pool": f"worker-{pool}", "policy": policy}},
        "rules": [dict(PODS)],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }


def _with(webhook: Document, *expressions: str) -> Document:
    conditions = [{"name": f"c{number}", "expression": text} for number, text in enumerate(expressions)]
    return {**webhook, "matchConditions": conditions}


def _object(phase: str, name: str, webhooks: Sequence[Document]) -> Document:
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": f"{phase}WebhookConfiguration",
        "metadata": {"name": name},
        "webhooks": list(webhooks),
    }
