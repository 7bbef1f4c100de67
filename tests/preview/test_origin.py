"""Fields of Pods are found in the template that they come from, whatever mutators insert."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import yaml
from hypothesis import given
from hypothesis import strategies as st

from gateway.config.yaml.field_paths import parse_field
from gateway.pure.workloads.defaults import with_defaults
from gateway.pure.workloads.expansion import created_by, direct
from gateway.tools.preview.findings import Origin
from gateway.tools.preview.manifests import Manifest, Text

if TYPE_CHECKING:
    from gateway.tools.preview.manifests import Place

KINDS = {
    "Deployment": "apps/v1",
    "ReplicaSet": "apps/v1",
    "StatefulSet": "apps/v1",
    "DaemonSet": "apps/v1",
    "Job": "batch/v1",
    "CronJob": "batch/v1",
    "Rollout": "a.example/v1",
}


def workload(kind: str, containers: list[str]) -> dict[str, Any]:
    template = {
        "metadata": {"labels": {"app": "a"}},
        "spec": {"containers": [{"name": name, "image": f"image-{name}"} for name in containers]},
    }
    spec: dict[str, Any] = {"template": template}
    if kind == "CronJob":
        spec = {"schedule": "* * * * *", "jobTemplate": {"spec": spec}}
    return {"apiVersion": KINDS[kind], "kind": kind, "metadata": {"name": "w"}, "spec": spec}


def pods(origin: Origin, found: dict[str, Any], inserted: list[int]) -> list[tuple[Origin, dict[str, Any]]]:
    """The Pods that come from *found*, of which each step has sidecars inserted."""
    if found["kind"] == "Pod":
        return [(origin, found)]
    made = []
    for one in direct(created_by(found, "n"), found):
        stored = copy.deepcopy(one.object)
        spec = stored["spec"] if stored["kind"] == "Pod" else stored["spec"]["template"]["spec"]
        for number, place in enumerate(inserted):
            spec["containers"].insert(place, {"name": f"sidecar-{stored['kind']}-{number}", "image": "s"})
        following = origin.created(found, str(one.object["kind"]), one.template)
        made += pods(following, stored, inserted)
    return made


def line(text: str, place: Place) -> str:
    return text.split("\n")[place.line - 1][place.column - 1 :]


@given(
    st.sampled_from(sorted(KINDS)),
    st.lists(st.sampled_from("abcd"), min_size=1, max_size=4, unique=True),
    st.lists(st.integers(0, 4), max_size=2),
    st.booleans(),
)
def test_a_field_of_a_pod_is_where_its_template_has_it(
    kind: str, containers: list[str], inserted: list[int], flow: bool
) -> None:
    written = workload(kind, containers)
    text = yaml.safe_dump(written, default_flow_style=flow, width=80)
    manifest = Manifest(Text("w.yaml", text, 0), 1, (), written)
    ((origin, pod),) = pods(Origin(manifest), with_defaults(written), inserted)
    for index, container in enumerate(pod["spec"]["containers"]):
        place = origin.place(pod, parse_field(f"spec.containers[{index}].image"))
        if container["name"].startswith("sidecar"):
            # Only a mutator made it.
            assert line(text, place).startswith("containers")
        else:
            assert line(text, place).startswith(f"image: image-{container['name']}")
        missing = origin.place(pod, parse_field(f"spec.containers[{index}].resources.limits"))
        assert missing.line <= place.line
    assert line(text, origin.place(pod, ("metadata", "labels", "app"))).startswith("app: a")
    assert line(text, origin.place(pod, ("metadata", "name"))).startswith("metadata")
    assert line(text, origin.place(pod, ("spec", "nodeName"))).startswith("spec")
    assert line(text, origin.place(pod, ("status",))).startswith("template")
