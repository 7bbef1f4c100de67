"""``kubectl admission`` by the real kubectl, for an installation of the chart as its page supposes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.docs.pages import DOCS
from tests.docs.reader import Reader, blocks
from tests.docs.runs import CLUSTER, chosen, left_out
from tests.e2e.helm_release import Release, values, webhook
from tests.e2e.kubelet.network import missing
from tests.e2e.setups import rule

if TYPE_CHECKING:
    from pathlib import Path

    from tests.e2e.cluster import Cluster

pytestmark = pytest.mark.skipif(bool(missing()), reason=f"no private network: {missing()}")
NAMESPACE = "admission-policies"
"""Not the default one: the plug-in has to find the gateways."""
NO_LATEST = webhook(
    "deny-latest-tag.samples.example", "deny-latest-tag", rules=[rule("deployments", "CREATE", group="apps")]
)
CREATE = "kubectl create deployment web --image=nginx:latest -n shop"


@pytest.fixture(scope="module")
def release(whole: Cluster, folder: Path) -> Release:
    """The release of ``install.md`` in another namespace, and the namespace of the page."""
    release = Release(whole, folder, "admission-gateway", NAMESPACE)
    release.install(values("1", NO_LATEST))
    assert whole.api.create("/api/v1/namespaces", {"metadata": {"name": "shop"}}).status in (201, 409)
    return release


def test_the_commands_of_the_page_do_what_it_says(release: Release, tmp_path: Path) -> None:
    page = blocks(DOCS / "kubectl-plugin.md")
    with Reader(tmp_path, release.environment(), leaves_out=left_out) as reader:
        reader.replaced["-n admission-gateway"] = f"-n {NAMESPACE}"
        reader.follow(page, chosen(page, CLUSTER))


def test_a_denial_is_explained_by_its_uid_by_its_reference_and_by_its_object(release: Release) -> None:
    referring = {**values("1", NO_LATEST), "configuration": {"decisionReference": "Message"}}
    assert release.upgrade(referring).returncode == 0
    denied = release.shell(CREATE)
    found = re.search(
        r"^to see why the request was refused, run: .* ([0-9a-f-]{36}) .*$", denied.stderr, re.MULTILINE
    )
    assert found, denied
    by_object = release.shell("kubectl admission why deploy web -n shop")
    assert (by_object.returncode, by_object.stderr) == (0, "")
    assert f"  uid {found[1]}, by admin, validate, 403" in by_object.stdout.split("\n")
    for about in (found[1], f"'{found[0]}'"):
        assert release.shell(f"kubectl admission why {about}").stdout == by_object.stdout, about


def test_kubectl_completes_the_words_of_the_plug_in(release: Release) -> None:
    assert release.shell("kubectl __complete admission st").stdout == "status\n:4\n"


def test_a_stored_object_that_no_replica_remembers_is_reviewed_as_if_it_were_created(
    release: Release,
) -> None:
    allowed = release.shell("kubectl create configmap settings -n shop")
    assert allowed.returncode == 0
    done = release.shell("kubectl admission why cm/settings -n shop")
    assert done.returncode == 1
    assert "no replica remembers a decision about ConfigMap shop/settings:" in done.stderr
    assert done.stdout.startswith(
        "The configuration in force allows its creation (a dry run, at admission-gate"
    )


def test_a_missing_right_is_named_with_the_command_that_checks_it(release: Release, folder: Path) -> None:
    kubectl = release.cluster.kubectl
    steps = (
        ("serviceaccount", "reader"),
        ("role", "reader", "--verb=list", "--resource=pods"),
        ("rolebinding", "reader", "--role=reader", f"--serviceaccount={NAMESPACE}:reader"),
    )
    for step in steps:
        assert kubectl("--namespace", NAMESPACE, "create", *step).returncode == 0
    token = kubectl("--namespace", NAMESPACE, "create", "token", "reader").stdout.strip()
    kubeconfig = release.cluster.write_kubeconfig(folder / "reader.kubeconfig", token=token)
    done = release.shell(
        f"kubectl admission decisions --gateway-namespace {NAMESPACE} --kubeconfig {kubeconfig}"
    )
    assert done.returncode == 1
    check = re.search(r"to see whether you may: (kubectl auth can-i .*)", done.stdout)
    assert check, done
    assert release.shell(f"{check[1]} --kubeconfig {kubeconfig}").stdout == "no\n"
    assert release.shell(check[1]).stdout == "yes\n"
