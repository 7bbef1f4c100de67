"""Builds what the gateway and the SDKs publish, as their registries get it.

    python -m deploy.artifacts build/artifacts             # all of them
    python -m deploy.artifacts build/artifacts go rust

| language | below the folder | published by |
|---|---|---|
| python | ``python/``: wheels and source distributions of ``DISTRIBUTIONS`` | an upload of all |
| go | ``go/``: a module proxy of files, for ``GOPROXY=file://…`` | the git tag ``workers/go/vVERSION`` |
| typescript | ``typescript/NAME-VERSION.tgz`` | ``npm publish FILE`` |
| rust | ``rust/NAME-VERSION.crate`` | ``cargo publish`` in ``workers/rust`` |
| java | ``java/``: a Maven repository with library, sources and API documentation | ``deploy``, signed |

The Go command finds the module by an HTML tag at its path:
``<meta name="go-import" content="admission-gateway.io/worker git REPOSITORY workers/go">``.

Source: ``go help importpath``; Go Modules Reference, GOPROXY protocol.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from deploy.pinned import OWN
from gateway import __version__

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

ROOT: Final = Path(__file__).resolve().parents[1]
WORKERS: Final = ROOT / "workers"
GO_MODULE: Final = "admission-gateway.io/worker"
DISTRIBUTIONS: Final = {**OWN, "admission-gateway-conformance": WORKERS / "conformance"}
"""The distributions of Python that are published, with their folders."""


def build_python(folder: Path) -> None:
    """Write wheels and source distributions, from the files that git has or would add.

    The same files and time give the same bytes. The wheels are built from the source distributions.

    Source: PEP 517 (hooks); reproducible-builds.org, SOURCE_DATE_EPOCH.
    """
    with tempfile.TemporaryDirectory() as scratch:
        tree = Path(scratch, "tree")
        copy_sources(tree)
        for source in DISTRIBUTIONS.values():
            made = _hook(tree / source.relative_to(ROOT), "build_sdist", Path(scratch))
            unpacked = Path(scratch, made.name.removesuffix(".tar.gz"))
            with tarfile.open(made) as archive:
                archive.extractall(scratch, filter="data")
            (unpacked / "setup.cfg").unlink()  # setuptools writes an empty one
            pack(unpacked, folder / made.name)
            _hook(unpacked, "build_wheel", folder)


def sources(folder: Path = ROOT) -> list[Path]:
    """Return the files below *folder* that git has or would add."""
    options = ("-z", "--cached", "--others", "--exclude-standard")
    listed = git("ls-files", *options, "--", str(folder)).split("\0")
    # Those that are deleted, which is not committed, are listed too.
    return [ROOT / name for name in listed if name and (ROOT / name).is_file()]


def copy_sources(target: Path, folder: Path = ROOT) -> None:
    """Copy the sources below *folder* to *target*, with the paths of the repository; links become files."""
    for path in sources(folder):
        copy = target / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, copy)


def source_epoch() -> int:
    """Return the time of the sources in seconds: SOURCE_DATE_EPOCH, or the time of the last commit."""
    return int(os.environ.get("SOURCE_DATE_EPOCH") or git("log", "-1", "--format=%ct"))


def _hook(source: Path, hook: str, target: Path) -> Path:
    """Call the *hook* of setuptools in *source*, and return the file that it writes to *target*."""
    program = f"import sys; from setuptools import build_meta; build_meta.{hook}(sys.argv[1])"
    before = set(target.iterdir())
    subprocess.run(  # noqa: S603 - this interpreter
        [sys.executable, "-c", program, str(target)],
        cwd=source,
        env={**os.environ, "SOURCE_DATE_EPOCH": str(source_epoch())},
        stdout=subprocess.DEVNULL,
        check=True,
    )
    (made,) = set(target.iterdir()) - before
    return made


def pack(folder: Path, target: Path) -> None:
    """Write *folder* as a tar file in which only names and contents matter."""

    def plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
        entry.uid = entry.gid = 0
        entry.uname = entry.gname = ""
        entry.mtime = epoch
        entry.mode = 0o755 if entry.isdir() or entry.mode & 0o100 else 0o644
        return entry

    epoch = source_epoch()
    with (
        target.open("wb") as file,
        gzip.GzipFile("", "wb", fileobj=file, mtime=epoch) as packed,
        tarfile.open(mode="w", fileobj=packed, format=tarfile.PAX_FORMAT) as archive,
    ):
        archive.add(folder, folder.name, filter=plain)  # sorted by name


def build_go(folder: Path) -> None:
    """Write the module's zip as ``go mod download`` makes it from the tag: without nested modules."""
    source, version = WORKERS / "go", f"v{__version__}"
    versions = folder / GO_MODULE / "@v"
    versions.mkdir(parents=True)
    (versions / "list").write_text(f"{version}\n")
    (versions / f"{version}.info").write_text(json.dumps({"Version": version}))
    shutil.copyfile(source / "go.mod", versions / f"{version}.mod")
    with zipfile.ZipFile(versions / f"{version}.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        # A module in a subfolder gets the licence of the repository.
        for path, name in [*_module_files(source), (ROOT / "LICENSE", "LICENSE")]:
            entry = zipfile.ZipInfo(f"{GO_MODULE}@{version}/{name}")
            archive.writestr(entry, path.read_bytes(), zipfile.ZIP_DEFLATED)


def _module_files(source: Path) -> Iterator[tuple[Path, str]]:
    nested = {path.parent for path in source.glob("*/**/go.mod")} | {source / "target"}
    for path in sorted(source.rglob("*")):
        if path.is_file() and nested.isdisjoint(path.parents):
            yield path, path.relative_to(source).as_posix()


def build_typescript(folder: Path) -> None:
    """Write the package."""
    source = WORKERS / "typescript"
    if not (source / "node_modules").is_dir():
        _run("npm", "ci", "--silent", cwd=source)
    _run("npm", "pack", "--silent", "--pack-destination", str(folder), cwd=source)


def build_rust(folder: Path) -> None:
    """Write the crate. It is not compiled here."""
    with tempfile.TemporaryDirectory() as target:
        options = ("--allow-dirty", "--no-verify", "--target-dir", target)
        _run("cargo", "package", "--quiet", *options, cwd=WORKERS / "rust")
        (crate,) = Path(target, "package").glob("*.crate")
        shutil.copy(crate, folder)


def build_java(folder: Path) -> None:
    """Deploy the library to a repository of files."""
    _run(
        *("mvn", "-q", "-B", "-P", "release", "-pl", "worker", "-am", "-DskipTests", "-Dgpg.skip"),
        *(f"-DaltDeploymentRepository=artifacts::{folder.as_uri()}", "deploy"),
        cwd=WORKERS / "java",
    )


def _run(*command: str, cwd: Path) -> None:
    subprocess.run(command, cwd=cwd, check=True)  # noqa: S603 - a command of this file


def git(*arguments: str) -> str:
    """Return the output of git in the repository."""
    command = ("git", *arguments)
    done = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)  # noqa: S603 - as above
    return done.stdout.strip("\n")


BUILDERS: Final[dict[str, Callable[[Path], None]]] = {
    "python": build_python,
    "go": build_go,
    "typescript": build_typescript,
    "rust": build_rust,
    "java": build_java,
}


def build(language: str, folder: Path) -> Path:
    """Build the artifact of *language* into a new folder below *folder*, and return it."""
    own = (folder / language).resolve()
    shutil.rmtree(own, ignore_errors=True)
    own.mkdir(parents=True)
    BUILDERS[language](own)
    return own


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status."""
    parser = argparse.ArgumentParser("deploy.artifacts", description="Builds what the SDKs publish.")
    parser.add_argument("folder", metavar="DIR", type=Path)
    parser.add_argument("languages", metavar="LANGUAGE", nargs="*", help=f"of {', '.join(BUILDERS)}")
    options = parser.parse_args(argv)
    for unknown in set(options.languages) - BUILDERS.keys():
        parser.error(f"{unknown} is none of {', '.join(BUILDERS)}")
    for language in options.languages or BUILDERS:
        build(language, options.folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
