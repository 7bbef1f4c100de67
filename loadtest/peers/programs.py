"""The programs of the peers: pinned versions, built with the Go toolchain, kept in the user's cache folder.

``python -m loadtest.peers.programs`` builds those that are missing: up to 20 minutes each. The sources come
from the Go module proxy, or with ``--checkout NAME=FOLDER`` from the tag of that version in a git repository.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.e2e.golang import CannotBuild, folder_of, go, kept, run

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

CONFIGS: Final = Path(__file__).parent / "configs"
_FLAGS: Final = ("-ldflags=-s -w",)


@dataclass(frozen=True, slots=True)
class Program:
    """A program to be built from the source of a Go module."""

    module: str
    version: str
    package: str
    """Of the program, relative to the module."""
    added: Path | None = None
    """A file of this repository that is the whole of *package*."""
    manifests: tuple[str, ...] = ()
    """Files and folders of the source that are kept beside the program."""


PROGRAMS: Final[Mapping[str, Program]] = {
    "kubewebhook": Program(
        "github.com/slok/kubewebhook/v2", "v2.7.0", "./cmd/chain", added=CONFIGS / "kubewebhook.go"
    ),
    "opa": Program("github.com/open-policy-agent/opa", "v1.22.2", "."),
    "gatekeeper": Program(
        "github.com/open-policy-agent/gatekeeper/v3",
        "v3.23.1",
        ".",
        manifests=("manifest_staging/deploy/gatekeeper.yaml",),
    ),
    "kyverno": Program("github.com/kyverno/kyverno", "v1.19.1", "./cmd/kyverno", manifests=("config/crds",)),
}


def obtain(name: str) -> Path | None:
    """Return the folder of the program *name* and its manifests; None if it was not built."""
    try:
        folder = folder_of(*_key(name))
    except CannotBuild:
        return None
    return folder if (folder / name).is_file() else None


def build(name: str, checkout: Path | None = None) -> Path:
    """Return the folder of the program *name* after building it if necessary.

    Args:
        name: One of ``PROGRAMS``.
        checkout: A git repository to take the source from.

    Raises:
        CannotBuild: there is no Go toolchain, no source, or the compiler failed.
    """
    program = PROGRAMS[name]

    def make(programs: Path) -> None:
        with tempfile.TemporaryDirectory(prefix="peers-") as folder:
            source = Path(folder) / "source"
            if checkout is None:
                _download(program, source)
            else:
                _extract(checkout, program.version, source)
            if program.added is not None:
                (source / program.package).mkdir(parents=True)
                shutil.copy(program.added, source / program.package / "main.go")
            go("build", "-mod=mod", *_FLAGS, "-o", str(programs / name), program.package, cwd=source)
            for manifest in program.manifests:
                target = programs / manifest
                target.parent.mkdir(parents=True, exist_ok=True)
                (shutil.copytree if (source / manifest).is_dir() else shutil.copy)(source / manifest, target)

    return kept(*_key(name), make)


def _key(name: str) -> tuple[str, list[Path], tuple[str, ...]]:
    program = PROGRAMS[name]
    return f"{name}-{program.version}", [program.added] if program.added else [], _FLAGS


def _download(program: Program, source: Path) -> None:
    """Copy the module from the module cache, which is read-only, to *source*."""
    with tempfile.TemporaryDirectory() as empty:
        found = json.loads(
            go("mod", "download", "-json", f"{program.module}@{program.version}", cwd=Path(empty))
        )
    shutil.copytree(found["Dir"], source, copy_function=shutil.copyfile)
    for folder in (source, *source.rglob("*/")):
        folder.chmod(0o755)


def _extract(checkout: Path, version: str, source: Path) -> None:
    """Write the tree of the tag *version* of the repository *checkout* to *source*."""
    archive = source.with_suffix(".tar")
    run("git", "-C", str(checkout), "archive", f"--output={archive}", version, cwd=source.parent)
    shutil.unpack_archive(archive, source, filter="data")


def main(argv: Sequence[str] | None = None) -> int:
    """Build the programs of the command line, and return the exit status: 1 if one failed."""
    parser = argparse.ArgumentParser("loadtest.peers.programs", description="Builds the peers with Go.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(PROGRAMS)}; default all")
    parser.add_argument(
        "--checkout", action="append", default=[], metavar="NAME=FOLDER", help="git repository"
    )
    options = parser.parse_args(argv)
    checkouts = dict(text.partition("=")[::2] for text in options.checkout)
    for unknown in {*options.names, *checkouts} - PROGRAMS.keys():
        parser.error(f"{unknown} is none of {', '.join(PROGRAMS)}")
    status = 0
    for name in options.names or PROGRAMS:
        checkout = Path(checkouts[name]).resolve() if name in checkouts else None
        try:
            print(f"{name}: {build(name, checkout)}", flush=True)
        except CannotBuild as error:
            print(f"{name}: {error}", flush=True)
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
