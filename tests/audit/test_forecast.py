"""``audit --kubernetes``: who writes objects in versions that Kubernetes removes."""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING, Any

from tests.audit.kit import deployment

if TYPE_CHECKING:
    import pytest

    from tests.audit.kit import World

_POLICY = {"resources": ["pods"]}


def _written(by: str, version: str) -> dict[str, Any]:
    return {"managedFields": [{"manager": by, "apiVersion": version, "operation": "Update"}]}


def _furnish(world: World) -> None:
    world.policy("named", "true")
    applied = json.dumps({"apiVersion": "apps/v1beta1", "kind": "Deployment"})
    annotations = {"kubectl.kubernetes.io/last-applied-configuration": applied}
    for number in range(2):
        found = deployment(app=f"web-{number}")
        found.setdefault("metadata", {}).update(_written("helm", "apps/v1beta2"), annotations=annotations)
        world.add("shop", "deployments", f"web-{number}", **found)
    newer = deployment(app="new")
    newer.setdefault("metadata", {}).update(_written("helm", "apps/v1"))
    world.add("shop", "deployments", "new", **newer)


def test_writers_in_removed_versions_are_counted(world: World) -> None:
    _furnish(world)
    world.server.texts["/metrics"] = [b""]
    found = world.audit("--kubernetes", "1.37")["forecast"]
    common = {"kind": "Deployment", "objects": 2, "example": "shop/web-0"}
    assert found == {
        "kubernetes": "1.37",
        "findings": [],
        "writers": [
            {"name": "a file of kubectl apply", "apiVersion": "apps/v1beta1", **common},
            {"name": "helm", "apiVersion": "apps/v1beta2", **common},
        ],
    }
    assert "forecast" not in world.audit()


METRIC = "apiserver_requested_deprecated_apis"
_BETA = 'subresource="",version="v1beta1"'
METRICS = f"""\
# HELP apiserver_request_total Requests
apiserver_request_total{{resource="pods"}} 7
# HELP {METRIC} [STABLE] Deprecated
# TYPE {METRIC} gauge
{METRIC}{{group="policy",removed_release="1.25",resource="podsecuritypolicies",{_BETA}}} 1
{METRIC}{{group="resource.k8s.io",removed_release="",resource="deviceclasses",{_BETA}}} 1
{METRIC}{{group="",removed_release="",resource="endpoints",subresource="",version="v1"}} 1
{METRIC}{{group="a.example",removed_release="1.40",resource="b\x1b",subresource="",version="v1"}} 1
{METRIC}{{group="a.example",removed_release="1.25",resource="c",subresource="",version="v1"}} 0
{METRIC}{{hostile
"""


def test_requests_for_deprecated_versions_are_told(world: World) -> None:
    world.policy("named", "true")
    # What comes after the metric is not read.
    world.server.texts["/metrics"] = [METRICS.encode(), b"# HELP apiserver_z Z\n", b"x" * 1000]
    found = world.audit("--kubernetes", "1.38")["forecast"]["findings"]
    told = [(one["level"], one["where"], one["message"]) for one in found]
    common = "clients make them, and"
    assert [each for each in told if each[1].startswith("requests")] == [
        (
            "warning",
            'requests for "podsecuritypolicies" of "policy/v1beta1"',
            f"{common} 1.25 removes it",
        ),
        (
            "warning",
            'requests for "deviceclasses" of "resource.k8s.io/v1beta1"',
            f"{common} 1.38 removes it; use resource.k8s.io/v1",
        ),
        ("note", 'requests for "b\\u001b" of "a.example/v1"', f"{common} 1.40 removes it"),
        (
            "note",
            'requests for "endpoints" of "v1"',
            f"{common} it is deprecated; no version removes it yet",
        ),
    ]
    assert "requests for" in world.run("--kubernetes", "1.38")


def test_metrics_that_cannot_be_read_are_a_note(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.policy("named", "true")
    world.server.forbidden.add("/metrics")
    (note,) = world.audit("--kubernetes", "1.37")["forecast"]["findings"]
    assert note["level"] == "note"
    assert note["message"].startswith("which deprecated versions clients request is not known: ")
    assert '"/metrics" is forbidden' in note["message"]
    world.server.forbidden.clear()
    monkeypatch.setattr("gateway.tools.audit.live_use.MAX_BYTES", 5 << 20)
    world.server.texts["/metrics"] = itertools.repeat(b"a" * 65_535 + b"\n", 100)
    (note,) = world.audit("--kubernetes", "1.37")["forecast"]["findings"]
    assert note["message"].endswith("/metrics has more than 5 MiB")


def test_the_text_says_what_changes(world: World) -> None:
    _furnish(world)
    world.server.texts["/metrics"] = [b""]
    lines = world.run("--kubernetes", "1.38").splitlines()
    at = lines.index("for Kubernetes 1.38:")
    assert lines[at + 1].startswith("  note: Kubernetes 1.38: its fields are not known")
    assert lines[at + 3] == "        2  written by helm as Deployment of apps/v1beta2, such as shop/web-0"
