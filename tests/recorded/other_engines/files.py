"""The files of recorded answers, with their engines and cases."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.recorded.other_engines import cel_rules, constraints, drawn, extraction, mutating, validating

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from tests.recorded.other_engines.cases import Case

FILES: Final[Mapping[Path, tuple[str, Sequence[Case]]]] = {
    validating.FILE: ("kyverno", validating.CASES),
    drawn.FILE: ("kyverno", drawn.CASES),
    extraction.FILE: ("kyverno", extraction.CASES),
    mutating.FILE: ("kyverno", mutating.CASES),
    cel_rules.FILE: ("kyverno", cel_rules.CASES),
    constraints.FILE: ("gatekeeper", constraints.CASES),
}
