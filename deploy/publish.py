"""Publishes what ``make release`` has built: ``make publish REGISTRY=… PYPI=… FILES=… …``.

    python -m deploy.publish build/release --registry registry.example/team --npm https://npm.example

It asks all destinations first. If one of them has a version of the release with other content, nothing is
published. What is there already is left as it is, so after a failure the same command publishes the rest.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from admission_gateway_worker.text import printable
from deploy.artifact_hub import ChartPublisher
from deploy.artifacts import GO_MODULE, git
from deploy.registries import (
    BUNDLE,
    Crate,
    Download,
    HelmChart,
    MavenLibrary,
    NpmPackage,
    OciImage,
    Part,
    PythonFile,
    Refused,
    Signature,
    SignedFile,
    Signer,
)
from deploy.release import digests, place
from gateway import __version__

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

DESTINATIONS: Final = {
    "registry": ("HOST/PATH", "OCI registry for images, and for the chart below PATH/charts"),
    "pypi": ("URL", "Python index, as in PIP_INDEX_URL"),
    "npm": ("URL", "npm registry"),
    "crates": ("sparse+URL", "index of a registry of crates"),
    "maven": ("URL", "Maven repository"),
    "files": ("URL", "folder that takes files by PUT: krew's archives, checksums, bills of materials"),
}
"""Options that say where to publish, each with the form of its value and its meaning."""
SIGNATURES: Final = (BUNDLE, ".asc")
"""Ends of the names of files that publishing adds to the release: signatures by cosign and by GnuPG."""
DOWNLOADS: Final = ("CHANGES.md", "provenance.intoto.json", "sbom/*")
"""The files for download that are not signed by themselves, but by their line in SHA256SUMS."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status."""
    options = parsed(argv)
    folder: Path = options.folder.resolve()
    try:
        parts = list(chosen(folder, options))
        check(folder, parts, options)
        publish(parts, dry_run=options.dry_run)
    except Refused as error:
        # It may have what a registry answered.
        sys.exit("publish: " + "\n".join(printable(line, None) for line in str(error).split("\n")))
    if (folder / "go").is_dir():
        say(f"Go: the module {GO_MODULE} is published by its tag: docs/release.md")
    return 0


def parsed(argv: Sequence[str] | None) -> argparse.Namespace:
    """Return the options of the command line.

    Raises:
        SystemExit: it is wrong, or names no destination.
    """
    parser = argparse.ArgumentParser("deploy.publish", description="Publishes what `make release` has built.")
    parser.add_argument("folder", metavar="DIR", type=Path)
    for name, (form, meaning) in DESTINATIONS.items():
        parser.add_argument(f"--{name}", metavar=form, default="", help=meaning)
    parser.add_argument(
        "--pypi-upload", metavar="URL", default="", help="where twine uploads; default: that of --pypi"
    )
    parser.add_argument("--key", default="", help="cosign's private key, a file or a URI: sign")
    parser.add_argument(
        "--signing-config", metavar="FILE", help="cosign's, if not that of the public services"
    )
    parser.add_argument(
        "--gpg", action="store_true", help="sign the files for Maven with GnuPG's default key"
    )
    parser.add_argument(
        "--artifacthub", metavar="FILE", default="", help="artifacthub-repo.yml, for beside the chart"
    )
    parser.add_argument("--dry-run", action="store_true", help="ask the destinations, and publish nothing")
    parser.add_argument("--allow-changes", action="store_true", help="publish what uncommitted files gave")
    options = parser.parse_args(argv)
    if not any(getattr(options, name) for name in DESTINATIONS):
        names = ", ".join(f"{name.upper()}={form}" for name, (form, _) in DESTINATIONS.items())
        parser.error(f"no destination. Name one at least: {names}")
    if options.artifacthub and not options.registry:
        parser.error("--artifacthub needs --registry, which the chart is in")
    for name in (*DESTINATIONS, "pypi_upload"):
        if "@" in getattr(options, name):
            parser.error(
                f"--{name.replace('_', '-')} has credentials. Each tool has a place for them: docs/release.md"
            )
    return options


def chosen(folder: Path, options: argparse.Namespace) -> Iterator[Part]:
    """Yield the parts of the release in *folder* that have a destination, in the order of their publication.

    Raises:
        Refused: the release has nothing for a destination.
    """
    signer, signed = None, []
    if options.key:
        config = options.signing_config
        signer = Signer(options.key, ("--signing-config", config) if config else ())
        signed = [SignedFile(file, signer) for file in own_files(folder)]
        yield from signed
    if options.registry:
        registry = place(options.registry)
        images = [OciImage(file, registry) for file in sorted(folder.glob("images/*.oci.tar"))]
        charts = [HelmChart(file, registry) for file in found(folder, "chart/*.tgz")]
        pushed: list[OciImage | HelmChart] = [*images, *charts]
        for part in pushed:
            yield part
            if signer:
                yield Signature(part, signer)
        if options.artifacthub:
            yield ChartPublisher(Path(options.artifacthub), registry)
    if options.pypi:
        upload = options.pypi_upload or options.pypi.rstrip("/").removesuffix("/simple") + "/"
        yield from (PythonFile(file, options.pypi, upload) for file in found(folder, "python/*"))
    if options.npm:
        # npm finds the credentials of a registry by its URL with a slash at the end.
        registry = f"{options.npm.rstrip('/')}/"
        yield from (NpmPackage(file, registry) for file in found(folder, "typescript/*.tgz"))
    if options.crates:
        yield from (Crate(file, options.crates) for file in found(folder, "rust/*.crate"))
    if options.maven:
        top = folder / "java"
        for pom in found(folder, f"java/**/*-{__version__}.pom"):
            yield MavenLibrary(pom.parent, top, options.maven, options.gpg)
    if options.files:
        others = [file for pattern in DOWNLOADS for file in found(folder, pattern)]
        files = [*own_files(folder), *(one.bundle for one in signed), *others]
        yield from (Download(file, place(options.files)) for file in files)


def own_files(folder: Path) -> list[Path]:
    """Return the files below *folder* that have a signature of their own: they are downloaded one by one."""
    files = (folder / "SHA256SUMS", *sorted(folder.glob("krew/*")))
    return [file for file in files if not file.name.endswith(SIGNATURES)]


def found(folder: Path, pattern: str) -> list[Path]:
    """Return the files below *folder* that match *pattern*.

    Raises:
        Refused: there is none.
    """
    if files := sorted(file for file in folder.glob(pattern) if not file.name.endswith(SIGNATURES)):
        return files
    raise Refused(f"{folder} has no {pattern}: `make release` has not built it, or has reported why not")


def check(folder: Path, parts: Sequence[Part], options: argparse.Namespace) -> None:
    """Check that the release is whole and from this commit, and that the tools are there.

    Raises:
        Refused: it is not, or one is missing.
    """
    try:
        listed = dict(line.split("  ", 1)[::-1] for line in (folder / "SHA256SUMS").read_text().splitlines())
        statement = json.loads((folder / "provenance.intoto.json").read_text())
    except (OSError, ValueError) as error:
        raise Refused(f"{folder} is not a whole release: run `make release` again ({error})") from None
    # Those of GnuPG are made by Maven's plug-in.
    signatures = {f"{name}{end}" for name in (*listed, "SHA256SUMS") for end in SIGNATURES}
    now = {name: sha for name, sha in digests(folder).items() if name not in signatures}
    if changed := sorted(listed.items() - now.items()):
        raise Refused(f"{folder}/{changed[0][0]} is not the file of SHA256SUMS: run `make release` again")
    if added := sorted(now.keys() - listed.keys()):
        raise Refused(f"{folder}/{added[0]} is not in SHA256SUMS: remove it, or run `make release` again")
    definition = statement["predicate"]["buildDefinition"]
    commit = definition["resolvedDependencies"][0]["digest"]["gitCommit"]
    if not options.allow_changes:
        if commit != git("rev-parse", "HEAD"):
            raise Refused(f"{folder} is from the commit {commit}: check it out, or run `make release` again")
        if definition["internalParameters"]["uncommittedFiles"]:
            raise Refused(
                f"{folder} was built from uncommitted files: commit them, and run `make release` again"
            )
    for name, built_for in definition["externalParameters"].items():
        if (given := place(getattr(options, name, ""))) and built_for not in ("", given):
            raise Refused(
                f"{folder} names {built_for}: run `make release {name.upper()}={given}`, then `make publish`"
            )
    tools = {tool for part in parts for tool in part.tools}
    if missing := sorted(tool for tool in tools if shutil.which(tool) is None):
        raise Refused(f"not installed: {', '.join(missing)}")


def publish(parts: Sequence[Part], *, dry_run: bool) -> None:
    """Publish those of *parts* that are not there yet, and say what happens to each.

    Raises:
        Refused: a version is there with other content, or a registry failed.
    """
    states = [state_of(part) for part in parts]
    if others := [part.name for part, state in zip(parts, states, strict=True) if state == "other"]:
        lines = "\n".join(f"  {name}" for name in others)
        raise Refused(f"nothing is published: {__version__} is there already with other content\n{lines}")
    for part, state in zip(parts, states, strict=True):
        if state:
            say(f"{part.name}: is there already")
        elif dry_run:
            say(f"{part.name}: would be published")
        else:
            part.push()
            say(f"{part.name}: published")


def state_of(part: Part) -> str:
    """Return what ``Part.there`` returns.

    Raises:
        Refused: the registry does not say, or with something that is no answer.
    """
    try:
        return part.there()
    except (AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        raise Refused(f"{part.name}: the registry's answer cannot be read: {error!r}") from None


def say(line: str) -> None:
    """Print *line*."""
    sys.stdout.write(f"publish: {line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
