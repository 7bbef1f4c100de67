"""Exceptions as custom resources of a real API server: effect, end, scope, validation and rights."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pytest

from tests.e2e.objects import pod
from tests.e2e.test_custom_resources import (
    ROOT_PATH,
    account,
    apply,
    defined,
    hook,
    make_pod,
    served,
    validating,
)
from tests.kit import ROOT
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.cluster import Cluster
    from tests.e2e.setups import BehindGateway

__all__ = ["account", "defined", "served"]

HOOK = "custom.e2e.test"
DENIED = f"{HOOK}: by a custom resource"
ROLES = ROOT / "deploy" / "exception-roles.yaml"
BOTH = "policyexceptions.admission-gateway.io,clusterpolicyexceptions.admission-gateway.io"


def at(seconds: float) -> str:
    """Return the time in so many seconds, RFC 3339."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + seconds))


def exception(name: str = "e", namespace: str = "default", **spec: Any) -> dict[str, Any]:
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    spec = {"webhooks": [HOOK], "reason": "a test", "owner": "e2e", "expires": at(3600), **spec}
    return {
        "apiVersion": "admission-gateway.io/v1alpha1",
        "kind": "PolicyException" if namespace else "ClusterPolicyException",
        "metadata": metadata,
        "spec": {key: value for key, value in spec.items() if value is not None},
    }


def condition(cluster: Cluster, name: str = "e", namespace: str = "default") -> tuple[str, str]:
    """Return status and reason of the condition; empty if there is none yet."""
    place = f"namespaces/{namespace}/policyexceptions" if namespace else "clusterpolicyexceptions"
    document = cluster.api.get(f"{ROOT_PATH}/{place}/{name}").document
    found = document.get("status", {}).get("conditions", [{}])[0]
    return found.get("status", ""), found.get("reason", "")


@pytest.fixture
def denying(defined: Cluster, served: BehindGateway) -> Iterator[BehindGateway]:
    """A gateway whose webhook denies every Pod, in a cluster without exceptions."""
    apply(defined, validating(hook(deny={"message": "by a custom resource"})))
    eventually(lambda: make_pod(defined).message.endswith(DENIED))
    yield served
    defined.kubectl("delete", BOTH, "--all", "--all-namespaces")


def test_an_exception_acts_until_it_expires(defined: Cluster, denying: BehindGateway) -> None:
    def reloads() -> int:
        return denying.gateway.log.count("configuration reloaded")

    before = reloads()
    apply(defined, exception(match={"kinds": ["Pod"]}))
    eventually(lambda: make_pod(defined).status == 201)
    uses = 'admission_gateway_policy_exception_uses_total{exception="default/e"}'
    text = denying.gateway.admin("/metrics")[1]
    assert any(line.startswith(uses) and not line.endswith(" 0.0") for line in text.splitlines())
    # Not at once: it might be over before it is in force.
    apply(defined, exception(expires=at(5), match={"kinds": ["Pod"]}))
    eventually(lambda: reloads() == before + 2)
    eventually(lambda: make_pod(defined).message.endswith(DENIED))
    eventually(lambda: condition(defined) == ("False", "Expired"))
    assert reloads() == before + 2
    assert "Traceback" not in denying.gateway.log
    assert "forbidden" not in denying.gateway.log


def test_a_deleted_exception_ends(defined: Cluster, denying: BehindGateway) -> None:
    apply(defined, exception())
    eventually(lambda: make_pod(defined).status == 201)
    defined.kubectl("delete", "policyexceptions.admission-gateway.io", "e")
    eventually(lambda: make_pod(defined).message.endswith(DENIED))


def test_an_exception_covers_its_own_namespace_only(defined: Cluster, denying: BehindGateway) -> None:
    defined.api.create("/api/v1/namespaces", {"metadata": {"name": "elsewhere"}})
    apply(defined, exception("own", "elsewhere"))
    apply(defined, exception("other", "elsewhere", match={"namespaces": ["default"]}))
    eventually(lambda: condition(defined, "own", "elsewhere") == ("True", "Accepted"))
    eventually(lambda: condition(defined, "other", "elsewhere") == ("False", "Invalid"))
    denying.gateway.expect("the exception is in this namespace, and covers no other")
    assert make_pod(defined).message.endswith(DENIED)
    path = "/api/v1/namespaces/elsewhere/pods?dryRun=All"
    eventually(lambda: defined.api.create(path, pod("web-")).status == 201)
    # For the whole cluster there is another kind, with other rights.
    apply(defined, exception("all", "", match={"namespaces": ["def*"], "users": ["*"]}))
    eventually(lambda: make_pod(defined).status == 201)
    eventually(lambda: condition(defined, "all", "") == ("True", "Accepted"))


def test_exceptions_without_effect_say_why(defined: Cluster, denying: BehindGateway) -> None:
    apply(defined, exception("late", expires=at(-60)))
    apply(defined, exception("typo", webhooks=["custom.e2e.tset"]))
    eventually(lambda: condition(defined, "late") == ("False", "Expired"))
    eventually(lambda: condition(defined, "typo") == ("False", "UnknownWebhook"))
    assert make_pod(defined).message.endswith(DENIED)
    shown = defined.kubectl("get", "policyexceptions.admission-gateway.io").stdout
    assert shown.split()[:6] == ["NAME", "EXPIRES", "OWNER", "READY", "REASON", "AGE"]
    denying.gateway.expect('did you mean "custom.e2e.test"')
    # They are no errors of the configuration.
    assert denying.gateway.metric("admission_gateway_config_last_reload_successful") == 1


@pytest.mark.parametrize(
    ("namespace", "spec"),
    [
        ("default", {"expires": None}),
        ("default", {"expires": None, "permanent": False}),
        ("default", {"permanent": True}),
        ("default", {"expires": "tomorrow"}),
        ("default", {"expires": "2026-13-01T00:00:00Z"}),
        ("default", {"webhooks": []}),
        ("default", {"webhooks": ["*.e2e.test"]}),
        ("default", {"reason": "two\nlines"}),
        ("default", {"reason": "\x1b[31m"}),
        ("default", {"reason": " "}),
        ("default", {"reason": "x" * 1025}),
        ("default", {"owner": None}),
        ("default", {"match": {"users": []}}),
        ("default", {"match": {"users": ["a*b"]}}),
        ("default", {"match": {"kinds": ["apps/Deployment"]}}),
        ("default", {"match": {"subjects": ["x"]}}),
        ("", {}),
        ("", {"match": {}}),
    ],
)
def test_the_definition_refuses_what_the_gateway_would(
    defined: Cluster, namespace: str, spec: dict[str, Any]
) -> None:
    place = f"namespaces/{namespace}/policyexceptions" if namespace else "clusterpolicyexceptions"
    path = f"{ROOT_PATH}/{place}?dryRun=All&fieldValidation=Strict"
    assert defined.api.create(path, exception("e", namespace, **spec)).status in (400, 422)
    good = {"permanent": True, "expires": None, "match": {"users": ["bot"]}}
    assert defined.api.create(path, exception("e", namespace, **good)).status == 201


def test_writers_have_rights_of_their_own(defined: Cluster) -> None:
    applied = defined.kubectl("apply", f"--filename={ROLES}")
    assert applied.returncode == 0, applied.stderr
    for user, role in (
        ("editor", "admin"),
        ("lead", "admission-gateway-policy-exceptions"),
        ("reader", "view"),
    ):
        binding = {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": {"name": user, "namespace": "default"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": user}],
        }
        bound = defined.kubectl("apply", "--filename=-", stdin=json.dumps(binding))
        assert bound.returncode == 0, bound.stderr

    def may(user: str, verb: str, what: str, namespace: str = "default") -> bool:
        asked = (
            "auth",
            "can-i",
            verb,
            f"{what}.admission-gateway.io",
            f"--as={user}",
            f"--namespace={namespace}",
        )
        return defined.kubectl(*asked).stdout.strip() == "yes"

    eventually(lambda: may("lead", "create", "policyexceptions"))
    assert not may("lead", "create", "policyexceptions", "kube-public")
    assert not may("lead", "create", "clusterpolicyexceptions")
    assert not may("editor", "create", "policyexceptions")
    assert not may("reader", "create", "policyexceptions")
