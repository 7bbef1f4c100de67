"""What kube-apiserver itself refuses of an object: a part of it, which needs nothing but the object.

Known are the versions, fields and types of Kubernetes' own kinds, names, labels, selectors of workloads, and
what a Pod's containers must have. Most rules between fields are not.

Source: k8s.io/apimachinery pkg/api/validation/objectmeta.go, pkg/api/validation/path/name.go;
k8s.io/kubernetes pkg/apis/core/validation/validation.go, pkg/apis/apps/validation/validation.go.
"""

from __future__ import annotations

from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Final

from gateway.base.text import did_you_mean, one_of, shown
from gateway.config.kinds.names import (
    check_annotations,
    check_labels,
    dns_1123_label,
    dns_1123_subdomain,
)
from gateway.config.yaml.fields import Problems, child
from gateway.pure.openapi.built_in_resources import RESOURCES
from gateway.pure.openapi.documents import built_in_schemas
from gateway.pure.openapi.schemas import GroupVersionKind, UnknownKindError
from gateway.pure.workloads.defaults import kind_of
from gateway.tools.forecast.fields import unknown_fields
from gateway.tools.forecast.kinds import lifecycles
from gateway.tools.preview.decoding import Problem, Reader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from gateway.engine.object_review import Json
    from gateway.pure.openapi.types import Schema
    from gateway.tools.preview.decoding import Rule

MAX_PROBLEMS: Final = 50
"""Of one object that are told."""
_META: Final = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
_POD_SPEC: Final = "io.k8s.api.core.v1.PodSpec"
_POD: Final = GroupVersionKind("", "v1", "Pod")
_PATH_SEGMENTS: Final = "rbac.authorization.k8s.io"
_SUBDOMAINS: Final = ("", "apps", "batch", "autoscaling", "networking.k8s.io", "policy", "storage.k8s.io")
"""Groups whose kinds, but for those below, have DNS names."""
_OTHER_NAMES: Final[Mapping[tuple[str, str], Callable[[str], str | None]]] = {
    ("", "Namespace"): dns_1123_label,
    # Since 1.36 it may begin with a digit.
    ("", "Service"): dns_1123_label,
    ("networking.k8s.io", "IPAddress"): lambda _: None,
}
_WITH_SELECTOR: Final = ("Deployment", "ReplicaSet", "StatefulSet", "DaemonSet")


def undeclared(found: Json, minor: int) -> list[Problem]:
    """Return the fields of *found* that 1.*minor* does not know, and refuses with strict validation."""
    return [Problem(path, f"Kubernetes {reason}") for path, reason in unknown_fields(found, minor)]


def invalid(written: Json, final: Json, minor: int, *, is_custom: bool = False) -> list[Problem]:
    """Return what is wrong with *final*, at most ``MAX_PROBLEMS``, for Kubernetes 1.*minor*.

    What cannot be decoded is looked up in *written*, from which defaults and webhooks have made *final*.
    *is_custom*: a CustomResourceDefinition is known for it.
    """
    kind = kind_of(written)
    if not is_custom and (message := _not_served(kind, minor)):
        return [Problem("apiVersion", f"Kubernetes 1.{minor} has no {message}")]
    rules = _Rules(kind)
    problems = list(islice(rules.of_all(final), MAX_PROBLEMS))
    if any(one.is_undecodable for one in problems) and (
        early := [*islice(rules.of_types(written), MAX_PROBLEMS)]
    ):
        problems = early + [one for one in problems if not one.is_undecodable]
    return problems[:MAX_PROBLEMS]


def _not_served(kind: GroupVersionKind, minor: int) -> str:
    """Return which kind it is, and what to use instead, if 1.*minor* does not have it; else nothing."""
    api_version = f"{kind.group}/{kind.version}".lstrip("/")
    known = lifecycles().get((api_version, kind.kind))
    name = f"{kind.kind} of {api_version}"
    if known is not None:
        return "" if known.is_served(minor) else f"{name}{known.instead(minor)}"
    if kind.group not in RESOURCES or kind in built_in_schemas().kinds:
        return ""
    served = [one for one in lifecycles().values() if one.is_served(minor)]
    others = {one.api_version for one in served if one.kind == kind.kind and "beta" not in one.version}
    if others:
        return f"{name}; use {one_of(sorted(others))}"
    return name + did_you_mean(kind.kind, (one.kind for one in served if one.api_version == api_version))


class _Rules:
    """The schema and the rules of a kind; those of metadata, if its schema is not known."""

    def __init__(self, kind: GroupVersionKind) -> None:
        self._kind = kind
        try:
            self._schemas, name = built_in_schemas().definition(kind)
            self._root: Schema = {"$ref": name}
        except UnknownKindError:
            self._schemas, _ = built_in_schemas().definition(_POD)
            self._root = {"properties": {"metadata": {"$ref": _META}}, "type": "object"}

    def of_types(self, found: Json) -> Iterator[Problem]:
        """Yield what cannot be decoded."""
        return Reader(self._schemas, {}).read(self._root, found, "")

    def of_all(self, found: Json) -> Iterator[Problem]:
        """Yield what cannot be decoded, or is not valid."""
        yield from _name(found, self._kind.group, self._kind.kind)
        # Of a StatefulSet, each Pod gets these volumes.
        claims = _mappings(_members(found, "spec"), "volumeClaimTemplates")
        names = _names(_members(one, "metadata") for one in claims)
        rules: dict[str, Rule] = {_META: _metadata, _POD_SPEC: partial(_pod_spec, more_volumes=names)}
        yield from Reader(self._schemas, rules).read(self._root, found, "")
        if self._kind.group == "apps" and self._kind.kind in _WITH_SELECTOR:
            yield from _selector(found)


def _name(found: Json, group: str, kind: str) -> Iterator[Problem]:
    name = _members(found, "metadata").get("name")
    if not isinstance(name, str) or not name:
        return
    if group == _PATH_SEGMENTS:
        if name in (".", "..") or "/" in name or "%" in name:
            yield Problem("metadata.name", 'found "." or "..", or a "/" or "%" in it')
        return
    check = _OTHER_NAMES.get((group, kind), dns_1123_subdomain if group in _SUBDOMAINS else None)
    message = check(name) if check is not None else None
    if message:
        yield Problem("metadata.name", message)


def _metadata(found: Json, path: str) -> Iterator[Problem]:
    problems = Problems("")
    for field, check in (("labels", check_labels), ("annotations", check_annotations)):
        texts = {key: value for key, value in _members(found, field).items() if isinstance(value, str)}
        check(texts, f"{path}.{field}", problems)
    yield from (Problem(where, message) for where, message in problems.found)


def _selector(found: Json) -> Iterator[Problem]:
    """Yield what is wrong with the selector of the workload *found*."""
    spec = _members(found, "spec")
    template, selector = (_members(spec, name) for name in ("template", "selector"))
    labels = _members(_members(template, "metadata"), "labels")
    wanted = _members(selector, "matchLabels")
    if not wanted and not selector.get("matchExpressions"):
        yield Problem("spec.selector", "found nothing, expected the labels of the template")
    elif any(labels.get(name) != value for name, value in wanted.items()):
        yield Problem("spec.template.metadata.labels", "found labels that the selector does not match")


def _pod_spec(found: Json, path: str, more_volumes: frozenset[str]) -> Iterator[Problem]:
    """Yield what is wrong with the containers of *found*, a Pod's spec. It will have *more_volumes*."""
    if not found.get("containers"):
        yield Problem(child(path, "containers"), "found nothing, expected at least one container")
    volumes = more_volumes | _names(_mappings(found, "volumes"))
    for field in ("initContainers", "containers"):
        for index, container in enumerate(_mappings(found, field)):
            here = f"{child(path, field)}[{index}]"
            name = container.get("name")
            if not name:
                yield Problem(f"{here}.name", "found nothing, expected the name of the container")
            elif isinstance(name, str) and (message := dns_1123_label(name)):
                yield Problem(f"{here}.name", message)
            if not container.get("image"):
                yield Problem(f"{here}.image", "found nothing, expected an image")
            for number, mount in enumerate(_mappings(container, "volumeMounts")):
                volume = mount.get("name")
                if not (isinstance(volume, str) and volume in volumes):
                    message = f"found {shown(volume)}, expected the name of a volume of the Pod"
                    yield Problem(f"{here}.volumeMounts[{number}].name", message)


def _names(found: Iterable[Json]) -> frozenset[str]:
    """Return the names in *found*, as far as they are texts."""
    return frozenset(name for one in found if isinstance(name := one.get("name"), str))


def _members(found: Json, name: str) -> Json:
    """Return the mapping *name* in *found*; an empty one if it is none."""
    member = found.get(name)
    return member if isinstance(member, dict) else {}


def _mappings(found: Json, name: str) -> list[Json]:
    """Return the list of mappings *name* in *found*; what is no mapping as an empty one."""
    member = found.get(name)
    return [one if isinstance(one, dict) else {} for one in member] if isinstance(member, list) else []
