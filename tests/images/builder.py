"""Builds images from the Dockerfiles, without a daemon, a registry or the packages' index.

buildah builds them. The base image is made by mmdebstrap from Debian's packages, once. The wheels are
downloaded by the pip of this environment, and the build gets them in a folder. Images in Go are built by the
toolchain of this machine, with its module cache.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any, Final

from deploy.artifacts import copy_sources
from deploy.pinned import LISTS
from tests.kit import ROOT

TIMEOUT_S: Final = 1200.0
"""Of one command."""
RELEASE: Final = "bookworm"
"""Of Debian: that of the Dockerfiles' base image. Its Python is that of ``PYTHON``."""
PYTHON: Final = (3, 11)
PACKAGES: Final = ("ca-certificates", "libstdc++6", "python3", "python3-venv")
BASE: Final = "python-base"
GO_BASE: Final = "go-base"
PIP_BASE: Final = "pip-base"
_GO_FOLDERS: Final = {"GOROOT": "/usr/local/go", "GOMODCACHE": "/go/pkg/mod", "GOCACHE": "/go/cache"}
"""Where the build finds the folders that ``go env`` names here."""


def missing() -> str:
    """Return why no image can be built here; empty if one can."""
    lacking = [program for program in ("buildah", "mmdebstrap", "unshare") if shutil.which(program) is None]
    if lacking:
        return f"{', '.join(lacking)} not installed"
    if os.geteuid() != 0:
        return "mounts need root"
    if sys.version_info[:2] != PYTHON:
        return f"the wheels are those for Python {PYTHON[0]}.{PYTHON[1]}"
    return ""


def run(*command: object) -> str:
    """Run *command* and return its output.

    Raises:
        AssertionError: it failed; the text has the end of its errors.
    """
    done = subprocess.run(
        [str(part) for part in command],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, f"{command[0]}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
    return done.stdout


def base_archive() -> Path:
    """Return a tar file of a Debian with Python and little else; make it if it is not there."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "admission-gateway" / "images"
    made = cache / f"{RELEASE}-{'-'.join(PACKAGES)}.tar"
    if not made.exists():
        cache.mkdir(parents=True, exist_ok=True)
        part = made.with_suffix(f".{os.getpid()}.tar")
        run("mmdebstrap", "--variant=essential", f"--include={','.join(PACKAGES)}", RELEASE, part)
        part.rename(made)
    return made


class Store:
    """Images in a folder of their own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._context = folder / "context"
        copy_sources(self._context)
        container = self._buildah("from", "scratch").strip()
        self._buildah("add", "--quiet", container, base_archive(), "/")
        self._buildah("commit", "--quiet", "--rm", container, BASE)
        wheels = folder / "wheels"
        lists = [folder / f"{name}.txt" for name in LISTS]
        for name, file in zip(LISTS, lists, strict=True):
            file.write_text(run(sys.executable, "-m", "deploy.pinned", name))
        options = ("--quiet", "--no-deps", "--require-hashes", "--only-binary", ":all:", "--dest", wheels)
        run(sys.executable, "-m", "pip", "download", *options, *(f"--requirement={file}" for file in lists))
        (folder / "pip.conf").write_text("[global]\nno-index = true\nfind-links = /wheels\n")

    def go_base(self) -> None:
        """Make the base of images in Go, without a toolchain, which the build gets as a folder."""
        container = self._buildah("from", f"localhost/{BASE}:latest").strip()
        environment = {
            **_GO_FOLDERS,
            "GOPROXY": "off",
            "GOFLAGS": "-mod=readonly -p=2",
            "GOTOOLCHAIN": "local",
            "PATH": "/usr/local/go/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
        }
        settings = [f"--env={name}={value}" for name, value in environment.items()]
        self._buildah("config", *settings, container)
        self._buildah("commit", "--quiet", "--rm", container, GO_BASE)

    def build_go(self, worker: str) -> Image:
        """Build ``engine.Dockerfile`` for *worker*, and return the image with its files unpacked."""
        options = (f"--build-arg=WORKER={worker}", *self.offline_go())
        return self.build("engine.Dockerfile", f"{worker}-worker", *options)

    def build(self, dockerfile: str, name: str, *options: str) -> Image:
        """Build *dockerfile* of ``deploy/`` as *name*, and return the image with its files unpacked."""
        fixed = ("--build-arg", "SOURCE_DATE_EPOCH=1700000000", "--build-arg", "REVISION=abc")
        return self._build(self._context / "deploy" / dockerfile, self._context, name, *fixed, *options)

    def build_project(self, folder: Path, base: str, *options: str) -> Image:
        """Build the Dockerfile of a project, as it stands, and return the image with its files unpacked.

        *base* is the image here that its base image stands for.
        """
        dockerfile = folder / "Dockerfile"
        (wanted,) = re.findall(r"^FROM (docker\.io/\S+)", dockerfile.read_text(), re.MULTILINE)
        stands_for = f"--build-context={wanted}=container-image://localhost/{base}:latest"
        return self._build(dockerfile, folder, f"{folder.name}-project", stands_for, *options)

    def python_base(self) -> None:
        """Make the base of projects in Python, which have pip."""
        container = self._buildah("from", f"localhost/{BASE}:latest").strip()
        self._buildah("run", "--isolation=chroot", container, "python3", "-m", "venv", "/usr/local/python")
        path = "/usr/local/python/bin:/usr/local/bin:/usr/bin:/bin"
        self._buildah("config", f"--env=PATH={path}", container)
        self._buildah("commit", "--quiet", "--rm", container, PIP_BASE)

    def _build(self, dockerfile: Path, context: Path, name: str, *options: str) -> Image:
        self._buildah(
            *("build", "--layers=false", f"--tag={name}", *self.offline(), *options),
            *(f"--file={dockerfile}", context),
        )
        layout = self._folder / name
        self._buildah("push", "--quiet", name, f"oci:{layout}:latest")
        return unpacked(layout, self._folder / f"{name}-files")

    def offline(self) -> list[str]:
        """Return the options of ``buildah build`` that take base image and wheels from here."""
        return [
            *("--isolation=chroot", "--pull=never", f"--build-arg=PYTHON_IMAGE=localhost/{BASE}:latest"),
            f"--volume={self._folder / 'pip.conf'}:/etc/pip.conf:ro",
            f"--volume={self._folder / 'wheels'}:/wheels:ro",
        ]

    def offline_go(self) -> list[str]:
        """Return the further ones for an image in Go, which take toolchain and modules of this machine."""
        found = run("go", "env", *_GO_FOLDERS).split()
        mounts = zip(found, _GO_FOLDERS.values(), strict=True)
        return [
            f"--build-arg=GO_IMAGE=localhost/{GO_BASE}:latest",
            *(f"--volume={here}:{there}" for here, there in mounts),
        ]

    def settings(self) -> Path:
        """Write a file for CONTAINERS_STORAGE_CONF, with which any buildah has the images of this store."""
        file = self._folder / "storage.conf"
        places = f'graphroot = "{self._folder / "root"}"\nrunroot = "{self._folder / "run"}"\n'
        file.write_text(f'[storage]\ndriver = "vfs"\n{places}')
        return file

    def _buildah(self, *arguments: object) -> str:
        # With the driver vfs nothing stays mounted.
        folders = (f"--root={self._folder / 'root'}", f"--runroot={self._folder / 'run'}")
        return run("buildah", "--storage-driver=vfs", *folders, *arguments)


def unpacked(layout: Path, target: Path) -> Image:
    """Unpack the layers of the image in *layout* to *target*.

    Source: OCI Image Layout Specification.
    """

    def blob(descriptor: dict[str, Any]) -> Path:
        return layout.joinpath("blobs", *descriptor["digest"].split(":"))

    (found,) = json.loads((layout / "index.json").read_text())["manifests"]
    manifest = json.loads(blob(found).read_text())
    for layer in manifest["layers"]:
        with tarfile.open(blob(layer)) as archive:
            archive.extractall(target, filter="fully_trusted")
    packed_bytes = sum(layer["size"] for layer in manifest["layers"])
    return Image(target, json.loads(blob(manifest["config"]).read_text())["config"], packed_bytes)


_START: Final = """
set -e
root=$1 mounted=$2; shift 2
mount --bind "$root" "$root"
mkdir -p "$root/dev" "$root/proc" "$root/tmp"
mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
mkdir -p "$root$mounted"
mount --bind "$mounted" "$root$mounted"
mount -o remount,bind,ro "$root"
mount --rbind /dev "$root/dev"
mount -t proc proc "$root/proc"
exec env -i "$@"
"""


class Image:
    """The files of an image, and its configuration."""

    def __init__(self, root: Path, config: dict[str, Any], packed_bytes: int) -> None:
        self.root = root
        self.config = config
        self.packed_bytes = packed_bytes
        """What is downloaded."""

    def size_bytes(self) -> int:
        """Return the size of all files."""
        files = [path for path in self.root.rglob("*") if path.is_file() and not path.is_symlink()]
        return sum(path.stat().st_size for path in files)

    def command(self, mounted: Path, *arguments: str) -> list[str]:
        """Return the command that runs the image as a kubelet would, with *arguments*, or else its own.

        The root file system is read-only and has *mounted* at the same path, the user is the image's, and the
        environment has the image's variables only. The network is that of this machine.
        """
        chroot = ["/usr/sbin/chroot", f"--userspec={self.config['User']}", str(self.root)]
        return [
            *("unshare", "--mount", "--propagation=private", "sh", "-c", _START, "sh"),
            *(str(self.root), str(mounted)),
            *(*self.config.get("Env", ()), *chroot, *self.config["Entrypoint"]),
            *(arguments or self.config["Cmd"]),
        ]
