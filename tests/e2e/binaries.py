"""Obtains the programs of a cluster: built with the Go toolchain, kept outside the repository.

Each folder with a ``go.mod`` pins one of them with its hashes. Its ``replace`` lines are what
k8s.io/kubernetes needs to be built as a dependency: its own go.mod points them at folders of its repository.

    python -m tests.e2e.binaries            # builds missing programs

Built once per version, pins and Go release; five to ten minutes each on two cores.
"""

from __future__ import annotations

import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.e2e.golang import ROOT, CannotBuild, go, kept

if TYPE_CHECKING:
    from collections.abc import Callable

MODULES: Final = ROOT / "tests" / "e2e"
VERSIONS: Final = ("1.37", "1.33")
"""The newest Kubernetes, and one four minors older."""
KWOK: Final = "sigs.k8s.io/kwok"
STAGES: Final = "stages.yaml"
_CHART_TOOLS: Final = {"helm": "helm.sh/helm/v4", "kubeconform": "github.com/yannh/kubeconform"}
_RELEASE_TOOLS: Final = {
    "cosign": "github.com/sigstore/cosign/v3",
    "crane": "github.com/google/go-containerregistry",
    "krew": "sigs.k8s.io/krew",
}


@dataclass(frozen=True)
class Binaries:
    """Paths of the programs of one cluster."""

    version: str
    """Release, such as ``v1.37.1``."""
    kube_apiserver: Path
    kube_controller_manager: Path
    kube_scheduler: Path
    kubectl: Path
    etcd: Path
    kwok: Path
    """Plays nodes: it answers for the kubelets of nodes that do not exist."""
    kwok_stages: Path
    """kwok's own rules for nodes that stay ready and for Pods that run as soon as they are bound."""


def obtain(minor: str) -> Binaries:
    """Return the binaries of Kubernetes *minor*, one of ``VERSIONS``, after building those that are missing.

    Raises:
        CannotBuild: there is no Go toolchain, or it could not build them.
    """
    kubernetes, etcd, kwok = MODULES / "kubernetes" / minor, MODULES / "etcd", MODULES / "kwok"
    version = pinned(kubernetes, "k8s.io/kubernetes")
    stamps = (
        f"-X k8s.io/component-base/version.gitVersion={version}",
        f"-X k8s.io/client-go/pkg/version.gitVersion={version}",
    )
    control_plane = _build(kubernetes, f"kubernetes-{version}", *stamps)
    storage = _build(etcd, f"etcd-{pinned(etcd, 'go.etcd.io/etcd/server/v3')}")
    nodes = _build(kwok, f"kwok-{pinned(kwok, KWOK)}", also=_write_stages)
    return Binaries(
        version,
        kube_apiserver=control_plane / "kube-apiserver",
        kube_controller_manager=control_plane / "kube-controller-manager",
        kube_scheduler=control_plane / "kube-scheduler",
        kubectl=control_plane / "kubectl",
        etcd=storage / "server",
        kwok=nodes / "kwok",
        kwok_stages=nodes / STAGES,
    )


def chart_tool(name: str) -> Path:
    """Return the executable ``helm`` or ``kubeconform``, after building it if it is missing.

    Raises:
        CannotBuild: there is no Go toolchain, or it failed.
    """
    module = MODULES / name
    version = pinned(module, _CHART_TOOLS[name])
    stamps = (f"-X helm.sh/helm/v4/internal/version.version={version}",) if name == "helm" else ()
    return _build(module, f"{name}-{version}", *stamps) / name


def monitoring_tool(name: str) -> Path:
    """Return the executable ``prometheus`` or ``promtool``, after building it if it is missing.

    They have no service discovery: targets are static here, and the clients of clouds are most of a build.

    Raises:
        CannotBuild: there is no Go toolchain, or it failed.
    """
    module = MODULES / "prometheus"
    version = pinned(module, "github.com/prometheus/prometheus")
    return _build(module, f"prometheus-{version}", flags=("-tags=remove_all_sd",)) / name


def release_tool(name: str) -> Path:
    """Return ``cosign``, ``crane``, ``registry`` or ``krew``, after building it if it is missing.

    cosign takes some ten minutes, for the clients of clouds.

    Raises:
        CannotBuild: there is no Go toolchain, or it failed.
    """
    module = "crane" if name == "registry" else name
    version = pinned(MODULES / module, _RELEASE_TOOLS[module])
    return _build(MODULES / module, f"{module}-{version}") / name


def _write_stages(programs: Path) -> None:
    """Write the stages of kwok's module, as its own set-up selects them, into one file in *programs*."""
    module = Path(go("list", "-m", "-f", "{{.Dir}}", KWOK, cwd=MODULES / "kwok"))
    files = [
        file
        for folder in ("node/fast", "node/heartbeat-with-lease", "pod/fast")
        for file in sorted(module.glob(f"kustomize/stage/{folder}/*-*.yaml"))
    ]
    (programs / STAGES).write_text("---\n".join(file.read_text() for file in files))


def _build(
    module: Path,
    name: str,
    *stamps: str,
    flags: tuple[str, ...] = (),
    also: Callable[[Path], None] | None = None,
) -> Path:
    """Build every program that the ``tool`` lines of the go.mod in *module* name; return their folder.

    *also* adds files to the folder.
    """
    flags = (*flags, f"-ldflags=-s -w {' '.join(stamps)}".rstrip())

    def make(programs: Path) -> None:
        go("build", *flags, "-o", f"{programs}{os.sep}", "tool", cwd=module)
        if also is not None:
            also(programs)

    return kept(name, [module / "go.mod", module / "go.sum"], flags, make)


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
    try:
        for minor in sys.argv[1:] or VERSIONS:
            print(f"Kubernetes {obtain(minor).version} is at hand")  # noqa: T201
        for tool in (*map(chart_tool, _CHART_TOOLS), monitoring_tool("prometheus")):
            print(f"{tool} is at hand")  # noqa: T201
    except CannotBuild as error:
        sys.exit(str(error))
