"""Fields of Pods by which a version of Kubernetes has another way around a policy.

A policy that checks the images of ``spec.containers`` sees nothing of an image in ``spec.volumes``, which
came later. Only a field is told that no policy reads, while some policy reads one of its siblings.

Source: k8s.io/api core/v1 types.go; k8s.io/kubernetes
test/compatibility_lifecycle/reference/versioned_feature_list.yaml (since when a gate is on).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from gateway.base.text import shown
from gateway.config.kinds.gateway_configuration import NEWEST_VERSION
from gateway.pure.core.overlap import has, parts
from gateway.tools.forecast.fields import OLDEST
from gateway.tools.forecast.reads import ITEM, is_read, reads_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from gateway.config.merge.model import Config
    from gateway.pure.core.webhook import Webhook
    from gateway.tools.forecast.reads import Path

_ANY: Final = 0
"""In place of a version: all that are known have it."""
_MAX_NAMES: Final = 3
"""Policies that a message names."""


class PodField(NamedTuple):
    """A field, and what a policy reads that it may be meant for, too."""

    path: str
    since: int
    """The minor version since which API servers take it without being asked, or since which it is there."""
    siblings: tuple[str, ...]
    about: str


_CONTAINERS: Final = "spec.containers[]"
_SECURITY: Final = (f"{_CONTAINERS}.securityContext", "spec.securityContext")
_HOST: Final = ("spec.hostPID", "spec.hostIPC", "spec.hostNetwork")
_TOKENS: Final = (
    "spec.volumes[].projected.sources[].serviceAccountToken",
    "spec.automountServiceAccountToken",
)
_SCHEDULING: Final = ("spec.schedulerName", "spec.priorityClassName", "spec.nodeSelector", "spec.affinity")
_VARIABLES: Final = (f"{_CONTAINERS}.env", f"{_CONTAINERS}.envFrom")
_HOST_NAMES: Final = ("spec.hostname", "spec.subdomain", "spec.setHostnameAsFQDN")
FIELDS: Final = tuple(
    PodField(*each)
    for each in (
        ("spec.initContainers", _ANY, (_CONTAINERS,), "containers that may run as long as the Pod"),
        ("spec.ephemeralContainers", _ANY, (_CONTAINERS,), "containers that a running Pod gets"),
        ("spec.hostUsers", 33, (*_HOST, *_SECURITY), "whether users are those of the node"),
        (f"{_CONTAINERS}.securityContext.procMount", 33, _SECURITY, "which parts of /proc are hidden"),
        ("spec.resources", 34, (f"{_CONTAINERS}.resources",), "resources of the whole Pod"),
        ("spec.volumes[].image", 35, (f"{_CONTAINERS}.image",), "images that are mounted as volumes"),
        ("spec.hostnameOverride", 35, _HOST_NAMES, "the host name in the Pod"),
        (f"{_CONTAINERS}.restartPolicyRules", 35, ("spec.restartPolicy",), "when a container restarts"),
        (f"{_CONTAINERS}.env[].valueFrom.fileKeyRef", 35, _VARIABLES, "variables from files"),
        ("spec.workloadRef", 35, _SCHEDULING, "its Workload, if the gate GenericWorkload is on"),
        ("spec.schedulingGroup", 36, _SCHEDULING, "its PodGroup, if the gate GenericWorkload is on"),
        ("spec.volumes[].projected.sources[].podCertificate", 37, _TOKENS, "certificates of the Pod"),
    )
)
_SUB_RESOURCES: Final = {
    "ephemeralcontainers": ("spec.ephemeralContainers", _ANY, "ephemeral containers are added"),
    "resize": (f"{_CONTAINERS}.resources", 33, "the resources of a running Pod are changed"),
}
"""By what they change, and since when."""


class Unread(NamedTuple):
    """A field, or a subresource, of Pods that no policy reads or is called for."""

    webhook: Webhook
    """The first policy that reads a sibling."""
    message: str


def unread(config: Config, kubernetes: int) -> Iterator[Unread]:
    """Yield what Pods of Kubernetes 1.*kubernetes* have, and no policy of *config* reads.

    A field is told if the version that the configuration names does not have it; if that is not older, if
    the oldest known version does not have it. Lists of containers are always told.
    """
    now = config.gateway.kubernetes_minor
    if kubernetes < now:
        return
    before = now if now < kubernetes else OLDEST
    reads = {each: read for each in _about_pods(config) if (read := reads_of(each)) is not None}
    newest = min(kubernetes, int(NEWEST_VERSION.partition(".")[2]))
    for field in FIELDS:
        if field.since != _ANY and not before < field.since <= newest:
            continue
        path = parsed(field.path)
        if any(is_read(path, found) for found in reads.values()):
            continue
        readers = [(each, found) for each in field.siblings if (found := _readers(reads, parsed(each)))]
        for sibling, of_sibling in readers[:1]:
            version = field.since or kubernetes
            message = f"Pods of 1.{version} have {field.path}, {field.about}; no policy reads it"
            yield Unread(of_sibling[0], f"{message}, and {_named(of_sibling, sibling)}")
    for name, (changed, since, how) in _SUB_RESOURCES.items():
        if since == _ANY or before < since <= newest:
            path = parsed(changed)
            of_field = [each for each in _readers(reads, path) if not _has_sub_resource(each, name)]
            if of_field and not any(_has_sub_resource(each, name) for each in reads):
                message = f"by pods/{name}, {how}; no policy has a rule for it"
                yield Unread(of_field[0], f"{message}, and {_named(of_field, changed)}")


def undecidable(config: Config) -> list[Webhook]:
    """Return the webhooks for Pods of which nothing says what they read: those without expressions."""
    return [each for each in _about_pods(config) if reads_of(each) is None]


def parsed(text: str) -> Path:
    """Return the path *text*, such as ``spec.containers[].image``."""
    return tuple(text.replace("[]", f".{ITEM}").split("."))


def _about_pods(config: Config) -> Iterator[Webhook]:
    for webhook in config.webhooks:
        for rule in webhook.rules:
            if has(rule.api_groups, "") and any(parts(each)[0] in ("*", "pods") for each in rule.resources):
                yield webhook
                break


def _readers(reads: Mapping[Webhook, frozenset[Path]], path: Path) -> list[Webhook]:
    """Return those that read *path*, and not all of the object."""
    return [each for each, found in reads.items() if () not in found and is_read(path, found)]


def _has_sub_resource(webhook: Webhook, name: str) -> bool:
    return any(
        has(rule.api_groups, "")
        and any(each in (f"pods/{name}", f"*/{name}", "pods/*", "*/*") for each in rule.resources)
        for rule in webhook.rules
    )


def _named(readers: Sequence[Webhook], path: str) -> str:
    names = list(dict.fromkeys(shown(each.configuration) for each in readers))
    more = f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else ""
    verb = "reads" if len(names) == 1 else "read"
    return f"{', '.join(names[:_MAX_NAMES])}{more} {verb} {path}"
