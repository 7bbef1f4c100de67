"""Builds ``kubectl admission`` for krew: an archive for each platform, and the manifest that names them.

    python -m deploy.krew build/release       # after deploy.release has built python/

An archive needs Python and nothing else: it has the gateway's two packages and the pinned dependencies that
the plug-in imports. Those in C are there for each Python of ``PYTHONS``. Wheels for macOS exist, too, but
nothing of this repository is tested there.

Source: krew.sigs.k8s.io, "Writing Krew plugin manifests"; pip documentation, "pip download".
"""

from __future__ import annotations

import argparse
import hashlib
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from deploy.artifacts import ROOT, pack
from deploy.pinned import OWN, select
from gateway import __version__

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

DEPENDENCIES: Final = (
    "google-re2",
    "httptools",
    "httpx2",
    "jsonpatch",
    "msgspec",
    "orjson",
    "prometheus-client",
    "pyyaml",
)
"""What the plug-in imports of the gateway's dependencies; what these need comes with them."""
PYTHONS: Final = ("3.11", "3.12", "3.13", "3.14")
PLATFORMS: Final = {"amd64": "x86_64", "arm64": "aarch64"}
"""Architectures of krew, and what wheels call them; all of Linux with the C library of GNU."""
GLIBC: Final = range(17, 29)
"""The minor versions of the oldest C library that a wheel may need."""
NAME: Final = "kubectl-admission"
FOLDER: Final = f"{NAME}-{__version__}"
"""The folder in the archive."""
PAGE: Final = "https://admission-gateway.io/kubectl-plugin/"
LAUNCHER: Final = ROOT / "deploy" / "kubectl" / NAME
COMPLETION: Final = "kubectl_complete-admission"
"""The launcher by this name: kubectl calls it to complete words."""


_MANIFEST: Final = f"""\
apiVersion: krew.googlecontainertools.github.com/v1alpha2
kind: Plugin
metadata:
  name: admission
spec:
  version: v{__version__}
  homepage: {PAGE}
  shortDescription: Explains what admission-gateway denied
  description: |
    Says why admission-gateway denied a request or changed an object, shows recent decisions
    and the state of all replicas, and says what it would do to your manifests.
  caveats: |
    Needs Python {PYTHONS[0]} to {PYTHONS[-1]}, and the right to forward ports to the gateway's pods.
    See {PAGE}
  platforms:
"""
_PLATFORM: Final = """\
  - selector:
      matchLabels: {{os: linux, arch: {platform}}}
    uri: {uri}
    sha256: {sha256}
    files:
    - from: {folder}/*
      to: .
    bin: {name}
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status."""
    parser = argparse.ArgumentParser("deploy.krew", description="Builds kubectl admission for krew.")
    parser.add_argument("folder", metavar="DIR", type=Path, help="with python/, as deploy.release makes it")
    parser.add_argument("--url", required=True, help="where the archives will be downloaded from")
    options = parser.parse_args(argv)
    build(options.folder, options.url)
    return 0


def build(folder: Path, url: str) -> None:
    """Write the archives and the manifest to ``krew/`` below *folder*, from the wheels in its ``python/``.

    *url* is the folder that the archives will be in.
    """
    target = folder / "krew"
    target.mkdir()
    archives = {
        platform: archive(folder / "python", target, platform, PYTHONS) for platform in sorted(PLATFORMS)
    }
    (target / "admission.yaml").write_text(manifest(archives, url))


def archive(wheels: Path, target: Path, platform: str, pythons: Iterable[str]) -> Path:
    """Write the archive for *platform*, a key of ``PLATFORMS``, to the folder *target*, and return it.

    *wheels* has those of this repository. *pythons* are the versions that it is for.
    """
    with tempfile.TemporaryDirectory() as scratch:
        tree = Path(scratch, FOLDER)
        tree.mkdir()
        for source, name in ((LAUNCHER, NAME), (LAUNCHER, COMPLETION), (ROOT / "LICENSE", "LICENSE")):
            shutil.copy(source, tree / name)
        for name in OWN:
            (wheel,) = wheels.glob(f"{name.replace('-', '_')}-{__version__}-*.whl")
            _unpack(wheel, tree / "lib")
        for python in pythons:
            found = _download(Path(scratch, python), platform, python)
            for wheel in found:
                is_pure = wheel.name.endswith("-none-any.whl")
                _unpack(wheel, tree / ("lib" if is_pure else f"lib-{python}"))
        packed = target / f"{NAME}-{__version__}-linux-{platform}.tar.gz"
        pack(tree, packed)
    return packed


def manifest(archives: dict[str, Path], url: str) -> str:
    """Return the manifest of the plug-in with *archives* by platform, which *url* leads to."""
    return _MANIFEST + "".join(
        _PLATFORM.format(
            name=NAME,
            folder=FOLDER,
            platform=platform,
            uri=f"{url.rstrip('/')}/{file.name}",
            sha256=hashlib.sha256(file.read_bytes()).hexdigest(),
        )
        for platform, file in archives.items()
    )


def _download(folder: Path, platform: str, python: str) -> list[Path]:
    """Download the pinned wheels for *platform* and *python* to *folder*, and return them, sorted."""
    folder.mkdir()
    pinned = folder / "requirements.txt"
    pinned.write_text(select((ROOT / "constraints.txt").read_text(), DEPENDENCIES))
    machine = PLATFORMS[platform]
    tags = (f"--platform=manylinux_2_{minor}_{machine}" for minor in GLIBC)
    command = (
        *(sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"),
        *("--require-hashes", "--only-binary", ":all:", "--implementation=cp", f"--python-version={python}"),
        *tags,
        f"--platform=manylinux2014_{machine}",
        f"--requirement={pinned}",
        f"--dest={folder}",
    )
    subprocess.run(command, check=True)  # noqa: S603 - this interpreter
    return sorted(folder.glob("*.whl"))


def _unpack(wheel: Path, target: Path) -> None:
    """Unpack *wheel*, unless another Python had it already, with its licence, and without what pip needs."""
    with zipfile.ZipFile(wheel) as packed:
        for name in packed.namelist():
            is_for_pip = ".dist-info/" in name and "/licenses/" not in name and not name.endswith("METADATA")
            if not is_for_pip and not name.endswith((".pyi", ".pyx", ".pxd", ".c")):
                packed.extract(name, target)


if __name__ == "__main__":
    sys.exit(main())
