"""Obtains kube-apiserver, kubectl and etcd: built with the Go toolchain, kept outside the repository.

Each folder with a ``go.mod`` pins one of them with its hashes. Its ``replace`` lines are what
k8s.io/kubernetes needs to be built as a dependency: its own go.mod points them at folders of its repository.

    python -m tests.e2e.binaries            # builds what is missing, prints where it is

Built once per version, pins and Go release; about four minutes each on two cores.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).parent
VERSIONS: Final = ("1.37", "1.33")
"""The newest Kubernetes, and one four minors older."""
LATEST: Final = VERSIONS[0]
BUILD_WITHIN_S: Final = 3000.0
"""A bound for a stuck download, not an expectation."""


class CannotBuild(Exception):
    """A binary cannot be had; the text says what to do."""


@dataclass(frozen=True)
class Binaries:
    """Paths of the programs of one control plane."""

    version: str
    """Release, such as ``v1.37.1``."""
    kube_apiserver: Path
    kubectl: Path
    etcd: Path


def cache_folder() -> Path:
    """Return where binaries are kept: ``$ADMISSION_GATEWAY_E2E_CACHE``, else the user's cache folder."""
    chosen = os.environ.get("ADMISSION_GATEWAY_E2E_CACHE")
    if chosen:
        return Path(chosen)
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "admission-gateway" / "e2e"


def obtain(minor: str) -> Binaries:
    """Return the binaries of Kubernetes *minor*, one of ``VERSIONS``, after building those that are missing.

    Raises:
        CannotBuild: there is no Go toolchain, or it could not build them.
    """
    kubernetes, etcd = HERE / "kubernetes" / minor, HERE / "etcd"
    version = _pinned(kubernetes, "k8s.io/kubernetes")
    stamps = (
        f"-X k8s.io/component-base/version.gitVersion={version}",
        f"-X k8s.io/client-go/pkg/version.gitVersion={version}",
    )
    control_plane = build(kubernetes, f"kubernetes-{version}", stamps)
    return Binaries(
        version,
        kube_apiserver=control_plane / "kube-apiserver",
        kubectl=control_plane / "kubectl",
        etcd=build(etcd, f"etcd-{_pinned(etcd, 'go.etcd.io/etcd/server/v3')}") / "server",
    )


def build(module: Path, name: str, stamps: tuple[str, ...] = (), target: str = "tool") -> Path:
    """Build *target* of the Go module in the folder *module*, unless that was done; return their folder.

    By default that is every program that the module's ``tool`` lines name. *stamps* are flags of the linker.
    """
    go = _toolchain()
    release = _run(go, "env", "GOVERSION", cwd=module)
    folder = cache_folder() / f"{name}-{_digest(module, release, *stamps)}"
    if folder.is_dir():
        return folder
    print(f"building {name} with {release}; this takes some minutes once", file=sys.stderr, flush=True)  # noqa: T201
    cache_folder().mkdir(parents=True, exist_ok=True)
    # Renamed when whole: a build that is broken off, or runs twice at once, leaves nothing half.
    with tempfile.TemporaryDirectory(dir=cache_folder(), prefix=".building-") as unfinished:
        out = Path(unfinished) / "bin"
        out.mkdir()
        flags = f"-s -w {' '.join(stamps)}"
        _run(
            go, "build", "-mod=readonly", "-trimpath", "-ldflags", flags, "-o", f"{out}/", target, cwd=module
        )
        if not folder.is_dir():
            shutil.move(out, folder)
    return folder


def _toolchain() -> str:
    go = shutil.which("go")
    if go is None:
        raise CannotBuild("the end-to-end suite builds kube-apiserver and etcd: install Go (https://go.dev)")
    return go


def _run(*command: str, cwd: Path) -> str:
    environment = {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-buildvcs=false", "GOWORK": "off"}
    try:
        done = subprocess.run(
            command,
            cwd=cwd,
            env=environment,
            capture_output=True,
            text=True,
            timeout=BUILD_WITHIN_S,
            check=True,
        )
    except subprocess.CalledProcessError as error:
        raise CannotBuild(f"{' '.join(command)} in {cwd} failed:\n{error.stderr[-4000:]}") from None
    return done.stdout.strip()


def _pinned(module: Path, dependency: str) -> str:
    found = re.search(
        rf"^require {re.escape(dependency)} (\S+)$", (module / "go.mod").read_text(), re.MULTILINE
    )
    if found is None:
        raise CannotBuild(f"{module}/go.mod: expected a line 'require {dependency} VERSION'")
    return found[1]


def _digest(module: Path, *parts: str) -> str:
    digest = hashlib.sha256("\0".join(parts).encode())
    for file in sorted(file for file in module.rglob("*") if file.is_file()):
        digest.update(f"\0{file.relative_to(module)}\0".encode() + file.read_bytes())
    return digest.hexdigest()[:12]


if __name__ == "__main__":
    for minor in sys.argv[1:] or VERSIONS:
        try:
            print(obtain(minor))  # noqa: T201
        except CannotBuild as error:
            sys.exit(str(error))
