"""Every command of the documentation that needs a cluster runs in one, in the order of its page.

The gateway is installed as ``install.md`` says, with what other pages suppose. ``tests/docs/runs.py`` says
which blocks run here; a new page needs no entry.
"""

from __future__ import annotations

import json
import re
import shutil
from typing import TYPE_CHECKING, Any, Final

import pytest
import yaml

from tests.docs.pages import DOCS
from tests.docs.reader import Reader, blocks, pages_with_commands
from tests.docs.runs import CLUSTER, chosen, left_out
from tests.docs.scenes import CHECKOUT, POD, SCENES, configuration, history, put
from tests.e2e.binaries import chart_tool
from tests.e2e.helm_release import LATEST, OFTEN, WITHIN_S, Release, try_image, webhook
from tests.e2e.kubelet.network import missing
from tests.e2e.report_definitions import define_reports
from tests.e2e.situations import SITUATIONS
from tests.kit import ROOT
from tests.waiting import eventually

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable
    from pathlib import Path

    from tests.docs.reader import Block
    from tests.e2e.cluster import Cluster

pytestmark = pytest.mark.skipif(bool(missing()), reason=f"no private network: {missing()}")

NAME: Final = "admission-gateway"
INSTALL: Final = blocks(DOCS / "install.md")
OPERATE: Final = blocks(DOCS / "operate.md")
ELSEWHERE: Final = {
    *(INSTALL[0].page, OPERATE[0].page, "docs/kubectl-plugin.md"),
    *(f"docs/runbooks/{name}.md" for pages in SITUATIONS.values() for name in pages),
}
"""Pages with a test of their own below, and in test_kubectl_plugin.py."""
IN_THE_RELEASE: Final = [
    page for page in pages_with_commands() if chosen(page, CLUSTER) and page[0].page not in ELSEWHERE
]
WEBHOOK: Final = "require-team-label.example.com"
STAGES: Final = [
    {"mode": "Audit", "for": "24h", "approval": "Required", "gates": {"maxNewlyDenied": 0}},
    {"mode": "Warn", "for": "24h"},
    {"mode": "Enforce"},
]
SUPPOSED: Final[dict[str, Any]] = {
    "startupProbe": OFTEN,
    "readinessProbe": OFTEN,
    "audit": {"enabled": True, "continuous": True, "interval": "10s", "kinds": ["pods", "deployments.apps"]},
    "watchdog": {"enabled": True},
    "workers": {"samples": {"readinessProbe": OFTEN}},
    "configuration": {"rolloutPlans": {"installation": f"{NAME}/{NAME}"}},
    "validatingWebhookConfigurations": {
        "planned": [webhook(WEBHOOK, "deny-latest-tag", rollout={"plan": {"stages": STAGES}})]
    },
}
"""Values with what single pages are about."""
CHANGES: Final = re.compile(
    r"delete mutating|rollout undo|scale deployment|helm .*rollback|watchdog|patch secret|rollout rollback"
)
"""Commands after which the release is put back."""
NOT_COMPARED: Final = ("docs/commands.md", "docs/troubleshooting.md")
"""Pages whose outputs are of what is wrong in another cluster: the commands run all the same."""


def begin(cluster: Cluster, release: Release, folder: Path) -> Reader:
    """Return somebody in a clone of the repository, with helm, kubectl and the cluster's credentials."""
    (folder / "bin").mkdir()
    (folder / "bin" / "helm").symlink_to(chart_tool("helm"))
    environment = release.environment()
    environment["PATH"] = f"{folder / 'bin'}:{environment['PATH']}"
    kubeconfig = yaml.safe_load(cluster.kubeconfig().read_text())
    current = kubeconfig["contexts"][0]
    kubeconfig["contexts"].append({**current, "name": "staging"})
    put(folder, **{".kube__config": kubeconfig})
    (folder / ".kube" / "config.yaml").rename(folder / ".kube" / "config")
    for name in CHECKOUT:
        (folder / name).symlink_to(ROOT / name)
    environment |= {"KUBECONFIG": str(folder / ".kube" / "config"), "EDITOR": "true", "HOME": str(folder)}
    reader = Reader(folder, environment, leaves_out=left_out)
    reader.within_s = WITHIN_S
    return reader


def succeed(release: Release, *arguments: str, **values: Any) -> None:
    done = release.helm(*arguments, **values)
    assert done.returncode == 0, (done, release.describe())


def put_back(release: Release) -> None:
    """Bring the release to its values, whatever was done to its objects."""
    succeed(
        release,
        *("upgrade", NAME, str(ROOT / "deploy/chart"), "--reset-then-reuse-values", "--wait"),
        "--force-conflicts",
        values=SUPPOSED,
    )


@pytest.fixture(scope="module")
def release(whole: Cluster, folder: Path) -> Release:
    """The release of ``install.md``, with what other pages are about."""
    release = Release(whole, folder, NAME, NAME)
    own = folder / "installing"
    own.mkdir()
    with_helm = [block for block in INSTALL if block.heading == "With Helm"]
    with begin(whole, release, own) as reader:
        reader.follow(with_helm, chosen(with_helm, CLUSTER))
    put_back(release)
    for namespace in ("calico-system", "cert-manager", "monitoring", "policies", "shop"):
        assert whole.api.create("/api/v1/namespaces", {"metadata": {"name": namespace}}).status == 201
    define_reports(whole)
    return release


def calico(release: Release, _: Reader) -> None:
    """The DaemonSet of a network plug-in, which has no node."""
    labels = {"k8s-app": "calico-node"}
    template = {
        "metadata": {"labels": labels},
        "spec": {"nodeSelector": {"no": "node"}, "containers": [{"name": "main", "image": "tools:1"}]},
    }
    document = {
        "metadata": {"name": "calico-node"},
        "spec": {"selector": {"matchLabels": labels}, "template": template},
    }
    path = "/apis/apps/v1/namespaces/calico-system/daemonsets"
    assert release.api.create(path, document).status in (201, 409)


def paused(release: Release, reader: Reader) -> None:
    """A plan that somebody has paused in its second stage."""
    progressing(release, reader)
    plan(release, "skip")
    plan(release, "pause")


def progressing(release: Release, _: Reader) -> None:
    """A plan that goes on, whatever was done to it."""
    release.shell(f"admission-gateway rollout resume {WEBHOOK} --reason test")
    status = f"admission-gateway rollout status {WEBHOOK}"
    eventually(lambda: "gate unknown: " in release.shell(status).stdout, "a gateway has looked at the plan")


def plan(release: Release, action: str) -> None:
    done = release.shell(f"admission-gateway rollout {action} {WEBHOOK} --reason test")
    assert done.returncode == 0, done


def people(_: Release, reader: Reader) -> None:
    """A file with credentials."""
    (reader.folder / "people").write_text("ann:secret\n")


def serving(release: Release, reader: Reader) -> None:
    """A gateway on this machine, a chart, and a decision of the release with the uid of the page."""
    chart(release, reader)
    progressing(release, reader)
    (reader.folder / "state/plans").mkdir()
    reader.start("admission-gateway serve --config config", "127.0.0.1:8443", "127.0.0.1:9090")
    reader.replaced.pop(":8443")
    assert try_deployment(release, LATEST).returncode == 1
    found = release.shell("admission-gateway decisions --cluster --json").stdout
    uid = json.loads(found)["decisions"][0]["uid"]
    reader.replaced["705ab4f5-6393-11e8-b7cc-42010a800002"] = uid


def try_deployment(release: Release, image: str) -> subprocess.CompletedProcess[str]:
    """Create a Deployment with *image*, without storing it."""
    return release.shell(f"kubectl create deployment try --image={image} --dry-run=server")


def chart(_: Release, reader: Reader) -> None:
    """A chart, and an overlay of kustomize."""
    content: dict[str, Any] = {"apiVersion": "v2", "name": "shop", "version": "1.0.0"}
    put(reader.folder, charts__shop__Chart=content, shop__Chart=content)
    for folder in ("charts/shop", "shop"):
        (reader.folder / folder / "templates").mkdir()
        shutil.copy(reader.folder / "pod.yaml", reader.folder / folder / "templates")
    put(reader.folder, overlays__prod__kustomization={"resources": ["pod.yaml"]}, overlays__prod__pod=POD)


def request(_: Release, reader: Reader) -> None:
    """A recorded request."""
    shutil.copy(reader.folder / "REVIEW.json", reader.folder / "request.json")


SUPPOSES: Final[dict[str, Callable[[Release, Reader], None]]] = {
    "docs/commands.md": serving,
    "docs/lock-outs.md": calico,
    "docs/pages.md": people,
    "docs/preview.md": chart,
    "docs/run-rollout-plans.md": progressing,
    "docs/runbooks/match-condition-errors.md": request,
    "docs/runbooks/rollout-plan-stopped.md": paused,
    "docs/runbooks/rollout-plan-without-data.md": progressing,
}


@pytest.mark.parametrize("page", IN_THE_RELEASE, ids=lambda page: page[0].page)
def test_the_commands_of_a_page_work_in_a_release(
    release: Release, tmp_path: Path, page: list[Block]
) -> None:
    name, wanted = page[0].page, chosen(page, CLUSTER)
    with begin(release.cluster, release, tmp_path) as reader:
        configuration(reader)
        if name == "docs/replay.md":
            SCENES[name](reader)
        if supposed := SUPPOSES.get(name):
            supposed(release, reader)
        placeholders(release, reader)
        if name in NOT_COMPARED:
            page = wanted
        reader.follow(page, wanted)
    if any(CHANGES.search(block.content) for block in wanted):
        put_back(release)


def placeholders(release: Release, reader: Reader) -> None:
    """Say what stands for names that the pages leave open."""
    history = json.loads(release.helm("history", NAME, "--output", "json").stdout)
    reader.replaced |= {
        "POD": release.gateways()[0]["metadata"]["name"],
        "WEBHOOK": WEBHOOK,
        "REVISION": str(next(one["revision"] for one in reversed(history) if one["status"] == "deployed")),
        "HOST:PORT": "127.0.0.1:9090",
        "/var/log/kubernetes/audit.log": str(release.cluster.audit_log),
    }


@pytest.mark.parametrize("situation", SITUATIONS, ids=lambda one: one.__name__)
def test_runbooks_show_what_is_seen_in_their_situation(
    release: Release, tmp_path: Path, situation: Callable[[Release, Reader], None]
) -> None:
    with begin(release.cluster, release, tmp_path) as reader:
        configuration(reader)
        placeholders(release, reader)
        revision = reader.replaced["REVISION"]
        try:
            situation(release, reader)
            for name in SITUATIONS[situation]:
                page = blocks(DOCS / "runbooks" / f"{name}.md")
                reader.follow(page, chosen(page, CLUSTER))
        finally:
            succeed(release, "rollback", NAME, revision, "--wait", "--force-conflicts")


def test_the_manifests_are_installed_and_operated_as_the_pages_say(
    whole: Cluster, release: Release, tmp_path: Path
) -> None:
    uninstall, at_last = (block for block in INSTALL if block.heading.startswith("Uninstall"))
    uninstalling = tmp_path.with_name("uninstalling")
    uninstalling.mkdir()
    with begin(whole, release, uninstalling) as reader:
        reader.follow([uninstall], [uninstall])
    assert whole.kubectl("delete", "namespace", NAME).returncode == 0
    eventually(lambda: whole.api.get(f"/api/v1/namespaces/{NAME}").status == 404)
    with begin(whole, release, tmp_path) as reader:
        configuration(reader)
        rest = [
            block for block in INSTALL if block.heading != "With Helm" and block not in (uninstall, at_last)
        ]
        reader.follow(rest, chosen(rest, CLUSTER))
        eventually(lambda: "deny-latest-tag.samples.example" in try_image(whole, LATEST).message)
        kubeconfig = reader.environment["KUBECONFIG"]
        history(reader)
        reader.start("admission-gateway serve --config config --state state")
        reader.environment["KUBECONFIG"] = kubeconfig
        rollback = f"{NAME} rollback --state /var/lib/{NAME} --list --json"
        listed = release.shell(f"kubectl -n {NAME} exec deployment/{NAME} -- {rollback}")
        reader.replaced["DIGEST"] = json.loads(listed.stdout)["configurations"][0]["digest"]
        reader.follow(OPERATE, chosen(OPERATE, CLUSTER))
        reader.follow([at_last], [at_last])
