"""A whole gateway with exceptions as custom resources."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from tests.kubernetes.server import refuse
from tests.kubernetes.test_custom_resources import (
    DENIED,
    RELOADED,
    answers,
    custom,
    folder,
    pool,
    target,
)

if TYPE_CHECKING:
    from pathlib import Path

    from tests.in_process import Stage
    from tests.kubernetes.server import ApiServer

__all__ = ["folder", "target"]

KIND = "ClusterPolicyException"


def at(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + seconds))


def exception(name: str = "e", **spec: Any) -> dict[str, Any]:
    spec = {"webhooks": ["h0.v.test"], "match": {"users": ["*"]}, "reason": "r", "owner": "o", **spec}
    return {"kind": KIND, "metadata": {"name": name}, "spec": spec}


def condition(server: ApiServer, name: str = "e") -> tuple[str, str]:
    found = server.ready(KIND, name)
    return found.get("status", ""), found.get("reason", "")


def test_an_exception_acts_until_it_expires_and_its_status_says_so(
    server: ApiServer, folder: Path, target: str, stage: Stage
) -> None:
    server.apply(pool("pods", target))
    server.apply(custom("validate", "v", "pods", DENIED))
    gateway = stage.start_gateway(folder)
    assert answers(gateway) == (False, "h0.v.test: refused")
    server.apply(exception(expires=at(5)))
    stage.eventually(lambda: answers(gateway) == (True, ""))
    assert gateway.metric("admission_gateway_policy_exception_uses_total", exception="e") >= 1
    stage.eventually(lambda: answers(gateway) == (False, "h0.v.test: refused"))
    stage.eventually(lambda: condition(server) == ("False", "Expired"))
    assert gateway.metric(RELOADED) == 1
    server.apply(exception(permanent=True))
    stage.eventually(lambda: answers(gateway) == (True, ""))
    stage.eventually(lambda: condition(server) == ("True", "Accepted"))
    # An invalid change ends the exception.
    server.apply(exception(permanent=True, reason=""))
    stage.eventually(lambda: answers(gateway) == (False, "h0.v.test: refused"))
    stage.eventually(lambda: condition(server) == ("False", "Invalid"))


def test_a_cluster_without_the_definitions_of_exceptions_has_none(
    server: ApiServer, folder: Path, target: str, stage: Stage
) -> None:
    server.apply(pool("pods", target))
    server.apply(custom("validate", "v", "pods", DENIED))
    server.faults["list policyexceptions"].extend([refuse(404, "not found")] * 3)
    server.faults["list clusterpolicyexceptions"].extend([refuse(403, "forbidden")] * 3)
    server.apply(exception(permanent=True))
    gateway = stage.start_gateway(folder)
    gateway.expect(
        r"policyexceptions\.admission-gateway\.io cannot be read yet: .*deploy/chart/files/crds\.yaml has it"
    )
    # They are read as soon as they can be.
    stage.eventually(lambda: answers(gateway) == (True, ""))
