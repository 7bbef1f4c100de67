"""The version of everything that is published: one, which ``gateway/__init__.py`` has.

python -m deploy.version            # fails if another file has another one
python -m deploy.version 0.2.0      # writes it to all files, and heads the changelog with it
"""

from __future__ import annotations

import re
import sys
from datetime import UTC, datetime
from typing import Final

from deploy.artifacts import ROOT
from gateway import __version__

_IMAGE: Final = r"(?:admission-gateway(?:-ci)?|sample-policies|[a-z]+-worker)(?::|, tag: )(\d[\w.-]*)"
_MAVEN: Final = r"<artifactId>admission-gateway-(?:java|worker)</artifactId>\s*<version>(\d.+?)<"
PLACES: Final[dict[str, str]] = {
    "gateway/__init__.py": r'^__version__ = "(.+)"$',
    "workers/python/admission_gateway_worker/__init__.py": r'^__version__ = "(.+)"$',
    "pyproject.toml": r'"admission-gateway-worker==(.+)"',
    "workers/conformance/admission_gateway_conformance/__init__.py": r'^__version__ = "(.+)"$',
    "workers/conformance/pyproject.toml": r'"admission-gateway(?:-worker)?==(.+)"',
    "workers/typescript/package.json": r'^  "version": "(.+)"',
    "workers/typescript/package-lock.json": r'"name": "admission-gateway-worker",\s*"version": "(.+)"',
    "workers/rust/Cargo.toml": r'^version = "(.+)"',
    "workers/wasm/Cargo.toml": r'^version = "(.+)"',
    "workers/java/pom.xml": _MAVEN,
    "workers/java/worker/pom.xml": _MAVEN,
    "workers/java/samples/pom.xml": _MAVEN,
    "workers/java/README.md": _MAVEN,
    "deploy/chart/Chart.yaml": r"^(?:version|appVersion): (.+)$",
    "deploy/chart/values.yaml": r"^defaultsOf: (.+)$",
    "deploy/chart/templates/_refuse.tpl": r'\$defaults := "(.+)"',
    "deploy/chart/README.md": r'^\| `defaultsOf` \| `"(.+?)"` ',
    "deploy/Dockerfile": rf'{_IMAGE}|image\.version="(.+)"',
    "deploy/worker.Dockerfile": rf'{_IMAGE}|image\.version="(.+)"',
    "deploy/engine.Dockerfile": rf'{_IMAGE}|image\.version="(.+)"|-version (\S+)',
    "deploy/ci/Dockerfile": rf'{_IMAGE}|image\.version="(.+)"',
    "deploy/kubewarden.Dockerfile": rf'{_IMAGE}|image\.version="(.+)"',
    "deploy/docker-bake.hcl": r'"VERSION" \{ default = "(.+)" \}',
    **dict.fromkeys(
        (
            *(
                "README.md",
                "deploy/kustomization.yaml",
                "deploy/manifest.yaml",
                "deploy/manifest-values.yaml",
            ),
            *(
                "deploy/chart/ci/monitoring-values.yaml",
                "deploy/chart/ci/workers-values.yaml",
                *(
                    "docs/install.md",
                    "docs/loopback.md",
                    "docs/engines.md",
                    "docs/catalogue/index.md",
                    "docs/preview.md",
                    "docs/try-in-kind.md",
                    "docs/first-weeks.md",
                ),
            ),
        ),
        _IMAGE,
    ),
}
"""By file: a pattern for each place, whose one matching group is the version.

The Go module has its version from its tag."""

CHANGELOG: Final = ROOT / "CHANGELOG.md"
_UNRELEASED: Final = "## Unreleased\n"


def found() -> dict[str, set[str]]:
    """Return the versions in each file of ``PLACES``; the set is empty if the pattern does not match."""
    texts = {name: (ROOT / name).read_text() for name in PLACES}
    return {
        name: {place[place.lastindex or 0] for place in re.finditer(PLACES[name], text, re.MULTILINE)}
        for name, text in texts.items()
    }


def other_versions() -> list[str]:
    """Return a line for each file whose version is not that of the gateway."""
    return [
        f"{name} has the version {' and '.join(sorted(versions)) or 'of no place that is known'}"
        for name, versions in found().items()
        if versions != {__version__}
    ]


def write(version: str) -> None:
    """Write *version* to all places, and make a heading of it for the unreleased changes."""
    for name, pattern in PLACES.items():
        text = (ROOT / name).read_text()
        (ROOT / name).write_text(
            re.sub(pattern, lambda place: _with(place, version), text, flags=re.MULTILINE)
        )
    text = CHANGELOG.read_text()
    heading = f"{_UNRELEASED}\n## {version}, {datetime.now(UTC).date()}\n"
    CHANGELOG.write_text(text.replace(_UNRELEASED, heading, 1))


def changes(version: str) -> str:
    """Return the section of *version* in the changelog, or else that of the unreleased changes.

    Raises:
        LookupError: it has neither.
    """
    sections = re.split(r"^(?=## )", CHANGELOG.read_text(), flags=re.MULTILINE)
    for heading in (f"## {version},", _UNRELEASED):
        for section in sections:
            if section.startswith(heading):
                return section
    raise LookupError(f"CHANGELOG.md has no section for {version}")


def _with(place: re.Match[str], version: str) -> str:
    begin, end = (position - place.start() for position in place.span(place.lastindex or 0))
    return place[0][:begin] + version + place[0][end:]


def main() -> int:
    """Run the command line and return the exit status."""
    if len(sys.argv) > 1:
        if not re.fullmatch(r"\d+\.\d+\.\d+(-[0-9a-z.]+)?", sys.argv[1]):
            sys.exit("version: expected a version of Semantic Versioning such as 0.2.0")
        write(sys.argv[1])
        return 0
    if lines := other_versions():
        sys.exit(f"version: {__version__} in gateway/__init__.py, but\n" + "\n".join(lines))
    sys.stdout.write(f"{__version__}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
