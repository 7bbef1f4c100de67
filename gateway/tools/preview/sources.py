"""The file that a rendered object comes from, by what Helm and kustomize write into their output.

Source: Helm pkg/engine/engine.go, pkg/action/action.go (``# Source: CHART/templates/FILE`` has the name of
the chart, and the path in its folder; charts that it depends on are in ``charts``); kustomize
api/resource/origin.go (paths are relative to the folder that was built, with ``repo`` to another repository).
"""

from __future__ import annotations

import os
import re
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final, NamedTuple

from gateway.base.errors import GatewayError
from gateway.config.yaml.parsing import parse_yaml

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gateway.engine.object_review import Json

ORIGIN: Final = "config.kubernetes.io/origin"
_HELM_SOURCE: Final = re.compile(r"^# Source: (\S[^\r\n]{0,999}?)[ \t\r]*$", re.MULTILINE)
_CHART: Final = "Chart.yaml"
_KUSTOMIZATIONS: Final = ("kustomization.yaml", "kustomization.yml", "Kustomization")
_MAX_CHARS: Final = 1000
_MAX_ANNOTATION_CHARS: Final = 10_000
_MAX_CHART_CHARS: Final = 1 << 20
_MAX_KNOWN: Final = 10_000
"""Names whose files are remembered."""


class SourceName(NamedTuple):
    """What the input says about where an object comes from."""

    name: str
    """The file, as Helm or kustomize writes it."""
    files: tuple[str, ...]
    """The files in which a person may change the object, the best first."""
    chart: str = ""
    """The name of Helm's chart, with which all of them begin."""


def helm_template(text: str) -> str:
    """Return the template that Helm names in *text*, one document of its output; empty if it names none."""
    found = _HELM_SOURCE.findall(text)
    return found[-1] if found and found[-1].isprintable() else ""


def source_name(template: str, document: Json) -> SourceName | None:
    """Return where *document* comes from: Helm's *template*, unless empty, or what kustomize says."""
    if template:
        path = PurePosixPath(template)
        # The chart may depend on one in an archive.
        charts = (str(folder / _CHART) for folder in path.parents[:-1])
        return SourceName(template, (template, *charts), path.parts[0])
    metadata = document.get("metadata")
    annotations = metadata.get("annotations") if isinstance(metadata, dict) else None
    written = annotations.get(ORIGIN) if isinstance(annotations, dict) else None
    if not isinstance(written, str) or len(written) > _MAX_ANNOTATION_CHARS:
        return None
    for one in parse_yaml(written):
        origin = one.root if isinstance(one.root, dict) else {}
        name = origin.get("path") or origin.get("configuredIn")
        if isinstance(name, str) and len(name) <= _MAX_CHARS and name.isprintable():
            return SourceName(name, _KUSTOMIZATIONS if origin.get("repo") else (name, *_KUSTOMIZATIONS))
    return None


def not_rendered(file: str, text: str) -> str:
    """Return how to preview *file*, as the end of a message, if *text* is to be rendered; else nothing."""
    name = PurePosixPath(file).name
    if name in _KUSTOMIZATIONS:
        return "; this is a kustomization: preview what kustomize build prints"
    if name in (_CHART, "values.yaml") or "{{" in text:
        return "; this seems to be a part of a Helm chart: preview what helm template prints"
    return ""


def below_here(file: str | Path) -> str | None:
    """Return the path of *file* from the working directory on, links resolved; None if it is elsewhere."""
    found, here = Path(os.path.realpath(file)), Path(os.path.realpath("."))
    return found.relative_to(here).as_posix() if found.is_relative_to(here) else None


class SourceRoots:
    """The folders that Helm and kustomize rendered."""

    def __init__(self, folders: Sequence[str]) -> None:
        """Raises:
        GatewayError: one of *folders* is none.
        """
        for folder in folders:
            if not Path(folder).is_dir():
                raise GatewayError(f"--source-root {folder}: found no such folder")
        self._folders = [(Path(folder), _chart_in(Path(folder))) for folder in folders]
        """Each with the name of the chart that it is."""
        self.file = lru_cache(_MAX_KNOWN)(self._file)
        """Return the file of a name, from the working directory on; None if none is there."""

    def _file(self, named: SourceName) -> str | None:
        for candidate in self._candidates(named):
            found = below_here(candidate)
            if found is not None and os.path.isfile(found):  # noqa: PTH113 - never raises
                return found
        return None

    def _candidates(self, named: SourceName) -> Iterator[Path]:
        for name in named.files:
            for folder, chart in self._folders:
                yield folder / name
                if chart and chart == named.chart:
                    yield folder / name.removeprefix(f"{named.chart}/")


def _chart_in(folder: Path) -> str:
    """Return the name of the chart that *folder* is; empty if it is none."""
    try:
        with (folder / _CHART).open(encoding="utf-8", errors="replace") as stream:
            text = stream.read(_MAX_CHART_CHARS)
    except OSError:
        return ""
    roots = (one.root for one in parse_yaml(text))
    return next((str(root.get("name")) for root in roots if isinstance(root, dict)), "")
