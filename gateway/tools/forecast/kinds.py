"""When the versions of Kubernetes' own kinds are introduced, deprecated and removed.

``kinds.txt`` is made by ``python -m tests.forecast.history`` from zz_generated.prerelease-lifecycle.go of
k8s.io/api, k8s.io/apiextensions-apiserver and k8s.io/kube-aggregator. An API server of 1.N does not serve
what is removed in 1.N (k8s.io/apiserver pkg/server/deleted_kinds.go).
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from gateway.pure.openapi.built_in_resources import RESOURCES

if TYPE_CHECKING:
    from collections.abc import Mapping

KINDS_FILE: Final = Path(__file__).with_name("kinds.txt")


class Lifecycle(NamedTuple):
    """A kind in one version. Numbers are minor versions of Kubernetes 1; None: not, or not yet."""

    group: str
    version: str
    kind: str
    introduced: int | None
    deprecated: int | None
    removed: int | None
    replacement: str
    """GROUP/VERSION, with ``:KIND`` if the kind has another name. Empty if there is none, or not in 1.37."""

    @property
    def api_version(self) -> str:
        """As in an object."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def is_served(self, minor: int) -> bool:
        """Whether Kubernetes 1.*minor* serves it, perhaps only if asked to, as alpha and beta versions."""
        return (self.introduced or 0) <= minor and (self.removed is None or minor < self.removed)

    def instead(self, minor: int) -> str:
        """Return what to use instead in 1.*minor*, as a clause; empty if nothing is known."""
        if self.replacement:
            api_version, _, kind = self.replacement.partition(":")
            return f"; use {kind + ' of ' if kind else ''}{api_version}"
        others = [
            one.version
            for one in lifecycles().values()
            if (one.group, one.kind) == (self.group, self.kind) and one.is_served(minor) and one != self
        ]
        return f"; use {self.group}/{_best(others)}" if others else ""


@cache
def lifecycles() -> Mapping[tuple[str, str], Lifecycle]:
    """Return all kinds that are known by apiVersion and kind."""
    found = {}
    for line in KINDS_FILE.read_text(encoding="utf-8").splitlines():
        api_version, kind, introduced, deprecated, removed, replacement = line.split()
        group, _, version = api_version.rpartition("/")
        first, last, end = (None if each == "-" else int(each) for each in (introduced, deprecated, removed))
        instead = "" if replacement == "-" else replacement
        of_line = Lifecycle(group, version, kind, first, last, end, instead)
        found[api_version, kind] = of_line
    return found


@cache
def removed(group: str, kind: str, minor: int) -> frozenset[str]:
    """Return each apiVersion of *kind* of *group* that Kubernetes 1.*minor* does not serve any more."""
    return frozenset(
        one.api_version
        for one in lifecycles().values()
        if (one.group, one.kind) == (group, kind) and one.removed is not None and one.removed <= minor
    )


@cache
def resources(group: str, version: str) -> Mapping[str, Lifecycle]:
    """Return the kinds of *group* and *version* by the name of their resource."""
    names = {one.kind: name for name, one in RESOURCES.get(group, {}).items()}
    return {
        names.get(one.kind) or _plural(one.kind): one
        for one in lifecycles().values()
        if (one.group, one.version) == (group, version)
    }


def _plural(kind: str) -> str:
    """Return the resource of *kind*, one that Kubernetes has removed."""
    name = kind.lower()
    return f"{name[:-1]}ies" if name.endswith("y") else f"{name}es" if name.endswith("s") else f"{name}s"


def _best(versions: list[str]) -> str:
    """Return the most stable of *versions*."""
    return min(versions, key=lambda each: ("alpha" in each, "beta" in each, -len(each), each))
