"""``allowed-host-paths``: pods use named folders of their node only."""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING, Any, NamedTuple

from admission_gateway_worker.pods import containers
from admission_gateway_worker.policies.definition import Definition, Replaced
from admission_gateway_worker.policies.workloads import PODS_AND_TEMPLATES, deny_new_in_pods
from admission_gateway_worker.review import Cause

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from admission_gateway_worker import Review
    from admission_gateway_worker.pods import PodSpec


class _Allowed(NamedTuple):
    prefix: str
    """Absolute and normalized."""
    is_read_only: bool


def _prepare(parameters: Mapping[str, Any]) -> tuple[_Allowed, ...]:
    return tuple(
        _Allowed(posixpath.normpath(each["prefix"]), each.get("readOnly", False))
        for each in parameters.get("paths") or ()
    )


def allowed_host_paths(review: Review) -> None:
    """Deny volumes of other folders of the node, and writable mounts of those for reading."""
    deny_new_in_pods(review, lambda pod: _problems(pod, review.parameters))


def _problems(pod: PodSpec, allowed: tuple[_Allowed, ...]) -> Iterator[Cause]:
    read_only = {}
    for index, volume in enumerate(pod.spec.get("volumes") or ()):
        found = (volume.get("hostPath") or {}).get("path")
        if found is None:
            continue
        name = volume.get("name", "")
        matching = [each for each in allowed if _is_below(found, each.prefix)]
        if not matching:
            message = (
                f'volume "{name}" uses the path {found} of the node, which is not allowed: use an allowed one'
            )
            yield Cause(message, f"{pod.path}.volumes[{index}].hostPath.path")
        elif all(each.is_read_only for each in matching):
            read_only[name] = found
    if read_only:
        yield from _writable_mounts(pod, read_only)


def _is_below(path: str, prefix: str) -> bool:
    if not path.startswith("/") or ".." in path.split("/"):
        return False
    # POSIX leaves two slashes at the start as they are.
    path = posixpath.normpath(f"/{path.lstrip('/')}")
    return path == prefix or path.startswith(f"{prefix.rstrip('/')}/")


def _writable_mounts(pod: PodSpec, host_paths: Mapping[str, str]) -> Iterator[Cause]:
    """Yield the writable mounts of volumes, whose *host_paths* are given by name."""
    for path, container in containers(pod):
        for index, mount in enumerate(container.get("volumeMounts") or ()):
            host_path = host_paths.get(mount.get("name", ""))
            if host_path is not None and not mount.get("readOnly"):
                message = (
                    f'container "{container.get("name", "")}" may write to {host_path} of the node: '
                    "set readOnly: true"
                )
                yield Cause(message, f"{path}.volumeMounts[{index}].readOnly")


DEFINITIONS = (
    Definition(
        name="allowed-host-paths",
        summary="Pods use the listed folders of their node only.",
        function=allowed_host_paths,
        rules=PODS_AND_TEMPLATES,
        users_see='spec.volumes[0].hostPath.path: volume "root" uses the path /etc of the node, '
        "which is not allowed: use an allowed one",
        topic="workload security",
        replaces=(
            Replaced("Kyverno", "limit-hostpath-vols", "folders by parameter instead of `/data`"),
            Replaced("Gatekeeper", "K8sPSPHostFilesystem"),
        ),
        parameters={
            "type": "object",
            "additionalProperties": False,
            "properties": {
                "paths": {
                    "type": "array",
                    "default": [],
                    "description": "Allowed folders: `prefix`, an absolute path that includes all below it, "
                    "and `readOnly`: whether containers may only read it. An empty list allows none.",
                    "items": {
                        "type": "object",
                        "additionalProperties": False,
                        "required": ["prefix"],
                        "properties": {
                            "prefix": {"type": "string", "pattern": "^/[^/]|^/$"},
                            "readOnly": {"type": "boolean"},
                        },
                    },
                }
            },
        },
        prepare=_prepare,
        notes="- Pods also reach folders of their node through PersistentVolumes with `hostPath` or `local`, "
        "which this policy does not see. Rights decide who creates those.\n",
        example={"paths": [{"prefix": "/var/log", "readOnly": True}]},
    ),
)
