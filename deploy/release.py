"""Builds and checks everything that a release publishes: ``make release``.

    python -m deploy.release build/release [PART...]        # languages and images; without: all of them

| below the folder | |
|---|---|
| ``python/``, ``go/``, ``typescript/``, ``rust/``, ``java/`` | see ``deploy.artifacts`` |
| ``krew/`` | ``kubectl admission`` for krew, see ``deploy.krew`` |
| ``chart/`` | the Helm chart as a package |
| ``images/`` | the build context of all images, and those of ``deploy.images`` as OCI archives |
| ``sbom/`` | the gateway and what it needs, CycloneDX |
| ``CHANGES.md`` | the section of the changelog |
| ``provenance.intoto.json`` | what was built from which sources, as in SLSA |
| ``SHA256SUMS`` | of all of them, for ``sha256sum --check`` |

Languages and images whose tools are missing are left out, and reported. The time of the last commit, or
SOURCE_DATE_EPOCH, is that of the files. ``deploy.publish`` signs and publishes them.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import platform
import shutil
import subprocess
import sys
import tempfile
from importlib.metadata import distribution
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from deploy import artifact_hub, artifacts, images, krew, sbom
from deploy.artifacts import BUILDERS, ROOT, copy_sources, git, pack, source_epoch
from deploy.pinned import OWN, roots_of, select
from deploy.version import changes, other_versions
from gateway import __version__

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

REPOSITORY: Final = "https://github.com/admission-gateway/admission-gateway"
TOOLS: Final = {"go": "go", "typescript": "npm", "rust": "cargo", "java": "mvn"}
"""The program that a language's artifact needs."""
IMAGES: Final = "images"
PARTS: Final = (*BUILDERS, IMAGES)
"""What can be chosen; the rest needs no tools and is always built."""
NAME: Final = f"admission-gateway-{__version__}"
FILES: Final = f"{REPOSITORY}/releases/download/v{__version__}"
"""Where the files for download are by default: on the page of the tag."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status."""
    parser = argparse.ArgumentParser("deploy.release", description="Builds what a release publishes.")
    parser.add_argument("folder", metavar="DIR", type=Path)
    parser.add_argument("parts", metavar="PART", nargs="*", help=f"of {', '.join(PARTS)}; default: all")
    parser.add_argument(
        "--image-option",
        metavar="OPTION",
        action="append",
        default=[],
        help="further option for the builder of images",
    )
    parser.add_argument(
        "--registry", metavar="HOST/PATH", default="", type=place, help="registry that the chart names"
    )
    parser.add_argument(
        "--files", metavar="URL", default=FILES, type=place, help="folder with krew/, for its manifest"
    )
    parser.add_argument("--allow-changes", action="store_true", help="build from uncommitted files")
    options = parser.parse_args(argv)
    for unknown in set(options.parts) - set(PARTS):
        parser.error(f"{unknown} is none of {', '.join(PARTS)}")
    if problems := [*other_versions(), *([] if options.allow_changes else uncommitted())]:
        sys.exit("release: " + "\nrelease: ".join(problems))
    folder = options.folder.resolve()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        places = {"registry": options.registry, "files": options.files}
        for line in build(folder, options.parts or PARTS, places, options.image_option):
            sys.stdout.write(f"release: {line}\n")
        check(folder)
    except subprocess.CalledProcessError as error:
        sys.exit(f"release: {' '.join(error.cmd[:3])} failed with status {error.returncode}")
    return 0


def uncommitted() -> list[str]:
    """Return a line if files differ from the last commit, because its sources would not give this release."""
    changed = git("status", "--porcelain").splitlines()
    return [f"{len(changed)} files are not committed, such as {changed[0][3:]}"] if changed else []


def place(destination: str) -> str:
    """Return a registry or URL in one form: without ``oci://`` and without a slash at the end."""
    return destination.removeprefix("oci://").rstrip("/")


def build(
    folder: Path, parts: Sequence[str], places: Mapping[str, str], image_options: Sequence[str] = ()
) -> list[str]:
    """Build *parts*, and what needs no tools, into the empty *folder*; return a line for each left out.

    *places* has the destinations that the release itself names, by their options.
    """
    left_out = []
    for language in (part for part in parts if part != IMAGES):
        tool = TOOLS.get(language, "python3")
        if shutil.which(tool) is None:
            left_out.append(f"{language} is left out: {tool} is not installed")
        else:
            artifacts.build(language, folder)
    if (folder / "python").exists():
        krew.build(folder, places["files"])
    pack_chart(folder / "chart" / f"{NAME}.tgz", places["registry"])
    context = folder / "images" / f"{NAME}-context.tar.gz"
    with tempfile.TemporaryDirectory() as scratch:
        tree = Path(scratch, NAME)
        for pattern in image_sources():
            copy_sources(tree, ROOT / pattern)
        context.parent.mkdir()
        pack(tree, context)
    if IMAGES in parts and images.builder():
        images.build(context, list(images.IMAGES), image_options)
    elif IMAGES in parts:
        left_out.append("images are left out: neither docker with buildx nor buildah can build here")
    (folder / "sbom").mkdir()
    (folder / "sbom" / f"{NAME}.cdx.json").write_text(requirements_sbom())
    (folder / "CHANGES.md").write_text(changes(__version__))
    provenance = folder / "provenance.intoto.json"
    provenance.write_text(json.dumps(statement(folder, places), indent=2) + "\n")
    (folder / "SHA256SUMS").write_text("".join(f"{sha}  {name}\n" for name, sha in digests(folder).items()))
    return left_out


def pack_chart(target: Path, registry: str) -> None:
    """Pack the chart into *target*, with what Artifact Hub shows of this version, images in *registry*."""
    target.parent.mkdir()
    with tempfile.TemporaryDirectory() as scratch:
        copy_sources(Path(scratch), ROOT / "deploy" / "chart")
        chart = Path(scratch, "deploy", "chart").rename(Path(scratch, "admission-gateway"))
        for name in ignored(chart / ".helmignore"):
            shutil.rmtree(chart / name)
        about = chart / "Chart.yaml"
        about.write_text(artifact_hub.annotated(about.read_text(), changes(__version__), registry))
        pack(chart, target)


def ignored(file: Path) -> list[str]:
    """Return the folders that a .helmignore names, one in a line; none if there is no *file*."""
    lines = file.read_text().splitlines() if file.exists() else []
    return [line for line in lines if line and not line.startswith("#")]


def image_sources() -> list[str]:
    """Return the files and folders that .dockerignore sends to the builder, and what the builder reads."""
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    sent = [line[1:] for line in lines if line.startswith("!")]
    dockerfiles = [
        path.relative_to(ROOT).as_posix() for path in sorted((ROOT / "deploy").glob("*Dockerfile"))
    ]
    return [*sent, ".dockerignore", *dockerfiles, "deploy/docker-bake.hcl"]


def requirements_sbom() -> str:
    """Return the bill of materials of the gateway with all its dependencies, in the pinned versions."""
    pinned = select((ROOT / "constraints.txt").read_text(), roots_of("admission-gateway"))
    names = [line.partition("==")[0] for line in pinned.splitlines() if "==" in line]
    return sbom.document("admission-gateway", map(distribution, [*OWN, *names]), source_epoch())


def digests(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of each file below *folder*, by its path, sorted."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != "SHA256SUMS")
    return {path.relative_to(folder).as_posix(): _sha256(path) for path in paths}


def statement(folder: Path, places: Mapping[str, str]) -> dict[str, Any]:
    """Return the provenance of all files below *folder*, with *places*. It names no time and no machine.

    Source: in-toto Attestation Framework, Statement v1; SLSA Provenance v1.
    """
    commit = git("rev-parse", "HEAD")
    return {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": name, "digest": {"sha256": sha}} for name, sha in digests(folder).items()],
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": f"{REPOSITORY}/make-release/v1",
                "externalParameters": {"version": __version__, **places},
                "internalParameters": {
                    "SOURCE_DATE_EPOCH": source_epoch(),
                    "uncommittedFiles": len(git("status", "--porcelain").splitlines()),
                    "tools": {"python": platform.python_version()} | _versions(),
                },
                "resolvedDependencies": [
                    {"uri": f"git+{REPOSITORY}@{commit}", "digest": {"gitCommit": commit}},
                    {"name": "constraints.txt", "digest": {"sha256": _sha256(ROOT / "constraints.txt")}},
                ],
            },
            "runDetails": {"builder": {"id": f"{REPOSITORY}/Makefile"}},
        },
    }


def check(folder: Path) -> None:
    """Check the versions and, where Helm is installed, the chart.

    Raises:
        SystemExit: a part is wrong.
    """
    packed = [path for path in folder.rglob("*") if path.suffix in (".whl", ".gz", ".tgz", ".crate", ".jar")]
    if other := [path.name for path in packed if __version__ not in path.name]:
        sys.exit(f"release: not of version {__version__}: {', '.join(other)}")
    if helm := shutil.which("helm"):
        subprocess.run([helm, "lint", "--strict", *folder.glob("chart/*.tgz")], check=True)  # noqa: S603


def _versions() -> dict[str, str]:
    return {name: distribution(name).version for name in ("pip", "setuptools")}


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


if __name__ == "__main__":
    sys.exit(main())
