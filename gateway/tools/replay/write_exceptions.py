"""Finds exceptions with which nothing is newly denied, and proves it before a file is written.

The law: the replay run again with the exceptions has nothing newly denied, and the decision on every other
review is the one that it was without them. What a webhook denies only after another one is left out is found
by the next pass.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gateway.base.errors import ConfigError
from gateway.config.merge.load import load
from gateway.tools.replay.cases import Found
from gateway.tools.replay.cover import cover
from gateway.tools.replay.denials import OWNER_LABELS, Denials, Observer
from gateway.tools.replay.exception_files import as_yaml, by_namespace
from gateway.tools.replay.report import Report

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence

    from gateway.config.merge.model import Config

    Pass = Callable[[Config, Observer, Found], Awaitable[None]]
    """Replays everything through a configuration."""

MAX_PASSES: Final = 10
_MAX_PROBLEMS: Final = 20


@dataclass(frozen=True, slots=True)
class Settings:
    """What the user chose."""

    file: Path
    days: int
    """Until the exceptions end."""
    max_percent: int
    """Of the traffic of a webhook, how much the exceptions may cover."""
    owner_label: str = ""
    """The label of namespaces that names who is responsible; empty for ``owner`` or else ``team``."""


@dataclass
class Written:
    """What came of it. Without ``problems`` the file is written, unless nothing is newly denied."""

    exceptions: int = 0
    denials: int = 0
    passes: int = 0
    problems: list[str] = field(default_factory=list)
    namespaces: list[dict[str, object]] = field(default_factory=list)
    """See ``by_namespace``."""

    def document(self, file: Path) -> dict[str, object]:
        """Return the JSON of it for the report."""
        problems = self.problems[:_MAX_PROBLEMS]
        if more := self.problems[_MAX_PROBLEMS:]:
            problems.append(f"and {len(more):,} more")
        return {
            "file": str(file) if self.exceptions and not problems else "",
            "exceptions": self.exceptions,
            "denials": self.denials,
            "passes": self.passes,
            "namespaces": self.namespaces,
            "problems": problems,
        }


async def write_exceptions(
    run: Pass, config: Config, paths: Sequence[Path], report: Report, found: Found, now: float, to: Settings
) -> Written:
    """Replay through *config*, of the files *paths*, into *report*, and write the exceptions.

    Raises:
        GatewayError, OSError: as *run*; the file cannot be written.
    """
    denials = Denials(owner_labels=(to.owner_label,) if to.owner_label else OWNER_LABELS)
    first = Observer(report, denials)
    await run(config, first, found)
    result = Written(denials=report.by_kind["newlyDenied"])
    if report.stopped:
        result.problems = [report.stopped]
    if report.stopped or not result.denials:
        return result
    while result.passes < MAX_PASSES:
        covered = cover(denials.groups)
        result.problems = [*_unusable(denials), *covered.problems, *_beyond(covered.shares, to.max_percent)]
        if result.problems:
            return result
        text = as_yaml(covered.drafts, denials, sum(found.left_out.values()), now, to.days)
        try:
            with_exceptions = _loaded(paths, text)
        except ConfigError as error:
            result.problems = [f"the exceptions are not valid: {problem}" for problem in error.problems]
            return result
        again, known = Observer(Report(), denials, first), len(denials.groups)
        await run(with_exceptions, again, Found())
        result.exceptions, result.passes = len(covered.drafts), result.passes + 1
        if again.stopped or (changes := again.changed_since()):
            result.problems = [again.stopped or changes]
            return result
        if not again.left:
            _write(to.file, text)
            result.namespaces = by_namespace(covered.drafts, denials)
            return result
        if len(denials.groups) == known:
            result.problems = [f"the exceptions that were found do not cover {again.left:,} of the reviews"]
            return result
    result.problems = [f"after {MAX_PASSES} passes, further webhooks deny what exceptions of others allowed"]
    return result


def _unusable(denials: Denials) -> Iterator[str]:
    for name, number in sorted(denials.failing.items()):
        yield f"{name} failed for {number:,} reviews that are newly denied: what it decides is not known"
    if denials.others:
        yield (
            f"{denials.others:,} reviews are of more owners, users and images than are compared: replay them "
            "by namespace, or change the policy"
        )


def _beyond(shares: dict[str, tuple[int, int]], most: int) -> list[str]:
    return [
        f"{name}: exceptions would cover {covered:,} of the {total:,} requests that it sees, more than "
        f"{most} %: change the policy, or see --exceptions-max-percent"
        for name, (covered, total) in shares.items()
        if covered * 100 > total * most
    ]


def _loaded(paths: Sequence[Path], text: str) -> Config:
    """Return the configuration of *paths* with the exceptions in *text*.

    Raises:
        ConfigError: they are not valid, or have names that others have.
    """
    with tempfile.TemporaryDirectory(prefix="admission-gateway-") as folder:
        file = Path(folder, "exceptions.yaml")
        file.write_text(text, "utf-8")
        return load([*paths, file])


def _write(file: Path, text: str) -> None:
    """Write *text* to a new *file*; nothing is left of it if that fails."""
    with file.open("x", encoding="utf-8") as opened:
        try:
            opened.write(text)
            opened.flush()
        except OSError:
            file.unlink()
            raise
