"""kubectl's output about denials, failures and warnings of policies behind the gateway."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.e2e.cluster import ALICE
from tests.e2e.compare import Case, namespaces
from tests.e2e.objects import config_map, deployment, pod
from tests.e2e.setups import REGISTRATIONS, BehindGateway, Hook, rule

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator

    from tests.e2e.cluster import Cluster

TEAM: Final = {"code": 403, "message": "every workload names its team"}
CONFIG_MAPS: Final = (rule("configmaps"),)


def deny(name: str, script: dict[str, Any], **labels: str) -> Hook:
    """Return a webhook that refuses ConfigMaps with these labels."""
    return Hook("validate", name, script, CONFIG_MAPS, fields={"objectSelector": {"matchLabels": labels}})


POLICIES: Final = Case(
    "kubectl",
    (
        Hook(
            "mutate",
            "label",
            {"label": "added", "warnings": ["the label was missing", "and is there now"]},
            (rule("configmaps", "CREATE", "UPDATE"),),
        ),
        deny("team", {"deny": TEAM}, denied="once"),
        deny("bare", {"deny": {"code": 403}}, denied="bare"),
        deny(
            "a-team",
            {"deny": TEAM, "warnings": ["the label was missing", "teams are asked for"]},
            denied="often",
        ),
        deny("b-image", {"deny": {"code": 409, "message": "image tags\nare pinned"}}, denied="often"),
        deny("c-gone", {"status": "UNAVAILABLE", "details": "out of order"}, denied="often"),
        deny("gone", {"status": "UNAVAILABLE", "details": "out of order"}, denied="failed"),
        deny(
            "causes",
            {
                "deny": {
                    "code": 422,
                    "reason": "Invalid",
                    "message": "kubectl leaves this out where there are causes",
                    "causes": [
                        {"message": "has no team", "field": "metadata.labels"},
                        {"message": "is empty", "field": "data"},
                    ],
                }
            },
            denied="invalid",
        ),
        deny(
            "d-invalid",
            {
                "deny": {
                    "code": 422,
                    "reason": "Invalid",
                    "causes": [{"message": "is empty", "field": "data"}],
                }
            },
            denied="mixed",
        ),
        deny(
            "f-named",
            {
                "deny": {
                    "code": 422,
                    "reason": "Invalid",
                    "message": "kubectl leaves this out where there is a name",
                    "kind": "ConfigMap",
                    "name": "x",
                }
            },
            denied="named",
        ),
        deny("g-words", {"deny": {"code": 403, "message": "no"}}, denied="named"),
        deny("e-words", {"deny": {"code": 403, "message": "no"}}, denied="mixed"),
        Hook(
            "mutate",
            "early",
            {"deny": {"code": 429, "reason": "TooManyRequests", "message": "later"}},
            CONFIG_MAPS,
            fields={"objectSelector": {"matchLabels": {"denied": "early"}}},
        ),
        Hook(
            "validate",
            "exec",
            {"deny": {"code": 403, "message": "no shells"}},
            (rule("pods/exec", "CONNECT"),),
        ),
        Hook(
            "validate",
            "scale",
            {"deny": {"code": 403, "message": "at most 3"}},
            (rule("deployments/scale", group="apps"),),
        ),
        Hook(
            "validate",
            "stay",
            {"deny": {"code": 403, "message": "pods stay"}, "warnings": ["it is needed"]},
            (rule("pods", "DELETE"),),
        ),
    ),
    (),
)


class Kubectl:
    """kubectl as Alice runs it in a namespace where the policies are in force."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self.cluster, self.namespace = cluster, namespace

    def __call__(self, *arguments: str, document: Any = None) -> subprocess.CompletedProcess[str]:
        stdin = None if document is None else json.dumps(document)
        return self.cluster.kubectl("-n", self.namespace, *arguments, user=ALICE, stdin=stdin)

    def fails(self, *arguments: str, document: Any = None) -> str:
        """Return its standard error after a failure, with the path of the gateway's entry for its name."""
        done = self(*arguments, document=document)
        assert done.returncode == 1, done
        for entry, short in entries(self.cluster).items():
            done.stderr = done.stderr.replace(
                f'admission webhook "{entry}" denied the request', f"{short} denied"
            )
        return done.stderr


def entries(cluster: Cluster) -> dict[str, str]:
    """Return the names of the registered entries, and their paths."""
    found = {}
    for kind in ("mutating", "validating"):
        for item in cluster.api.get(f"{REGISTRATIONS}/{kind}webhookconfigurations").document["items"]:
            found.update({hook["name"]: hook["clientConfig"]["service"]["path"] for hook in item["webhooks"]})
    return found


@pytest.fixture(scope="module")
def kubectl(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubectl]:
    gateway = {"kubernetes": {"kubeconfig": str(cluster.kubeconfig())}}
    named = namespaces(cluster, [POLICIES])
    folder = tmp_path_factory.mktemp("kubectl")
    with BehindGateway(cluster, folder, list(POLICIES.confined()), gateway=gateway):
        yield Kubectl(cluster, named["kubectl"])


WARNINGS: Final = "Warning: the label was missing\nWarning: and is there now\n"


@pytest.mark.parametrize("command", ["create", "apply"])
def test_kubectl_shows_code_policy_and_text_of_a_denial(kubectl: Kubectl, command: str) -> None:
    shown = kubectl.fails(command, "-f", "-", document=config_map("x", {"denied": "once"}))
    assert shown == (
        f'{WARNINGS}Error from server (Forbidden): error when creating "STDIN": '
        "/validate.fail denied: team.kubectl.test: every workload names its team\n"
    )


def test_kubectl_shows_every_denial_and_failure_in_order(kubectl: Kubectl) -> None:
    shown = kubectl.fails("create", "-f", "-", document=config_map("x", {"denied": "often"}))
    assert shown == (
        f"{WARNINGS}Warning: teams are asked for\n"
        'Error from server (Forbidden): error when creating "STDIN": '
        "/validate.fail denied: a-team.kubectl.test: every workload names its team\n"
        "b-image.kubectl.test: image tags\nare pinned\n"
        'failed calling webhook "c-gone.kubectl.test": UNAVAILABLE: out of order\n'
    )


def test_kubectl_shows_a_denial_without_explanation(kubectl: Kubectl) -> None:
    shown = kubectl.fails("create", "-f", "-", document=config_map("x", {"denied": "bare"}))
    assert shown == (
        f'{WARNINGS}Error from server (Forbidden): error when creating "STDIN": '
        "/validate.fail denied: bare.kubectl.test: denied without explanation\n"
    )


def test_kubectl_shows_which_policy_failed_and_why(kubectl: Kubectl) -> None:
    shown = kubectl.fails("create", "-f", "-", document=config_map("x", {"denied": "failed"}))
    assert shown == (
        f'{WARNINGS}Error from server (InternalError): error when creating "STDIN": /validate.fail denied: '
        'failed calling webhook "gone.kubectl.test": UNAVAILABLE: out of order\n'
    )


def test_kubectl_shows_the_causes_of_an_invalid_object_with_their_policy(kubectl: Kubectl) -> None:
    shown = kubectl.fails("create", "-f", "-", document=config_map("x", {"denied": "invalid"}))
    assert shown == (
        f"{WARNINGS}The request is invalid: \n"
        "* metadata.labels: causes.kubectl.test: has no team\n"
        "* data: causes.kubectl.test: is empty\n"
    )


def test_kubectl_shows_a_denial_without_causes_beside_one_that_has_them(kubectl: Kubectl) -> None:
    shown = kubectl.fails("create", "-f", "-", document=config_map("x", {"denied": "mixed"}))
    assert shown == (
        f"{WARNINGS}The request is invalid: \n"
        "* data: d-invalid.kubectl.test: is empty\n"
        "* : e-words.kubectl.test: no\n"
    )


def test_kubectl_shows_the_kind_and_name_that_a_denial_gives_and_every_denial(kubectl: Kubectl) -> None:
    shown = kubectl.fails("create", "-f", "-", document=config_map("x", {"denied": "named"}))
    assert shown == (
        f'{WARNINGS}The ConfigMap "x" is invalid: \n'
        "* : f-named.kubectl.test: kubectl leaves this out where there is a name\n"
        "* : g-words.kubectl.test: no\n"
    )


def test_kubectl_shows_a_denial_of_a_mutating_policy(kubectl: Kubectl) -> None:
    shown = kubectl.fails("create", "-f", "-", document=config_map("x", {"denied": "early"}))
    assert shown == (
        f'{WARNINGS}Error from server (TooManyRequests): error when creating "STDIN": '
        "/mutate denied: early.kubectl.test: later\n"
    )


def test_kubectl_shows_denials_of_scale_exec_delete_and_changes(kubectl: Kubectl) -> None:
    for document in (pod(), deployment()):
        assert kubectl("create", "-f", "-", document=document).returncode == 0
    assert kubectl.fails("scale", "deployment/shop", "--replicas=5") == (
        "Error from server (Forbidden): /validate.fail denied: scale.kubectl.test: at most 3\n"
    )
    # The beginning depends on the transport that this kubectl tries first.
    assert kubectl.fails("exec", "web", "--", "ls") in (
        "error: unable to upgrade connection: /validate.fail denied: exec.kubectl.test: no shells\n",
        "Error from server (Forbidden): /validate.fail denied: exec.kubectl.test: no shells\n",
    )
    assert kubectl.fails("delete", "pod", "web") == (
        "Warning: it is needed\n"
        "Error from server (Forbidden): /validate.fail denied: stay.kubectl.test: pods stay\n"
    )
    assert kubectl("create", "-f", "-", document=config_map("labelled")).returncode == 0
    assert kubectl.fails("label", "configmap", "labelled", "denied=once") == (
        f"{WARNINGS}Error from server (Forbidden): "
        "/validate.fail denied: team.kubectl.test: every workload names its team\n"
    )


@pytest.mark.parametrize("flags", [[], ["--server-side"]])
def test_kubectl_apply_shows_warnings_and_the_mutated_object(kubectl: Kubectl, flags: list[str]) -> None:
    name = "applied" + "".join(flags)
    done = kubectl("apply", *flags, "-f", "-", "-o", "json", document=config_map(name, key="value"))
    assert (done.returncode, done.stderr) == (0, WARNINGS)
    assert json.loads(done.stdout)["metadata"]["labels"] == {"added": "set"}
    again = kubectl("apply", *flags, "-f", "-", document=config_map(name, key="value"))
    assert again.returncode == 0
    assert json.loads(kubectl("get", "configmap", name, "-o", "json").stdout)["metadata"]["labels"] == {
        "added": "set"
    }


def test_kubectl_diff_shows_the_mutated_object(kubectl: Kubectl) -> None:
    done = kubectl("diff", "-f", "-", document=config_map("not-there", key="value"))
    assert (done.returncode, done.stderr) == (1, WARNINGS)
    assert "+    added: set\n" in done.stdout
    shown = kubectl("apply", "--dry-run=server", "-f", "-", "-o", "json", document=config_map("not-there"))
    assert json.loads(shown.stdout)["metadata"]["labels"] == {"added": "set"}
    assert kubectl("get", "configmap", "not-there").returncode == 1
