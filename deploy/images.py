"""Builds the images of a release as OCI archives, from the build context that the release contains.

With Docker and its plug-in buildx for the platforms of ``deploy/docker-bake.hcl``, with provenance and SBOM
attached. With buildah for the platform of this machine.
"""

from __future__ import annotations

import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from deploy.artifacts import git, source_epoch
from gateway import __version__

if TYPE_CHECKING:
    from collections.abc import Sequence

IMAGES: Final = {
    "admission-gateway": ("Dockerfile", {}),
    "sample-policies": ("worker.Dockerfile", {}),
    "gatekeeper-worker": ("engine.Dockerfile", {"WORKER": "gatekeeper"}),
}
"""Of each image the file in ``deploy/`` and its arguments, as in the default group of ``docker-bake.hcl``."""


def builder() -> str:
    """Return ``docker`` or ``buildah``, whichever can build here; empty if none can."""
    if shutil.which("docker") and _succeeds("docker", "buildx", "version") and _succeeds("docker", "info"):
        return "docker"
    return "buildah" if shutil.which("buildah") else ""


def build(context: Path, names: Sequence[str], options: Sequence[str] = ()) -> None:
    """Build the images *names* of ``IMAGES`` from the archive *context*, into files beside it.

    *options* are further ones of ``buildah build``, or of ``docker buildx bake``.

    Raises:
        CalledProcessError: the builder failed; it has said why.
    """
    with tempfile.TemporaryDirectory() as scratch:
        with tarfile.open(context) as archive:
            archive.extractall(scratch, filter="data")
        (source,) = Path(scratch).iterdir()
        make = _bake if builder() == "docker" else _buildah
        for name in names:
            make(source, name, context.with_name(f"{name}-{__version__}.oci.tar"), options)


def _bake(source: Path, name: str, target: Path, options: Sequence[str]) -> None:
    output = f"{name}.output=type=oci,dest={target}"
    arguments = ("-f", "deploy/docker-bake.hcl", "--set", output, *options, name)
    environment = ("env", f"REVISION={git('rev-parse', 'HEAD')}", f"SOURCE_DATE_EPOCH={source_epoch()}")
    _run(*environment, "docker", "buildx", "bake", *arguments, cwd=source)


def _buildah(source: Path, name: str, target: Path, options: Sequence[str]) -> None:
    dockerfile, own = IMAGES[name]
    given = {"REVISION": git("rev-parse", "HEAD"), "SOURCE_DATE_EPOCH": str(source_epoch()), **own}
    made = target.with_suffix(".id")
    arguments = (
        *("--layers=false", f"--iidfile={made}", f"--timestamp={source_epoch()}"),
        *(f"--build-arg={variable}={value}" for variable, value in given.items()),
        *(*options, f"--file=deploy/{dockerfile}", "."),
    )
    _run("buildah", "build", *arguments, cwd=source)
    image = made.read_text().strip()
    made.unlink()
    _run("buildah", "push", "--quiet", image, f"oci-archive:{target}:{name}:{__version__}", cwd=source)
    _run("buildah", "rmi", image, cwd=source)


def _run(*command: str, cwd: Path) -> None:
    subprocess.run(command, cwd=cwd, check=True, stdout=subprocess.DEVNULL)  # noqa: S603 - a command of this file


def _succeeds(*command: str) -> bool:
    return subprocess.run(command, capture_output=True, check=False).returncode == 0  # noqa: S603 - as above
