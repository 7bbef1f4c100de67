"""What a version of Kubernetes changes for the manifests of a preview: ``preview --kubernetes``."""

from __future__ import annotations

import hashlib
from collections import Counter
from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from gateway.base.report_lines import number_of
from gateway.config.kinds.gateway_configuration import NEWEST_VERSION, has_go_types
from gateway.config.yaml.field_paths import parse_field
from gateway.tools.forecast.findings import Finding, limits, of_config, of_object
from gateway.tools.preview.manifests import Input, Manifest, Place, Unreadable
from gateway.tools.preview.model import Previewed

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
    from pathlib import Path

    from gateway.config.merge.model import Config

MAX_FINDINGS: Final = 1000
"""That are shown; more are counted."""
_LEVELS: Final = ("error", "warning", "note")


class Placed(NamedTuple):
    """A finding with its place."""

    finding: Finding
    place: Place | None
    """In a manifest, or in a file of the configuration. None if it is about neither."""

    def line(self) -> str:
        """Return it as one line for people."""
        return self.finding.line(str(self.place or ""))

    def document(self) -> dict[str, Any]:
        """Return it as JSON."""
        place = self.place
        where = {} if place is None else {"file": place.file, "line": place.line, "column": place.column}
        return {**self.finding.document(), **where}

    def fingerprint(self) -> str:
        """Return what stays equal if lines move or the message has other words."""
        one = self.finding
        text = "|".join((one.rule, one.where, one.field, *one.source))
        return hashlib.sha256(text.encode(errors="replace")).hexdigest()[:16]


class Forecast:
    """Findings for one version."""

    def __init__(self, kubernetes: int) -> None:
        self.kubernetes: Final = kubernetes
        self.findings: list[Placed] = []
        """At most ``MAX_FINDINGS``."""
        self._counts: Counter[str] = Counter()
        self._add(limits(kubernetes), None)

    @property
    def left_out(self) -> int:
        """How many findings are not shown."""
        return self._counts.total() - len(self.findings)

    @property
    def errors(self) -> int:
        """How many things the version refuses or no longer does."""
        return self._counts["error"]

    def add_config(self, config: Config, paths: Sequence[Path]) -> None:
        """Take what changes for *config*, which is in the files and folders *paths*."""
        found = [*of_config(config, self.kubernetes)]
        for one, place in zip(found, _places(found[:MAX_FINDINGS], paths), strict=False):
            self._add([one], place)
        for one in found[MAX_FINDINGS:]:
            self._add([one], None)

    def add_object(self, found: Manifest | Unreadable) -> None:
        """Take what changes for an object of the input."""
        if not isinstance(found, Unreadable):
            for one in of_object(found.object, self.kubernetes):
                place = found.place() if one.field == "apiVersion" else found.place(parse_field(one.field))
                self._add([one], place)

    def config_of_answers(self, config: Config) -> Config | None:
        """Return *config* for the version; None if all expressions answer there as they do now."""
        if has_go_types(self.kubernetes) == config.gateway.has_go_types:
            return None
        version = f"1.{min(self.kubernetes, int(NEWEST_VERSION.partition('.')[2]))}"
        return replace(config, gateway=replace(config.gateway, kubernetes_version=version))

    async def add_answers(
        self,
        now: AsyncGenerator[Previewed | Unreadable],
        later: AsyncGenerator[Previewed | Unreadable],
    ) -> None:
        """Compare the answers about the same input, now and by the version.

        Raises:
            ClusterError: the cluster is needed, and cannot be reached.
        """
        async with aclosing(now), aclosing(later):
            async for one in now:
                other = await anext(later)
                if isinstance(one, Previewed) and isinstance(other, Previewed):
                    self._add(self._different(one, other), one.manifest.place())

    def _different(self, one: Previewed, other: Previewed) -> Iterator[Finding]:
        for before, after in zip(one.objects, other.objects, strict=False):
            texts = [sorted({each.message for each in of.findings}) for of in (before, after)]
            if before.result != after.result or texts[0] != texts[1] or before.changes != after.changes:
                said = f"{before.result}, and {after.result} in 1.{self.kubernetes}"
                changed = "" if before.result != after.result else ", with other messages or changes"
                why = "".join(f"; {text}" for text in texts[1] if text not in texts[0])
                message = f"it is {said}{changed}{why}"
                yield Finding("warning", "forecast-answer", str(before.name), message)

    def _add(self, found: Iterable[Finding], place: Place | None) -> None:
        for one in found:
            self._counts[one.level] += 1
            if len(self.findings) < MAX_FINDINGS:
                self.findings.append(Placed(one, place))

    def lines(self) -> Iterator[str]:
        """Yield the findings for people, and their numbers."""
        yield from (one.line() for one in self.findings)
        yield self.summary()

    def summary(self) -> str:
        """Return the numbers of the findings as one line."""
        more = f"; {self.left_out:,} are not shown" if self.left_out else ""
        counts = ", ".join(number_of(self._counts[level], level) for level in _LEVELS)
        return f"Kubernetes 1.{self.kubernetes}: {counts}{more}"

    def document(self) -> dict[str, Any]:
        """Return the findings as JSON, to be part of a report."""
        return {
            "forecast": {
                "kubernetes": f"1.{self.kubernetes}",
                "findings": [one.document() for one in self.findings],
                "counts": {level: self._counts[level] for level in _LEVELS},
            }
        }


def _places(findings: Sequence[Finding], paths: Sequence[Path]) -> list[Place | None]:
    """Return where each of *findings* is in the files *paths*; their begin if it is not found."""
    names = {one.source[:2] for one in findings}
    documents: dict[tuple[object, object], Manifest] = {}
    first: Place | None = None
    for found in Input([str(path) for path in paths]).read() if findings else ():
        if isinstance(found, Manifest):
            first = first or Place(found.file)
            metadata = found.object.get("metadata")
            name = metadata.get("name") if isinstance(metadata, dict) else None
            if (key := (found.object.get("kind"), name)) in names:
                documents.setdefault(key, found)
    begin = first or Place(str(paths[0]) if paths else "")
    return [
        (document.place(_path(one, document)) if (document := documents.get(one.source[:2])) else begin)
        if any(one.source)
        else None
        for one in findings
    ]


def _path(finding: Finding, document: Manifest) -> tuple[str | int, ...]:
    """Return the path of *finding* in *document*."""
    path, name = parse_field(finding.field), finding.source[2]
    webhooks = document.object.get("webhooks")
    for index, one in enumerate(webhooks if name and isinstance(webhooks, list) else ()):
        if isinstance(one, dict) and one.get("name") == name:
            return ("webhooks", index, *path)
    return path
