"""The result of one case, of whatever format its file is."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    Status = Literal["passed", "failed", "not supported", "skipped"]


@dataclass(frozen=True, slots=True)
class CaseResult:
    """The result of one case."""

    file: Path
    document: int
    """The index of its suite among those of the file."""
    suite: str
    name: str
    problems: tuple[str, ...] = ()
    """Lines of text. Empty if the case passed."""
    seconds: float = 0.0
    not_supported: str = ""
    """Why the gateway cannot run the case. Empty if it can."""
    is_skipped: bool = False
    """Whether the file says that the case is not to be run."""
    notes: tuple[str, ...] = ()
    """Lines about what is not part of the test and deserves a look."""

    @property
    def status(self) -> Status:
        """What came of the case."""
        if self.not_supported:
            return "not supported"
        if self.is_skipped:
            return "skipped"
        return "failed" if self.problems else "passed"


def is_selected(suite: str, case: str, filters: Sequence[str]) -> bool:
    """Whether *filters*, globs of ``CASE`` or ``SUITE/CASE``, select a case; without filters, all are."""
    names = (case, f"{suite}/{case}")
    return not filters or any(fnmatchcase(name, pattern) for pattern in filters for name in names)
