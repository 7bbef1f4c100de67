"""The page about platforms: Helm renders the values that it shows, and they have their effect."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import pytest
import yaml

from tests.docs.pages import DOCS
from tests.e2e.charts import only, pods, text

if TYPE_CHECKING:
    from pathlib import Path

    from tests.e2e.charts import Object
    from tests.e2e.client import Api

NAME: Final = "admission-gateway"
PAGE: Final = (DOCS / "platforms.md").read_text()
BLOCK: Final = re.compile(r"^```yaml\n# ([\w-]+)\.yaml\n(.*?)^```$", re.MULTILINE | re.DOTALL)
VALUES: Final[dict[str, str]] = dict(BLOCK.findall(PAGE))
"""Values for the chart by the name of their file."""
QUOTA: Final = VALUES.pop("critical-pods")


@pytest.fixture(params=VALUES)
def platform(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, str]:
    """Return the name of some values, and helm's argument for them."""
    file = tmp_path / "values.yaml"
    file.write_text(VALUES[request.param])
    return request.param, f"--values={file}"


def gateway(argument: str) -> dict[str, Any]:
    """Return the spec of the gateway's Pods."""
    found: dict[str, Any] = only("Deployment", NAME, argument)["spec"]["template"]["spec"]
    return found


def registering(argument: str) -> list[str]:
    """Return the arguments of the program that registers the gateway."""
    found: Object = only("Job", f"{NAME}-register", argument)
    (container,) = found["spec"]["template"]["spec"]["containers"]
    arguments: list[str] = container["args"]
    return arguments


def test_the_values_have_the_effect_that_the_page_says(platform: tuple[str, str]) -> None:
    name, argument = platform
    spec = gateway(argument)
    (container,) = spec["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert (spec.get("hostNetwork", False), ports["https"], len(list(pods(argument))) > 0) == {
        "eks-overlay": (True, 8443, True),
        "gke": (False, 10250, True),
    }.get(name, (False, 8443, True))
    arguments = registering(argument)
    assert ("--annotation=admissions.enforcer/disabled=true" in arguments) == (name == "aks")
    for namespace in re.findall(r"excludeNamespaces:\s+\[(.*)\]", VALUES[name]):
        assert {f"--exclude-namespace={each}" for each in namespace.split(", ")} <= set(arguments)


def test_on_openshift_no_pod_asks_for_a_user_and_the_gateway_reaches_its_dns(tmp_path: Path) -> None:
    file = tmp_path / "values.yaml"
    worker = "workers: {samples: {image: {repository: sample-policies, tag: '1'}}}\n"
    file.write_text(VALUES["openshift"] + worker)
    argument = f"--values={file}"
    found = list(pods(argument))
    assert len(found) > 2
    for pod in found:
        asked = {"runAsUser", "runAsGroup", "fsGroup"} & pod["spec"]["securityContext"].keys()
        assert asked == set(), pod["metadata"]["name"]
    assert "openshift-dns" in str(only("NetworkPolicy", NAME, argument)["spec"]["egress"])


def test_gke_s_quota_covers_the_priority_of_all_pods_of_the_chart_and_is_taken(api: Api) -> None:
    quota = yaml.safe_load(QUOTA)
    (scope,) = quota["spec"]["scopeSelector"]["matchExpressions"]
    assert {pod["spec"]["priorityClassName"] for pod in pods()} == set(scope["values"])
    quota["metadata"]["namespace"] = "default"
    made = api.create("/api/v1/namespaces/default/resourcequotas?dryRun=All", quota)
    assert made.status == 201, made


def test_the_firewall_opens_the_port_of_the_chart() -> None:
    ports = set(re.findall(r"--rules tcp:(\d+)", PAGE))
    assert ports == set(re.findall(r"containerPort: (8443)", text())) == {"8443"}
