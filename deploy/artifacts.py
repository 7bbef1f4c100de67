"""Builds what the SDKs of other languages publish, as their registries get it.

    python -m deploy.artifacts build/artifacts             # all of them
    python -m deploy.artifacts build/artifacts go rust

| language | below the folder |
|---|---|
| go | ``go/``: a module proxy of files, for ``GOPROXY=file://…`` (Go Modules Reference, GOPROXY protocol) |
| typescript | ``typescript/NAME-VERSION.tgz``, for ``npm publish`` |
| rust | ``rust/NAME-VERSION.crate`` |
| java | ``java/``: a Maven repository with POM, library, sources and API documentation, not signed |
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gateway import __version__

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

ROOT: Final = Path(__file__).resolve().parents[1]
WORKERS: Final = ROOT / "workers"
GO_MODULE: Final = "admission-gateway.io/worker"


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
    """Write the package. npm has to have installed what the build needs: ``npm ci``."""
    _run("npm", "pack", "--silent", "--pack-destination", str(folder), cwd=WORKERS / "typescript")


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


BUILDERS: Final[dict[str, Callable[[Path], None]]] = {
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
