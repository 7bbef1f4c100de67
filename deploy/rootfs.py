"""Makes the root file system of an image: Python, one virtual environment, and the libraries that they load.

    python3 -m deploy.rootfs TARGET ENVIRONMENT DISTRIBUTION

It has no shell, no package manager and no pip. Paths are those of the file system on which this runs, so that
it works for any base image with Python and glibc. ``ENVIRONMENT/sbom.cdx.json`` lists what TARGET contains.

Source: Filesystem Hierarchy Standard 3.0; ld.so(8); nsswitch.conf(5).
"""

from __future__ import annotations

import compileall
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import time
from importlib.metadata import distributions
from pathlib import Path
from typing import TYPE_CHECKING, Final

from deploy import sbom

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

USER: Final = 65532
"""The user and the group of the process, as in distroless images."""

UNUSED: Final = (
    *("test", "tests", "idlelib", "tkinter", "turtledemo", "ensurepip", "lib2to3", "pydoc_data"),
    *("site-packages", "dist-packages", "config-*", "__pycache__", "turtle.py", "_tkinter*"),
)
"""Parts of the standard library that are left out."""

FILES: Final = ("etc/ssl/certs/ca-certificates.crt", "etc/ld.so.conf")
"""Files of the system, where they exist: certificates for HTTPS, and where the loader looks."""

TEXTS: Final = {
    "etc/passwd": f"root:x:0:0:root:/root:/sbin/nologin\nnonroot:x:{USER}:{USER}:nonroot:/:/sbin/nologin\n",
    "etc/group": f"root:x:0:\nnonroot:x:{USER}:\n",
    "etc/hosts": "127.0.0.1 localhost\n::1 localhost\n",
    "etc/nsswitch.conf": "hosts: files dns\n",
}


def main() -> None:
    """Make the file system that the command line names."""
    target, environment = Path(sys.argv[1]), Path(sys.argv[2])
    for folder in ("etc", "proc", "sys", "dev", "run", "usr"):
        (target / folder).mkdir(parents=True, exist_ok=True)
    (target / "tmp").mkdir(mode=0o1777)
    (target / "tmp").chmod(0o1777)
    for name, text in TEXTS.items():
        (target / name).write_text(text)
    standard = Path(sysconfig.get_path("stdlib"))
    copy_tree(standard, target, UNUSED)
    compileall.compile_dir(target / standard.relative_to("/"), stripdir=target, quiet=1)
    copy_tree(environment, target, ("pip*", "Activate.ps1", "activate*"))
    copy_file(environment / "bin" / "python", target)
    for name in FILES:
        if (path := Path("/", name)).exists():
            copy_file(path, target)
    if (configured := Path("/etc/ld.so.conf.d")).is_dir():
        copy_tree(configured, target)
    libraries = copy_libraries(target)
    subprocess.run(["/sbin/ldconfig", "-r", str(target)], check=True)  # noqa: S603 - a constant
    interpreter = Path(os.path.realpath(sys.executable))
    packages = dict(owners([interpreter, standard / "os.py", *libraries]))
    for package in packages:
        if (licence := Path("/usr/share/doc", package, "copyright")).exists():
            copy = target / licence.relative_to("/")
            copy.parent.mkdir(parents=True)
            shutil.copyfile(licence, copy)
    others = [sbom.other("deb/debian", *found) for found in sorted(packages.items())]
    others.append(sbom.other("generic", "python", platform.python_version()))
    (packed,) = environment.glob("lib/python*/site-packages")
    epoch = int(os.environ.get("SOURCE_DATE_EPOCH") or time.time())
    content = sbom.document(sys.argv[3], distributions(path=[str(packed)]), epoch, others)
    (target / environment.relative_to("/") / "sbom.cdx.json").write_text(content)


def copy_tree(folder: Path, target: Path, without: Iterable[str] = ()) -> None:
    """Copy *folder* to the same path below *target*; links stay links."""
    copy = target / parent_in(folder, target) / folder.name
    shutil.copytree(folder, copy, symlinks=True, dirs_exist_ok=True, ignore=shutil.ignore_patterns(*without))


def copy_file(path: Path, target: Path) -> None:
    """Copy *path*, and if it is a link, what it leads to."""
    while True:
        copy = target / parent_in(path, target) / path.name
        if not copy.is_symlink() and not copy.exists():
            if path.is_dir() and not path.is_symlink():
                shutil.copytree(path, copy, symlinks=True)
            else:
                shutil.copy2(path, copy, follow_symlinks=False)
        if not path.is_symlink():
            return
        path = path.parent / path.readlink()


def parent_in(path: Path, target: Path) -> Path:
    """Make the folder of *path* below *target*, and return its path in *target*; links such as /lib stay."""
    top = Path("/", path.parts[1])
    if top.is_symlink() and not (target / top.name).is_symlink():
        (target / top.name).symlink_to(top.readlink())
        (target / "usr" / top.name).mkdir(parents=True, exist_ok=True)
    parent = path.parent.resolve().relative_to("/")
    (target / parent).mkdir(parents=True, exist_ok=True)
    return parent


def copy_libraries(target: Path) -> list[Path]:
    """Copy the shared libraries and the loader that programs and modules in *target* need; return them."""
    needed: set[Path] = set()
    for path in target.rglob("*"):
        if path.is_file() and not path.is_symlink() and is_elf(path):
            needed.update(needed_by(Path("/", path.relative_to(target))))
    for library in sorted(needed):
        copy_file(library, target)
    return sorted(needed)


def is_elf(path: Path) -> bool:
    """Whether *path* is a program or a shared library."""
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF"


def needed_by(path: Path) -> Iterator[Path]:
    """Yield the libraries that the loader finds for *path*, and the loader itself.

    Raises:
        SystemExit: a library is missing.
    """
    done = subprocess.run(["ldd", str(path)], capture_output=True, text=True, check=False)  # noqa: S603, S607
    for line in done.stdout.splitlines():
        if "not found" in line:
            raise SystemExit(f"rootfs: {path} needs a library that is not there: {line.strip()}")
        found = line.rpartition("=>")[2].split()
        if found and found[0].startswith("/"):
            yield Path(found[0])


def owners(paths: Iterable[Path]) -> Iterator[tuple[str, str]]:
    """Yield the Debian packages that own *paths*, each with its version. Other files have none."""
    if shutil.which("dpkg-query") is None:
        return
    for path in paths:
        # dpkg has the path from before /lib became a link, or that after it.
        real = os.path.realpath(path)
        names = {str(path), real, real.removeprefix("/usr")}
        found = _output("dpkg-query", "--search", *sorted(names))
        if name := found.partition(":")[0]:
            yield name, _output("dpkg-query", "--show", "--showformat=${Version}", name)


def _output(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - see the callers
    return done.stdout


if __name__ == "__main__":
    main()
