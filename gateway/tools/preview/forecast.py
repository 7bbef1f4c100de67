"""What a version of Kubernetes changes for the manifests of a preview: ``preview --kubernetes``."""

from __future__ import annotations

from collections import Counter
from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from gateway.config.kinds.gateway_configuration import NEWEST_VERSION, has_go_types
from gateway.tools.forecast.findings import Finding, limits, of_config, of_object
from gateway.tools.preview.manifests import Unreadable
from gateway.tools.preview.model import Previewed
from gateway.tools.preview.text import number_of

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterable, Iterator

    from gateway.config.merge.model import Config
    from gateway.tools.preview.manifests import Manifest

MAX_FINDINGS: Final = 1000
"""That are shown; more are counted."""


_LEVELS: Final = ("error", "warning", "note")


class Forecast:
    """Findings for one version."""

    def __init__(self, kubernetes: int) -> None:
        self.kubernetes: Final = kubernetes
        self._findings: list[Finding] = []
        self._counts: Counter[str] = Counter()
        self._add(limits(kubernetes))

    @property
    def errors(self) -> int:
        """How many things the version refuses or no longer does."""
        return self._counts["error"]

    def add_config(self, config: Config) -> None:
        """Take what changes for *config*."""
        self._add(of_config(config, self.kubernetes))

    def add_object(self, found: Manifest | Unreadable) -> None:
        """Take what changes for an object of the input."""
        if not isinstance(found, Unreadable):
            self._add(of_object(str(found.place()), found.object, self.kubernetes))

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
                    self._add(self._different(one, other))

    def _different(self, one: Previewed, other: Previewed) -> Iterator[Finding]:
        for before, after in zip(one.objects, other.objects, strict=False):
            texts = [sorted({each.message for each in of.findings}) for of in (before, after)]
            if before.result != after.result or texts[0] != texts[1] or before.changes != after.changes:
                said = f"{before.result}, and {after.result} in 1.{self.kubernetes}"
                changed = "" if before.result != after.result else ", with other messages or changes"
                why = "".join(f"; {text}" for text in texts[1] if text not in texts[0])
                where = f"{one.manifest.place()}: {before.name}"
                yield Finding("warning", where, f"it is {said}{changed}{why}")

    def _add(self, found: Iterable[Finding]) -> None:
        for one in found:
            self._counts[one.level] += 1
            if len(self._findings) < MAX_FINDINGS:
                self._findings.append(one)

    def lines(self) -> Iterator[str]:
        """Yield the findings for people, and their numbers."""
        yield from (one.line() for one in self._findings)
        left = sum(self._counts.values()) - len(self._findings)
        more = f"; {left:,} are not shown" if left else ""
        counts = ", ".join(number_of(self._counts[level], level) for level in _LEVELS)
        yield f"Kubernetes 1.{self.kubernetes}: {counts}{more}"

    def document(self) -> dict[str, Any]:
        """Return the findings as JSON, to be part of a report."""
        return {
            "forecast": {
                "kubernetes": f"1.{self.kubernetes}",
                "findings": [one.document() for one in self._findings],
                "counts": {level: self._counts[level] for level in _LEVELS},
            }
        }
