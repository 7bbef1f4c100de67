"""Programs built with the Go toolchain, each kept in a folder named for everything that it was made from."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

ROOT: Final = Path(__file__).resolve().parents[2]
BUILD_WITHIN_S: Final = 3000.0
"""A bound for a stuck download, not an expectation."""
_ENVIRONMENT: Final = {
    "CGO_ENABLED": "0",
    "GOFLAGS": "-trimpath -mod=readonly -buildvcs=false",
    "GOWORK": "off",
}


class CannotBuild(Exception):
    """A program cannot be built; the text is the reason."""


def cache_folder() -> Path:
    """Return where programs are kept: ``$ADMISSION_GATEWAY_E2E_CACHE``, else the user's cache folder."""
    chosen = os.environ.get("ADMISSION_GATEWAY_E2E_CACHE")
    if chosen:
        return Path(chosen).resolve()
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "admission-gateway" / "e2e"


def kept(name: str, sources: Iterable[Path], flags: Iterable[str], make: Callable[[Path], None]) -> Path:
    """Return the folder of the programs *name*; *make* builds into a folder that it is given, if need be.

    *sources* and *flags* are all that they depend on, beside the Go release.

    Raises:
        CannotBuild: there is no Go toolchain, or it failed.
    """
    folder = folder_of(name, sources, flags)
    if folder.is_dir():
        return folder
    print(f"building {name}, once", file=sys.stderr, flush=True)  # noqa: T201
    cache_folder().mkdir(parents=True, exist_ok=True)
    # Renamed when whole: a build that is broken off, or runs twice at once, leaves nothing half.
    with tempfile.TemporaryDirectory(dir=cache_folder(), prefix=".building-") as unfinished:
        programs = Path(unfinished) / "programs"
        programs.mkdir()
        make(programs)
        try:
            programs.rename(folder)
        except OSError:
            if not folder.is_dir():  # else another build was first, with the same
                raise
    return folder


def folder_of(name: str, sources: Iterable[Path], flags: Iterable[str]) -> Path:
    """Return the folder in ``kept`` for the programs *name*, named for their sources and flags.

    Raises:
        CannotBuild: there is no Go toolchain to make them with.
    """
    release = go("env", "GOVERSION", cwd=ROOT)
    digest = hashlib.sha256("\0".join([release, *flags]).encode())
    for file in sources:
        content = file.read_bytes()
        digest.update(f"\0{file.relative_to(ROOT)}\0{len(content)}\0".encode() + content)
    return cache_folder() / f"{name}-{digest.hexdigest()[:12]}"


def go(*arguments: str, cwd: Path) -> str:
    """Return what ``go`` prints.

    Raises:
        CannotBuild: there is no Go toolchain, or it failed.
    """
    program = shutil.which("go")
    if program is None:
        raise CannotBuild("kube-apiserver and more are built with Go, which is not on PATH")
    return run(program, *arguments, cwd=cwd)


def run(*command: str, cwd: Path) -> str:
    """Return what *command* prints.

    Raises:
        CannotBuild: it failed.
    """
    try:
        done = subprocess.run(
            command,
            cwd=cwd,
            env={**os.environ, **_ENVIRONMENT},
            capture_output=True,
            text=True,
            timeout=BUILD_WITHIN_S,
            check=True,
        )
    except subprocess.CalledProcessError as error:
        raise CannotBuild(f"{' '.join(command)} failed:\n{error.stderr[-4000:]}") from None
    except subprocess.TimeoutExpired:
        raise CannotBuild(f"{' '.join(command)} took longer than {BUILD_WITHIN_S:.0f} s") from None
    return done.stdout.strip()
