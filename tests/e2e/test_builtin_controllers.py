"""The ports of Kubernetes' built-in admission controllers decide as these do.

One API server has the controllers, the other one has the gateway with the policies of the library instead.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.e2e.binaries import obtain
from tests.e2e.builtin_cases import (
    EVENT_LIMITS,
    EVENTS,
    FROZEN,
    FURNITURE,
    LIMITED,
    LIMITS,
    NODE_SELECTORS,
    PARAMETERS,
    TOLERATIONS,
    WRITTEN,
    create,
    drawn,
    make_pod,
    namespace,
    of,
)
from tests.e2e.cluster import Cluster
from tests.e2e.conftest import CHOSEN
from tests.e2e.outcome import normalised, refusal_of
from tests.e2e.setups import WithLibrary
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.e2e.client import Answer
    from tests.e2e.compare import Operation

DRAWN: Final = 300

GENERATED: Final = r"(generated-)[a-z0-9]{5}\b", r"\1GENERATED"

ENABLED: Final = (
    "AlwaysPullImages,LimitPodHardAntiAffinityTopology,ExtendedResourceToleration,PodNodeSelector,"
    "PodTolerationRestriction,DenyServiceExternalIPs,EventRateLimit,OwnerReferencesPermissionEnforcement"
)
DISABLED: Final = (
    "DefaultTolerationSeconds,LimitRanger,CertificateApproval,CertificateSigning,"
    "CertificateSubjectRestriction,DefaultIngressClass,DefaultStorageClass,PersistentVolumeClaimResize,"
    "StorageObjectInUseProtection,TaintNodesByCondition,PodTopologyLabels,Priority,RuntimeClass"
)
"""On by default in the first cluster, off in the second."""

ORDER: Final = (
    "limit-ranger",
    "taint-nodes-by-condition",
    "always-pull-images",
    "pod-node-selector",
    "priority",
    "default-toleration-seconds",
    "pod-toleration-restriction",
    "extended-resource-toleration",
    "default-storage-class",
    "storage-object-in-use-protection",
    "runtime-class",
    "default-ingress-class",
    "pod-topology-labels",
)
"""Mutating policies in the order of the API server; the validating ones have none."""
VALIDATING: Final = (
    "limit-pod-hard-anti-affinity-topology",
    "limit-ranger-validate",
    "always-pull-images-validate",
    "pod-node-selector-validate",
    "pod-toleration-restriction-validate",
    "event-rate-limit",
    "priority-validate",
    "persistent-volume-claim-resize",
    "runtime-class-validate",
    "certificate-approval",
    "certificate-signing",
    "certificate-subject-restriction",
    "deny-service-external-ips",
    "owner-references-permission-enforcement",
    "always-admit",
    "always-deny",
)
NAMESPACES: Final = {
    **dict.fromkeys(("limit-ranger", "limit-ranger-validate"), LIMITED),
    **dict.fromkeys(("always-admit", "always-deny"), FROZEN),
}
"""The namespace of policies that are not for all."""


def ports(cluster: Cluster, folder: Path) -> WithLibrary:
    """Return the gateway with the policies of the library."""
    names = (*ORDER, *VALIDATING)
    fields = {
        name: {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": one}}}
        for name, one in NAMESPACES.items()
    }
    return WithLibrary(
        cluster,
        folder,
        {name: PARAMETERS.get(name.removesuffix("-validate")) for name in names},
        fields=fields,
    )


def perform(cluster: Cluster, operation: Operation) -> Answer:
    api = cluster.user(operation.user)
    return api.request(operation.method, operation.path, operation.document, operation.content_type)


@pytest.fixture(scope="module", params=CHOSEN)
def clusters(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Cluster, Cluster]]:
    """A cluster with the controllers, and one with their ports."""
    binaries = obtain(request.param)
    folder = tmp_path_factory.mktemp("builtin")
    config = folder / "admission.yaml"
    config.write_text(json.dumps(_admission_configuration()))
    flags = (f"--enable-admission-plugins={ENABLED}", f"--admission-control-config-file={config}")
    with (
        Cluster(binaries, folder / "natively", *flags, audit=False) as natively,
        Cluster(
            binaries, folder / "ported", f"--disable-admission-plugins={DISABLED}", audit=False
        ) as ported,
    ):
        for cluster in (natively, ported):
            for operation in FURNITURE:
                answer = perform(cluster, operation)
                assert answer.status == 201, answer
        limits = create(of(LIMITED, "limitranges"), "LimitRange", "limits", spec=LIMITS)
        assert perform(natively, limits).status == 201
        with ports(ported, folder / "gateway"):
            eventually(lambda: _is_settled(natively, ported))
            yield natively, ported


def _admission_configuration() -> dict[str, Any]:
    configurations = {
        "PodNodeSelector": {"podNodeSelectorPluginConfig": NODE_SELECTORS},
        "PodTolerationRestriction": {
            "apiVersion": "podtolerationrestriction.admission.k8s.io/v1alpha1",
            "kind": "Configuration",
            **TOLERATIONS,
        },
        "EventRateLimit": {
            "apiVersion": "eventratelimit.admission.k8s.io/v1alpha1",
            "kind": "Configuration",
            **EVENT_LIMITS,
        },
    }
    return {
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "AdmissionConfiguration",
        "plugins": [{"name": name, "configuration": each} for name, each in configurations.items()],
    }


def _is_settled(*clusters: Cluster) -> bool:
    """Whether both know the namespaces, classes and limits."""
    return all(
        _comparable(perform(clusters[0], each)) == _comparable(perform(clusters[1], each))
        for each in drawn(5)
    )


def _comparable(answer: Answer) -> Any:
    """Return what a user sees: the object, or status, text and details of the refusal."""
    if answer.status < 300:
        return normalised(answer.document, "none")
    details = answer.document.get("details") or {}
    name = re.sub(*GENERATED, details.get("name") or "")
    return answer.status, answer.document.get("reason"), _texts(answer), name, details.get("kind")


def _texts(answer: Answer) -> set[str]:
    """Return the parts of the text: LimitRanger, and the API server's own checks, list them in any order.

    Differences of objects in texts have spaces or no-break spaces: each API server chooses when it starts.
    """
    refusal = refusal_of(answer, [f"{name}.policies.test" for name in (*ORDER, *VALIDATING)])
    text = answer.message if refusal is None else "\n".join(str(line.text) for line in refusal.lines)
    text = re.sub(*GENERATED, text.replace("\xa0", " "))
    return set(re.split(r", |\[|\]|\n", text)) - {""}


@pytest.mark.parametrize("name", WRITTEN)
def test_written_requests(
    clusters: tuple[Cluster, Cluster], name: str, request: pytest.FixtureRequest
) -> None:
    if (name, request.node.callspec.params["clusters"]) == ("pod-topology-labels", "1.33"):
        pytest.skip("the feature PodTopologyLabelsAdmission is off in Kubernetes 1.33")
    for operation in WRITTEN[name]:
        natively, ported = (perform(cluster, operation) for cluster in clusters)
        assert _comparable(ported) == _comparable(natively), operation


def test_drawn_pods(clusters: tuple[Cluster, Cluster]) -> None:
    outcomes = Counter[int]()
    for operation in drawn(DRAWN):
        natively, ported = (perform(cluster, operation) for cluster in clusters)
        outcomes[natively.status] += 1
        if natively.status < 300:
            assert _comparable(ported) == _comparable(natively), operation.document
        else:
            # The API server ends at the first refusal, the gateway reports those of all policies.
            assert ported.status >= 400, (natively.message, operation.document)
            assert _texts(natively) <= _texts(ported), operation.document
    assert min(outcomes[status] for status in (201, 403, 500)) > DRAWN / 20, outcomes


def test_the_rate_of_events(clusters: tuple[Cluster, Cluster]) -> None:
    """The bucket holds 2 Events and gets one a second."""
    texts = []
    for cluster in clusters:
        answers = []
        for index in range(30):
            involved = {"kind": "Pod", "namespace": EVENTS, "name": "web"}
            made = create(of(EVENTS, "events"), "Event", f"e{index}", involvedObject=involved)
            answers.append(perform(cluster, made))
            if answers[-1].status == 429:
                break
        assert [each.status for each in answers[:2]] == [201, 201]
        texts.append(_comparable(answers[-1]))
    text = f"Too many requests: limit reached on type Namespace for key {EVENTS}"
    assert texts[0][:3] == (429, "TooManyRequests", {text})
    assert texts[1] == texts[0]


def test_events_of_the_other_group_have_no_limit(clusters: tuple[Cluster, Cluster]) -> None:
    fields = {
        "eventTime": "2026-11-23T08:00:00.000000Z",
        "reason": "Test",
        "action": "Testing",
        "type": "Normal",
    }
    reporting = {"reportingController": "example.com/test", "reportingInstance": "one"}
    regarding = {"kind": "Pod", "namespace": EVENTS, "name": "web"}
    for index in range(5):
        path = of(EVENTS, "events", "events.k8s.io/v1")
        made = create(path, "Event", f"other-{index}", regarding=regarding, **fields, **reporting)
        assert [perform(cluster, made).status for cluster in clusters] == [201, 201]


def test_a_frozen_namespace(clusters: tuple[Cluster, Cluster]) -> None:
    """No comparison: an API server with AlwaysDeny refuses its own first objects and never gets ready."""
    natively, ported = clusters
    path = of(FROZEN, "configmaps")
    made = create(path, "ConfigMap", "settings", data={})
    assert perform(natively, made).status == 201
    answer = perform(ported, made)
    text = 'configmaps "settings" is forbidden: admission control is denying all modifications'
    assert (answer.status, _texts(answer)) == (403, {text})
    assert ported.api.get(f"{path}/settings").status == 404
    # Objects without a namespace match any namespaceSelector.
    assert perform(ported, namespace("next-to-frozen")).status == 201


def test_a_request_in_a_missing_namespace_is_refused_without_a_policy(
    clusters: tuple[Cluster, Cluster],
) -> None:
    """Why NamespaceAutoProvision and NamespaceExists are not policies."""
    for cluster in clusters:
        answer = perform(cluster, make_pod("missing", "web"))
        assert (answer.status, answer.message) == (404, 'namespaces "missing" not found')
