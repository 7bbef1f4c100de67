"""The view of a pod that checks read, and the phrases of their texts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    Violation = tuple[str, str]
    """The reason, which is short, and the detail, which names containers and values."""
    Check = Callable[["Pod"], Violation | None]

Json = dict[str, Any]
Container = tuple[str, Json, Json]
"""Name, securityContext (empty if absent), and the container itself."""

_NONE: Final[Json] = {}


class Pod:
    """A Pod or a pod template, read once for all checks."""

    __slots__ = ("annotations", "containers", "exempt", "security", "spec")

    def __init__(self, template: Json) -> None:
        """*template* has ``metadata`` and ``spec``."""
        self.annotations: Json = (template.get("metadata") or _NONE).get("annotations") or _NONE
        self.spec: Json = template.get("spec") or _NONE
        self.security: Json = self.spec.get("securityContext") or _NONE
        self.containers: list[Container] = [
            (container.get("name") or "", container.get("securityContext") or _NONE, container)
            for field in ("initContainers", "containers", "ephemeralContainers")
            for container in self.spec.get(field) or ()
        ]
        """Init containers, containers and ephemeral containers, the order of upstream's texts."""
        self.exempt: frozenset[str] = frozenset()
        """Names of containers that are left out."""

    def without(self, is_exempt: Callable[[Container], bool]) -> Pod:
        """Return the pod without the containers for which *is_exempt* is true."""
        other = object.__new__(Pod)
        other.annotations, other.spec, other.security = self.annotations, self.spec, self.security
        other.containers, exempt = [], set()
        for each in self.containers:
            if is_exempt(each):
                exempt.add(each[0])
            else:
                other.containers.append(each)
        other.exempt = frozenset(exempt)
        return other

    @property
    def is_in_user_namespace(self) -> bool:
        """Whether root of the pod is not root of the node."""
        return self.spec.get("hostUsers") is False

    @property
    def is_windows(self) -> bool:
        """Whether the pod runs on Windows only."""
        return (self.spec.get("os") or _NONE).get("name") == "windows"


def plural(singular: str, several: str, count: int) -> str:
    """Return the form for *count*."""
    return singular if count == 1 else several


def listed(texts: Iterable[str]) -> str:
    """Return *texts* in quotes, separated by commas."""
    return '"' + '", "'.join(texts) + '"'


def containers(names: Sequence[str]) -> str:
    """Return ``container "a"`` or ``containers "a", "b"``."""
    return f"{plural('container', 'containers', len(names))} {listed(names)}"


def setters(names: Sequence[str], *, pod: bool) -> str:
    """Return what sets a bad value: the pod, containers *names*, both; empty if nothing does."""
    return " and ".join([*(["pod"] if pod else ()), *([containers(names)] if names else ())])
