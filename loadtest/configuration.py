"""The gateways that the benchmark starts: what each is configured with, and how many processes it gets.

Every webhook configuration object has a path of its own, so that cases on one gateway differ in nothing but
what their path selects.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from loadtest.floor import PATH
from loadtest.worker import (
    LABELS,
    SLOW_POLICIES,
    mutating_name,
    sleeping_name,
    telling_name,
    validating_name,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

WORKERS: Final = 4
"""The most that a front end uses, each a pool of its own. Up to four policies are served by the first."""
PER_WORKER: Final = 4
COUNTS: Final = (1, 4, 16)
"""Numbers of policies, and so the names of paths."""
MANY: Final = 1000
"""Configured webhooks, of which four match."""
LABELLING: Final = 2
"""Position of the policy that changes objects among the slow ones: the third."""
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
ELSEWHERE: Final = "request.namespace.startsWith('kube-') && object.metadata.name.endsWith('-system')"
"""matchConditions as people write them."""

SERVER: Final = "@SERVER@"
CA_BUNDLE: Final = "@CA@"
"""What stands for what is known once it serves."""

Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Gateway:
    """How a gateway is started."""

    documents: Callable[[], Sequence[Document]]
    """Its webhook configurations."""
    transport: Literal["Stream", "Unary"] = "Stream"
    workers: int = 1
    processes: int = 1
    asks_server: bool = False
    """Whether it needs the server of ``loadtest.webhook``."""

    def text(self, worker_addresses: Sequence[str], server: str = "", ca_file: Path | None = None) -> str:
        """Return its YAML, a document of JSON each, with a pool for each of *worker_addresses*.

        *server* is ``https://HOST:PORT`` of the webhook's server, which *ca_file* vouches for.
        """
        pools = [_pool(number, address, self.transport) for number, address in enumerate(worker_addresses)]
        text = "\n---\n".join(json.dumps(document) for document in (*pools, *self.documents()))
        bundle = b"" if ca_file is None else base64.b64encode(ca_file.read_bytes())
        return text.replace(SERVER, server).replace(CA_BUNDLE, bundle.decode())


def policies() -> list[Document]:
    """Return 1, 4 and 16 validating webhooks and 4 mutating ones that change nothing."""
    found = [_object("Validating", f"policies-{count}", _quick(validating_name, count)) for count in COUNTS]
    return [*found, _object("Mutating", "policies-4", _quick(mutating_name, 4))]


def slow(side_effects: str = "None") -> list[Document]:
    """Return mutating webhooks that take their time: one, eight, eight of which the third changes objects.

    With ``NoneOnDryRun`` as *side_effects* a review that is no dry run is answered one webhook after another.
    """
    sleeping = [_webhook(sleeping_name(number)) for number in range(SLOW_POLICIES)]
    telling = [_webhook(telling_name(number)) for number in range(SLOW_POLICIES)]
    changing = list(sleeping)
    changing[LABELLING] = telling[LABELLING] = _webhook(LABELS)
    chosen = {"sleeps-1": sleeping[:1], "sleeps-8": sleeping, "third-changes": changing, "told": telling}
    chosen |= {f"step-{number}": [webhook] for number, webhook in enumerate(telling)}
    return [
        _object("Mutating", name, [webhook | {"sideEffects": side_effects} for webhook in webhooks])
        for name, webhooks in chosen.items()
    ]


def four() -> list[Document]:
    """Return four webhooks for Pods."""
    return [_object("Validating", "four", _quick(validating_name, 4))]


def many() -> list[Document]:
    """Return four webhooks for Pods among ``MANY`` by rules, and among ``MANY`` by labels.

    ``by-rules`` has 996 others for other resources. ``by-labels`` has 996 others for Pods too, with object
    selectors that this Pod does not meet: a selector can only be looked at when the object is there.
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
    """Return one webhook for Pods that is asked over HTTPS, and four."""
    config = {"url": f"{SERVER}{PATH}", "caBundle": CA_BUNDLE}
    webhooks = [{**webhook, "clientConfig": config} for webhook in _quick(validating_name, 4)]
    return [
        _object("Validating", "policies-1", webhooks[:1]),
        _object("Validating", "policies-4", webhooks),
    ]


def conditional() -> list[Document]:
    """Return four webhooks for Pods as they are, with matchConditions, and among forty by conditions.

    ``by-request`` looks at the request, ``by-object`` at the Pod too; the 36 others of ``left-out`` have a
    condition that is false.
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


GATEWAYS: Final[Mapping[str, Gateway]] = {
    "stream": Gateway(policies, workers=WORKERS),
    "unary": Gateway(policies, "Unary", WORKERS),
    "two": Gateway(policies, workers=WORKERS, processes=2),
    "slow": Gateway(slow),
    "serial": Gateway(lambda: slow("NoneOnDryRun")),
    "four": Gateway(four),
    "many": Gateway(many),
    "conditional": Gateway(conditional),
    "https": Gateway(by_https, workers=0, asks_server=True),
}


def pool_of(number: int) -> int:
    """Return which worker serves policy *number*."""
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
