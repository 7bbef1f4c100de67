"""Defaults, created objects and plug-ins are those of Kubernetes' own code.

Skipped where that cannot be built.
"""

from __future__ import annotations

import re
from collections import Counter
from random import Random
from typing import TYPE_CHECKING, Any, Final

import pytest

from gateway.pure.openapi.documents import built_in_schemas
from gateway.pure.openapi.schemas import GroupVersionKind
from gateway.pure.workloads.defaults import with_defaults
from gateway.pure.workloads.expansion import created_by
from gateway.pure.workloads.known import KINDS, KnownObjects
from gateway.pure.workloads.plug_ins import admitted, refused
from tests.e2e.golang import CannotBuild
from tests.workloads import kubernetes_answers
from tests.workloads.drawing import draw

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gateway.pure.workloads.known import Refusal

pytestmark = [pytest.mark.process, pytest.mark.timeout(1200)]

_OBJECTS: Final = 20
"""Drawn of each kind."""
_NOT_STORED: Final = frozenset({"DeleteOptions", "Status", "APIGroup", "Scale", "Eviction"})
_PRESENT_TIME: Final = "timeAdded"
_WORKLOADS: Final = (
    GroupVersionKind("", "v1", "ReplicationController"),
    *(
        GroupVersionKind("apps", "v1", kind)
        for kind in ("DaemonSet", "Deployment", "ReplicaSet", "StatefulSet")
    ),
    *(GroupVersionKind("batch", "v1", kind) for kind in ("CronJob", "Job")),
)
_CHARACTERS: Final = re.compile("[bcdfghjklmnpqrstvwxz2456789]{10}")
_VOLUME: Final = re.compile("kube-api-access-[a-z0-9]{5}")


def _ask(version: str, questions: list[dict[str, Any]]) -> list[dict[str, Any]]:
    try:
        return kubernetes_answers.ask(version, questions)
    except CannotBuild as error:
        pytest.skip(str(error))


def _differences(ours: Any, theirs: Any, drawn: Any, path: str = "") -> Iterator[str]:
    """Yield where the objects differ; a field of *drawn* that an older version drops is no difference."""
    match ours, theirs:
        case dict(), dict():
            of_drawn = drawn if isinstance(drawn, dict) else {}
            for name in sorted(ours.keys() | theirs.keys()):
                if name not in ours:
                    if theirs[name] is not None and name != _PRESENT_TIME:
                        yield f"{path}.{name}: only Kubernetes has {theirs[name]!r}"
                elif name not in theirs:
                    if name not in of_drawn:
                        yield f"{path}.{name}: only the gateway has {ours[name]!r}"
                else:
                    yield from _differences(ours[name], theirs[name], of_drawn.get(name), f"{path}.{name}")
        case list(), list() if len(ours) == len(theirs):
            for index, (one, other) in enumerate(zip(ours, theirs, strict=True)):
                of_element = drawn[index] if isinstance(drawn, list) and index < len(drawn) else None
                yield from _differences(one, other, of_element, f"{path}[{index}]")
        case _ if ours != theirs or isinstance(ours, bool) != isinstance(theirs, bool):
            yield f"{path}: {ours!r} instead of {theirs!r}"


@pytest.mark.parametrize("version", ["1.37", "1.33"])
def test_defaults_are_the_api_servers(version: str) -> None:
    minor = int(version.rpartition(".")[2])
    drawn = []
    for kind in sorted(kind for kind in built_in_schemas().kinds if kind.kind not in _NOT_STORED):
        for index in range(_OBJECTS):
            found = draw(Random(f"{kind} {index}"), kind)
            if kind == GroupVersionKind("autoscaling", "v1", "HorizontalPodAutoscaler"):
                found.pop("status", None)  # becomes an annotation
            drawn.append(found)
    answers = _ask(version, [{"do": "default", "object": each} for each in drawn])
    compared = 0
    for found, answer in zip(drawn, answers, strict=True):
        if "error" in answer:
            assert "is registered for version" in answer["error"], (found, answer)
            continue
        if version == "1.33" and found["kind"] in ("CSINode", "DeviceTaintRule"):
            continue  # had no status yet
        compared += 1
        differ = list(_differences(with_defaults(found, minor), answer["objects"][0], found))
        assert not differ, f"{found['apiVersion']} {found['kind']}: {differ}\n{found}"
    assert compared > _OBJECTS * 60


def test_resources_of_pods_are_those_of_1_36() -> None:
    """By the code of 1.37, which still has that of 1.36 behind a feature gate."""
    kind = GroupVersionKind("", "v1", "Pod")
    drawn = []
    for index in range(300):
        source = Random(f"resources {index}")
        own = {name: _resources(source) for name in ("containers", "initContainers")}
        spec = {**own, "resources": _resources(source)[0]["resources"]}
        drawn.append({"apiVersion": "v1", "kind": kind.kind, "metadata": {"name": "shop"}, "spec": spec})
    gates = "PodLevelResourcesFixDefaulting=false"
    answers = _ask("1.37", [{"do": "default", "object": each, "gates": gates} for each in drawn])
    for found, answer in zip(drawn, answers, strict=True):
        differ = list(_differences(with_defaults(found, 36), answer["objects"][0], None))
        assert not differ, f"{differ}\n{found}"


def _resources(source: Random) -> list[dict[str, Any]]:
    """Return containers with some resources."""
    quantities = {
        "cpu": ("1", "100m", "0.5", "1k", "100u"),
        "memory": ("64Mi", "1.5Gi", "1e9", "1000"),
        "hugepages-2Mi": ("2Mi", "4Mi"),
        "example.com/gpu": ("1",),
    }
    made = []
    for index in range(source.randint(1, 3)):
        of: dict[str, dict[str, str]] = {}
        for part in ("limits", "requests"):
            names = [name for name in quantities if source.random() < 0.4]
            if names:
                of[part] = {name: source.choice(quantities[name]) for name in names}
        restarts = {"restartPolicy": "Always"} if source.random() < 0.3 else {}
        made.append({"name": f"c-{index}", "image": "shop:1", "resources": of, **restarts})
    return made


def _named(found: dict[str, Any], name: str) -> dict[str, Any]:
    """Return *found* as a stored object in the namespace ``shops``, without what only a cluster writes."""
    kept = {
        part: value for part, value in found.get("metadata", {}).items() if part in ("labels", "annotations")
    }
    spec = found.setdefault("spec", {})
    if found["kind"] != "CronJob":
        spec.setdefault("template", {})
    spec.pop("scheduling", None)
    if found["apiVersion"] == "apps/v1":
        spec.setdefault("selector", {"matchLabels": {"app": "a"}})
        spec["replicas"] = 3
    if found["kind"] == "CronJob":
        spec.pop("timeZone", None)
    if found["kind"] == "Deployment":
        spec.setdefault("strategy", {})["rollingUpdate"] = {"maxSurge": "50%"}
    if found["kind"] == "StatefulSet":
        for index, claim in enumerate(spec.get("volumeClaimTemplates", ())):
            claim.setdefault("metadata", {})["name"] = f"claim-{index}"
    return {**found, "metadata": {**kept, "name": name, "namespace": "shops", "uid": f"uid-{name}"}}


@pytest.mark.parametrize("kind", _WORKLOADS, ids=lambda kind: kind.kind)
def test_created_objects_are_the_controllers(kind: GroupVersionKind) -> None:
    drawn = [_named(draw(Random(f"{kind} {index}"), kind), f"shop-{index}") for index in range(60)]
    created = [created_by(each, "shops") for each in drawn]
    questions = [
        {"do": "expand", "object": each, "hash": _hash(made[0].object), "node": "node", "minutes": 29_000_000}
        for each, made in zip(drawn, created, strict=True)
    ]
    for found, made, answer in zip(drawn, created, _ask("1.37", questions), strict=True):
        assert "error" not in answer, (found, answer)
        theirs = answer["objects"]
        assert [one.object["kind"] for one in made] == [each["kind"] for each in theirs]
        for one, other in zip(made, theirs, strict=True):
            differ = list(_differences(_comparable(one.object), _comparable(other), _at(found, one.template)))
            assert not differ, f"{differ}\n{found}"


def _at(found: Any, path: tuple[str, ...]) -> Any:
    """Return the template at *path* in *found*. The API server drops fields of it that are off by default."""
    for name in path:
        found = found[int(name)] if isinstance(found, list) else found.get(name, {})
    return found


def _hash(found: dict[str, Any]) -> str:
    """Return the hash that the gateway made up for *found*, to be used by Kubernetes too."""
    labels = found["metadata"].get("labels", {})
    for name in ("pod-template-hash", "controller-revision-hash"):
        if name in labels and _CHARACTERS.fullmatch(labels[name][-10:]):
            return str(labels[name][-10:])
    return "b" * 10


def _comparable(found: dict[str, Any]) -> dict[str, Any]:
    """Return *found* without what a cluster makes up: uids, and the namespace that a request's URL gives."""
    metadata = dict(found["metadata"])
    metadata["ownerReferences"] = [
        {**each, "uid": "-"} for each in metadata.get("ownerReferences", ()) if each.get("controller")
    ]
    labels = {
        name: "-" if name.endswith(("controller-uid", "controller-revision-hash")) else value
        for name, value in metadata.get("labels", {}).items()
    }
    metadata.pop("namespace", None)
    spec = dict(found["spec"])
    if found["kind"] == "Pod" and "volumes" in spec:
        spec["volumes"] = sorted(spec["volumes"], key=lambda each: str(each.get("name")))
    return {**found, "metadata": {**metadata, "labels": labels}, "spec": spec}


@pytest.mark.parametrize("version", ["1.37", "1.33"])
def test_plug_ins_are_the_api_servers(version: str) -> None:
    minor = int(version.rpartition(".")[2])
    drawn = [_drawn_case(Random(f"plug-ins {index}"), minor) for index in range(600)]
    asked: list[dict[str, Any]] = [{"object": found, "others": others} for found, others in drawn]
    answers = _ask(version, [{"do": "admit", **one} for one in asked])
    seen: Counter[str] = Counter()
    for one, answer in zip(asked, answers, strict=True):
        known = KnownObjects("shops", whole=frozenset(KINDS))
        for other in one["others"]:
            assert known.add(other)
        ours, refusals = admitted(with_defaults(one["object"], minor), known)
        _check_refusals(refusals, answer, one)
        seen.update(refusal.plug_in for refusal in refusals)
        if refusals:
            continue
        [theirs] = answer["objects"]
        ours = with_defaults(ours, minor)
        differ = list(_differences(_with_volume(ours), _with_volume(theirs), one["object"]))
        assert not differ, f"{differ}\n{one}"
        seen[f"admitted {theirs['kind']}"] += 1
    objects = [answer.get("objects", [None])[0] for answer in answers]
    asked = [{**one, "object": made} for one, made in zip(asked, objects, strict=True) if made]
    spoiled = [_spoiled(Random(f"spoiled {index}"), one) for index, one in enumerate(asked)]
    answers = _ask(version, [{"do": "validate", **one} for one in spoiled])
    for one, answer in zip(spoiled, answers, strict=True):
        known = KnownObjects("shops", whole=frozenset(KINDS))
        for other in one["others"]:
            known.add(other)
        refusals = refused(with_defaults(one["object"], minor), known, minor)
        _check_refusals(refusals, answer, one)
        seen.update(f"later {refusal.plug_in}" for refusal in refusals)
    assert seen.keys() >= {
        *("ServiceAccount", "Priority", "RuntimeClass"),
        *("later ServiceAccount", "later LimitRanger", "later RuntimeClass"),
        *(f"admitted {kind}" for kind in ("Pod", "PersistentVolumeClaim", "Ingress")),
    }, seen


def _check_refusals(refusals: list[Refusal], answer: dict[str, Any], one: object) -> None:
    """Check that the API server's error has all messages of the first plug-in in *refusals*."""
    error = answer.get("error", "")
    assert bool(refusals) == bool(error), (refusals, error, one)
    for refusal in refusals:
        if refusal.plug_in == refusals[0].plug_in:
            assert refusal.message in error, (refusal, error)


def _drawn_case(source: Random, minor: int) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return an object of the namespace ``shops``, and what plug-ins read there."""
    metadata = {"name": "shop", "namespace": "shops"}
    others = [each for each in _drawn_others(source) if source.random() < 0.7]
    critical = {"metadata": {"name": "system-node-critical"}, "value": 2_000_001_000}
    others.append({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", **critical})
    kind = source.choice(("Pod", "Pod", "Pod", "PersistentVolumeClaim", "Ingress"))
    if kind == "Ingress":
        found = draw(source, GroupVersionKind("networking.k8s.io", "v1", kind))
        if source.random() < 0.6:
            found.get("spec", {}).pop("ingressClassName", None)
        return {**found, "metadata": metadata}, others
    found = draw(source, GroupVersionKind("", "v1", kind))
    spec = found.setdefault("spec", {})
    if kind == "PersistentVolumeClaim":
        spec["resources"] = _resources(source)[0]["resources"]
        if source.random() < 0.6:
            spec.pop("storageClassName", None)
        return {**found, "metadata": metadata}, others
    for name in _OF_PLUG_INS:
        spec.pop(name, None)
    if minor < 34:
        spec.pop("resources", None)
    for name in ("containers", "initContainers"):
        if source.random() < 0.8:
            spec[name] = [{**each, "env": _references(source)} for each in _resources(source)]
    for name, share, values in (
        ("serviceAccountName", 0.5, ("strict", "plain", "none")),
        ("priorityClassName", 0.4, ("gold", "other", "system-node-critical", "none")),
        ("priority", 0.1, (0, 7)),
        ("preemptionPolicy", 0.1, ("Never", "PreemptLowerPriority")),
        ("runtimeClassName", 0.4, ("kata", "light", "none")),
        ("overhead", 0.2, ({"cpu": "0.25"}, {"cpu": "1"})),
        ("nodeSelector", 0.3, ({"kata": "yes"}, {"kata": "no"}, {"a": "b"})),
        ("imagePullSecrets", 0.3, ([{"name": "pull"}], [{"name": "x"}])),
    ):
        if source.random() < share:
            spec[name] = source.choice(values)
    if source.random() < 0.5:
        spec["tolerations"] = [_toleration(source) for _ in range(source.randint(1, 4))]
    return {**found, "metadata": metadata}, others


_OF_PLUG_INS: Final = (
    *("priority", "preemptionPolicy", "imagePullSecrets", "serviceAccount", "serviceAccountName"),
    *("priorityClassName", "runtimeClassName", "overhead", "nodeSelector", "ephemeralContainers"),
)


def _references(source: Random) -> list[dict[str, Any]]:
    of = {"name": source.choice(("listed", "x")), "key": "k"}
    return [{"name": "V", "valueFrom": {"secretKeyRef": of}}] if source.random() < 0.2 else []


def _toleration(source: Random) -> dict[str, Any]:
    made: dict[str, Any] = {"operator": source.choice(("Exists", "Equal"))}
    for name, values in (
        ("key", ("a", "node.kubernetes.io/not-ready")),
        ("effect", ("NoExecute", "NoSchedule")),
        ("value", ("v",)),
        ("tolerationSeconds", (1, 300)),
    ):
        if source.random() < 0.6:
            made[name] = source.choice(values)
    return made


def _drawn_others(source: Random) -> list[dict[str, Any]]:
    def of(version: str, kind: str, name: str, **fields: Any) -> dict[str, Any]:
        metadata = {"name": name, **({"namespace": "shops"} if version == "v1" else {})}
        return {"apiVersion": version, "kind": kind, "metadata": metadata | fields.pop("also", {}), **fields}

    node, scheduling = "node.k8s.io/v1", "scheduling.k8s.io/v1"
    enforced = {"kubernetes.io/enforce-mountable-secrets": source.choice(("true", "1", "false", "yes"))}
    listed = {"imagePullSecrets": [{"name": "pull"}], "secrets": [{"name": "listed"}]}
    tolerations = [_toleration(source) for _ in range(source.randint(0, 2))]
    kata = {
        "overhead": {"podFixed": {"cpu": "250m"}},
        "scheduling": {"nodeSelector": {"kata": "yes"}, "tolerations": tolerations},
    }
    names = [f"{which}class.kubernetes.io/is-default-class" for which in ("storage", "ingress")]
    marked = {"annotations": dict.fromkeys(names, "true")}
    late = {"creationTimestamp": "2026-01-02T03:04:05Z"}
    limits = []
    for kind in ("Container", "Pod", "PersistentVolumeClaim"):
        bounds = {
            name: _resources(source)[0]["resources"].get("limits", {})
            for name in ("min", "max", "maxLimitRequestRatio", "default", "defaultRequest")
            if source.random() < 0.4
        }
        limits.append({"type": kind, **bounds})
    return [
        of("v1", "ServiceAccount", "strict", also={"annotations": enforced}, **listed),
        of("v1", "ServiceAccount", "plain", **({"automountServiceAccountToken": False} | listed)),
        of("v1", "LimitRange", "limits", spec={"limits": limits}),
        of(scheduling, "PriorityClass", "gold", value=7, preemptionPolicy="Never"),
        of(scheduling, "PriorityClass", "other", value=5, globalDefault=True),
        of(
            node, "RuntimeClass", "kata", handler="k", overhead={"podFixed": {"cpu": "250m"}}, scheduling=kata
        ),
        of(node, "RuntimeClass", "light", handler="l"),
        of("storage.k8s.io/v1", "StorageClass", "old", provisioner="p", also=marked),
        of("storage.k8s.io/v1", "StorageClass", "new", provisioner="p", also=marked | late),
        of("storage.k8s.io/v1", "StorageClass", "none", provisioner="p"),
        of("networking.k8s.io/v1", "IngressClass", "b", also=marked),
        of("networking.k8s.io/v1", "IngressClass", "a", also=marked),
    ]


def _spoiled(source: Random, one: dict[str, Any]) -> dict[str, Any]:
    """Return *one* after a webhook that takes something away, or changes it."""
    found = one["object"]
    spec = dict(found.get("spec") or {})
    if found["kind"] == "Pod" and source.random() < 0.3:
        spec["overhead"] = {"cpu": "1"}
    if found["kind"] == "Pod" and source.random() < 0.3:
        spec["serviceAccountName"] = source.choice(("strict", "gone"))
    return {**one, "object": {**found, "spec": spec}}


def _with_volume(found: Any) -> Any:
    """Return *found* with one name for the volume of the token, whose last characters are random."""
    match found:
        case dict():
            return {name: _with_volume(each) for name, each in found.items()}
        case list():
            return [_with_volume(each) for each in found]
        case str():
            return _VOLUME.sub("kube-api-access", found)
    return found
