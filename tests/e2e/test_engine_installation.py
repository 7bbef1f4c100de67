"""An installation of the chart with Gatekeeper's worker: from a constraint in the cluster to its denial.

Gatekeeper itself is not there, only its definitions. What an operator looks at is looked at: readiness,
metrics of gateway and worker, the decision log, the trace, and the rights of the worker's account.
"""

from __future__ import annotations

import json
import re
import subprocess
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.docs.pages import DOCS, section
from tests.e2e.helm_release import OFTEN, Release, ready_since
from tests.e2e.kubelet.network import NODE_IP, missing
from tests.e2e.objects import pod
from tests.e2e.test_engine_resources import definition, source_of
from tests.fakes.collector import Collector
from tests.kit import ROOT
from tests.languages.toolchains import named
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.e2e.client import Answer
    from tests.e2e.cluster import Cluster
    from tests.fakes.collector import Span

pytestmark = [
    pytest.mark.skipif(bool(missing()), reason=f"no private network: {missing()}"),
    pytest.mark.timeout(1800),  # seconds: the first run builds the worker
]

Json = dict[str, Any]
NAME: Final = "admission-gateway"
WORKER: Final = f"{NAME}-gatekeeper"
KIND: Final = "NeedsTeam"
POLICY: Final = f"{KIND}/team"
DENIED: Final = "[team] a Pod names its team"
TRACE: Final = "0af7651916cd43dd8448eb211c80319c"
COUNTER: Final = "admission_gateway_worker_policy_reviews_total"
PODS: Final = "/api/v1/namespaces/default/pods?dryRun=All"
TEMPLATE: Final = {
    "apiVersion": "templates.gatekeeper.sh/v1",
    "kind": "ConstraintTemplate",
    "metadata": {"name": KIND.lower()},
    "spec": {
        "crd": {"spec": {"names": {"kind": KIND}}},
        "targets": [
            {
                "target": "admission.k8s.gatekeeper.sh",
                "rego": f"package {KIND.lower()}\n"
                'violation[{"msg": "a Pod names its team"}] '
                "{ not input.review.object.metadata.labels.team }\n",
            }
        ],
    },
}
CONSTRAINT: Final[Json] = {
    "apiVersion": "constraints.gatekeeper.sh/v1beta1",
    "kind": KIND,
    "metadata": {"name": "team"},
    "spec": {"match": {"kinds": [{"apiGroups": [""], "kinds": ["Pod"]}], "namespaces": ["default"]}},
}


@pytest.fixture(scope="module")
def collector(whole: Cluster) -> Iterator[Collector]:
    """A collector of traces that Pods reach."""
    with Collector(host=NODE_IP) as found:
        yield found


@pytest.fixture(scope="module")
def release(whole: Cluster, folder: Path, collector: Collector) -> Release:
    """The chart with Gatekeeper's worker, and a constraint in force."""
    program = named("gatekeeper")
    subprocess.run(program.build, shell=True, cwd=ROOT, check=True)
    crds = source_of("gatekeeper") / "charts" / "gatekeeper" / "crds"
    apply(whole, f"--filename={crds}")
    apply(whole, "--filename=-", document=definition(KIND))
    found = Release(whole, folder, NAME, NAME)
    worker = {"image": {"tag": "1"}, "metricsPort": 9091, "readinessProbe": OFTEN}
    values = {
        "image": {"tag": "1"},
        "startupProbe": OFTEN,
        "engines": {"gatekeeper": {"enabled": True, "failurePolicy": "Fail", "worker": worker}},
        "configuration": {
            "logging": {"format": "json", "decisions": "Denied"},
            "tracing": {"endpoint": collector.endpoint},
        },
    }
    found.install(values)
    for document in (TEMPLATE, CONSTRAINT):
        apply(whole, "--filename=-", document=document)
    # Registers the kinds of the constraint, as the CronJob of registration.schedule does.
    done = found.upgrade(values)
    assert done.returncode == 0, f"{done.stderr}\n{found.describe()}"
    eventually(lambda: create(whole).status == 403, "the constraint is in force")
    return found


def apply(cluster: Cluster, *flags: str, document: Json | None = None) -> None:
    """Apply what *flags* or the *document* have, as soon as its kind is served."""
    text = json.dumps(document) if document else None
    command = ("apply", "--server-side", *flags)
    eventually(lambda: cluster.kubectl(*command, stdin=text).returncode == 0, f"applied {flags}")


def create(cluster: Cluster, **labels: str) -> Answer:
    """The answer to the create of a Pod with *labels*, in a dry run."""
    return cluster.api.create(PODS, pod("try", labels))


def samples(release: Release, one: Json, port: int, start: str) -> dict[str, float]:
    """Return the samples of a Pod that begin with *start*, by the text of their labels."""
    path = f"/api/v1/namespaces/{NAME}/pods/{one['metadata']['name']}:{port}/proxy/metrics"
    text = release.cluster.kubectl("get", "--raw", path).stdout
    found = re.findall(rf"^{start}(\{{.*\}})? (\S+)$", text, re.MULTILINE)
    return {labels: float(value) for labels, value in found}


def workers(release: Release) -> list[Json]:
    """Return the Pods of the worker that are ready."""
    found = release.objects("pods")
    is_worker = [one for one in found if one["metadata"]["labels"]["app.kubernetes.io/name"] == WORKER]
    return [one for one in is_worker if ready_since(one)]


def test_a_constraint_in_the_cluster_denies_a_pod_and_admits_another(release: Release) -> None:
    denied = create(release.cluster)
    assert (denied.status, denied.document["reason"]) == (403, "Forbidden")
    assert DENIED in denied.message
    assert create(release.cluster, team="shop").status == 201


def test_the_worker_is_ready_and_has_the_environment_of_the_chart(release: Release) -> None:
    found = workers(release)
    assert len(found) == 2
    for one in found:
        assert one["status"]["containerStatuses"][0]["restartCount"] == 0
        arguments = ("exec", "--namespace", NAME, one["metadata"]["name"], "--", "cat", "/proc/1/environ")
        environment = release.cluster.kubectl(*arguments).stdout.split("\0")
        assert "GOMEMLIMIT=853MiB" in environment


def test_metrics_of_gateway_and_worker_have_the_denial(release: Release) -> None:
    create(release.cluster)
    rejected: dict[str, float] = {}
    called: dict[str, float] = {}
    counted: dict[str, float] = {}
    for one in release.gateways():
        rejected |= samples(release, one, 9090, "admission_gateway_webhook_rejections_total")
        called |= samples(release, one, 9090, "admission_gateway_worker_calls_total")
    for one in workers(release):
        for labels, value in samples(release, one, 9091, COUNTER).items():
            counted[labels] = counted.get(labels, 0) + value
    assert any('name="team"' in labels and 'code="403"' in labels for labels in rejected), rejected
    assert any('pool="gatekeeper"' in labels and 'code="OK"' in labels for labels in called), called
    assert counted[f'{{outcome="denied",policy="{POLICY}"}}'] > 0


def test_the_decision_log_has_the_denial(release: Release) -> None:
    create(release.cluster)

    def lines() -> list[Json]:
        found = re.findall(r'(\{.*"log": ?"decision".*\})', release.logs())
        return [json.loads(line) for line in found if DENIED in line]

    eventually(lambda: bool(lines()), "a line of the decision log")
    line = lines()[-1]
    assert (line["operation"], line["kind"], line["namespace"]) == ("CREATE", "Pod", "default")
    (decisive,) = (each for each in line["webhooks"] if DENIED in json.dumps(each))
    assert (decisive["pool"], decisive["policy"], decisive["outcome"]) == ("gatekeeper", POLICY, "Denied")
    endpoints = {f"ipv4:{one['status']['podIP']}:50051" for one in workers(release)}
    assert decisive["endpoint"] in endpoints


def test_the_trace_leads_from_the_review_to_the_call_of_the_worker(
    release: Release, collector: Collector
) -> None:
    sampled = f"00-{TRACE}-b7ad6b7169203331-01"
    assert release.api.request("POST", PODS, pod("try"), traceparent=sampled).status == 403

    def calls() -> list[Span]:
        reviews = {span.span_id for span in collector.named("validate CREATE pods") if span.trace_id == TRACE}
        return [span for span in list(collector.spans) if span.parent_id in reviews]

    eventually(lambda: bool(calls()), "the span of a call")
    (call,) = calls()
    assert call.kind == "CLIENT"
    assert call.attributes["admission_gateway.webhook"] == "team"
    assert call.attributes["admission_gateway.policy"] == POLICY
    assert call.attributes["admission_gateway.outcome"] == "Denied"


def test_the_commands_of_the_page_show_the_worker_and_its_metrics(release: Release) -> None:
    page = (DOCS / "engines.md").read_text()
    check, forward, ask = re.findall(
        r"```sh\n(.*?)```", section(page, "Check the installation") + section(page, "Watch"), re.DOTALL
    )
    checked = release.shell(f"set -e\n{check}")
    assert checked.returncode == 0, checked
    assert 'deployment "admission-gateway-gatekeeper" successfully rolled out' in checked.stdout
    assert re.search(r"worker: serving \d+ policies on", checked.stdout)
    assert re.search(r"\bteam\b", checked.stdout.partition("serving")[2]), checked.stdout
    with subprocess.Popen(
        forward.split(), env=release.environment(), stdout=subprocess.PIPE, text=True
    ) as forwarding:
        assert forwarding.stdout is not None
        assert forwarding.stdout.readline().startswith("Forwarding from 127.0.0.1:9091")
        asked = release.shell(ask)
        forwarding.terminate()
    assert f'policy="{POLICY}"' in asked.stdout


def test_the_account_of_the_worker_reads_the_documents_and_no_secrets(release: Release) -> None:
    account = f"--as=system:serviceaccount:{NAME}:{WORKER}"
    for verb, resource, wanted in (
        ("list", f"{KIND.lower()}.constraints.gatekeeper.sh", "yes"),
        ("watch", "constrainttemplates.templates.gatekeeper.sh", "yes"),
        ("get", "secrets", "no"),
        ("list", "configmaps", "no"),
        ("update", f"{KIND.lower()}.constraints.gatekeeper.sh", "no"),
    ):
        done = release.cluster.kubectl("auth", "can-i", verb, resource, "--all-namespaces", account)
        assert done.stdout.strip() == wanted, (verb, resource, done)


def test_a_change_of_the_constraint_is_in_force_without_a_restart(release: Release) -> None:
    before = {one["metadata"]["uid"] for one in workers(release)}
    apply(
        release.cluster,
        *("--filename=-", "--force-conflicts"),
        document={**CONSTRAINT, "spec": {**CONSTRAINT["spec"], "enforcementAction": "warn"}},
    )
    eventually(lambda: create(release.cluster).status == 201, "the constraint warns")
    assert any(DENIED in text for text in create(release.cluster).warnings)
    apply(release.cluster, "--filename=-", "--force-conflicts", document=CONSTRAINT)
    eventually(lambda: create(release.cluster).status == 403, "the constraint denies")
    assert {one["metadata"]["uid"] for one in workers(release)} == before
