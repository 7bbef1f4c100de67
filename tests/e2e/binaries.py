"""Obtains kube-apiserver, kubectl and etcd: built with the Go toolchain, kept outside the repository.

Each folder with a ``go.mod`` pins one of them with its hashes. Its ``replace`` lines are what
k8s.io/kubernetes needs to be built as a dependency: its own go.mod points them at folders of its repository.

    python -m tests.e2e.binaries            # builds missing programs

Built once per version, pins and Go release; four to eight minutes each on two cores.
"""

from __future__ import annotations

import os
import re
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tests.e2e.golang import ROOT, CannotBuild, go, kept

if TYPE_CHECKING:
    from pathlib import Path

MODULES: Final = ROOT / "tests" / "e2e"
VERSIONS: Final = ("1.37", "1.33")
"""The newest Kubernetes, and one four minors older."""


@dataclass(frozen=True)
class Binaries:
    """Paths of the programs of one control plane."""

    version: str
    """Release, such as ``v1.37.1``."""
    kube_apiserver: Path
    kubectl: Path
    etcd: Path


def obtain(minor: str) -> Binaries:
    """Return the binaries of Kubernetes *minor*, one of ``VERSIONS``, after building those that are missing.

    Raises:
        CannotBuild: there is no Go toolchain, or it could not build them.
    """
    kubernetes, etcd = MODULES / "kubernetes" / minor, MODULES / "etcd"
    version = pinned(kubernetes, "k8s.io/kubernetes")
    stamps = (
        f"-X k8s.io/component-base/version.gitVersion={version}",
        f"-X k8s.io/client-go/pkg/version.gitVersion={version}",
    )
    control_plane = _build(kubernetes, f"kubernetes-{version}", *stamps)
    storage = _build(etcd, f"etcd-{pinned(etcd, 'go.etcd.io/etcd/server/v3')}")
    return Binaries(
        version,
        kube_apiserver=control_plane / "kube-apiserver",
        kubectl=control_plane / "kubectl",
        etcd=storage / "server",
    )


def _build(module: Path, name: str, *stamps: str) -> Path:
    """Build every program that the ``tool`` lines of the go.mod in *module* name; return their folder."""
    flags = f"-ldflags=-s -w {' '.join(stamps)}".rstrip()

    def make(programs: Path) -> None:
        go("build", flags, "-o", f"{programs}{os.sep}", "tool", cwd=module)

    return kept(name, [module / "go.mod", module / "go.sum"], [flags], make)


def pinned(module: Path, dependency: str) -> str:
    """Return the version of *dependency* that the go.mod in the folder *module* requires.

    Raises:
        CannotBuild: it requires none.
    """
    pin = re.compile(rf"^require {re.escape(dependency)} (\S+)$", re.MULTILINE)
    found = pin.search((module / "go.mod").read_text())
    if found is None:
        raise CannotBuild(f"{module}/go.mod: expected a line 'require {dependency} VERSION'")
    return found[1]


if __name__ == "__main__":
    for minor in sys.argv[1:] or VERSIONS:
        try:
            print(f"Kubernetes {obtain(minor).version} is at hand")  # noqa: T201
        except CannotBuild as error:
            sys.exit(str(error))
